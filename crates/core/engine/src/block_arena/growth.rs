//! Growth of the arena: work after memory was taken from the system.
//!
//! Owns: the order of that. Kept blocks go first. The watcher is notified only if the lower bound
//! is still exceeded, so compaction and refusals begin when no kept blocks are left. The bounds are
//! set here, because lowering the lower bound requires the same steps.

use std::sync::OnceLock;

use super::taken::OutsideReservation;
use super::{kept_blocks, taken};

static WATCHER: OnceLock<fn()> = OnceLock::new();

/// From now on `watcher` is called whenever memory has grown and is above the lower bound: by the
/// thread that took it, which may hold its own locks, but none of the arena's. Only the first
/// watcher counts.
pub fn watch_growth(watcher: fn()) {
    let _ = WATCHER.set(watcher);
}

/// Sets the lower and the upper bound.
pub fn set_bounds(lower: u64, upper: u64) {
    taken::set_bounds(lower, upper);
    release_excess();
}

/// Reserves memory for an owner outside the arena: up to `bytes_max`, and at most half of the free
/// memory below the upper bound, so that documents can still grow. Releases idle blocks for it.
/// Concurrent callers could reserve the same free memory twice: the caller serialises them.
pub fn reserve_outside(bytes_max: u64) -> OutsideReservation {
    kept_blocks::release_oldest_while(|| taken::room_bytes() / 2 < bytes_max);
    OutsideReservation::new(bytes_max.min(taken::room_bytes() / 2))
}

/// Counts `bytes` for an owner outside the arena that returns them with
/// [`taken::return_outside`]. Releases idle blocks for it. False, and nothing is counted, when less
/// is left below the upper bound.
pub fn take_outside(bytes: u64) -> bool {
    kept_blocks::release_oldest_while(|| taken::room_bytes() < bytes);
    taken::take_outside(bytes)
}

/// Memory was taken from the system and counted. No lock of the arena is held.
pub(super) fn grown() {
    release_excess();
    if taken::excess_bytes() > 0
        && let Some(watcher) = WATCHER.get()
    {
        watcher();
    }
}

fn release_excess() {
    kept_blocks::release_oldest_while(|| taken::excess_bytes() > 0);
}
