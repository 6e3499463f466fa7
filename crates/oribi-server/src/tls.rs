//! How the server speaks TLS: the configuration in force, its replacement, and whom certificates stand for.
//!
//! Owns: the configuration that new connections get, and the thread that looks every two seconds whether the
//! files it was made from are others. Invariants: a replacement is checked whole before it counts, and one
//! that cannot be used, or whose certificate has expired, is refused with a log line while the old one goes
//! on; connections keep what they began with. Callers: workers and the admin HTTP (new connections), the
//! `oribi` binary (SIGHUP) and an admin route (reload). The protocol itself is `oribi_tls`'s.

mod name_rule;
#[cfg(test)]
pub(crate) mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use oribi_tls::Session;
use oribi_tls::certificate;
use oribi_tls::files::FileError;
use oribi_tls::server::{ClientCertificates, ServerOptions, ServerTls};
use parking_lot::Mutex;

use crate::auth::{Identity, UserStore};
use crate::worker::wall_clock;
pub use name_rule::{NameRule, NameRuleError};

/// How often the files are looked at.
const POLL: Duration = Duration::from_secs(2);

/// At most one failure is logged in this time; the others are counted.
const FAILURE_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Why new files are not used.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// They cannot be.
    #[error(transparent)]
    Files(#[from] FileError),
    /// No client would accept the certificate.
    #[error("{0}: the certificate has expired")]
    Expired(String),
}

/// Whom a client's certificate stands for.
#[derive(Debug)]
pub enum Certified {
    /// It has none, or one that names no user, and may authenticate by other means.
    Nobody,
    /// This user.
    User(Arc<Identity>),
    /// Nobody, and clients have to be somebody.
    Refused,
}

/// Inode, size and modification time of a file; `None` when it is not there.
type FileStamp = Option<(u64, u64, i64, i64)>;

/// See the module text.
pub struct Tls {
    options: ServerOptions,
    rules: Vec<NameRule>,
    current: ArcSwap<ServerTls>,
    /// Of the files that were looked at last, in the order of [`ServerOptions::paths`].
    stamps: Mutex<Vec<FileStamp>>,
    failure_log: Mutex<FailureLog>,
}

#[derive(Default)]
struct FailureLog {
    last: Option<Instant>,
    suppressed: u64,
}

/// The running look-out for other files. Dropping it ends it.
pub(crate) struct FileWatch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(options: ServerOptions, rules: Vec<NameRule>) -> Result<Tls, FileError> {
        // Taken first, so that a change in between is seen as one.
        let stamps = stamps(&options);
        let current = options.load()?;
        if has_expired(&current) {
            tracing::warn!(certificate = %options.certificate.display(), "the certificate has expired");
        }
        Ok(Tls {
            options,
            rules,
            current: ArcSwap::from_pointee(current),
            stamps: Mutex::new(stamps),
            failure_log: Mutex::default(),
        })
    }

    /// The configuration that new connections get.
    pub fn current(&self) -> Arc<ServerTls> {
        self.current.load_full()
    }

    /// The server's end of a new connection.
    pub(crate) fn session(&self) -> Result<Session, oribi_tls::Error> {
        Session::server(Arc::clone(&self.current.load().config))
    }

    /// Makes new connections use what the files hold now.
    ///
    /// # Errors
    /// Why that cannot be used; everything stays as it is.
    pub fn reload(&self) -> Result<(), ReloadError> {
        let mut last = self.stamps.lock();
        *last = stamps(&self.options);
        self.replace()
    }

    /// The same if the files are others than they were, with the outcome in the log.
    pub(crate) fn reload_if_changed(&self) {
        let mut last = self.stamps.lock();
        let now = stamps(&self.options);
        if *last != now {
            *last = now;
            // Logged there.
            let _ = self.replace();
        }
    }

    fn replace(&self) -> Result<(), ReloadError> {
        let path = self.options.certificate.display();
        let loaded = self.options.load().map_err(ReloadError::from).and_then(|new| {
            let expired = || ReloadError::Expired(path.to_string());
            if has_expired(&new) { Err(expired()) } else { Ok(new) }
        });
        match loaded {
            Ok(new) => {
                let not_after_unix_s = new.certificate.not_after_unix_s;
                tracing::info!(certificate = %path, not_after_unix_s, "TLS certificates reloaded");
                self.current.store(Arc::new(new));
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "TLS goes on with the certificates loaded before");
                Err(error)
            }
        }
    }

    /// Whom the certificate of a client stands for. Its chain was verified in the handshake.
    pub(crate) fn certified(&self, certificate: Option<&[u8]>, users: &UserStore) -> Certified {
        let found = certificate.and_then(|der| {
            let certificate = certificate::read(der).ok()?;
            let name = name_rule::user(&self.rules, &certificate)?;
            let user = users.certified(name);
            if user.is_none() {
                tracing::info!(?name, "a client's certificate names a user that does not exist");
            }
            user
        });
        match found {
            Some(identity) => Certified::User(identity),
            None if self.options.client_certificates == ClientCertificates::Mandatory => {
                Certified::Refused
            }
            None => Certified::Nobody,
        }
    }

    /// Whether a failed handshake should be logged, and then how many were not since the last one.
    pub(crate) fn may_log_failure(&self) -> Option<u64> {
        let mut log = self.failure_log.lock();
        let now = Instant::now();
        if log.last.is_some_and(|last| now.duration_since(last) < FAILURE_LOG_PAUSE) {
            log.suppressed += 1;
            return None;
        }
        log.last = Some(now);
        Some(std::mem::take(&mut log.suppressed))
    }
}

impl FileWatch {
    /// Looks from now on whether the files are others.
    pub fn start(tls: Arc<Tls>) -> std::io::Result<FileWatch> {
        let (stop, stopped) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("oribi-tls-files".to_owned()).spawn(move || {
                while stopped.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                    tls.reload_if_changed();
                }
            })?;
        Ok(FileWatch { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.stop = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the look-out for certificates panicked");
        }
    }
}

fn has_expired(tls: &ServerTls) -> bool {
    tls.certificate.not_after_unix_s < i64::from(wall_clock().unix_s())
}

fn stamps(options: &ServerOptions) -> Vec<FileStamp> {
    options.paths().map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> FileStamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
