//! A STAT that is being answered: where it stands, and how it goes on.
//!
//! Owns: the order of a STAT's answers (entries, then the empty one) and the cutting into slices. A group
//! is a [`StatProducer`] that remembers its position; the connection asks for the next slice when the
//! last one is out of the way, and lets the other connections of its worker go first.
//!
//! Invariants: a slice is bounded by [`STAT_SLICE_BYTES`] and one step of its producer; no lock is held
//! between two steps; a bucket that is deleted meanwhile ends the STAT with NoBucket. Called by the
//! dispatcher. What the entries are is the producers' business.

use std::fmt;
use std::sync::Arc;

use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

use super::writer::{EntryHead, StatWriter};
use crate::buckets::BucketHandle;
use crate::connection::state::ConnectionState;
use crate::connection::write_buffer::WriteBuffer;
use crate::counters::timings::CommandKind;
use crate::environment::Environment;
use crate::limits::STAT_SLICE_BYTES;

/// The entries of one group, from some position on.
pub(crate) trait StatProducer: Send {
    /// Writes entries until the group is complete (true) or the slice is full (false).
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool;
}

/// A group that is small enough for one step.
pub(crate) struct Whole<F>(pub F);

impl<F: FnMut(&mut StatWriter<'_>) + Send> StatProducer for Whole<F> {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        (self.0)(writer);
        true
    }
}

/// What a job of the blocking thread has collected for a group, or why the group cannot be answered.
pub(crate) struct PreparedStat(pub Result<Box<dyn StatProducer>, Status>);

impl fmt::Debug for PreparedStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedStat").field(&self.0.as_ref().err()).finish()
    }
}

/// Collects what a group needs, on the blocking thread.
pub(crate) type StatPreparation = Box<dyn FnOnce() -> PreparedStat + Send>;

/// See the module text.
pub(crate) struct StatCursor {
    opcode: u8,
    opaque: u32,
    /// `None` for groups about the server.
    bucket: Option<Arc<BucketHandle>>,
    begun_ns: u64,
    head: EntryHead,
    /// `None` while the blocking thread prepares it.
    producer: Option<Box<dyn StatProducer>>,
}

impl StatCursor {
    /// A STAT of which nothing is answered yet. `begun_ns` is a reading of the latency clock.
    pub fn new(
        opcode: u8,
        opaque: u32,
        bucket: Option<Arc<BucketHandle>>,
        begun_ns: u64,
        producer: Option<Box<dyn StatProducer>>,
    ) -> StatCursor {
        let head = EntryHead::new(opcode, opaque);
        StatCursor { opcode, opaque, bucket, begun_ns, head, producer }
    }

    /// Appends the next slice; how the STAT ends, once it does.
    fn slice(&mut self, out: &mut WriteBuffer) -> Option<Status> {
        if self.bucket.as_ref().is_some_and(|bucket| bucket.is_deleted()) {
            return Some(Status::NoBucket);
        }
        let out = out.tail();
        out.reserve(STAT_SLICE_BYTES);
        let mut writer = StatWriter::new(out, &mut self.head, STAT_SLICE_BYTES);
        let is_complete = self.producer.as_mut().is_none_or(|group| group.produce(&mut writer));
        is_complete.then_some(Status::Success)
    }
}

/// Appends the next slice of the STAT that the connection is answering, and its end when it is answered.
pub(crate) fn continue_stat(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    env: &mut Environment,
) {
    let Some(stat) = &mut state.stat else { return };
    let Some(end) = stat.slice(out) else { return };
    let (opcode, opaque, begun_ns) = (stat.opcode, stat.opaque, stat.begun_ns);
    state.stat = None;
    write_response(out.tail(), &ResponseParts::new(opcode, state.wire_status(end), opaque));
    if let Some(operations) = &state.operations {
        let elapsed_ns = env.latency_clock.now_ns().saturating_sub(begun_ns);
        operations.timings().record(CommandKind::Stats, elapsed_ns, 1);
    }
}

/// The blocking thread has prepared the group that the connection waits for. `request` is opcode and
/// opaque.
pub(crate) fn begin_stat(
    state: &mut ConnectionState,
    out: &mut WriteBuffer,
    request: (u8, u32),
    prepared: PreparedStat,
) {
    match prepared.0 {
        Ok(producer) => {
            if let Some(stat) = &mut state.stat {
                stat.producer = Some(producer);
            }
        }
        Err(status) => {
            state.stat = None;
            let status = state.wire_status(status);
            write_response(out.tail(), &ResponseParts::new(request.0, status, request.1));
        }
    }
}
