//! How near the arena's memory is to its bounds.
//!
//! Owns: that judgement. Above the upper bound it depends on the space in chunks: blocks that fit
//! there do not make the process larger.

use super::arena::ARENA;
use super::taken::{beyond_upper_bytes, excess_bytes};
use super::units::{CHUNK_BYTES, UNIT_BYTES};

/// With this many bytes free in chunks, blocks of classes do not make the process larger.
const ROOM_BYTES: usize = 2 * CHUNK_BYTES;
/// Bound on large blocks, which are their own mappings.
const LARGE_BEYOND_BYTES: u64 = 12 << 20;

/// How near the arena's memory is to its bound.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// Below the lower bound.
    Low,
    /// Above the lower bound: compaction has reason to hurry.
    High,
    /// Above the upper bound, and the next block would have to be mapped.
    AtBound,
}

/// How near the bound is.
pub fn pressure() -> Pressure {
    if excess_bytes() == 0 {
        return Pressure::Low;
    }
    let is_full = || ARENA.pool.stats().free_units * UNIT_BYTES < ROOM_BYTES;
    match beyond_upper_bytes() {
        0 => Pressure::High,
        beyond if beyond > LARGE_BEYOND_BYTES || is_full() => Pressure::AtBound,
        _ => Pressure::High,
    }
}
