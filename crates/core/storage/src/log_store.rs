//! The log store: an append-only log of segments with an index in memory, behind the [`KvStore`]
//! seam.
//!
//! Owns: a directory of segments (`docs/storage-format.md`), the index, and a background thread
//! that compacts. A commit is one frame, written by large sequential writes from the borrowed
//! records and synced once; nothing is compressed, sorted or written twice. Invariants: a commit is
//! atomic over all its batches in one log; `Ok` means synced; a failed write or sync is cut off
//! before the next write (`recovery.rs`); an opening writes and syncs again what it cannot know to
//! be durable. There is no order of keys, so scans by key collect and sort (`key_scan.rs`). Scans
//! by seqno read the log forwards (`scan.rs`).
//!
//! # Several logs
//!
//! A log has one writer at a time, which waits for the disk. A store may have several logs, so that
//! commits of different groups of vbuckets continue side by side. Each is as described here, in its
//! own subdirectory, with its own compaction thread; log 0 also has the local documents. Vbucket
//! `v` of `n` logs is in log `v % n`, for ever (`member.rs`): everything that is said below of
//! versions, bounds and recovery holds for each log by itself, because no key is in two.
//!
//! # Why no old version ever comes back
//!
//! Opening replays the log, and the last record of a key in the order of writing counts. So this
//! must hold: **as long as any version of a key is on disk and not removed by a bound, the last
//! version is on disk too, and the index points at it**.
//!
//! 1. A commit appends. Its frame counts as a whole or not at all, and the index learns of it after
//!    the sync. So the index always points at the last version that is certain to be on disk.
//! 2. Compaction appends copies of versions, each only if the index points at the original at that
//!    moment, under the lock under which commits are written. So a copy follows every other version
//!    of its key, and becomes the last one. All other versions that are dropped with the segment
//!    were superseded by one that is the last or was itself superseded; the last one stays.
//! 3. A segment is removed after its copies, and then a note of the removal, are durable. The index
//!    points at a copy only once that is durable, so a failed write takes no copy away from it.
//!    After an earlier crash the originals are there (and perhaps the copies, which are equal and
//!    follow them). After a later crash the note says that a leftover file is not to be read.
//! 4. A tombstone is a version like any other: it is moved, never dropped, because older versions
//!    may lie in other segments. When tombstones are purged, a bound says so; they are no longer
//!    shown, but the index still points at them and compaction still moves them (marked, so that
//!    the bound is not needed for the copy). Older versions of a key are in segments no younger
//!    than the one to which its tombstone was first written, which is in the record (`origin`):
//!    copies of them were made before the tombstone was, and none later. So a purged tombstone is
//!    dropped with its segment when every other segment is younger than that. Dropping a tombstone
//!    does not depend on the removal of its segment being durable: until it is, the tombstone is
//!    there. Segments whose data never changes would block this, so the oldest segments are
//!    rewritten when there are many purged tombstones.
//! 5. A dropped vbucket or purged collection is a bound, too: everything before it is gone, in any
//!    segment. Records before it are not in the index, so they are never moved after it. Bounds,
//!    vbucket states and local documents are repeated in full at the beginning of every segment, so
//!    only the newest segment has to be read for them, and compaction has to care for documents
//!    only. A bound is forgotten when every segment is younger than it.
//! 6. The beginning of a segment is synced before anything follows it, and the segment before it is
//!    synced before it is made. So only the newest segment can have a torn end, and a newest
//!    segment without a whole beginning has nothing in it.
//!
//! Caller: the opening of a bucket.

mod batches;
mod blocks;
mod bounds;
mod catalog;
mod compaction;
mod files;
mod get_many;
mod hint;
mod index;
mod intake;
mod key_scan;
mod layout;
mod load;
mod log;
mod member;
mod newest;
mod open;
mod opening;
mod options;
mod packing;
mod planted;
mod read;
mod reader;
mod recovery;
mod removal;
mod salvage;
mod scan;
mod scan_memory;
mod shard;
#[cfg(any(test, feature = "testing"))]
mod sim_files;
mod snapshot;
mod spans;
mod staging;
#[cfg(test)]
mod tests;
mod victim;
mod window;
mod worker;
mod writer;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use self::batches::Batches;
use self::files::{LogDirectory, RealDirectory};
use self::index::IndexMemory;
use self::load::RecordStretch;
use self::log::Log;
use self::member::{LogMember, log_of};
use self::opening::LogOpening;
use self::planted::PlantedBug;
use self::scan::LogScan;
use self::shard::Shard;
use crate::counters::Counters;
use crate::directory::{Directory, DirectoryState, StoreKind, is_log_directory_name};
#[cfg(any(test, feature = "testing"))]
use crate::directory::{LOGS_MAX, log_directory_name};
use crate::load_plan::LoadPartKind;
use crate::{
    GetVisitor, KvStore, LoadPart, LoadPlan, LoadValues, LoadVisitor, Record, RecordVisitor,
    ReserveMemory, SeqnoRange, SeqnoScan, StoreError, StoreMaintenance, StoreProperties,
    StoreStats, VbBatch, VbucketState,
};

pub use compaction::CompactionStep;
pub use log::LogSizes;
pub use options::{LogOptions, Packing};
#[cfg(any(test, feature = "testing"))]
pub use planted::Bug;
pub use salvage::LogLosses;
#[cfg(any(test, feature = "testing"))]
pub use sim_files::{SimDirectory, Trouble};
pub use snapshot::{SnapshotSizes, snapshot_log};

/// Marker and files of this kind of store.
const STORE_KIND: StoreKind = StoreKind {
    marker_text: b"oribi-store 2 ",
    marker_text_of_several: b"oribi-store 3 ",
    is_own_file: |name| {
        name.ends_with(".log") || name.ends_with(".idx") || is_log_directory_name(name)
    },
    required_file: None,
};

/// A [`KvStore`] in its own directory.
pub struct LogStore {
    // Fields drop in this order: the logs are closed before the lock is released.
    shards: Vec<Shard>,
    counters: Arc<Counters>,
    index_memory: IndexMemory,
    /// Steps of compaction so far, which begin with each log in turn.
    turn: AtomicUsize,
    _directory: Option<Directory>,
}

impl LogStore {
    /// Opens the store in `path`, creating it when the directory is missing or empty. The name of a
    /// new directory is made durable; names of directories above its parent are the caller's.
    ///
    /// Errors: `Foreign` when the directory holds something else, another format, or is in use;
    /// `Corrupt` when it was a store and is damaged, with file and offset.
    pub fn open(path: &Path, options: LogOptions) -> Result<LogStore, StoreError> {
        let directory = Directory::claim(path, &STORE_KIND, options.logs)?;
        let paths = directory.log_paths();
        let files = paths.iter().map(|path| Arc::new(RealDirectory::new(path)) as _).collect();
        // Opening reads the index files, which takes a processor.
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        let open = |openings| opening::concurrently(openings, at_once);
        let mut store =
            LogStore::open_logs(files, directory.found(), &options, PlantedBug::default(), open)?;
        directory.mark_ready()?;
        store._directory = Some(directory);
        Ok(store)
    }

    /// Opens the store in simulated files, with a mutant or without. `is_made` says that a store
    /// was opened there before, with as many logs, which on real files the directory's marker
    /// tells. It never compacts by itself.
    ///
    /// Errors: as [`LogStore::open`].
    #[cfg(any(test, feature = "testing"))]
    pub fn open_simulated(
        files: &SimDirectory,
        is_made: bool,
        options: &LogOptions,
        bug: Bug,
    ) -> Result<LogStore, StoreError> {
        let found = if is_made { DirectoryState::Ready } else { DirectoryState::New };
        let files = match options.logs.clamp(1, LOGS_MAX) {
            1 => vec![Arc::new(files.clone()) as _],
            logs => (0..logs)
                .map(|number| Arc::new(files.subdirectory(&log_directory_name(number))) as _)
                .collect(),
        };
        let options = LogOptions { compacts_in_background: false, ..options.clone() };
        LogStore::open_logs(files, found, &options, PlantedBug::with(bug), opening::sequentially)
    }

    /// Opens the logs in these directories, by number; `open` decides how many at once.
    fn open_logs(
        files: Vec<Arc<dyn LogDirectory>>,
        found: DirectoryState,
        options: &LogOptions,
        planted: PlantedBug,
        open: impl FnOnce(Vec<LogOpening>) -> Result<Vec<Log>, StoreError>,
    ) -> Result<LogStore, StoreError> {
        let (counters, index_memory) = (Arc::default(), IndexMemory::default());
        let members = LogMember::all(files.len(), &counters, &index_memory);
        assert!(!files.is_empty(), "a store has a log");
        let count = files.len();
        let options = options.of_each(files.len());
        let of_one = |(files, member)| -> LogOpening {
            let options = options.clone();
            Box::new(move || open::open(files, found, &options, planted, member))
        };
        let logs = open(files.into_iter().zip(members).map(of_one).collect())?;
        assert_eq!(logs.len(), count, "every log was opened");
        // No compaction begins before every log was found sound.
        let shards = logs.into_iter().map(|log| Shard::new(log, options.compacts_in_background));
        let (shards, turn) = (shards.collect(), AtomicUsize::new(0));
        Ok(LogStore { shards, counters, index_memory, turn, _directory: None })
    }

    /// Does a bounded piece of compaction, for an owner without a background thread. The logs come
    /// in turn.
    pub fn compaction_step(&self) -> Result<CompactionStep, StoreError> {
        assert!(!self.shards.is_empty(), "a store has a log");
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.shards.len();
        let (earlier, later) = self.shards.split_at(first);
        debug_assert!(!later.is_empty(), "a step begins with a log");
        let mut answer = CompactionStep::Idle;
        for shard in later.iter().chain(earlier) {
            match shard.log.compaction_step()? {
                CompactionStep::Idle => {}
                step @ (CompactionStep::Waiting | CompactionStep::NoSpace) => answer = step,
                step => return Ok(step),
            }
        }
        Ok(answer)
    }

    /// Data that opening gave up, because damage was accepted; `None` for a whole store.
    pub fn losses(&self) -> Option<LogLosses> {
        let mut losses = LogLosses::default();
        self.shards.iter().for_each(|shard| losses.add(&shard.log.losses));
        (losses != LogLosses::default()).then_some(losses)
    }

    /// Exact sizes of index and logs.
    pub fn sizes(&self) -> LogSizes {
        let mut sizes =
            LogSizes { index_bytes: self.index_memory.bytes() as u64, ..LogSizes::default() };
        for of_log in self.shards.iter().map(|shard| shard.log.sizes()) {
            sizes.keys += of_log.keys;
            sizes.purged_tombstones += of_log.purged_tombstones;
            sizes.index_bytes += of_log.index_bytes;
            sizes.segments += of_log.segments;
            sizes.log_bytes += of_log.log_bytes;
            sizes.garbage_bytes += of_log.garbage_bytes;
        }
        debug_assert!(sizes.garbage_bytes <= sizes.log_bytes, "garbage is a part of the logs");
        sizes
    }

    fn number_of(&self, vbid: Vbid) -> usize {
        let number = log_of(vbid, self.shards.len());
        debug_assert!(number < self.shards.len(), "a vbucket is in one of the logs");
        number
    }

    /// The log in which a vbucket is.
    fn log_of(&self, vbid: Vbid) -> &Arc<Log> {
        &self.shards[self.number_of(vbid)].log
    }

    /// Of several logs the one with what belongs to no vbucket.
    fn first_log(&self) -> &Log {
        &self.shards[0].log
    }

    /// Commits each log's batches as one frame, log by log, until one fails.
    fn commit_by_log(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        let Some(first) = batches.first() else { return Ok(()) };
        let (logs, number) = (self.shards.len(), self.number_of(first.vbid));
        if logs == 1 || batches.iter().all(|batch| self.number_of(batch.vbid) == number) {
            return self.shards[number].commit(Batches::all(batches));
        }
        let parts = (0..logs).map(|number| Batches::of_log(batches, number, logs));
        let mut parts = parts.zip(&self.shards).filter(|(part, _)| !part.is_empty());
        parts.try_for_each(|(part, shard)| shard.commit(part))
    }
}

impl KvStore for LogStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        self.counters.commit(batches, self.commit_by_log(batches))
    }

    fn properties(&self) -> StoreProperties {
        StoreProperties {
            commit_groups: self.shards.len(),
            ended_in_order: self.shards.iter().all(|shard| shard.log.ended_in_order),
        }
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        self.log_of(vbid).get(vbid, key, reserve, visit)
    }

    fn memory_bytes(&self) -> u64 {
        let own = self.shards.iter().map(|shard| shard.log.catalog.read().own_index_bytes());
        self.index_memory.bytes() as u64 + own.sum::<u64>()
    }

    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        self.log_of(vbid).may_contain(vbid, key)
    }

    fn look_ahead(&self, vbid: Vbid, key: DocKey<'_>) {
        self.log_of(vbid).look_ahead(vbid, key);
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        if let [shard] = &*self.shards {
            return shard.log.get_many(keys, record_bytes_max, visit);
        }
        let mut flow = ControlFlow::Continue(());
        for (number, shard) in self.shards.iter().enumerate() {
            let is_of = |index: &usize| self.number_of(keys[*index].0) == number;
            let indexes: Vec<usize> = (0..keys.len()).filter(is_of).collect();
            let own: Vec<(Vbid, DocKey<'_>)> = indexes.iter().map(|index| keys[*index]).collect();
            debug_assert!(own.len() <= keys.len(), "a log looks up its part of the keys");
            shard.log.get_many(&own, record_bytes_max, &mut |index, answer| {
                debug_assert!(index < indexes.len(), "an answer is to one of the log's keys");
                flow = visit(indexes[index], answer);
                flow
            })?;
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        self.log_of(vbid).scan_keys(vbid, visit)
    }

    fn scan_collection(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.log_of(vbid).scan_collection(vbid, from, reserve, visit)
    }

    fn begin_scan(&self, vbid: Vbid, range: SeqnoRange) -> Result<Box<dyn SeqnoScan>, StoreError> {
        Ok(Box::new(LogScan::begin(self.log_of(vbid), vbid, range)))
    }

    fn plan_load(&self) -> Result<LoadPlan, StoreError> {
        Ok(load::merged(self.shards.iter().map(|shard| shard.log.plan_load())))
    }

    fn load_part(
        &self,
        part: LoadPart,
        values: LoadValues,
        visit: &mut LoadVisitor<'_>,
    ) -> Result<(), StoreError> {
        match part.0 {
            LoadPartKind::Vbucket(vbid) => {
                self.log_of(vbid).scan_keys(vbid, &mut |record| values.show(vbid, record, visit))
            }
            LoadPartKind::Own(part) => {
                let stretch =
                    part.downcast::<RecordStretch>().map_err(|_| StoreError::foreign_part())?;
                let shard = self.shards.get(stretch.log).ok_or_else(StoreError::foreign_part)?;
                shard
                    .log
                    .load_stretch(*stretch, &mut |vbid, record| values.show(vbid, record, visit))
            }
        }
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let mut states = Vec::new();
        for shard in &self.shards {
            let catalog = shard.log.catalog.read();
            debug_assert!(
                catalog.states.keys().all(|vbid| shard.log.member.has(*vbid)),
                "a state is in its vbucket's log"
            );
            states.extend(catalog.states.iter().map(|(vbid, state)| (*vbid, state.clone())));
        }
        Ok(states)
    }

    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.first_log().catalog.read().locals.get(name).cloned())
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.first_log().put_local(name, value)
    }
}

impl StoreMaintenance for LogStore {
    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        self.log_of(vbid).purge_collection(vbid, collection)
    }

    fn drop_vbucket(&self, vbid: Vbid, next: Option<&VbucketState>) -> Result<(), StoreError> {
        self.log_of(vbid).drop_vbucket(vbid, next)
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        self.counters.compact(self.log_of(vbid).purge_tombstones(vbid, purge_before))
    }

    fn forget_prepares(&self, vbid: Vbid) -> Result<u64, StoreError> {
        self.log_of(vbid).forget_prepares(vbid)
    }

    fn request_compaction(&self) {
        self.shards.iter().for_each(Shard::request_compaction);
    }

    fn finish(&self) -> Result<(), StoreError> {
        // One that fails keeps no other from being closed.
        self.shards.iter().map(Shard::close).fold(Ok(()), Result::and)
    }

    fn stats(&self) -> StoreStats {
        let has_failed = |shard: &Shard| shard.log.compaction_fails.load(Ordering::Relaxed);
        StoreStats {
            disk_bytes: self.sizes().log_bytes,
            compaction_fails: self.shards.iter().any(has_failed),
            ..self.counters.stats()
        }
    }
}
