//! A STAT in progress: its position, and how it continues.
//!
//! Owns: the division into slices. A group is a [`StatProducer`] that remembers its position. The
//! connection requests the next slice when the last one is sent, and lets the other connections of
//! its worker go first.
//!
//! Invariants:
//! - a slice is bounded by [`STAT_SLICE_BYTES`] and one step of its producer;
//! - no lock is held between two steps;
//! - if the bucket is deleted in between, the STAT ends with NoBucket.
//!
//! The dispatcher calls this and writes the end. The producers decide about the entries.

mod writer;

use std::sync::Arc;

use oribi_protocol::status::Status;

use crate::buckets::BucketHandle;
use crate::connection::request_id::RequestId;
use crate::connection::send_buffer::SendBuffer;
use crate::limits::STAT_SLICE_BYTES;

pub(crate) use writer::{EntryHead, HexText, StatWriter};

/// The entries of one group, from a position on.
pub(crate) trait StatProducer: Send {
    /// Writes entries until the group is complete (true) or the slice is full (false).
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool;
}

/// A group that is small enough for one step.
pub(crate) struct SingleSlice<F>(pub F);

impl<F: FnMut(&mut StatWriter<'_>) + Send> StatProducer for SingleSlice<F> {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        (self.0)(writer);
        true
    }
}

/// The data that a job of the blocking thread collected for a group, or why the group cannot be
/// answered.
pub(crate) type PreparedStat = Result<Box<dyn StatProducer>, Status>;

/// Collects a group's data on the blocking thread.
pub(crate) type StatPreparation = Box<dyn FnOnce() -> PreparedStat + Send>;

/// One STAT in progress.
pub(crate) struct StatCursor {
    request: RequestId,
    /// `None` for groups about the server.
    bucket: Option<Arc<BucketHandle>>,
    begun_ns: u64,
    head: EntryHead,
    /// `None` while the blocking thread prepares it.
    producer: Option<Box<dyn StatProducer>>,
}

impl StatCursor {
    /// Starts a STAT before its first entry. `begun_ns` is a reading of the latency clock; entries
    /// are lines for a client that `is_text`.
    pub fn new(
        request: RequestId,
        bucket: Option<Arc<BucketHandle>>,
        begun_ns: u64,
        producer: Option<Box<dyn StatProducer>>,
        is_text: bool,
    ) -> StatCursor {
        let head = if is_text { EntryHead::text() } else { EntryHead::new(request) };
        StatCursor { request, bucket, begun_ns, head, producer }
    }

    /// The request to answer.
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// When the request arrived, on the latency clock.
    pub fn begun_ns(&self) -> u64 {
        self.begun_ns
    }

    /// Takes the data that the blocking thread collected.
    pub fn prepared(&mut self, producer: Box<dyn StatProducer>) {
        assert!(self.producer.is_none(), "the data of a STAT are collected once");
        self.producer = Some(producer);
    }

    /// Appends the next slice. Returns the STAT's result at its end.
    pub fn slice(&mut self, out: &mut SendBuffer) -> Option<Result<(), Status>> {
        if self.bucket.as_ref().is_some_and(|bucket| bucket.is_deleted()) {
            return Some(Err(Status::NoBucket));
        }
        let out = out.tail();
        out.reserve(STAT_SLICE_BYTES);
        let mut writer = StatWriter::new(out, &mut self.head, STAT_SLICE_BYTES);
        let producer = self.producer.as_mut();
        let producer = producer.expect("a STAT continues only once its data are collected");
        let is_complete = producer.produce(&mut writer);
        is_complete.then_some(Ok(()))
    }
}
