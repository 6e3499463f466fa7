//! The queue of batches to one tablet, with at most one batch in flight.
//!
//! Kudu may apply Writes out of order, so the lane keeps the order of rows with the same key: it
//! sends a batch after the one before it has an outcome. Tablets do not wait for each other.
//! Invariant: `is_busy` is true from when a batch is queued until the queue is empty and no batch
//! is in flight. A task exists exactly as long.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::row_buffers::RowBuffers;

/// The queue of one tablet.
#[derive(Debug)]
pub(super) struct TabletLane {
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

impl TabletLane {
    pub(super) fn new(tablet_id: String) -> TabletLane {
        TabletLane { tablet_id, is_busy: AtomicBool::new(false), queue: Mutex::default() }
    }

    /// Whether a batch is queued or in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }

    /// Queues a batch. If it returns true, the caller must start the lane's task.
    #[must_use]
    pub(super) fn push(&self, batch: RowBuffers) -> bool {
        let mut queue = self.queue.lock();
        queue.batches.push_back(batch);
        self.is_busy.store(true, Ordering::Release);
        !std::mem::replace(&mut queue.has_task, true)
    }

    /// The next batch. On `None` the lane is idle and its task must end.
    pub(super) fn pop(&self) -> Option<RowBuffers> {
        let mut queue = self.queue.lock();
        let batch = queue.batches.pop_front();
        if batch.is_none() {
            queue.has_task = false;
            self.is_busy.store(false, Ordering::Release);
        }
        batch
    }

    /// Buffers for the next rows, reused if possible.
    pub(super) fn take_spare(&self) -> RowBuffers {
        self.queue.lock().spare.take().unwrap_or_default()
    }

    /// Returns buffers to the lane. It keeps one pair of up to `bytes_max` and returns the rest,
    /// for the caller to free without the lock.
    pub(super) fn put_spare(
        &self,
        mut buffers: RowBuffers,
        bytes_max: usize,
    ) -> Option<RowBuffers> {
        if buffers.capacity() > bytes_max {
            return Some(buffers);
        }
        buffers.clear();
        let mut queue = self.queue.lock();
        match &queue.spare {
            Some(spare) if spare.capacity() >= buffers.capacity() => Some(buffers),
            _ => queue.spare.replace(buffers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(bytes: usize) -> RowBuffers {
        RowBuffers { rows: Vec::with_capacity(bytes), ..RowBuffers::default() }
    }

    /// Regression: a batch of 40 MiB left its buffers to its tablet, and so did one for each other
    /// tablet after it.
    #[test]
    fn buffers_of_a_large_batch_are_not_kept() {
        let lane = TabletLane::new("tablet".to_owned());
        assert!(lane.put_spare(buffers(2000), 1000).is_some_and(|left| left.capacity() >= 2000));
        assert_eq!(lane.take_spare().capacity(), 0);
        assert!(lane.put_spare(buffers(500), 1000).is_none());
        assert!(lane.put_spare(buffers(300), 1000).is_some_and(|left| left.capacity() < 500));
        assert!(lane.take_spare().capacity() >= 500);
    }
}
