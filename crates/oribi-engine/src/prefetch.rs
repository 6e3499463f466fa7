//! Prefetch: loads of cache lines, started early and side by side.
//!
//! A look-up in a table larger than the caches is two dependent misses, then one for each line of
//! the value. Alone they cost 300 to 500 ns. Interleaved with those of its neighbours they are
//! mostly hidden, because the processor keeps ten and more loads in flight. So a caller that knows
//! several keys ahead, as a pipelined connection does, takes each through two steps before it is
//! served: [`crate::Bucket::announce`] hashes the key and starts loading its group of the hash
//! table, and some keys later [`crate::Bucket::locate`] reads the group and starts loading the item
//! whose tag fits. The hash is kept in the [`KeyAhead`], so that the operation does not compute it
//! again.
//!
//! A prefetch decides nothing: a wrong hint costs one cache line. The address of a group is read
//! without the table's lock and may be stale. Called by the server's connections, by warmup, and by change
//! streams, which know what they send next.
//!
//! Unsafe invariant: 1. a prefetch instruction never faults, reads nothing that the program can
//! observe, and is allowed on any address.

use oribi_types::Vbid;

use crate::hash_table::KeyHash;

/// Bytes of a cache line on every processor that this runs on.
const LINE_BYTES: usize = 64;

/// A key that an operation will need soon, and its hash in that bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAhead {
    pub(crate) vbid: Vbid,
    pub(crate) hash: KeyHash,
}

/// Starts loading the lines of the first `bytes` from `address` on. Any address will do.
#[inline]
pub(crate) fn load_lines(address: *const u8, bytes: usize) {
    let in_first_line = LINE_BYTES - address.addr() % LINE_BYTES;
    load_line(address);
    let mut loaded = in_first_line;
    while loaded < bytes {
        load_line(address.wrapping_add(loaded));
        loaded += LINE_BYTES;
    }
}

/// Starts loading one cache line. Any address will do.
#[inline(always)]
pub(crate) fn load_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: (1)
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: (1)
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
