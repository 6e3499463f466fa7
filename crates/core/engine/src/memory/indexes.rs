//! Memory of query indexes: entries that the server keeps for a bucket's documents.
//!
//! Owns: the bound on that memory. Invariants: bytes are counted before they are allocated; indexes
//! have at most half of the quota, and never so much that streams of changes could not be opened;
//! the process's bound counts the bytes too, because they are outside the arena.

use std::sync::atomic::Ordering;

use super::Memory;
use crate::block_arena;

/// Indexes have at most this part of the quota.
const INDEXES_PART: u64 = 2;
const _: () = assert!(INDEXES_PART > 1, "documents keep a part of the quota");

impl Memory {
    /// Bytes of the entries of indexes.
    pub(crate) fn indexes_bytes(&self) -> u64 {
        self.indexes.load(Ordering::Relaxed)
    }

    /// Bound on the memory of the indexes of the bucket.
    pub(crate) fn indexes_bytes_max(&self) -> u64 {
        self.quota_bytes() / INDEXES_PART
    }

    /// Counts bytes for an index, if they fit. The pager makes space where it can evict.
    pub(crate) fn reserve_for_index(&self, bytes: u64) -> bool {
        let before = self.indexes.fetch_add(bytes, Ordering::Relaxed);
        let fits_quota = before.saturating_add(bytes) <= self.indexes_bytes_max();
        let is_granted = fits_quota
            && self.used_bytes() <= self.backfill_threshold_bytes()
            && block_arena::take_outside(bytes);
        if !is_granted {
            self.indexes.fetch_sub(bytes, Ordering::Relaxed);
        }
        // Wakes the pager when memory is above the high watermark, refused or not.
        self.report(0);
        if !is_granted && fits_quota {
            self.wake_pager();
        }
        is_granted
    }

    /// Returns bytes that an index has reserved.
    pub(crate) fn release_from_index(&self, bytes: u64) {
        if bytes > 0 {
            let before = self.indexes.fetch_sub(bytes, Ordering::Relaxed);
            assert!(before >= bytes, "an index releases what it has reserved");
            block_arena::return_outside(bytes);
            self.report(0);
        }
    }
}
