//! The audit log: logins, failed logins, refusals, and changes by administrators.
//!
//! Owns: a thread, a file of JSON lines, and its rotation by size and age. The log is off unless a
//! file is configured. Invariants:
//! - no caller waits, least of all a worker: events go through a bounded queue; events that do not
//!   fit are dropped and counted, and the thread writes that count first when there is space again;
//! - names of users stand between `<ud>` and `</ud>`; passwords, keys and values never reach the
//!   log;
//! - unauthenticated events (refusals, failed logins) pass an [`AuditGate`] first, so they cannot
//!   push other events out of the kept files.
//!
//! The server's log reports a failed write, and the next event repeats it. Callers: the SASL
//! handshake, the dispatcher, the admin HTTP, the server's start, the workers' scans for changed
//! users.

mod gate;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use oribi_system::clock::wall_clock;
use oribi_types::Timestamp;
use serde_json::{Map, Value, json};

use crate::redaction::redacted;
pub use gate::AuditGate;

/// Events that wait to be written, some 200 bytes each.
const QUEUE_MAX: usize = 8 * 1024;

/// Events written with one system call.
const BATCH_MAX: usize = 64;

/// Place and limits of the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditOptions {
    /// The current file; older files have the suffix `.1`, `.2` and so on.
    pub path: PathBuf,
    /// Largest size of a file.
    pub file_bytes_max: u64,
    /// Largest age of a file.
    pub file_age_max: Duration,
    /// Older files to keep.
    pub files_max: usize,
}

/// The origin of an event.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    /// The user; empty when unknown.
    pub user: String,
    /// Number of the connection, as in the statistics; `None` over HTTP.
    pub connection: Option<u64>,
    /// The client's address, where it is known.
    pub peer: Option<SocketAddr>,
}

#[derive(Debug)]
pub enum Event {
    Authenticated,
    AuthenticationFailed,
    /// A request was refused for lack of rights.
    Refused {
        request: String,
        context: String,
    },
    /// A request that changes something over the admin HTTP.
    Admin {
        request: String,
        /// Status of the answer.
        status: u16,
    },
    /// Number of refusals and failed logins that were left out because of others in the same
    /// second.
    LeftOut(u64),
    /// The users file was reloaded.
    UsersChanged,
    /// The server started with these settings.
    Started(Map<String, Value>),
    Stopping,
}

enum Message {
    Event(Timestamp, Actor, Event),
    Stop,
}

/// Accepts events; ignores them when the log is off.
#[derive(Debug, Default)]
pub struct AuditLog {
    sender: Option<SyncSender<Message>>,
    dropped: Arc<AtomicU64>,
    users_generation: AtomicU64,
}

/// The thread that writes the log.
#[derive(Debug)]
pub struct AuditThread {
    sender: SyncSender<Message>,
    thread: JoinHandle<()>,
}

impl AuditLog {
    /// Opens the file and starts the thread.
    pub fn start(options: AuditOptions) -> io::Result<(AuditLog, AuditThread)> {
        let file = AuditFile::open(options)?;
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let log = AuditLog { sender: Some(sender.clone()), ..AuditLog::default() };
        let dropped = Arc::clone(&log.dropped);
        let write = move || write_all(file, &receiver, &dropped);
        let thread = oribi_supervisor::spawn("oribi-audit", write)?;
        Ok((log, AuditThread { sender, thread }))
    }

    /// True when events are written; otherwise callers need not build them.
    pub fn is_on(&self) -> bool {
        self.sender.is_some()
    }

    /// Hands an event to the thread, or drops it when the queue is full.
    pub fn record(&self, actor: Actor, event: Event) {
        let Some(sender) = &self.sender else { return };
        if sender.try_send(Message::Event(wall_clock(), actor, event)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a change of the users, once for all workers that notice it.
    pub fn note_users(&self, generation: u64) {
        if self.users_generation.swap(generation, Ordering::Relaxed) != generation {
            self.record(Actor::default(), Event::UsersChanged);
        }
    }

    /// Events that were lost because the disk was too slow, or failed.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl AuditThread {
    /// Writes the queued events and ends the thread.
    pub fn stop(self) {
        // The thread ends only on this message, so it receives it.
        let is_told = self.sender.send(Message::Stop).is_ok();
        if !is_told || self.thread.join().is_err() {
            tracing::error!("the audit log ended early");
        }
    }
}

fn write_all(mut file: AuditFile, receiver: &Receiver<Message>, dropped: &AtomicU64) {
    let mut reported = 0;
    let mut is_failing = false;
    while let Ok(first) = receiver.recv() {
        let (mut lines, mut count, mut stops) = (String::new(), 0, false);
        let lost = dropped.load(Ordering::Relaxed);
        if lost != reported {
            let lost_now = lost.wrapping_sub(reported);
            let time = time_of(wall_clock());
            let event = json!({ "time": time, "event": "events lost", "count": lost_now });
            push_line(&mut lines, &event);
        }
        for message in std::iter::once(first).chain(receiver.try_iter().take(BATCH_MAX)) {
            match message {
                Message::Stop => stops = true,
                Message::Event(at, actor, event) => {
                    push_line(&mut lines, &describe(at, &actor, event));
                    count += 1;
                }
            }
        }
        match file.append(lines.as_bytes()) {
            Ok(()) => (reported, is_failing) = (lost, false),
            Err(error) => {
                dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut is_failing, true) {
                    let path = file.options.path.display();
                    tracing::error!(%error, %path, "cannot write the audit log");
                }
            }
        }
        if stops {
            return;
        }
    }
}

fn push_line(lines: &mut String, event: &Value) {
    lines.push_str(&event.to_string());
    debug_assert!(!lines.ends_with('\n'), "an event is one line");
    lines.push('\n');
}

/// Seconds since 1970 with milliseconds, which every tool can parse.
fn time_of(at: Timestamp) -> f64 {
    (at.unix_ns / 1_000_000) as f64 / 1_000.0
}

fn describe(at: Timestamp, actor: &Actor, event: Event) -> Value {
    let mut line = Map::new();
    let mut put = |name: &str, value: Value| line.insert(name.to_owned(), value);
    put("time", time_of(at).into());
    let name = match &event {
        Event::Authenticated => "authentication succeeded",
        Event::AuthenticationFailed => "authentication failed",
        Event::Refused { .. } => "access refused",
        Event::Admin { .. } => "admin request",
        Event::LeftOut(_) => "events left out",
        Event::UsersChanged => "users changed",
        Event::Started(_) => "server started",
        Event::Stopping => "server stops",
    };
    put("event", name.into());
    if !actor.user.is_empty() {
        put("user", redacted(actor.user.as_bytes()).into());
    }
    if let Some(connection) = actor.connection {
        put("connection", connection.into());
    }
    if let Some(peer) = actor.peer {
        put("peer", peer.to_string().into());
    }
    match event {
        Event::Refused { request, context } => {
            put("request", request.into());
            put("context", context.into());
        }
        Event::Admin { request, status } => {
            put("request", request.into());
            put("status", status.into());
        }
        Event::LeftOut(count) => {
            put("count", count.into());
        }
        Event::Started(settings) => {
            put("settings", settings.into());
        }
        _ => {}
    }
    line.into()
}

struct AuditFile {
    options: AuditOptions,
    file: File,
    bytes: u64,
    since: SystemTime,
}

impl AuditFile {
    fn open(options: AuditOptions) -> io::Result<AuditFile> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&options.path)?;
        let metadata = file.metadata()?;
        // If the file system has no creation time, the file counts as old as this process.
        let since = metadata.created().unwrap_or_else(|_| SystemTime::now());
        Ok(AuditFile { options, file, bytes: metadata.len(), since })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let age = SystemTime::now().duration_since(self.since).unwrap_or_default();
        let is_full = self.bytes + lines.len() as u64 > self.options.file_bytes_max;
        if self.bytes > 0 && (is_full || age > self.options.file_age_max) {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Renames the file and the older ones to the next number, deletes the oldest, and starts a new
    /// file.
    fn rotate(&mut self) -> io::Result<()> {
        let path = &self.options.path;
        for number in (0..self.options.files_max).rev() {
            let (from, to) = (numbered(path, number), numbered(path, number + 1));
            match fs::rename(from, to) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        if self.options.files_max == 0 {
            fs::remove_file(path)?;
        }
        *self = AuditFile::open(self.options.clone())?;
        self.since = SystemTime::now();
        Ok(())
    }
}

/// Path of the current file (0), or of the one rotated `number` times.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if number > 0 {
        name.push(format!(".{number}"));
    }
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
