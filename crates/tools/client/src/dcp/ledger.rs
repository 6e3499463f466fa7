//! What a connection has received and the application has not taken yet, in bytes of frames.
//!
//! The connection's task adds; the application's takes away. The task acknowledges what was taken,
//! in portions, so that the server sends more.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Portions of the window in which the server learns what was taken.
const PORTIONS: u64 = 4;

/// See the module text.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Received and not taken.
    waiting: AtomicU64,
    /// Taken and not acknowledged.
    taken: AtomicU64,
    portion: u64,
    wakeup: Notify,
}

impl Ledger {
    /// Nothing received yet, of a window of so many bytes.
    pub fn new(window_bytes: u32) -> Ledger {
        Ledger {
            waiting: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            portion: (u64::from(window_bytes) / PORTIONS).max(1),
            wakeup: Notify::new(),
        }
    }

    /// Frames were received.
    pub fn receive(&self, bytes: u64) {
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The application has taken frames.
    pub fn take(&self, bytes: u64) {
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        let before = self.taken.fetch_add(bytes, Ordering::Relaxed);
        if before < self.portion && before + bytes >= self.portion {
            self.wakeup.notify_one();
        }
    }

    /// Bytes that wait for the application.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Bytes to acknowledge now, if it is time.
    pub fn to_acknowledge(&self) -> Option<u32> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken < self.portion {
            return None;
        }
        let bytes = u32::try_from(taken).unwrap_or(u32::MAX);
        self.taken.fetch_sub(u64::from(bytes), Ordering::Relaxed);
        Some(bytes)
    }

    /// Waits until a portion was taken.
    pub async fn portion_taken(&self) {
        self.wakeup.notified().await;
    }
}

#[cfg(test)]
mod tests {
    //! Every byte is acknowledged once.

    use super::*;

    #[tokio::test]
    async fn bytes_are_acknowledged_in_portions_and_once() {
        let ledger = Ledger::new(400);
        ledger.receive(1000);
        ledger.take(99);
        assert_eq!(ledger.to_acknowledge(), None);
        ledger.take(1);
        ledger.portion_taken().await;
        assert_eq!(ledger.to_acknowledge(), Some(100));
        assert_eq!(ledger.to_acknowledge(), None);
        ledger.take(700);
        ledger.portion_taken().await;
        assert_eq!((ledger.to_acknowledge(), ledger.waiting()), (Some(700), 200));
    }
}
