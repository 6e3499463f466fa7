//! Wake-ups of a stream of changes by the engine's threads and by the client's progress.
//!
//! Owns: the vbuckets that have more since the task looked last. Invariant: a wake-up that comes
//! after a look is seen by the next wait.

use std::sync::Arc;

use oribi_engine::dcp::StreamSink;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// See the module text.
pub(crate) struct Wakeups {
    vbids: Mutex<Vec<u64>>,
    notify: Notify,
}

impl Wakeups {
    pub fn new() -> Arc<Wakeups> {
        Arc::new(Wakeups { vbids: Mutex::default(), notify: Notify::new() })
    }

    /// Moves the vbuckets that woke to `into`, which must be empty.
    pub fn take(&self, into: &mut Vec<u64>) {
        debug_assert!(into.is_empty(), "vbuckets that were taken before have been woken");
        std::mem::swap(&mut *self.vbids.lock(), into);
    }

    pub fn wake(&self) {
        self.notify.notify_one();
    }

    /// Returns at the next wake-up.
    pub async fn wait(&self) {
        self.notify.notified().await;
    }
}

impl StreamSink for Wakeups {
    fn ready(&self, vbid: u64) {
        let is_first = {
            let mut vbids = self.vbids.lock();
            vbids.push(vbid);
            vbids.len() == 1
        };
        // Later ones are found by the same look.
        if is_first {
            self.wake();
        }
    }
}
