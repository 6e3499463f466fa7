//! The way of batches to one tablet: one behind the other, never two at a time.
//!
//! Kudu does not apply Writes in the order in which they arrive, so the order of rows with the same key is
//! kept here: a batch is sent when the one before it is decided. Tablets do not wait for each other.
//! Invariant: `is_busy` is true from when a batch is queued until the queue is empty and nothing is under
//! way; a task exists exactly as long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::row_buffers::RowBuffers;

/// The queue of one tablet.
#[derive(Debug)]
pub(super) struct Lane {
    pub tablet_id: String,
    is_busy: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<RowBuffers>,
    has_task: bool,
    /// Empty buffers of the size that this tablet's batches have.
    spare: Option<RowBuffers>,
}

impl Lane {
    pub(super) fn new(tablet_id: String) -> Lane {
        Lane { tablet_id, is_busy: AtomicBool::new(false), queue: Mutex::default() }
    }

    /// Whether a batch is queued or under way.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Queues a batch. True says that the caller must start the lane's task.
    #[must_use]
    pub(super) fn push(&self, batch: RowBuffers) -> bool {
        let mut queue = self.queue.lock();
        queue.batches.push_back(batch);
        self.is_busy.store(true, Ordering::Release);
        !std::mem::replace(&mut queue.has_task, true)
    }

    /// The next batch, or nothing: then the lane is idle and its task must end.
    pub(super) fn pop(&self) -> Option<RowBuffers> {
        let mut queue = self.queue.lock();
        let batch = queue.batches.pop_front();
        if batch.is_none() {
            queue.has_task = false;
            self.is_busy.store(false, Ordering::Release);
        }
        batch
    }

    /// Buffers for the next rows: used ones if there are any.
    pub(super) fn take_spare(&self) -> RowBuffers {
        self.queue.lock().spare.take().unwrap_or_default()
    }

    /// Gives buffers back. One pair is kept; what is left over is returned to be freed without the lock.
    pub(super) fn put_spare(&self, mut buffers: RowBuffers) -> Option<RowBuffers> {
        buffers.clear();
        let mut queue = self.queue.lock();
        match &queue.spare {
            Some(spare) if spare.capacity() >= buffers.capacity() => Some(buffers),
            _ => queue.spare.replace(buffers),
        }
    }
}
