//! The threads of a bucket: a flusher, a pager, a fetcher, and loaders while it warms up.
//!
//! Owns: when steps run. Each step itself is in [`crate::flusher`] and [`crate::warmup`]. The flusher
//! sleeps until there is something to write, lets writes gather for the bucket's flush interval
//! unless somebody waits for durability, and backs off after a failed commit. This driver is the one
//! place of the engine that reads a clock, and it hands the readings to the steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oribi_storage::StoreError;
use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::stats::WarmupStats;
use crate::tasks::Task;
use crate::warmup::WarmupStep;

/// How often memory and queue are looked at while there is traffic.
const PRESSURE_REVIEW: Duration = Duration::from_millis(100);
/// Pause after the first failed commit, doubled up to the last value.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);
/// How often the pager looks at memory when nobody wakes it.
const PAGER_IDLE: Duration = Duration::from_secs(1);
/// Pause of a pager that found everything in use or not durable yet.
const PAGER_STUCK: Duration = Duration::from_millis(10);
/// How often the purger looks whether it is time.
const PURGER_IDLE: Duration = Duration::from_secs(10);
/// Failed commits in a row after which a stopping bucket gives up.
const STOP_TRIES: u32 = 3;
/// Time between two lines about the progress of warmup.
const WARMUP_REPORT: Duration = Duration::from_secs(1);
/// Threads that load at the same time; more only contend for the same disk.
const LOADERS_MAX: usize = 4;
/// How often a loader of a shared store looks for work when nobody wakes it.
const LOADER_IDLE: Duration = Duration::from_secs(1);
/// Pause after a vbucket of a shared store could not be read.
const LOADER_RETRY: Duration = Duration::from_millis(500);

/// Running threads of one bucket.
pub struct BucketThreads {
    bucket: Arc<Bucket>,
    stop: Arc<AtomicBool>,
    flusher: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
    loaders: Mutex<Vec<JoinHandle<()>>>,
    /// Pager, fetcher and purger.
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

impl BucketThreads {
    /// Starts flusher, pager, fetcher and, if the bucket has documents to load, the loaders.
    ///
    /// # Errors
    /// The operating system's, when it refuses a thread.
    pub fn start(bucket: Arc<Bucket>) -> std::io::Result<BucketThreads> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = bucket.config().name.clone();
        let flusher = {
            let (bucket, stop) = (Arc::clone(&bucket), Arc::clone(&stop));
            std::thread::Builder::new().name(format!("flusher {name}")).spawn(move || {
                let result = run_flusher(&bucket, &stop);
                bucket.tasks.finish(Task::Flusher);
                result
            })?
        };
        bucket.signal.attach(flusher.thread().clone());
        let keepers = vec![
            spawn(&bucket, &stop, "pager", run_pager)?,
            spawn(&bucket, &stop, "fetcher", run_fetcher)?,
            spawn(&bucket, &stop, "purger", run_purger)?,
        ];
        bucket.memory.attach_pager(keepers[0].thread().clone());
        bucket.fetches.attach(keepers[1].thread().clone());
        let mut loaders = Vec::new();
        if !bucket.warmup.stats().done || bucket.store.is_shared() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for number in 0..cores.min(LOADERS_MAX) {
                let (bucket, stop) = (Arc::clone(&bucket), Arc::clone(&stop));
                let builder = std::thread::Builder::new().name(format!("warmup {name}"));
                let loader = builder.spawn({
                    let bucket = Arc::clone(&bucket);
                    move || run_loader(&bucket, &stop, number == 0)
                })?;
                bucket.warmup.attach(loader.thread().clone());
                loaders.push(loader);
            }
        }
        let (flusher, loaders) = (Mutex::new(Some(flusher)), Mutex::new(loaders));
        Ok(BucketThreads { bucket, stop, flusher, loaders, keepers: Mutex::new(keepers) })
    }

    /// Flushes everything that is queued and ends the threads. A second call does nothing.
    ///
    /// # Errors
    /// The store's, when what is queued could not be made durable.
    pub fn stop(&self) -> Result<(), StoreError> {
        self.stop.store(true, Ordering::Release);
        self.bucket.store.end_waits();
        self.bucket.signal.wake();
        for loader in self.loaders.lock().drain(..) {
            loader.thread().unpark();
            report_panic(loader.join());
        }
        for keeper in self.keepers.lock().drain(..) {
            keeper.thread().unpark();
            report_panic(keeper.join());
        }
        self.bucket.fetches.close();
        let Some(flusher) = self.flusher.lock().take() else { return Ok(()) };
        match flusher.join() {
            Ok(result) => result,
            Err(panic) => {
                report_panic(Err(panic));
                Err(StoreError::Poisoned("the flusher's thread panicked".to_owned()))
            }
        }
    }
}

impl Drop for BucketThreads {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(bucket = self.bucket.config().name, %error, "could not flush at the end");
        }
    }
}

fn report_panic(joined: std::thread::Result<()>) {
    if joined.is_err() {
        tracing::error!("a background thread panicked; its message is above");
    }
}

/// A clock for one step: the wall clock at its beginning, and time since by the monotonic clock, so
/// that it tells the time of day and still never goes backwards. A wall clock before 1970 is 1970.
fn step_clock() -> impl Fn() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begun = Instant::now();
    move || Timestamp { unix_ns: (since_epoch + begun.elapsed()).as_nanos() as u64 }
}

fn run_flusher(bucket: &Bucket, stop: &AtomicBool) -> Result<(), StoreError> {
    let interval = Duration::from_millis(bucket.config().flush_interval_ms);
    let mut failures: u32 = 0;
    let mut reviewed = Instant::now();
    let mut is_mid_pass = false;
    loop {
        let stopping = stop.load(Ordering::Acquire);
        if !stopping && !is_mid_pass {
            wait_for_work(bucket, stop, interval);
        }
        is_mid_pass = false;
        match bucket.flush_step_timed(&step_clock()) {
            Ok(report) => {
                if failures > 0 {
                    tracing::warn!(
                        bucket = bucket.config().name,
                        "the store accepts commits again"
                    );
                    bucket.review_pressure();
                }
                failures = 0;
                is_mid_pass = report.is_mid_pass;
                if stopping && !report.more && report.items == 0 {
                    return Ok(());
                }
            }
            // The store is well. What is another node's was given up, and the rest is not to wait because of it.
            Err(StoreError::Fenced(why)) if !stopping => {
                let bucket = bucket.config().name.as_str();
                tracing::warn!(bucket, why, "what another node owns was not written");
                sleep_unless_stopped(stop, RETRY_FIRST);
            }
            Err(error) => {
                failures += 1;
                tracing::error!(bucket = bucket.config().name, %error, failures, "commit failed; writes are refused until one succeeds");
                if stopping && failures >= STOP_TRIES {
                    return Err(error);
                }
                let pause = RETRY_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_LAST);
                sleep_unless_stopped(stop, if stopping { RETRY_FIRST } else { pause });
            }
        }
        if reviewed.elapsed() >= PRESSURE_REVIEW {
            bucket.tasks.run(Task::PressureReview, &step_clock(), || bucket.review_pressure());
            reviewed = Instant::now();
        }
    }
}

/// Sleeps until there is work, then until it is worth a commit.
fn wait_for_work(bucket: &Bucket, stop: &AtomicBool, interval: Duration) {
    let signal = &bucket.signal;
    while !signal.is_set() && !signal.is_urgent() && !stop.load(Ordering::Acquire) {
        if bucket.is_under_pressure() {
            std::thread::park_timeout(PRESSURE_REVIEW);
            return;
        }
        std::thread::park();
    }
    let deadline = Instant::now() + interval;
    while !signal.is_urgent() && !stop.load(Ordering::Acquire) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

fn sleep_unless_stopped(stop: &AtomicBool, pause: Duration) {
    let deadline = Instant::now() + pause;
    let was_stopping = stop.load(Ordering::Acquire);
    while was_stopping || !stop.load(Ordering::Acquire) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

fn run_loader(bucket: &Bucket, stop: &AtomicBool, reports: bool) {
    let name = &bucket.config().name;
    let mut reported = Instant::now();
    while !stop.load(Ordering::Acquire) {
        match bucket.warmup_step_timed(&step_clock()) {
            WarmupStep::Loaded { .. } => {}
            WarmupStep::Failed { vbid: Some(vbid), error } => {
                if bucket.store.is_shared() {
                    tracing::warn!(bucket = name, %vbid, %error, "documents could not be loaded; trying again");
                    sleep_unless_stopped(stop, LOADER_RETRY);
                } else {
                    tracing::error!(bucket = name, %vbid, %error, "warmup failed; the vbucket stays in temporary failure");
                }
            }
            WarmupStep::Failed { vbid: None, error } => {
                tracing::error!(bucket = name, %error, "warmup met damage; vbuckets will be scanned one by one");
            }
            WarmupStep::Done if bucket.store.is_shared() => {
                std::thread::park_timeout(LOADER_IDLE);
                continue;
            }
            WarmupStep::Done => return,
        }
        let warmup = bucket.warmup.stats();
        if warmup.done {
            report_warmup(name, &warmup, "warmup is done");
        } else if reports && reported.elapsed() >= WARMUP_REPORT {
            report_warmup(name, &warmup, "warming up");
            reported = Instant::now();
        }
    }
}

fn report_warmup(bucket: &str, warmup: &WarmupStats, what: &str) {
    tracing::info!(
        bucket,
        items = warmup.items,
        values = warmup.values,
        estimate = warmup.items_estimate,
        tombstones = warmup.tombstones,
        elapsed_ms = warmup.elapsed_us / 1000,
        "{what}"
    );
}

fn spawn(
    bucket: &Arc<Bucket>,
    stop: &Arc<AtomicBool>,
    kind: &str,
    run: fn(&Bucket, &AtomicBool),
) -> std::io::Result<JoinHandle<()>> {
    let name = format!("{kind} {}", bucket.config().name);
    let (bucket, stop) = (Arc::clone(bucket), Arc::clone(stop));
    std::thread::Builder::new().name(name).spawn(move || run(&bucket, &stop))
}

/// Keeps memory between its watermarks and gives back what is free.
fn run_pager(bucket: &Bucket, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        bucket.memory.pager_looks();
        bucket.recover_checkpoints_step();
        let report = bucket.page_items_step(&step_clock());
        let is_compacting = bucket.compact_memory_step(&step_clock());
        let has_expired = bucket.expiry_pager_step(&step_clock()).more;
        if is_compacting || has_expired || report.more && !report.is_stuck {
            continue;
        }
        std::thread::park_timeout(if report.is_stuck { PAGER_STUCK } else { PAGER_IDLE });
    }
    bucket.tasks.finish(Task::ItemPager);
    bucket.tasks.finish(Task::ExpiryPager);
    bucket.tasks.finish(Task::MemoryCompaction);
}

/// Reads what operations wait for.
fn run_fetcher(bucket: &Bucket, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        if bucket.fetch_step_timed(&step_clock()) == 0 && bucket.fetches.is_empty() {
            std::thread::park_timeout(PAGER_IDLE);
        }
    }
    bucket.tasks.finish(Task::Fetcher);
}

/// Removes old tombstones from the store. On its own, because a step waits for the disk.
fn run_purger(bucket: &Bucket, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match bucket.purge_tombstones_step(&step_clock()) {
            Ok(report) if report.more => continue,
            Ok(_) => {}
            Err(error) => {
                tracing::error!(bucket = bucket.config().name, %error, "old tombstones could not be purged");
            }
        }
        std::thread::park_timeout(PURGER_IDLE);
    }
    bucket.tasks.finish(Task::TombstonePurge);
}
