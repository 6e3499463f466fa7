//! How much memory the arena has taken from the system, against the bounds that the caller sets.
//!
//! Owns: that count, both bounds, and the watcher that is told when memory grows beyond the lower
//! one. Mappings and large blocks are counted; tables below 64 KiB, and the memory of threads and
//! connections, are not. The arena itself refuses nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

static TAKEN: AtomicUsize = AtomicUsize::new(0);
static LOWER: AtomicU64 = AtomicU64::new(u64::MAX);
static UPPER: AtomicU64 = AtomicU64::new(u64::MAX);
static WATCHER: OnceLock<fn()> = OnceLock::new();

/// Bytes that were mapped, or taken from the system's allocator for large blocks.
pub fn taken_bytes() -> u64 {
    TAKEN.load(Ordering::Relaxed) as u64
}

/// Sets the lower and the upper bound.
pub fn set_bounds(lower: u64, upper: u64) {
    LOWER.store(lower, Ordering::Relaxed);
    UPPER.store(upper, Ordering::Relaxed);
}

/// By how much the lower bound is exceeded.
pub fn excess_bytes() -> u64 {
    taken_bytes().saturating_sub(LOWER.load(Ordering::Relaxed))
}

/// What may be taken before the upper bound is reached.
pub fn room_bytes() -> u64 {
    UPPER.load(Ordering::Relaxed).saturating_sub(taken_bytes())
}

/// By how much the upper bound is exceeded.
pub(super) fn beyond_upper_bytes() -> u64 {
    taken_bytes().saturating_sub(UPPER.load(Ordering::Relaxed))
}

/// From now on `watcher` is called whenever memory has grown and is above the lower bound: by the
/// thread that took it, which may hold locks of its own, but none of the arena's. Only the first
/// watcher counts.
pub fn watch_growth(watcher: fn()) {
    let _ = WATCHER.set(watcher);
}

/// Memory was taken from the system and counted. No lock of the arena is held.
pub(super) fn grown() {
    if excess_bytes() > 0
        && let Some(watcher) = WATCHER.get()
    {
        watcher();
    }
}

/// Counts memory that comes from the system.
pub(super) fn count_taken(bytes: usize) {
    TAKEN.fetch_add(bytes, Ordering::Relaxed);
}

/// Counts memory that goes back.
pub(super) fn count_given_back(bytes: usize) {
    let before = TAKEN.fetch_sub(bytes, Ordering::Relaxed);
    debug_assert!(before >= bytes, "what goes back to the system was taken from it");
}
