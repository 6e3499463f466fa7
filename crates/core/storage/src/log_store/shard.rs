//! A log at work, with the thread that compacts it.
//!
//! Owns: the order in which both end. Invariant: the thread has ended before the log is closed.
//! Caller: the store.

use std::sync::Arc;

use super::batches::Batches;
use super::log::Log;
use super::worker::LogStoreWorker;
use crate::StoreError;

/// See the module text.
pub(super) struct Shard {
    worker: Option<LogStoreWorker>,
    pub(super) log: Arc<Log>,
}

impl Shard {
    pub(super) fn new(log: Log, compacts_in_background: bool) -> Shard {
        let log = Arc::new(log);
        let worker = compacts_in_background.then(|| LogStoreWorker::start(Arc::clone(&log)));
        Shard { worker, log }
    }

    pub(super) fn commit(&self, batches: Batches<'_, '_>) -> Result<(), StoreError> {
        if let Some(worker) = &self.worker {
            worker.before_commit(batches);
        }
        self.log.commit(batches)
    }

    pub(super) fn request_compaction(&self) {
        // A failure is logged where it happens; garbage then waits for the next occasion.
        if self.log.request_compaction().is_ok()
            && let Some(worker) = &self.worker
        {
            worker.call();
        }
    }

    /// Ends the thread and closes the log.
    pub(super) fn close(&self) -> Result<(), StoreError> {
        if let Some(worker) = &self.worker {
            worker.stop();
        }
        self.log.close()
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.worker = None;
        if let Err(error) = self.log.close() {
            tracing::warn!(%error, "cannot record that the store was closed");
        }
    }
}
