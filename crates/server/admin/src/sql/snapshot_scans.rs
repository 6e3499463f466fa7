//! Scans of vbuckets, each at one moment.
//!
//! Owns: the order of vbuckets, the wait until writes are persisted, and the batch of documents
//! that a scan holds. A scan pauses inside the engine's scan, where no lock is held, while SQLite
//! looks at a batch. Invariant: what was acknowledged before the scan began is shown, unless it was
//! changed since.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use oribi_engine::{Bucket, PersistOutcome, PersistenceSink, SnapshotScan};
use oribi_sql::batch::DocumentBatch;
use oribi_sql::documents::{DocumentScan, DocumentStream, StoredDocument};
use oribi_storage::{LARGE_RECORD_BYTES, Record, ScanProgress, StoreError};
use oribi_system::clock::wall_clock;
use oribi_types::{CollectionId, ManifestUid, Vbid};
use parking_lot::{Condvar, Mutex};

use super::memory::LargeValueMemory;
use super::reader::DocumentReader;
use crate::limits::{SQL_BATCH_BYTES, SQL_SCAN_BYTES};
use oribi_server::admin_api::memory::Reservation;

/// Documents of a batch without values.
const BATCH_DOCUMENTS: usize = 1024;

/// Interval between two looks whether a wait has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// See the module text.
pub(super) struct SnapshotScans {
    reader: Arc<DocumentReader>,
    scan: DocumentScan,
    collections: Vec<CollectionId>,
    /// The manifest that the collections were compared with.
    manifest: ManifestUid,
    left: VecDeque<Vbid>,
    current: Option<(Vbid, SnapshotScan)>,
    batch: DocumentBatch,
    /// For the batch, and what a scan reads ahead.
    _usual: Reservation,
    /// For a large document of the batch.
    large: Option<LargeValueMemory>,
    /// For what is made of the current document.
    beside: Option<LargeValueMemory>,
    /// UNIX seconds when the scan began: what had expired by then is not shown.
    now: u32,
}

impl SnapshotScans {
    /// Begins.
    ///
    /// # Errors
    /// When not all of the vbuckets are served here, or writes are not persisted in time.
    pub fn begin(
        reader: Arc<DocumentReader>,
        scan: DocumentScan,
        collections: Vec<CollectionId>,
    ) -> Result<SnapshotScans> {
        let is_wanted =
            |vbid: &Vbid| scan.vbuckets.as_ref().is_none_or(|wanted| wanted.contains(vbid));
        let usual = reader.control.hold_usual(SQL_SCAN_BYTES)?;
        let left: VecDeque<Vbid> =
            (0..reader.handle.vbuckets()).map(Vbid).filter(is_wanted).collect();
        let manifest = reader.handle.bucket().manifest().uid();
        if left.iter().any(|vbid| !reader.handle.bucket().is_serving(*vbid)) {
            return Err(reader.not_here());
        }
        reader.wait_until_persisted(&left)?;
        let now = u32::try_from(wall_clock().unix_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let (current, batch) = (None, DocumentBatch::default());
        Ok(SnapshotScans {
            reader,
            scan,
            collections,
            manifest,
            left,
            current,
            batch,
            _usual: usual,
            large: None,
            beside: None,
            now,
        })
    }

    /// Fills the batch; false when nothing is left.
    fn fill(&mut self) -> Result<bool> {
        self.batch.clear(SQL_BATCH_BYTES);
        self.large = None;
        while self.batch.is_empty() {
            self.reader.control.check()?;
            self.look_at_collections()?;
            let (vbid, mut scan) = match self.current.take() {
                Some(current) => current,
                None => {
                    let Some(vbid) = self.left.pop_front() else { return Ok(false) };
                    (vbid, self.begin_vbucket(vbid)?)
                }
            };
            match self.resume(vbid, &mut scan)? {
                ScanProgress::Paused => self.current = Some((vbid, scan)),
                ScanProgress::Ended => {}
            }
        }
        Ok(true)
    }

    fn begin_vbucket(&self, vbid: Vbid) -> Result<SnapshotScan> {
        let bucket = self.reader.handle.bucket();
        if !bucket.is_serving(vbid) {
            return Err(self.reader.not_here());
        }
        let only = match self.collections.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        match bucket.begin_moment(vbid, only).map_err(|error| self.unreadable(&error))? {
            Some(scan) => Ok(scan),
            None => Err(self.reader.control.unavailable("memory is short; try again")),
        }
    }

    fn resume(&mut self, vbid: Vbid, scan: &mut SnapshotScan) -> Result<ScanProgress> {
        let control = &self.reader.control;
        let large = RefCell::new(None);
        let mut refused = None;
        // The store's copy of a large document, and the batch's.
        let copies = 1 + usize::from(self.scan.needs_value);
        let mut room = |bytes: usize| {
            large.replace(None);
            match control.hold_large(copies * bytes) {
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
        let (collections, keys) = (&self.collections, &self.scan.keys);
        let (takes_all_keys, needs_value) = (keys.is_open(), self.scan.needs_value);
        let only = match collections.as_slice() {
            [only] => Some(*only),
            _ => None,
        };
        let mut looked_at = 0;
        let progress = scan.resume_asking(&mut room, &mut |record| {
            looked_at += 1;
            let is_in = match only {
                Some(only) => record.key.collection == only,
                None => collections.binary_search(&record.key.collection).is_ok(),
            };
            let is_live = !record.deleted && (record.expiry == 0 || record.expiry > now);
            if is_in && is_live && (takes_all_keys || keys.contains(record.key.key)) {
                batch.push(&stored(vbid, &record), needs_value);
            } else {
                large.replace(None);
            }
            // What is passed over counts, too: the statement may have to end.
            match batch.bytes() >= SQL_BATCH_BYTES || looked_at >= BATCH_DOCUMENTS {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        if let Some(why) = refused {
            return Err(why);
        }
        // The store has given its copy back.
        self.large = large.into_inner().filter(|_| needs_value).map(|mut held| {
            held.keep(self.batch.bytes());
            held
        });
        progress.map_err(|error| self.unreadable(&error))
    }

    /// Leaves collections out that were dropped.
    fn look_at_collections(&mut self) -> Result<()> {
        let uid = self.reader.handle.bucket().manifest().uid();
        if uid != self.manifest || self.reader.handle.is_deleted() {
            self.collections = self.reader.existing(self.scan.collections.as_ref())?;
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

impl DocumentStream for SnapshotScans {
    fn advance(&mut self) -> Result<bool> {
        self.beside = None;
        Ok(self.batch.advance() || (self.fill()? && self.batch.advance()))
    }

    fn document(&self) -> Option<StoredDocument<'_>> {
        self.batch.document()
    }

    fn make_room(&mut self, bytes: usize) -> Result<()> {
        if bytes > LARGE_RECORD_BYTES {
            self.beside = Some(self.reader.control.hold_large(bytes)?);
        }
        Ok(())
    }
}

impl DocumentReader {
    /// Waits until what was acknowledged is persisted.
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

/// A version as SQL's tables take it.
pub(super) fn stored<'a>(vbid: Vbid, record: &Record<'a>) -> StoredDocument<'a> {
    StoredDocument {
        vbid,
        collection: record.key.collection,
        key: record.key.key,
        cas: record.cas.0,
        seqno: record.seqno.0,
        rev: Some(record.rev_seqno.0),
        flags: record.flags,
        expiry: record.expiry,
        datatype: record.datatype,
        value: record.value,
    }
}
