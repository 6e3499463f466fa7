//! Range scans: the persisted documents of a collection in one vbucket, in the order of their keys, a page at a time.
//!
//! Owns: the scans of a bucket, at most [`RANGE_SCANS_MAX`]. Each has a thread that stands in the middle of the store's
//! scan and waits there for the next request ([`runner`]); that is what makes all pages show one moment, and keeps
//! the workers free. Invariants: a scan holds one page at most; it ends with its last document, when it is cancelled,
//! [`RANGE_SCAN_LIFETIME`] after it was created, and when the bucket is stopped, which waits for its thread; an
//! answer is given to every request that was taken. Called by the dispatcher; it encodes documents as clients
//! read them ([`page`]) but knows no connection.

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

pub(crate) use page::Shown;
pub(crate) use request::{Content, ScanRequest};

use crate::limits::{RANGE_SCAN_LIFETIME, RANGE_SCANS_MAX};
use runner::Runner;

/// Names a scan.
pub(crate) type ScanId = [u8; 16];

/// Where an answer goes.
pub(crate) type Reply = Box<dyn FnOnce(ScanAnswer) + Send>;

/// What a request about a scan is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ScanAnswer {
    /// There is something to scan, under this name.
    Created(ScanId),
    /// Documents or keys; with Success there is more of the same request.
    Page {
        /// What comes after them.
        status: Status,
        /// Keys only.
        only_keys: bool,
        /// As clients read them.
        bytes: Vec<u8>,
    },
    /// Nothing but this.
    Refused(Status),
}

/// Where a request to continue ends. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScanLimits {
    /// Documents.
    pub items: u32,
    /// Milliseconds.
    pub time_ms: u32,
    /// Bytes; the document that exceeds it is still sent.
    pub bytes: u32,
}

/// What a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The collection.
    pub collection: CollectionId,
    /// What of its documents.
    pub content: Content,
}

/// What a scan's thread is told.
enum Order {
    Continue {
        limits: ScanLimits,
        shown: Shown,
        reply: Reply,
    },
    /// The next page of the request that is being answered.
    Resume {
        reply: Reply,
    },
    /// Look at the mark.
    Cancel,
}

impl Order {
    /// Answers whoever gave it that there will be nothing.
    fn refuse(self) {
        match self {
            Order::Continue { reply, .. } => reply(ScanAnswer::Refused(Status::KeyEnoent)),
            Order::Resume { reply } => reply(ScanAnswer::Refused(Status::RangeScanCancelled)),
            Order::Cancel => {}
        }
    }
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
    subject: Subject,
    orders: SyncSender<Order>,
    flags: Arc<Flags>,
    thread: Option<JoinHandle<()>>,
}

/// What a scan and its thread share.
#[derive(Default)]
struct Flags {
    /// A request is being answered.
    is_busy: AtomicBool,
    is_cancelled: AtomicBool,
}

impl RangeScans {
    /// Starts a scan. It is answered when the first document is found, or none.
    pub fn create(&self, bucket: Arc<Bucket>, request: ScanRequest, reply: Reply) {
        self.create_until(bucket, request, Instant::now() + RANGE_SCAN_LIFETIME, reply);
    }

    /// As [`RangeScans::create`], for a scan that ends at this time at the latest.
    pub fn create_until(
        &self,
        bucket: Arc<Bucket>,
        request: ScanRequest,
        ends: Instant,
        reply: Reply,
    ) {
        let mut scans = self.shared.scans.lock();
        let is_stopped = self.shared.is_stopped.load(Ordering::Acquire);
        let mut id = ScanId::default();
        if is_stopped || scans.len() >= RANGE_SCANS_MAX || getrandom::fill(&mut id).is_err() {
            return reply(ScanAnswer::Refused(Status::Etmpfail));
        }
        let (orders, taken) = sync_channel(1);
        let flags = Arc::new(Flags::default());
        let subject = Subject { collection: request.collection, content: request.content };
        let vbid = request.vbid;
        let runner = Runner::new(id, bucket, request, taken, Arc::clone(&flags), ends, reply);
        let shared = Arc::clone(&self.shared);
        let work = move || {
            runner.run();
            // A scan that was stopped is not listed any more.
            shared.scans.lock().remove(&id);
        };
        match std::thread::Builder::new().name("oribi-scan".to_owned()).spawn(work) {
            Ok(thread) => {
                scans.insert(id, Scan { vbid, subject, orders, flags, thread: Some(thread) });
            }
            // The runner is gone and with it the reply; its drop answered.
            Err(error) => tracing::warn!(%error, "no thread for a range scan"),
        }
    }

    /// What a scan reads; `None` when there is no such scan.
    pub fn subject_of(&self, id: ScanId) -> Option<Subject> {
        self.shared.scans.lock().get(&id).map(|scan| scan.subject)
    }

    /// Asks for more.
    pub fn proceed(&self, vbid: Vbid, id: ScanId, limits: ScanLimits, shown: Shown, reply: Reply) {
        let scans = self.shared.scans.lock();
        let is_it = |scan: &&Scan| scan.vbid == vbid && !scan.flags.is_cancelled();
        let Some(scan) = scans.get(&id).filter(is_it) else {
            return reply(ScanAnswer::Refused(Status::KeyEnoent));
        };
        if scan.flags.is_busy.swap(true, Ordering::AcqRel) {
            return reply(ScanAnswer::Refused(Status::Ebusy));
        }
        scan.order(Order::Continue { limits, shown, reply });
    }

    /// Asks for the next page of a request that is being answered.
    pub fn resume(&self, id: ScanId, reply: Reply) {
        match self.shared.scans.lock().get(&id) {
            Some(scan) => scan.order(Order::Resume { reply }),
            None => reply(ScanAnswer::Refused(Status::RangeScanCancelled)),
        }
    }

    /// Ends a scan; a request that is being answered is told. False when there is none.
    pub fn cancel(&self, vbid: Vbid, id: ScanId) -> bool {
        let scans = self.shared.scans.lock();
        let Some(scan) = scans.get(&id).filter(|scan| scan.vbid == vbid) else { return false };
        let was_cancelled = scan.flags.is_cancelled.swap(true, Ordering::AcqRel);
        // Wakes the thread, unless it has something to do and sees the mark by itself.
        let _ = scan.orders.try_send(Order::Cancel);
        !was_cancelled
    }

    /// Ends all scans and waits for their threads. None can be created after that.
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
    /// Hands an order to the thread. There is room: at most one request is answered at a time.
    fn order(&self, order: Order) {
        match self.orders.try_send(order) {
            Ok(()) => {}
            Err(TrySendError::Full(order) | TrySendError::Disconnected(order)) => order.refuse(),
        }
    }
}

impl Flags {
    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}

impl Drop for RangeScans {
    fn drop(&mut self) {
        self.stop();
    }
}
