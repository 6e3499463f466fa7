//! How much memory the arena has taken from the system, against the bounds that the caller sets.
//!
//! Owns: that count and both bounds. Mappings and large blocks are counted, also those that are
//! kept; tables below 64 KiB, and the memory of threads and connections, are not. The arena itself
//! refuses nothing. Memory that other owners have reserved ([`OutsideReservation`]) counts against
//! the upper bound, and never against the lower one: compaction cannot give it back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static OUTSIDE: AtomicU64 = AtomicU64::new(0);
static LOWER: AtomicU64 = AtomicU64::new(u64::MAX);
static UPPER: AtomicU64 = AtomicU64::new(u64::MAX);

/// Bytes that were mapped, or taken from the system's allocator for large blocks.
pub fn taken_bytes() -> u64 {
    TAKEN.load(Ordering::Relaxed) as u64
}

/// Sets the lower and the upper bound.
pub(super) fn set_bounds(lower: u64, upper: u64) {
    assert!(lower <= upper, "memory is trimmed before writes are refused");
    LOWER.store(lower, Ordering::Relaxed);
    UPPER.store(upper, Ordering::Relaxed);
}

/// By how much the lower bound is exceeded.
pub fn excess_bytes() -> u64 {
    taken_bytes().saturating_sub(LOWER.load(Ordering::Relaxed))
}

/// Memory below the upper bound.
pub(super) fn room_bytes() -> u64 {
    UPPER.load(Ordering::Relaxed).saturating_sub(taken_bytes() + OUTSIDE.load(Ordering::Relaxed))
}

/// By how much the upper bound is exceeded.
pub(super) fn beyond_upper_bytes() -> u64 {
    let all_bytes = taken_bytes() + OUTSIDE.load(Ordering::Relaxed);
    all_bytes.saturating_sub(UPPER.load(Ordering::Relaxed))
}

/// Memory below the upper bound that the arena leaves to another owner until this is dropped.
#[derive(Debug)]
pub struct OutsideReservation {
    bytes: u64,
}

impl OutsideReservation {
    pub(super) fn new(bytes: u64) -> OutsideReservation {
        OUTSIDE.fetch_add(bytes, Ordering::Relaxed);
        OutsideReservation { bytes }
    }

    /// Bytes that its owner may take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for OutsideReservation {
    fn drop(&mut self) {
        let before = OUTSIDE.fetch_sub(self.bytes, Ordering::Relaxed);
        debug_assert!(before >= self.bytes, "a reservation that ends was counted");
    }
}

/// Counts `bytes` for an owner outside of the arena, unless less than that is left below the upper
/// bound.
pub(super) fn take_outside(bytes: u64) -> bool {
    OUTSIDE.fetch_add(bytes, Ordering::Relaxed);
    let is_within = beyond_upper_bytes() == 0;
    if !is_within {
        return_outside(bytes);
    }
    is_within
}

/// Returns what [`take_outside`] has counted.
pub fn return_outside(bytes: u64) {
    let before = OUTSIDE.fetch_sub(bytes, Ordering::Relaxed);
    debug_assert!(before >= bytes, "what an owner returns was counted");
}

/// Counts memory that comes from the system.
pub(super) fn count_taken(bytes: usize) {
    TAKEN.fetch_add(bytes, Ordering::Relaxed);
}

/// Counts memory that goes back.
pub(super) fn count_given_back(bytes: usize) {
    let before = TAKEN.fetch_sub(bytes, Ordering::Relaxed);
    assert!(before >= bytes, "memory returned to the system was mapped before");
}
