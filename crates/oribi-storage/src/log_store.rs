//! The log store: an append-only log of segments with an index in memory, behind the [`KvStore`]
//! seam.
//!
//! Owns: a directory of segments (`docs/storage-format.md`), the index, and a background thread
//! that compacts. A commit is one frame, written by large sequential writes from the borrowed
//! records and synced once; nothing is compressed, sorted or written twice. Invariants: a commit is
//! atomic over all its batches; `Ok` means synced; a failed write or sync is cut off before the
//! next write (`recovery.rs`); an opening writes and syncs again what it cannot know to be durable.
//! There is no order of keys, so scans by key collect and sort (`key_scan.rs`). Scans by seqno read
//! the log forwards (`scan.rs`).
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
//!    moment, under the lock under which commits are written. So a copy is behind every other
//!    version of its key, and becomes the last one. All other versions that are dropped with the
//!    segment were superseded by one that is the last or was itself superseded; the last one stays.
//! 3. A segment is removed after its copies, and then a note of the removal, are durable. The index
//!    points at a copy only once that is durable, so a failed write takes no copy away from it.
//!    After an earlier crash the originals are there (and perhaps the copies, which say the same
//!    and are behind them). After a later crash the note says that a leftover file is not to be
//!    read.
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
//!    segment. Records before it are not in the index, so they are never moved behind it. Bounds,
//!    vbucket states and local documents are repeated in full at the beginning of every segment, so
//!    only the newest segment has to be read for them, and compaction has to care for documents
//!    only. A bound is forgotten when every segment is younger than it.
//! 6. The beginning of a segment is synced before anything follows it, and the segment before it is
//!    synced before it is made. So only the newest segment can have a torn end, and a newest
//!    segment without a whole beginning has nothing in it.
//!
//! Caller: the opening of a bucket.

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
mod newest;
mod open;
mod options;
mod packing;
mod planted;
mod read;
mod reader;
mod recovery;
mod removal;
mod scan;
mod scan_memory;
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

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use self::files::RealDirectory;
use self::load::Stretch;
use self::log::Log;
use self::planted::Planted;
use self::scan::LogScan;
use self::worker::Worker;
#[cfg(any(test, feature = "testing"))]
use crate::directory::Found;
use crate::directory::{Directory, StoreKind};
use crate::load_plan::Part;
use crate::{
    GetVisitor, KvStore, LoadPart, LoadPlan, LoadVisitor, Record, RecordVisitor, RoomVisitor,
    SeqnoScan, StoreError, StoreStats, VbBatch, VbucketState,
};

pub use compaction::CompactionStep;
pub use log::LogSizes;
pub use options::{LogOptions, Packing};
#[cfg(any(test, feature = "testing"))]
pub use planted::Bug;
#[cfg(any(test, feature = "testing"))]
pub use sim_files::{SimDirectory, Trouble};
pub use snapshot::{SnapshotSizes, snapshot_log};

/// Marker and files of this kind of store.
const STORE_KIND: StoreKind = StoreKind {
    marker_text: b"oribi-store 2 ",
    is_own_file: |name| name.ends_with(".log") || name.ends_with(".idx"),
    required_file: None,
};

/// A [`KvStore`] in a directory of its own.
pub struct LogStore {
    // Fields drop in this order: the thread ends before the log is closed, and the log before the
    // lock is released.
    worker: Option<Worker>,
    log: Arc<Log>,
    _directory: Option<Directory>,
}

impl LogStore {
    /// Opens the store in `path`, creating it when the directory is missing or empty. The name of a
    /// new directory is made durable; names of directories above its parent are the caller's.
    ///
    /// Errors: `Foreign` when the directory holds something else, another format, or is in use;
    /// `Corrupt` when it was a store and is damaged, with file and offset.
    pub fn open(path: &Path, options: LogOptions) -> Result<LogStore, StoreError> {
        let directory = Directory::claim(path, &STORE_KIND)?;
        let files = Arc::new(RealDirectory::new(path));
        let log = open::open(files, directory.found(), &options, Planted::default())?;
        directory.mark_ready()?;
        Ok(LogStore::on(log, options.compacts_in_background, Some(directory)))
    }

    /// Opens the store in simulated files, with a planted bug or without. `is_made` says that a
    /// store was opened there before, which on real files the directory's marker tells. It never
    /// compacts by itself.
    ///
    /// Errors: as [`LogStore::open`].
    #[cfg(any(test, feature = "testing"))]
    pub fn open_simulated(
        files: &SimDirectory,
        is_made: bool,
        options: &LogOptions,
        bug: Bug,
    ) -> Result<LogStore, StoreError> {
        let found = if is_made { Found::Ready } else { Found::New };
        let log = open::open(Arc::new(files.clone()), found, options, Planted::with(bug))?;
        Ok(LogStore::on(log, false, None))
    }

    fn on(log: Log, compacts_in_background: bool, directory: Option<Directory>) -> LogStore {
        let log = Arc::new(log);
        let worker = compacts_in_background.then(|| Worker::start(Arc::clone(&log)));
        LogStore { worker, log, _directory: directory }
    }

    /// Does a bounded piece of compaction, for an owner without a background thread.
    pub fn compaction_step(&self) -> Result<CompactionStep, StoreError> {
        self.log.compaction_step()
    }

    /// Exact sizes of index and log.
    pub fn sizes(&self) -> LogSizes {
        self.log.sizes()
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.worker = None;
        if let Err(error) = self.log.close() {
            tracing::warn!(%error, "cannot record that the store was closed");
        }
    }
}

impl KvStore for LogStore {
    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<(), StoreError> {
        if let Some(worker) = &self.worker {
            worker.before_commit(batches);
        }
        self.log.commit(batches)
    }

    fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        self.log.get(vbid, key, &mut |_| ControlFlow::Continue(()), visit)
    }

    fn get_asking(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        room: &mut RoomVisitor<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        self.log.get(vbid, key, room, visit)
    }

    fn memory_bytes(&self) -> u64 {
        self.log.catalog.read().index_bytes()
    }

    fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        self.log.may_contain(vbid, key)
    }

    fn look_ahead(&self, vbid: Vbid, key: DocKey<'_>) {
        self.log.look_ahead(vbid, key);
    }

    fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.log.get_many(keys, visit)
    }

    fn scan_keys(&self, vbid: Vbid, visit: &mut RecordVisitor<'_>) -> Result<(), StoreError> {
        self.log.scan_keys(vbid, visit)
    }

    fn scan_keys_from(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.scan_keys_asking(vbid, from, &mut |_| ControlFlow::Continue(()), visit)
    }

    fn scan_keys_asking(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        room: &mut RoomVisitor<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.log.scan_keys_from(vbid, from, room, visit)
    }

    fn begin_scan(
        &self,
        vbid: Vbid,
        from: Seqno,
        to: Seqno,
    ) -> Result<Box<dyn SeqnoScan>, StoreError> {
        Ok(Box::new(LogScan::begin(&self.log, vbid, None, from, to)))
    }

    fn begin_collection_scan(
        &self,
        vbid: Vbid,
        collection: CollectionId,
    ) -> Result<Box<dyn SeqnoScan>, StoreError> {
        let only = Some(collection);
        Ok(Box::new(LogScan::begin(&self.log, vbid, only, Seqno(1), Seqno(u64::MAX))))
    }

    fn plan_load(&self) -> Result<LoadPlan, StoreError> {
        Ok(self.log.plan_load())
    }

    fn load_part(&self, part: LoadPart, visit: &mut LoadVisitor<'_>) -> Result<(), StoreError> {
        match part.0 {
            Part::Vbucket(vbid) => self.log.scan_keys(vbid, &mut |record| visit(vbid, record)),
            Part::Own(part) => match part.downcast::<Stretch>() {
                Ok(stretch) => self.log.load_stretch(*stretch, visit),
                Err(_) => Err(StoreError::foreign_part()),
            },
        }
    }

    fn vbucket_states(&self) -> Result<Vec<(Vbid, VbucketState)>, StoreError> {
        let catalog = self.log.catalog.read();
        Ok(catalog.states.iter().map(|(vbid, state)| (*vbid, state.clone())).collect())
    }

    fn get_local(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.log.catalog.read().locals.get(name).cloned())
    }

    fn put_local(&self, name: &str, value: &[u8]) -> Result<(), StoreError> {
        self.log.put_local(name, value)
    }

    fn purge_collection(&self, vbid: Vbid, collection: CollectionId) -> Result<(), StoreError> {
        self.log.purge_collection(vbid, collection)
    }

    fn drop_vbucket(&self, vbid: Vbid) -> Result<(), StoreError> {
        self.log.drop_vbucket(vbid)
    }

    fn compact(&self, vbid: Vbid, purge_before: u32) -> Result<Option<Seqno>, StoreError> {
        let purged = self.log.purge_tombstones(vbid, purge_before);
        self.log.counters.compact(purged)
    }

    fn ask_for_compaction(&self) {
        // A failure is logged where it happens; garbage then waits for the next occasion.
        if self.log.ask_for_compaction().is_ok()
            && let Some(worker) = &self.worker
        {
            worker.call();
        }
    }

    fn finish(&self) -> Result<(), StoreError> {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
        self.log.close()
    }

    fn ended_in_order(&self) -> bool {
        self.log.ended_in_order
    }

    fn stats(&self) -> StoreStats {
        StoreStats { disk_bytes: self.log.sizes().log_bytes, ..self.log.counters.stats() }
    }
}
