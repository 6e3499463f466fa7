//! Scans of vbuckets, each at one moment.
//!
//! Owns: the order of vbuckets, the wait until writes are persisted, and the batch of documents
//! that a scan holds. A scan pauses inside the engine's scan, where no lock is held, while the
//! statement reads a batch. Invariant: a scan returns every write that was acknowledged before it
//! began, or a later version.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use oribi_engine::{Bucket, PersistOutcome, PersistenceSink, SnapshotScan};
use oribi_query::KeyRange;
use oribi_storage::{LoadValues, ScanProgress, StoreError};
use oribi_system::clock::wall_clock;
use oribi_types::{ManifestUid, Vbid};
use parking_lot::{Condvar, Mutex};

use super::batch::{DocumentBatch, StoredVersion};
use super::reader::KeyspaceReader;
use crate::limits::{SCAN_BATCH_BYTES, STATEMENT_SCAN_BYTES};
use crate::statement_memory::LargeValueMemory;
use oribi_server::admin_api::memory::Reservation;

/// Records that a batch looks at, at most.
const BATCH_DOCUMENTS: usize = 1024;
const _: () = assert!(BATCH_DOCUMENTS > 0, "a scan goes forward");

/// Interval between two looks whether a wait has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// See the module text.
pub(super) struct SnapshotScans<'r> {
    reader: &'r KeyspaceReader,
    keys: &'r KeyRange,
    values: LoadValues,
    /// The manifest that had the collection.
    manifest: ManifestUid,
    left: VecDeque<Vbid>,
    current: Option<(Vbid, SnapshotScan)>,
    batch: DocumentBatch,
    /// For the batch, and the read-ahead of a scan.
    _usual: Reservation,
    /// For a large document of the batch.
    large: Option<LargeValueMemory>,
    /// UNIX seconds when the scan began: documents that had expired by then are left out.
    now: u32,
}

impl<'r> SnapshotScans<'r> {
    /// Begins a scan of the documents with these keys, or of the keys and metadata alone.
    ///
    /// # Errors
    /// When not all of the vbuckets are served here, or writes are not persisted in time.
    pub fn begin(
        reader: &'r KeyspaceReader,
        keys: &'r KeyRange,
        values: LoadValues,
    ) -> Result<SnapshotScans<'r>> {
        reader.control.check()?;
        let manifest = reader.handle.bucket().manifest().uid();
        reader.check_exists()?;
        let usual = reader.control.hold_usual(STATEMENT_SCAN_BYTES)?;
        let left: VecDeque<Vbid> = (0..reader.handle.vbuckets()).map(Vbid).collect();
        for vbid in &left {
            reader.check_vbucket(*vbid)?;
        }
        reader.wait_until_persisted(&left)?;
        let now = u32::try_from(wall_clock().unix_ns / 1_000_000_000).unwrap_or(u32::MAX);
        Ok(SnapshotScans {
            reader,
            keys,
            values,
            manifest,
            left,
            current: None,
            batch: DocumentBatch::default(),
            _usual: usual,
            large: None,
            now,
        })
    }

    /// Moves to the next document; false after the last. The first call moves to the first one.
    ///
    /// # Errors
    /// When the scan cannot continue.
    pub fn advance(&mut self) -> Result<bool> {
        Ok(self.batch.advance() || (self.fill()? && self.batch.advance()))
    }

    /// The current document; none before the first and after the last.
    pub fn document(&self) -> Option<StoredVersion<'_>> {
        self.batch.document()
    }

    /// Fills the batch; false when nothing is left.
    fn fill(&mut self) -> Result<bool> {
        self.batch.clear(SCAN_BATCH_BYTES);
        self.large = None;
        while self.batch.is_empty() {
            self.reader.control.check()?;
            self.check_collection()?;
            let (vbid, mut scan) = match self.current.take() {
                Some(current) => current,
                None => {
                    let Some(vbid) = self.left.pop_front() else { return Ok(false) };
                    (vbid, self.begin_vbucket(vbid)?)
                }
            };
            match self.resume(&mut scan)? {
                ScanProgress::Paused => self.current = Some((vbid, scan)),
                ScanProgress::Ended => {}
            }
        }
        Ok(true)
    }

    fn begin_vbucket(&self, vbid: Vbid) -> Result<SnapshotScan> {
        let bucket = self.reader.handle.bucket();
        self.reader.check_vbucket(vbid)?;
        let collection = Some(self.reader.collection);
        let begun = bucket.begin_moment(vbid, collection, self.values);
        match begun.map_err(|error| self.unreadable(&error))? {
            Some(scan) => Ok(scan),
            None => Err(self.reader.control.unavailable("memory is short; try again")),
        }
    }

    fn resume(&mut self, scan: &mut SnapshotScan) -> Result<ScanProgress> {
        let control = &self.reader.control;
        let large = RefCell::new(None);
        let mut refused = None;
        let mut room = |bytes: usize| {
            large.replace(None);
            // The store's copy of a large document, and the batch's.
            match control.hold_large(2 * bytes) {
                Ok(held) => {
                    large.replace(Some(held));
                    ControlFlow::Continue(())
                }
                Err(why) => {
                    refused = Some(why);
                    ControlFlow::Break(())
                }
            }
        };
        let (batch, now) = (&mut self.batch, self.now);
        let (collection, keys, values) = (self.reader.collection, self.keys, self.values);
        let mut looked_at = 0;
        let progress = scan.resume_reserving(&mut room, &mut |record| {
            looked_at += 1;
            let is_live = !record.deleted && (record.expiry == 0 || record.expiry > now);
            if record.key.collection == collection && is_live && keys.contains(record.key.key) {
                let stored = StoredVersion::from(&record);
                match values {
                    LoadValues::Read => batch.push(&stored),
                    LoadValues::Skip => batch.push(&StoredVersion { value: &[], ..stored }),
                }
            } else {
                large.replace(None);
            }
            // Skipped records count, too: the statement may have to end.
            match batch.bytes() >= SCAN_BATCH_BYTES || looked_at >= BATCH_DOCUMENTS {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if let Some(why) = refused {
            return Err(why);
        }
        // The store has given its copy back.
        self.large = large.into_inner().map(|mut held| {
            held.keep(self.batch.bytes());
            held
        });
        progress.map_err(|error| self.unreadable(&error))
    }

    /// Ends a scan whose collection was dropped.
    fn check_collection(&mut self) -> Result<()> {
        let uid = self.reader.handle.bucket().manifest().uid();
        if uid != self.manifest || self.reader.handle.is_deleted() {
            self.reader.check_exists()?;
            self.manifest = uid;
        }
        Ok(())
    }

    fn unreadable(&self, error: &StoreError) -> anyhow::Error {
        tracing::warn!(%error, "a statement could not read the store");
        let bucket = self.reader.handle.name();
        self.reader.control.unavailable(format!("the store of {bucket:?} cannot be read: {error}"))
    }
}

impl KeyspaceReader {
    /// Waits until acknowledged writes are persisted.
    fn wait_until_persisted(&self, vbuckets: &VecDeque<Vbid>) -> Result<()> {
        if self.handle.is_in_memory() {
            return Ok(());
        }
        let bucket: &Arc<Bucket> = self.handle.bucket();
        let waiting = Arc::new(PersistenceWaiter::default());
        let sink: Arc<dyn PersistenceSink> = Arc::clone(&waiting) as _;
        let mut open = 0;
        for vbid in vbuckets {
            let Some(vbucket) = bucket.vbucket(*vbid) else { continue };
            let seqno = vbucket.stats().high_seqno;
            if vbucket.persisted_seqno() < seqno
                && !bucket.when_persisted(*vbid, (seqno, None), &sink, u64::from(vbid.0))
            {
                open += 1;
            }
        }
        let mut ended = waiting.ended.lock();
        while ended.count < open {
            waiting.news.wait_for(&mut ended, LOOK_INTERVAL);
            self.control.check()?;
        }
        debug_assert_eq!(ended.count, open, "a wait ends once");
        match ended.has_failed {
            false => Ok(()),
            true => Err(self.control.unavailable(format!(
                "writes to {:?} are not persisted, because its store fails",
                self.handle.name()
            ))),
        }
    }
}

#[derive(Default)]
struct PersistenceWaiter {
    ended: Mutex<PersistenceCount>,
    news: Condvar,
}

#[derive(Default)]
struct PersistenceCount {
    count: usize,
    has_failed: bool,
}

impl PersistenceSink for PersistenceWaiter {
    fn persisted(&self, _: u64, outcome: PersistOutcome) {
        let mut ended = self.ended.lock();
        ended.count += 1;
        ended.has_failed |= outcome == PersistOutcome::Failed;
        self.news.notify_all();
    }
}
