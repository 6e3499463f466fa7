//! The memory of the process: the bound of all buckets together.
//!
//! Owns: the sum of the quotas, and the bounds of the arena that follow from it. Above the lower
//! bound compaction runs; above the upper one all buckets refuse writes.

use parking_lot::Mutex;

use crate::block_arena;

/// Bounds of the arena: the quotas of all buckets, a part of them, and some bytes. The process
/// promises to stay within the quotas, a tenth of them and 64 MiB; connections, stores, threads and
/// small tables have the rest.
const LOWER_PART: u64 = 32;
const LOWER_BYTES: u64 = 16 << 20;
const UPPER_PART: u64 = 16;
const UPPER_BYTES: u64 = 32 << 20;
const _: () = assert!(UPPER_PART < LOWER_PART && LOWER_BYTES < UPPER_BYTES);

static QUOTAS: Mutex<u64> = Mutex::new(0);

/// The quotas of all buckets have changed by this much.
pub(super) fn change_quotas(before: u64, after: u64) {
    // Held until the bounds are set, so that they are those of the newest sum.
    let mut sum = QUOTAS.lock();
    debug_assert!(*sum >= before, "a quota that changes is in the sum");
    *sum = sum.wrapping_add(after.wrapping_sub(before));
    let quotas = *sum;
    let bound = |part: u64, bytes: u64| quotas.saturating_add(quotas / part + bytes);
    block_arena::set_bounds(bound(LOWER_PART, LOWER_BYTES), bound(UPPER_PART, UPPER_BYTES));
}
