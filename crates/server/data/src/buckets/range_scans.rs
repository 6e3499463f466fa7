//! Range scans: the persisted documents of a collection in one vbucket, in key order or unordered,
//! a page at a time. A scan of a bucket without a store reads the documents in memory.
//!
//! Owns: the scans of a bucket, at most [`RANGE_SCANS_MAX`]. Each scan has a thread that pauses
//! inside the store's scan and waits there for the next request ([`runner`]). All pages therefore
//! show one point in time, if the store's scan does, and no worker blocks. The threads have a low
//! priority.
//!
//! Invariants:
//! - a scan holds one page at most;
//! - a scan ends with its last document, when it is cancelled, or [`RANGE_SCAN_LIFETIME`] after its
//!   creation;
//! - a scan also ends when the bucket stops, which waits for its thread;
//! - every accepted request gets an answer.
//!
//! The dispatcher calls this. The scans encode documents as clients read them ([`page`]) but know
//! no connection.

mod order;
mod page;
mod request;
mod runner;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use oribi_engine::Bucket;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Vbid};
use parking_lot::Mutex;

pub(crate) use order::{Reserve, ScanAnswer, ScanId, ScanLimits, ScanReply, ScanReservation};
pub(crate) use page::AcceptedDatatypes;
pub(crate) use request::{Content, ScanRequest};

use crate::limits::{RANGE_SCAN_LIFETIME, RANGE_SCANS_MAX, READING_NICENESS};
use order::{ScanFlags, ScanOrder};
use runner::Runner;

/// The subject of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanSubject {
    pub collection: CollectionId,
    /// The parts of its documents.
    pub content: Content,
}

/// Scans of one bucket.
#[derive(Default)]
pub(crate) struct RangeScans {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    scans: Mutex<HashMap<ScanId, Scan>>,
    is_stopped: AtomicBool,
}

struct Scan {
    vbid: Vbid,
    subject: ScanSubject,
    orders: SyncSender<ScanOrder>,
    flags: Arc<ScanFlags>,
    thread: Option<JoinHandle<()>>,
}

impl RangeScans {
    /// Starts a scan. The answer follows when the first document is found, or when there is none.
    pub fn create(
        &self,
        bucket: Arc<Bucket>,
        request: ScanRequest,
        reserve: Reserve,
        reply: ScanReply,
    ) {
        let ends = Instant::now() + RANGE_SCAN_LIFETIME;
        self.create_until(bucket, request, reserve, ends, reply);
    }

    /// As [`RangeScans::create`], for a scan that ends at this time at the latest.
    pub fn create_until(
        &self,
        bucket: Arc<Bucket>,
        request: ScanRequest,
        reserve: Reserve,
        ends: Instant,
        reply: ScanReply,
    ) {
        let mut scans = self.shared.scans.lock();
        let is_stopped = self.shared.is_stopped.load(Ordering::Acquire);
        let mut id = ScanId::default();
        if is_stopped || scans.len() >= RANGE_SCANS_MAX || getrandom::fill(&mut id).is_err() {
            return reply(ScanAnswer::Refused(Status::Etmpfail));
        }
        let (orders, taken) = sync_channel(1);
        let flags = Arc::new(ScanFlags::default());
        let subject = ScanSubject { collection: request.collection, content: request.content };
        let vbid = request.vbid;
        let runner =
            Runner::new(id, bucket, request, reserve, (taken, Arc::clone(&flags)), ends, reply);
        let shared = Arc::clone(&self.shared);
        let work = move || {
            // Without it the scan competes with workers as an equal.
            let _ = rustix::process::nice(READING_NICENESS);
            // The runner's drop answers every waiting request, whatever its end.
            let _ = oribi_supervisor::job("scan", || runner.run());
            // A stopped scan is no longer listed.
            shared.scans.lock().remove(&id);
        };
        match oribi_supervisor::spawn("oribi-scan", work) {
            Ok(thread) => {
                debug_assert!(!scans.contains_key(&id), "an id names one scan");
                debug_assert!(scans.len() < RANGE_SCANS_MAX, "a bucket has so many scans at most");
                scans.insert(id, Scan { vbid, subject, orders, flags, thread: Some(thread) });
            }
            // The runner is gone and with it the reply, whose drop answered.
            Err(error) => tracing::warn!(%error, "no thread for a range scan"),
        }
    }

    /// The subject of a scan; `None` when the scan does not exist.
    pub fn subject_of(&self, id: ScanId) -> Option<ScanSubject> {
        self.shared.scans.lock().get(&id).map(|scan| scan.subject)
    }

    /// Continues a scan with a new request.
    pub fn proceed(
        &self,
        vbid: Vbid,
        id: ScanId,
        limits: ScanLimits,
        shown: AcceptedDatatypes,
        reply: ScanReply,
    ) {
        let scans = self.shared.scans.lock();
        let is_it = |scan: &&Scan| scan.vbid == vbid && !scan.flags.is_cancelled();
        let Some(scan) = scans.get(&id).filter(is_it) else {
            return reply(ScanAnswer::Refused(Status::KeyEnoent));
        };
        debug_assert_eq!(scan.vbid, vbid, "a scan is of its vbucket");
        if scan.flags.is_busy.swap(true, Ordering::AcqRel) {
            return reply(ScanAnswer::Refused(Status::Ebusy));
        }
        scan.order(ScanOrder::Continue { limits, shown, reply });
    }

    /// Requests the next page of the current request.
    pub fn resume(&self, id: ScanId, reply: ScanReply) {
        match self.shared.scans.lock().get(&id) {
            Some(scan) => scan.order(ScanOrder::Resume { reply }),
            None => reply(ScanAnswer::Refused(Status::RangeScanCancelled)),
        }
    }

    /// Ends a scan and answers its current request. False when the scan does not exist.
    pub fn cancel(&self, vbid: Vbid, id: ScanId) -> bool {
        let scans = self.shared.scans.lock();
        let Some(scan) = scans.get(&id).filter(|scan| scan.vbid == vbid) else { return false };
        let was_cancelled = scan.flags.is_cancelled.swap(true, Ordering::AcqRel);
        // Wakes the thread. If the thread is busy it sees the mark without this.
        let _ = scan.orders.try_send(ScanOrder::Cancel);
        !was_cancelled
    }

    /// Ends all scans, waits for their threads, and prevents new scans.
    pub fn stop(&self) {
        let stopped = {
            let mut scans = self.shared.scans.lock();
            self.shared.is_stopped.store(true, Ordering::Release);
            std::mem::take(&mut *scans)
        };
        for (_, mut scan) in stopped {
            scan.flags.is_cancelled.store(true, Ordering::Release);
            let thread = scan.thread.take();
            drop(scan);
            if thread.is_some_and(|thread| thread.join().is_err()) {
                tracing::error!("the thread of a range scan panicked");
            }
        }
    }
}

impl Scan {
    /// Hands an order to the thread. The queue has room, because a scan has at most one request at
    /// a time.
    fn order(&self, order: ScanOrder) {
        match self.orders.try_send(order) {
            Ok(()) => {}
            Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) => order.refuse(),
        }
    }
}

impl Drop for RangeScans {
    fn drop(&mut self) {
        self.stop();
    }
}
