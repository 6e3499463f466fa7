//! A vbucket's queue as streams read it.
//!
//! Owns: the stream's handle, which belongs to one generation of streams (all of them end when the
//! vbucket's role changes or its documents go), and what follows from a read: checkpoints that no
//! cursor needs any more leave the queue, and owners of idle streams are woken. Owners
//! are called without a lock. Called by change streams.

use std::sync::atomic::Ordering;

use oribi_types::Seqno;

use super::VBucket;
use super::context::Context;
use crate::checkpoint::{CheckpointManager, CursorId, DetachedStreams, StreamBatch, StreamWaker};

/// A stream's place in the queue. It has to be given back by [`VBucket::drop_stream`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamCursor {
    id: CursorId,
    generation: u64,
}

/// Result of a registration, all at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRegistration {
    pub(crate) cursor: StreamCursor,
    /// True when something after the requested seqno has left memory. The store has it, even if
    /// the persisted seqno does not say so yet.
    pub(crate) needs_backfill: bool,
    /// The highest seqno that the vbucket has given out.
    pub(crate) high_seqno: Seqno,
}

/// Result of a read.
pub(crate) enum StreamRead {
    Batch(StreamBatch),
    /// Nothing yet: the stream's owner will be notified.
    Idle,
    /// The cursor was dropped because memory is short. The unread changes are in the store or in a
    /// part of the queue that a new cursor finds.
    Dropped,
    /// The vbucket does not serve any more, or was emptied.
    Ended,
}

impl VBucket {
    /// Registers a stream that has everything up to `from`. `None`: the vbucket does not serve.
    pub(crate) fn register_stream(
        &self,
        name: &str,
        from: Seqno,
        waker: StreamWaker,
    ) -> Option<StreamRegistration> {
        let mut queue = self.queue.lock();
        // A vbucket that stops serving ends streams under this lock, after its phase has changed.
        if !self.is_serving() {
            return None;
        }
        let high_seqno = queue.high_seqno();
        let registered = queue.register_stream(name, from, waker);
        debug_assert!(registered.first.0 <= high_seqno.0 + 1, "a stream begins in the history");
        let cursor = StreamCursor { id: registered.id, generation: self.stream_generation() };
        Some(StreamRegistration { cursor, needs_backfill: registered.needs_backfill, high_seqno })
    }

    /// Accepts the stream's previous batch, and reads the next one.
    pub(crate) fn read_stream(&self, context: &Context<'_>, cursor: StreamCursor) -> StreamRead {
        let (batch, expelled) = {
            let mut queue = self.queue.lock();
            if !self.is_serving() || self.stream_generation() != cursor.generation {
                return StreamRead::Ended;
            }
            let Some(batch) = queue.read_stream(cursor.id, context.memory.copied_bytes_max())
            else {
                return StreamRead::Dropped;
            };
            if self.persistence_cursor.is_none() {
                queue.close_if_long();
            }
            (batch, queue.can_expel().then(|| queue.expel()))
        };
        if let Some(expelled) = expelled {
            self.finish_expel(expelled);
            self.report_memory(context);
        }
        debug_assert!(batch.is_empty() || batch.end() > Seqno(0), "a batch ends at a change");
        debug_assert!(batch.from() <= batch.end(), "a batch goes forward");
        if batch.is_empty() { StreamRead::Idle } else { StreamRead::Batch(batch) }
    }

    /// Forgets a stream. What only it held up leaves the queue.
    pub(crate) fn drop_stream(&self, context: &Context<'_>, cursor: StreamCursor) {
        let expelled = {
            let mut queue = self.queue.lock();
            queue.drop_cursor(cursor.id);
            debug_assert!(!queue.has_cursor(cursor.id), "a stream gives its place up");
            queue.expel()
        };
        if !expelled.is_empty() {
            self.finish_expel(expelled);
            self.report_memory(context);
        }
    }

    /// Items that a stream has not read; none when its cursor was dropped.
    pub(crate) fn stream_remaining(&self, cursor: StreamCursor) -> usize {
        self.queue.lock().remaining(cursor.id)
    }

    /// How often all streams were ended. A stream of an earlier generation is over, even if the
    /// vbucket serves again.
    pub(crate) fn stream_generation(&self) -> u64 {
        self.stream_generation.load(Ordering::Acquire)
    }

    /// Ends every stream, for good. The caller wakes the owners after the locks.
    pub(super) fn end_streams(&self, queue: &mut CheckpointManager) -> DetachedStreams {
        self.stream_generation.fetch_add(1, Ordering::AcqRel);
        queue.end_streams()
    }

    /// Notifies the owners of idle streams of new changes.
    #[cold]
    pub(super) fn wake_streams(&self) {
        let idle = self.queue.lock().take_idle_streams();
        idle.iter().for_each(StreamWaker::wake);
    }
}

#[cfg(test)]
mod tests;
