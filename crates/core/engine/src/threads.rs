//! The threads of a bucket: flushers, a pager, fetchers, a purger, backfillers, and loaders while
//! it warms up.
//!
//! Owns: when steps run. [`crate::flusher`] and other files describe the steps themselves. A
//! flusher sleeps until there is something to write. Then it lets writes gather for the flush
//! interval, unless an operation waits for durability. After a failed step it backs off and tries
//! again. This driver is the one place of the engine that reads a clock; it hands the readings to
//! the steps.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oribi_storage::StoreError;
use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::backfill::{BACKFILL_PAUSE, BackfillPause, BackfillReport, ScanPatience};
use crate::block_arena;
use crate::bucket::Bucket;
use crate::compaction::{self, NextStep};
use crate::flusher_signal::FlusherSignal;
use crate::idle_memory;
use crate::tasks::Task;
use crate::warmup::{WarmupStats, WarmupStep};

/// Time between two reviews of memory and queue under traffic.
const PRESSURE_REVIEW: Duration = Duration::from_millis(100);
/// Pause after the first failed commit, doubled up to the last value.
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(5);
const _: () = assert!(RETRY_FIRST.as_millis() < RETRY_LAST.as_millis());
/// How often the pager looks at memory without being woken.
const PAGER_IDLE: Duration = Duration::from_secs(1);
/// Pause of a pager that found everything in use or not durable yet.
const PAGER_STUCK: Duration = Duration::from_millis(10);
const _: () = assert!(PAGER_STUCK.as_millis() < PAGER_IDLE.as_millis());
/// How often the purger checks whether it is time.
const PURGER_IDLE: Duration = Duration::from_secs(10);
/// Failed commits in a row after which a stopping bucket returns the error.
const STOP_TRIES: u32 = 3;
/// Time between two lines about the progress of warmup.
const WARMUP_REPORT: Duration = Duration::from_secs(1);
/// Loaders that run at once; more only contend for the same disk.
const LOADERS_MAX: usize = 4;
/// How often a loader of a shared store looks for work without being woken.
const LOADER_IDLE: Duration = Duration::from_secs(1);
/// Pause after a vbucket of a shared store could not be read.
const LOADER_RETRY: Duration = Duration::from_millis(500);
const _: () = assert!(!LOADER_RETRY.is_zero() && STOP_TRIES > 0);

/// Threads that read evicted documents: a disk serves some reads at a time as fast as one, and the
/// uncounted bytes of each are beyond the quota.
const FETCHERS: usize = 4;
/// Threads that serve backfills: one slow reader does not hold up all others.
const BACKFILLERS: usize = 2;
const _: () = assert!(FETCHERS > 0 && BACKFILLERS > 0 && LOADERS_MAX > 0);
/// Niceness of backfillers relative to workers. A worker sends what a backfiller reads, so running
/// first gains nothing.
const BACKFILL_NICENESS: i32 = 10;
/// How often a backfiller looks for work without being woken.
const BACKFILL_IDLE: Duration = Duration::from_secs(1);

/// Running threads of one bucket.
pub struct BucketThreads {
    bucket: Arc<Bucket>,
    stop: Arc<AtomicBool>,
    flushers: Mutex<Vec<JoinHandle<Result<(), StoreError>>>>,
    loaders: Mutex<Vec<JoinHandle<()>>>,
    /// Pager, fetchers, purger and backfillers.
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

impl BucketThreads {
    /// Starts flushers, pager, fetchers, purger, backfillers and, if the bucket has documents to
    /// load, the loaders.
    ///
    /// # Errors
    /// The operating system's, when it refuses a thread.
    pub fn start(bucket: Arc<Bucket>) -> std::io::Result<BucketThreads> {
        let stop = Arc::new(AtomicBool::new(false));
        let name = bucket.config().name.clone();
        let reviews = Arc::new(Reviews::default());
        let mut flushers = Vec::new();
        for (group, signal) in bucket.core().signals().all().iter().enumerate() {
            let (bucket, stop) = (Arc::clone(&bucket), Arc::clone(&stop));
            let reviews = Arc::clone(&reviews);
            let flusher = oribi_supervisor::spawn(format!("flusher {name}"), move || {
                let result = run_flusher(&bucket, group, &reviews, &stop);
                bucket.core().tasks().finish(Task::Flusher);
                result
            })?;
            signal.attach(flusher.thread().clone());
            flushers.push(flusher);
        }
        let mut keepers = vec![
            spawn(&bucket, &stop, "pager", run_pager)?,
            spawn(&bucket, &stop, "purger", run_purger)?,
        ];
        bucket.core().memory().attach_pager(keepers[0].thread().clone());
        bucket.fetcher().share_among(FETCHERS);
        for _ in 0..FETCHERS {
            keepers.push(spawn(&bucket, &stop, "fetcher", run_fetcher)?);
        }
        for _ in 0..BACKFILLERS {
            let keeper = spawn(&bucket, &stop, "backfill", run_backfiller)?;
            bucket.backfiller().attach(keeper.thread().clone());
            keepers.push(keeper);
        }
        let mut loaders = Vec::new();
        if !bucket.warmup().stats().done || bucket.core().store().shared().is_some() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            for number in 0..cores.min(LOADERS_MAX) {
                let (bucket, stop) = (Arc::clone(&bucket), Arc::clone(&stop));
                let loader = oribi_supervisor::spawn(format!("warmup {name}"), {
                    let bucket = Arc::clone(&bucket);
                    move || run_loader(&bucket, &stop, number == 0)
                })?;
                bucket.warmup().attach(loader.thread().clone());
                loaders.push(loader);
            }
        }
        assert_eq!(flushers.len(), bucket.flusher_count(), "a thread for each flusher");
        assert_eq!(keepers.len(), 2 + FETCHERS + BACKFILLERS, "a thread for each piece of upkeep");
        let (flushers, loaders) = (Mutex::new(flushers), Mutex::new(loaders));
        compaction::join(&bucket);
        Ok(BucketThreads { bucket, stop, flushers, loaders, keepers: Mutex::new(keepers) })
    }

    /// Flushes the whole queue and ends the threads. A second call does nothing.
    ///
    /// # Errors
    /// The store's, when the queue could not be made durable.
    pub fn stop(&self) -> Result<(), StoreError> {
        self.stop.store(true, Ordering::Release);
        self.bucket.end_waits();
        self.bucket.core().signals().all().iter().for_each(FlusherSignal::wake);
        for loader in self.loaders.lock().drain(..) {
            loader.thread().unpark();
            report_panic(loader.join());
        }
        for keeper in self.keepers.lock().drain(..) {
            keeper.thread().unpark();
            report_panic(keeper.join());
        }
        compaction::leave(&self.bucket);
        self.bucket.fetcher().close();
        let flushers = std::mem::take(&mut *self.flushers.lock());
        debug_assert!(self.keepers.lock().is_empty(), "upkeep ends before the flushers do");
        if flushers.is_empty() {
            return Ok(());
        }
        let mut flushed = Ok(());
        for flusher in flushers {
            let result = flusher.join().unwrap_or_else(|panic| {
                report_panic(Err(panic));
                Err(StoreError::Poisoned("a flusher's thread panicked".to_owned()))
            });
            flushed = flushed.and(result);
        }
        flushed.and_then(|()| self.bucket.core().store().finish())
    }
}

impl Drop for BucketThreads {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(bucket = self.bucket.config().name, %error, "queued writes could not be flushed when the bucket was closed");
        }
    }
}

fn report_panic(joined: std::thread::Result<()>) {
    if joined.is_err() {
        tracing::error!("a background thread panicked; its message is above");
    }
}

/// A clock for one step: the wall clock at its beginning plus the monotonic time since, so that it
/// shows the time of day and never goes backwards. A wall clock before 1970 counts as 1970.
fn step_clock() -> impl Fn() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let begun = Instant::now();
    move || Timestamp { unix_ns: (since_epoch + begun.elapsed()).as_nanos() as u64 }
}

/// When memory and queue were reviewed last, by any flusher of the bucket.
struct Reviews(Mutex<Instant>);

impl Default for Reviews {
    fn default() -> Reviews {
        Reviews(Mutex::new(Instant::now()))
    }
}

impl Reviews {
    /// True for the one flusher that is to review now.
    fn are_due(&self) -> bool {
        let mut last = self.0.lock();
        let are_due = last.elapsed() >= PRESSURE_REVIEW;
        if are_due {
            *last = Instant::now();
        }
        are_due
    }
}

/// Flushes a group of vbuckets until the bucket stops.
fn run_flusher(
    bucket: &Bucket,
    group: usize,
    reviews: &Reviews,
    stop: &AtomicBool,
) -> Result<(), StoreError> {
    let mut failures: u32 = 0;
    let mut is_mid_pass = false;
    loop {
        let stopping = stop.load(Ordering::Acquire);
        if !stopping && !is_mid_pass {
            wait_for_work(bucket, group, stop);
        }
        is_mid_pass = false;
        block_arena::join_round();
        oribi_supervisor::plant("flusher");
        match bucket.flusher_step(group, &step_clock()) {
            Ok(report) => {
                failures = 0;
                is_mid_pass = report.is_mid_pass;
                if stopping && !report.more && report.items == 0 {
                    return Ok(());
                }
            }
            // The store works. Vbuckets of another node were given up, and the rest does not wait
            // because of them.
            Err(StoreError::Fenced(why)) if !stopping => {
                let bucket = bucket.config().name.as_str();
                tracing::warn!(bucket, why, "what another node owns was not written");
                sleep_unless_stopped(stop, RETRY_FIRST);
            }
            Err(error) => {
                failures += 1;
                debug_assert!(failures > 0, "a failure is counted");
                // `failure.rs` logs it once for as long as it lasts.
                tracing::debug!(bucket = bucket.config().name, %error, failures, "a flush failed");
                if stopping && failures >= STOP_TRIES {
                    return Err(error);
                }
                let pause = RETRY_FIRST.saturating_mul(1 << (failures - 1).min(10)).min(RETRY_LAST);
                debug_assert!(pause >= RETRY_FIRST, "a failed commit is not tried again at once");
                sleep_unless_stopped(stop, if stopping { RETRY_FIRST } else { pause });
            }
        }
        // A flush makes space, so refused writes do not wait for the next review.
        if reviews.are_due() || bucket.core().memory().is_refusing() {
            bucket
                .core()
                .tasks()
                .run(Task::PressureReview, &step_clock(), || bucket.review_pressure());
        }
    }
}

/// Sleeps until there is work, then until the work is enough for a commit.
fn wait_for_work(bucket: &Bucket, group: usize, stop: &AtomicBool) {
    let signal = &bucket.core().signals().all()[group];
    while !signal.is_set() && !signal.is_urgent() && !stop.load(Ordering::Acquire) {
        if bucket.core().memory().is_refusing() {
            std::thread::park_timeout(PRESSURE_REVIEW);
            return;
        }
        block_arena::give_back_kept_blocks();
        std::thread::park();
    }
    let begun = Instant::now();
    while !signal.is_urgent() && !stop.load(Ordering::Acquire) {
        // The interval may change concurrently, and whoever changes it wakes this thread.
        let interval = Duration::from_millis(bucket.flush_interval_ms());
        let left = interval.saturating_sub(begun.elapsed());
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
            WarmupStep::Failed { .. } if bucket.is_ending() => return,
            WarmupStep::Failed { vbid: Some(vbid), error } => {
                if bucket.core().store().shared().is_some() {
                    tracing::warn!(bucket = name, %vbid, %error, "documents could not be loaded; trying again");
                    sleep_unless_stopped(stop, LOADER_RETRY);
                } else {
                    tracing::error!(bucket = name, %vbid, %error, "warmup failed; the vbucket stays in temporary failure");
                }
            }
            WarmupStep::Failed { vbid: None, error } => {
                tracing::error!(bucket = name, %error, "a part of the store could not be loaded; vbuckets are scanned one by one");
            }
            WarmupStep::Done if bucket.core().store().shared().is_some() => {
                std::thread::park_timeout(LOADER_IDLE);
                continue;
            }
            WarmupStep::Done => return,
        }
        let warmup = bucket.warmup().stats();
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
    oribi_supervisor::spawn(name, move || run(&bucket, &stop))
}

/// Keeps memory between its watermarks and returns free memory to the system.
fn run_pager(bucket: &Bucket, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        oribi_supervisor::plant("pager");
        bucket.core().memory().pager_looks();
        bucket.recover_checkpoints_step();
        let report = bucket.page_items_step(&step_clock());
        let compaction = compaction::step(bucket, &step_clock());
        let has_unwanted = idle_memory::step(step_clock()());
        bucket.core().memory().log_refusals(&bucket.config().name, step_clock()());
        let has_expired = bucket.expiry_pager_step(&step_clock()).more;
        let is_compacting = compaction == NextStep::Now;
        if is_compacting || has_unwanted || has_expired || report.more && !report.is_stuck {
            continue;
        }
        let is_waiting = report.is_stuck || compaction == NextStep::Soon;
        block_arena::give_back_kept_blocks();
        std::thread::park_timeout(if is_waiting { PAGER_STUCK } else { PAGER_IDLE });
    }
    bucket.core().tasks().finish(Task::ItemPager);
    bucket.core().tasks().finish(Task::ExpiryPager);
    bucket.core().tasks().finish(Task::MemoryCompaction);
}

/// Reads the documents that operations wait for.
fn run_fetcher(bucket: &Bucket, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        oribi_supervisor::plant("fetcher");
        if bucket.fetch_step_timed(&step_clock()) == 0 && bucket.fetcher().is_idle() {
            block_arena::give_back_kept_blocks();
            bucket.fetcher().sleep(stop);
        }
    }
    bucket.core().tasks().finish(Task::Fetcher);
}

/// Removes old tombstones from the store, on its own thread because a step waits for the disk.
fn run_purger(bucket: &Bucket, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        match bucket.purge_tombstones_step(&step_clock()) {
            Ok(report) if report.more => continue,
            Ok(_) => {}
            // `failure.rs` logs it, and the pass continues with the next vbucket.
            Err(error) => {
                tracing::debug!(bucket = bucket.config().name, %error, "a vbucket was not purged");
            }
        }
        std::thread::park_timeout(PURGER_IDLE);
    }
    bucket.core().tasks().finish(Task::TombstonePurge);
}

/// Reads older changes for change streams.
fn run_backfiller(bucket: &Bucket, stop: &AtomicBool) {
    // On Linux niceness is a thread's own.
    let _ = rustix::process::nice(BACKFILL_NICENESS);
    let mut failures: u32 = 0;
    let patience = RefCell::new(ScanPatience::new(Instant::now()));
    let pace = |pause: BackfillPause| {
        if stop.load(Ordering::Acquire) || !patience.borrow_mut().lasts(pause, Instant::now()) {
            return false;
        }
        std::thread::park_timeout(BACKFILL_PAUSE);
        true
    };
    while !stop.load(Ordering::Acquire) {
        oribi_supervisor::plant("backfill");
        match bucket.backfill_step(&pace, &step_clock()) {
            Ok(report) => {
                failures = 0;
                match report {
                    BackfillReport { is_blocked: true, .. } => {
                        sleep_unless_stopped(stop, BACKFILL_PAUSE);
                    }
                    BackfillReport { waiting: 1.., .. } => {}
                    BackfillReport { .. } => {
                        block_arena::give_back_kept_blocks();
                        std::thread::park_timeout(BACKFILL_IDLE);
                    }
                }
            }
            // `failure.rs` logs it; streams that fail again and again end.
            Err(error) => {
                tracing::debug!(bucket = bucket.config().name, %error, "a backfill failed");
                sleep_unless_stopped(stop, RETRY_FIRST.saturating_mul(1 << failures.min(5)));
                failures += 1;
            }
        }
    }
    bucket.core().tasks().finish(Task::Backfill);
}
