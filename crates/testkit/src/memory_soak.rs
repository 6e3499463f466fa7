//! A memory soak: loads a server in every way that could make it grow, and checks its resident set.
//!
//! Owns: the run. A server process gets buckets of several sizes, storages and eviction policies. A
//! client for each writes, deletes and reads as fast as the server answers, and changes the sizes
//! of its documents every other second. Some buckets hold a part of their quota, others receive
//! several times as much. Hostile clients request answers that they do not read and announce
//! requests that they do not finish (`hostile.rs`). All the while the resident set of the process
//! has to stay within the promised limit: the quotas, a tenth of them, and 64 MiB. Callers: the
//! tests of the server, and `cargo xtask soak memory`, which adds a bucket on Kudu with outages if
//! Kudu is installed. Readers of every kind follow large documents that are overwritten
//! (`readers.rs`).

mod hostile;
mod readers;
mod shared;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use oribi_protocol::status::Status;
use oribi_tls::testing::{Authority, Owner};

use crate::raw_connection::Request;
use crate::{Random, ServerOptions, ServerProcess};
use shared::{SoakShared, connect};

const MIB: u64 = 1 << 20;
/// Interval of memory checks.
const LOOK: Duration = Duration::from_millis(10);
/// How long a client keeps one size of documents.
const PHASE: Duration = Duration::from_secs(2);
/// Longest values of the phases, in bytes; each bucket starts with another phase.
const VALUE_BYTES_MAX: [u64; 7] = [500, 32 << 10, 4000, 200_000, 100, 16 << 10, 1 << 20];
/// Requests and bytes that a client has in flight.
const BATCH_REQUESTS: usize = 64;
const BATCH_BYTES: usize = 512 << 10;

/// A bucket of the run.
#[derive(Clone, Debug)]
pub struct BucketPlan {
    /// Name; `default` exists from the start.
    pub name: String,
    pub quota_mib: u64,
    /// `log`, `memory`, or the URL of a Kudu table.
    pub storage: String,
    /// `valueOnly`, `fullEviction`, `noEviction` or `nruEviction`.
    pub eviction: String,
    /// Size of the documents of one phase, in per cent of the quota.
    pub fill_percent: u64,
}

impl BucketPlan {
    /// A bucket called `name`.
    pub fn new(name: &str, quota_mib: u64, storage: &str) -> BucketPlan {
        let eviction = if storage == "memory" { "nruEviction" } else { "fullEviction" };
        BucketPlan {
            name: name.to_owned(),
            quota_mib,
            storage: storage.to_owned(),
            eviction: eviction.to_owned(),
            fill_percent: 30,
        }
    }

    /// Sets the eviction policy.
    pub fn eviction(self, name: &str) -> BucketPlan {
        BucketPlan { eviction: name.to_owned(), ..self }
    }

    /// Sets how much of its quota the bucket is to hold.
    pub fn filled_to(self, fill_percent: u64) -> BucketPlan {
        BucketPlan { fill_percent, ..self }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct MemorySoakOptions {
    /// The server, on a directory that belongs to the test.
    pub server: ServerOptions,
    pub buckets: Vec<BucketPlan>,
    /// Clients of each hostile kind.
    pub hostile: usize,
    /// Stalled readers of each kind, next to readers that read documents of 0 B to 20 MiB; `None`
    /// for no readers at all.
    pub stalled_readers: Option<usize>,
    /// How long the load lasts.
    pub duration: Duration,
    /// Decides sizes and keys.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemorySoakReport {
    /// Requests that were answered.
    pub answered: u64,
    /// Of these, refused temporarily, and refused for lack of memory.
    pub refused: u64,
    /// Connections of hostile clients that were opened.
    pub hostile_opened: u64,
    /// Of these, ended by the server.
    pub hostile_ended: u64,
    /// Kinds of readers that read all documents at least once.
    pub readers_finished: u64,
    /// Largest resident set, in bytes.
    pub resident_bytes_max: u64,
    /// The promised limit, in bytes.
    pub promised_bytes: u64,
}

/// Starts a server and loads it. `tick` is called every few milliseconds with the time since the
/// load began, and may break what the server depends on.
///
/// # Errors
/// The resident set exceeds the promised limit, or the server answers wrongly.
pub fn run(
    options: &MemorySoakOptions,
    tick: &mut dyn FnMut(Duration) -> Result<()>,
) -> Result<MemorySoakReport> {
    let mut server = start(options)?;
    let quotas = options.buckets.iter().map(|bucket| bucket.quota_mib * MIB).sum::<u64>();
    let mut report = MemorySoakReport {
        promised_bytes: quotas + quotas / 10 + 64 * MIB,
        ..MemorySoakReport::default()
    };
    let shared = SoakShared {
        server: &server,
        program: options.server.program(),
        is_over: AtomicBool::new(false),
        answered: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        passes: AtomicU64::new(0),
        hostile_opened: AtomicU64::new(0),
        hostile_ended: AtomicU64::new(0),
        failure: Mutex::new(None),
    };
    std::thread::scope(|scope| {
        let mut random = Random::new(options.seed);
        for (number, plan) in options.buckets.iter().enumerate() {
            let (shared, random) = (&shared, random.fork());
            scope.spawn(move || {
                let load = Load { plan, random, phase: number };
                load.run(shared).unwrap_or_else(|error| shared.fail(error));
            });
        }
        if options.hostile > 0 {
            scope.spawn(|| hostile::run(&shared, options.hostile));
        }
        if let Some(stalled) = options.stalled_readers {
            let (shared, random) = (&shared, random.fork());
            scope.spawn(move || {
                readers::run(shared, stalled, random).unwrap_or_else(|error| shared.fail(error));
            });
        }
        watch(&shared, options, tick, &mut report).unwrap_or_else(|error| shared.fail(error));
        shared.is_over.store(true, Ordering::Relaxed);
    });
    report.answered = shared.answered.load(Ordering::Relaxed);
    report.refused = shared.refused.load(Ordering::Relaxed);
    report.readers_finished = shared.passes.load(Ordering::Relaxed);
    report.hostile_opened = shared.hostile_opened.load(Ordering::Relaxed);
    report.hostile_ended = shared.hostile_ended.load(Ordering::Relaxed);
    let failure = shared.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    if let Some(error) = failure {
        return Err(error.context(format!("{report:?}")));
    }
    if !server.terminate()?.success() {
        bail!("the server did not stop in order:\n{}", server.output());
    }
    Ok(report)
}

fn start(options: &MemorySoakOptions) -> Result<ServerProcess> {
    let [first, others @ ..] = &options.buckets[..] else { bail!("a run has a bucket at least") };
    let server = options
        .server
        .clone()
        .setting("memory-quota-mib", first.quota_mib)
        .setting("storage", &first.storage)
        .setting("eviction", setting_name(&first.eviction));
    // The admin HTTP takes no quota below 100 MiB.
    let directory = tempfile::tempdir()?;
    let init = directory.path().join("init.toml");
    std::fs::write(&init, others.iter().map(init_entry).collect::<String>())?;
    let server = match options.stalled_readers {
        Some(_) => with_tls(server)?,
        None => server,
    };
    ServerProcess::start(server.setting("init", init.display()))
}

/// The same server with TLS, for the readers that use it. The certificate lies next to the data
/// directory, because a running server reads it again.
fn with_tls(server: ServerOptions) -> Result<ServerOptions> {
    let place = |name: &str| server.data_dir().with_file_name(name);
    let (certificate, key) = (place("soak.pem"), place("soak.key"));
    Authority::new("soak").issue(&Owner::server("localhost")).write(&certificate, &key);
    Ok(server
        .setting("tls-certificate", certificate.display())
        .setting("tls-key", key.display())
        .setting("tls-port", 0)
        .setting("tls-admin-port", 0))
}

/// A bucket in the file of `--init`.
fn init_entry(plan: &BucketPlan) -> String {
    let BucketPlan { name, quota_mib, storage, .. } = plan;
    let eviction = setting_name(&plan.eviction);
    format!(
        "[[bucket]]\nname = {name:?}\nstorage = {storage:?}\nmemory_quota_mib = {quota_mib}\n\
         eviction = {eviction:?}\n"
    )
}

/// The server's setting for an eviction policy of the admin interface.
fn setting_name(http_name: &str) -> &str {
    match http_name {
        "valueOnly" => "value",
        "fullEviction" => "full",
        "nruEviction" => "nru",
        _ => "none",
    }
}

/// Watches the resident set until the time is over.
fn watch(
    shared: &SoakShared<'_>,
    options: &MemorySoakOptions,
    tick: &mut dyn FnMut(Duration) -> Result<()>,
    report: &mut MemorySoakReport,
) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < options.duration && !shared.is_over() {
        let resident = shared.server.resident_bytes()?;
        report.resident_bytes_max = report.resident_bytes_max.max(resident);
        if resident > report.promised_bytes {
            bail!(
                "{} MiB are resident after {:.1} s, {} were promised",
                resident / MIB,
                begun.elapsed().as_secs_f64(),
                report.promised_bytes / MIB
            );
        }
        tick(begun.elapsed())?;
        std::thread::park_timeout(LOOK);
    }
    Ok(())
}

/// The client of one bucket.
struct Load<'a> {
    plan: &'a BucketPlan,
    random: Random,
    /// The phase that it starts with.
    phase: usize,
}

impl Load<'_> {
    fn run(mut self, shared: &SoakShared<'_>) -> Result<()> {
        let mut connection = connect(shared.server.port(), &self.plan.name)?;
        let noise: Vec<u8> = (0..1 << 21).map(|_| self.random.below(256) as u8).collect();
        let begun = Instant::now();
        while !shared.is_over() {
            let phases = begun.elapsed().as_secs() / PHASE.as_secs();
            let longest = VALUE_BYTES_MAX[(self.phase + phases as usize) % VALUE_BYTES_MAX.len()];
            let requests = self.batch(longest, &noise);
            connection.send_all(&requests.iter().collect::<Vec<_>>())?;
            for _ in requests {
                let status = connection.receive()?.status();
                shared.answered.fetch_add(1, Ordering::Relaxed);
                match status {
                    Status::Success | Status::KeyEnoent => {}
                    Status::Etmpfail | Status::Enomem | Status::Ebusy => {
                        shared.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    status => bail!("bucket {} answers {status:?}", self.plan.name),
                }
            }
        }
        Ok(())
    }

    fn batch(&mut self, longest: u64, noise: &[u8]) -> Vec<Request> {
        let documents = (self.plan.quota_mib * MIB * self.plan.fill_percent / 100) / (longest / 2);
        let (mut requests, mut bytes) = (Vec::new(), 0);
        while requests.len() < BATCH_REQUESTS && bytes < BATCH_BYTES {
            let key = self.random.below(documents.max(1)).to_string();
            let value_bytes = self.random.below(longest + 1) as usize;
            let from = self.random.below((noise.len() - value_bytes) as u64) as usize;
            requests.push(match self.random.below(8) {
                0 | 1 => {
                    bytes += value_bytes;
                    Request::get(key)
                }
                2 => Request::delete(key),
                _ => {
                    bytes += value_bytes;
                    Request::set(key, &noise[from..from + value_bytes])
                }
            });
        }
        requests
    }
}
