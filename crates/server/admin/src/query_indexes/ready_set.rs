//! Vbuckets whose streams have something to read.
//!
//! Owns: a bit for each. Workers set bits without a lock; the feed takes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_engine::dcp::StreamSink;

use super::feed_progress::FeedProgress;

/// See the module text.
pub(super) struct ReadySet {
    words: Box<[AtomicU64]>,
    progress: Arc<FeedProgress>,
}

impl ReadySet {
    pub fn new(vbuckets: usize, progress: Arc<FeedProgress>) -> ReadySet {
        let words = (0..vbuckets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        ReadySet { words, progress }
    }

    pub fn set(&self, vbucket: usize) {
        debug_assert!(vbucket / 64 < self.words.len(), "a vbucket is of the bucket");
        if let Some(word) = self.words.get(vbucket / 64) {
            word.fetch_or(1 << (vbucket % 64), Ordering::SeqCst);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Removes and returns all, in ascending order.
    pub fn take(&self) -> Vec<usize> {
        let mut taken = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                taken.push(at * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
        debug_assert!(taken.is_sorted(), "vbuckets are taken in their order");
        taken
    }
}

impl StreamSink for ReadySet {
    fn ready(&self, token: u64) {
        self.set(token as usize);
        self.progress.waker.note_change();
    }
}
