//! The thread of one range scan.
//!
//! Owns: the walk through the store's scan, and the page in progress. The thread waits for requests
//! inside the store's scan, where no lock is held.
//!
//! Invariants:
//! - the owner of a [`ScanReply`] answers it, at the latest by dropping it;
//! - a page is handed over before the next document is read;
//! - a large document is read while its client waits for it, and in memory that was reserved. A
//!   scan without a request neither holds memory nor queues for it;
//! - a cancelled scan reads no further document.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oribi_engine::{Bucket, Storage};
use oribi_protocol::status::Status;
use oribi_storage::{LoadValues, Record, StoreError};
use oribi_types::Seqno;

use super::order::{
    Reserve, ScanAnswer, ScanFlags, ScanId, ScanLimits, ScanOrder, ScanReply, ScanReservation,
};
use super::page::{AcceptedDatatypes, append};
use super::request::{Content, Picker, ScanRequest};
use crate::limits::{MEMORY_WAIT_MS, RANGE_SCAN_PAGE_BYTES};

/// Polling interval of the persisted seqno while a request waits for one.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Documents between two looks at the clock: some microseconds of work.
const DOCUMENTS_PER_CHECK: u8 = 32;
const _: () = assert!(DOCUMENTS_PER_CHECK > 0);

/// Capacity of a page: its maximum size and one usual document.
const PAGE_CAPACITY: usize = RANGE_SCAN_PAGE_BYTES + RANGE_SCAN_PAGE_BYTES / 4;
const _: () =
    assert!(PAGE_CAPACITY < 128 << 10, "longer blocks are mapped, and cleared, each time");

/// The state of a scan's thread.
pub(super) struct Runner {
    id: ScanId,
    bucket: Arc<Bucket>,
    request: ScanRequest,
    reserve: Reserve,
    orders: Receiver<ScanOrder>,
    flags: Arc<ScanFlags>,
    /// When the scan ends at the latest.
    ends: Instant,
    /// For the creator of the scan; taken when it is answered.
    created: Option<ScanReply>,
    answering: Option<Answering>,
    /// For a large document that is about to be read, and for the page that has it.
    held: Option<ScanReservation>,
    /// UNIX seconds at the start: documents that had expired by then are not shown.
    now: u32,
    /// Documents since the last look at the clock.
    since_check: u8,
}

struct Answering {
    limits: ScanLimits,
    shown: AcceptedDatatypes,
    started: Instant,
    items: u32,
    bytes: u64,
    page: Vec<u8>,
    /// Takes the page; `None` from then on until the next page is requested.
    reply: Option<ScanReply>,
}

impl Runner {
    pub fn new(
        id: ScanId,
        bucket: Arc<Bucket>,
        request: ScanRequest,
        reserve: Reserve,
        (orders, flags): (Receiver<ScanOrder>, Arc<ScanFlags>),
        ends: Instant,
        reply: ScanReply,
    ) -> Runner {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        let created = Some(reply);
        Runner {
            id,
            bucket,
            request,
            reserve,
            orders,
            flags,
            ends,
            created,
            answering: None,
            held: None,
            now,
            since_check: 0,
        }
    }

    /// Runs the scan to its end.
    pub fn run(mut self) {
        if let Err(status) = self.prepare() {
            return self.refuse_creation(status);
        }
        let picker = match self.picker() {
            Ok(picker) => picker,
            Err(error) => return self.fail(&error),
        };
        let outcome = self.scan(picker);
        match outcome {
            Err(error) => self.fail(&error),
            Ok(()) if self.is_cancelled() => self.end(Status::RangeScanCancelled),
            Ok(()) if self.created.is_some() => self.refuse_creation(Status::KeyEnoent),
            Ok(()) => {
                if self.wait_for_order().is_continue() {
                    self.end(Status::RangeScanComplete);
                }
            }
        }
    }

    /// Waits until the client's requirement on persistence is met.
    fn prepare(&self) -> Result<(), Status> {
        let Some(required) = self.request.snapshot else { return Ok(()) };
        let deadline = (Instant::now() + required.timeout).min(self.ends);
        let vbid = self.request.vbid;
        let reached = || {
            let vbucket = self.bucket.vbucket(vbid).ok_or(Status::NotMyVbucket)?;
            Ok(match self.is_in_memory() {
                true => vbucket.stats().high_seqno,
                false => vbucket.persisted_seqno(),
            })
        };
        while reached()? < required.seqno {
            if self.is_cancelled() || Instant::now() >= deadline {
                return Err(Status::Etmpfail);
            }
            std::thread::sleep(
                POLL_INTERVAL.min(deadline.saturating_duration_since(Instant::now())),
            );
        }
        if required.must_exist && !self.has_seqno(required.seqno).unwrap_or(false) {
            return Err(Status::NotStored);
        }
        Ok(())
    }

    /// Whether the bucket has no store, so that nothing waits to be persisted.
    fn is_in_memory(&self) -> bool {
        self.bucket.config().storage == Storage::Memory
    }

    /// Whether the version with this seqno still exists.
    fn has_seqno(&self, seqno: Seqno) -> Result<bool, StoreError> {
        let mut found = false;
        if self.is_in_memory() {
            let Some(mut moment) =
                self.bucket.begin_moment(self.request.vbid, None, LoadValues::Skip)?
            else {
                return Ok(false);
            };
            moment.resume(&mut |record| {
                found |= record.seqno == seqno;
                if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            return Ok(found);
        }
        self.bucket.scan_persisted_seqnos(self.request.vbid, seqno, seqno, &mut |_| {
            found = true;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Chooses the documents. A sample counts them first.
    fn picker(&mut self) -> Result<Picker, StoreError> {
        let (bucket, request) = (Arc::clone(&self.bucket), self.request.clone());
        let mut count = 0;
        if request.is_sample() {
            bucket.scan_persisted(request.vbid, request.from(), &mut |record| {
                count += u64::from(self.is_shown(&record));
                self.flow()
            })?;
        }
        Ok(request.picker(count))
    }

    fn scan(&mut self, mut picker: Picker) -> Result<(), StoreError> {
        let (bucket, request) = (Arc::clone(&self.bucket), self.request.clone());
        let is_in_order = request.is_in_order;
        let runner = RefCell::new(self);
        let mut visit = |record: Record<'_>| {
            let mut runner = runner.borrow_mut();
            if is_in_order && request.is_behind(record.key) {
                return ControlFlow::Break(());
            }
            runner.flow()?;
            let is_wanted =
                runner.is_shown(&record) && request.contains(record.key) && picker.takes();
            let flow = if is_wanted { runner.visit(&record) } else { runner.check_deadline() };
            runner.held = None;
            flow
        };
        let mut reserve = |bytes| runner.borrow_mut().reserve_for_record(bytes);
        if is_in_order {
            let from = request.from();
            return bucket.scan_persisted_reserving(request.vbid, from, &mut reserve, &mut visit);
        }
        match bucket.begin_moment(request.vbid, Some(request.collection), LoadValues::Read)? {
            Some(mut moment) => moment.resume_reserving(&mut reserve, &mut visit).map(|_| ()),
            None => Err(StoreError::Away("the vbucket has no moment to be scanned at".into())),
        }
    }

    /// False for tombstones and expired documents.
    fn is_shown(&self, record: &Record<'_>) -> bool {
        !record.deleted && (record.expiry == 0 || record.expiry > self.now)
    }

    fn visit(&mut self, record: &Record<'_>) -> ControlFlow<()> {
        if let Some(reply) = self.created.take() {
            reply(ScanAnswer::Created(self.id));
        }
        if !self.is_waited_for() {
            self.wait_for_order()?;
        }
        let content = self.request.content;
        let Some(answering) = &mut self.answering else { return ControlFlow::Break(()) };
        debug_assert!(answering.reply.is_some(), "a document is read while its client waits");
        let before = answering.page.len();
        append(&mut answering.page, record, content, answering.shown);
        assert!(answering.page.len() > before, "a document adds bytes to the page");
        answering.items += 1;
        answering.bytes += (answering.page.len() - before) as u64;
        if answering.is_over() {
            self.end(Status::RangeScanMore);
        } else if answering.page.len() >= RANGE_SCAN_PAGE_BYTES {
            self.hand_over(Status::Success);
        }
        ControlFlow::Continue(())
    }

    /// Reserves memory for a large document and its page while the scan reads them. The scan first
    /// answers its client that documents exist and waits for the next request. In the worst case
    /// this document is the only one and has expired.
    fn reserve_for_record(&mut self, bytes: usize) -> ControlFlow<()> {
        if let Some(reply) = self.created.take() {
            reply(ScanAnswer::Created(self.id));
        }
        let mut refusal = Instant::now();
        loop {
            if !self.is_waited_for() {
                self.wait_for_order()?;
                refusal = Instant::now() + Duration::from_millis(MEMORY_WAIT_MS);
            }
            self.held = (self.reserve)(2 * bytes);
            if self.held.is_some() {
                return ControlFlow::Continue(());
            }
            if Instant::now() >= refusal {
                self.flags.is_cancelled.store(true, Ordering::Release);
                self.end(Status::Etmpfail);
                return ControlFlow::Break(());
            }
            std::thread::sleep(POLL_INTERVAL);
            self.check_deadline()?;
        }
    }

    /// Ends a request whose time is over while documents are skipped.
    fn check_deadline(&mut self) -> ControlFlow<()> {
        if self.is_waited_for() && self.answering.as_ref().is_some_and(Answering::is_late) {
            self.end(Status::RangeScanMore);
        }
        self.flow()
    }

    /// True while a client waits for a page.
    fn is_waited_for(&self) -> bool {
        self.answering.as_ref().is_some_and(|answering| answering.reply.is_some())
    }

    /// Waits for the next order. Breaks when none can follow.
    fn wait_for_order(&mut self) -> ControlFlow<()> {
        if self.is_waited_for() {
            return ControlFlow::Continue(());
        }
        let left = self.ends.saturating_duration_since(Instant::now());
        match self.orders.recv_timeout(left) {
            Ok(ScanOrder::Continue { limits, shown, reply }) => {
                debug_assert!(self.answering.is_none(), "a scan has one request at a time");
                let started = Instant::now();
                let (page, reply) = (Vec::with_capacity(PAGE_CAPACITY), Some(reply));
                self.answering =
                    Some(Answering { limits, shown, started, items: 0, bytes: 0, page, reply });
            }
            Ok(ScanOrder::Resume { reply }) => match &mut self.answering {
                Some(answering) => answering.reply = Some(reply),
                None => reply(ScanAnswer::Refused(Status::RangeScanCancelled)),
            },
            Ok(ScanOrder::Cancel)
            | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.flags.is_cancelled.store(true, Ordering::Release);
            }
        }
        self.flow()
    }

    /// Sends the page and ends the request.
    fn end(&mut self, status: Status) {
        // The thread may run long after the answer, because its priority is low.
        let left = (self.reserve)(0);
        assert!(left.is_none(), "a reservation of nothing");
        // The receiver of the answer may ask for more at once.
        self.flags.is_busy.store(false, Ordering::Release);
        self.hand_over(status);
        self.held = None;
        self.answering = None;
        if let Some(reply) = self.created.take() {
            reply(ScanAnswer::Refused(status));
        }
    }

    fn hand_over(&mut self, status: Status) {
        let only_keys = self.request.content == Content::Keys;
        let Some(answering) = &mut self.answering else { return };
        let next = match status {
            Status::Success => Vec::with_capacity(PAGE_CAPACITY),
            _ => Vec::new(),
        };
        let bytes = std::mem::replace(&mut answering.page, next);
        debug_assert!(
            status != Status::Success || self.held.is_none() || !bytes.is_empty(),
            "a page that continues has documents"
        );
        if let Some(reply) = answering.reply.take() {
            reply(ScanAnswer::Page { status, only_keys, bytes, held: self.held.take() });
        }
    }

    fn refuse_creation(&mut self, status: Status) {
        if let Some(reply) = self.created.take() {
            reply(ScanAnswer::Refused(status));
        }
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::warn!(vbucket = self.request.vbid.0, %error, "a range scan could not read the store");
        self.end(Status::Etmpfail);
    }

    fn is_cancelled(&self) -> bool {
        self.flags.is_cancelled()
    }

    /// Breaks when the scan is cancelled. A scan whose time is over is cancelled here.
    fn flow(&mut self) -> ControlFlow<()> {
        if self.since_check == 0 && Instant::now() >= self.ends {
            self.flags.is_cancelled.store(true, Ordering::Release);
        }
        self.since_check = (self.since_check + 1) % DOCUMENTS_PER_CHECK;
        debug_assert!(self.since_check < DOCUMENTS_PER_CHECK, "the deadline is checked in time");
        if self.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Drop for Runner {
    /// Answers every waiting request, so that no connection hangs if the thread ends early.
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        self.end(if panicked { Status::Einternal } else { Status::RangeScanCancelled });
        while let Ok(order) = self.orders.try_recv() {
            order.refuse();
        }
    }
}

impl Answering {
    fn is_over(&self) -> bool {
        let ScanLimits { items, bytes, .. } = self.limits;
        (items != 0 && self.items >= items)
            || (bytes != 0 && self.bytes >= bytes.into())
            || self.is_late()
    }

    fn is_late(&self) -> bool {
        let limit = self.limits.time_ms;
        limit != 0 && self.started.elapsed() >= Duration::from_millis(limit.into())
    }
}
