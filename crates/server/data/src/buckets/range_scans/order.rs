//! Orders to a scan, and its answers.
//!
//! Owns: the messages between a bucket's scans, their threads and the dispatcher. Invariant: every
//! accepted order is answered once.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_protocol::status::Status;

use super::page::AcceptedDatatypes;

/// The id of a scan.
pub(crate) type ScanId = [u8; 16];

pub(crate) type ScanReply = Box<dyn FnOnce(ScanAnswer) + Send>;

/// Reserved memory; dropping it releases the reservation.
pub(crate) type ScanReservation = Box<dyn Any + Send>;

/// Reserves that many bytes, or queues for them. A later call reports whether they were granted. A
/// call for 0 bytes leaves the queue.
pub(crate) type Reserve = Box<dyn FnMut(usize) -> Option<ScanReservation> + Send>;

/// The answer to a request about a scan.
#[derive(Debug)]
pub(crate) enum ScanAnswer {
    /// The scan has documents, and got this id.
    Created(ScanId),
    /// Documents or keys; Success means that the same request has more.
    Page {
        /// The part after the page.
        status: Status,
        only_keys: bool,
        bytes: Vec<u8>,
        /// The reservation of a large page until a connection takes the page over.
        held: Option<ScanReservation>,
    },
    Refused(Status),
}

/// The limits of a request to continue. 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ScanLimits {
    pub items: u32,
    pub time_ms: u32,
    /// Bytes; the document that exceeds it is still sent.
    pub bytes: u32,
}

/// An order to a scan's thread.
pub(super) enum ScanOrder {
    Continue {
        limits: ScanLimits,
        shown: AcceptedDatatypes,
        reply: ScanReply,
    },
    /// The next page of the current request.
    Resume {
        reply: ScanReply,
    },
    Cancel,
}

impl ScanOrder {
    /// Answers the order's sender that no page will follow.
    pub(super) fn refuse(self) {
        match self {
            ScanOrder::Continue { reply, .. } => reply(ScanAnswer::Refused(Status::KeyEnoent)),
            ScanOrder::Resume { reply } => reply(ScanAnswer::Refused(Status::RangeScanCancelled)),
            ScanOrder::Cancel => {}
        }
    }
}

/// State shared by a scan and its thread.
#[derive(Default)]
pub(super) struct ScanFlags {
    /// The scan has a current request.
    pub(super) is_busy: AtomicBool,
    pub(super) is_cancelled: AtomicBool,
}

impl ScanFlags {
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Acquire)
    }
}
