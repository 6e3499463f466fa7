//! Loads of cache lines that will be needed shortly, started early and side by side.
//!
//! A look-up in a table larger than the caches is two dependent misses, then one for each line of the
//! value. Alone they cost 300 to 500 ns; interleaved with those of its neighbours most of it is hidden,
//! because the processor keeps ten and more loads in flight. So a caller that knows several keys ahead,
//! as a pipelined connection does, takes each through two steps before it is served:
//! [`Bucket::announce`] hashes the key and starts loading its group of the hash table, and some keys
//! later [`Bucket::locate`] reads the group and starts loading the item whose tag fits. The hash is kept
//! in the [`KeyAhead`], so that the operation does not compute it again.
//!
//! Nothing is decided here: a hint that turns out wrong costs a line of cache and no more. The address
//! of a group is read without the table's lock; it may be a moment old. Called by the server's
//! connections and by warmup.
//!
//! Unsafe invariant: 1. a prefetch instruction never faults, reads nothing that the program can
//! observe, and is allowed on any address.

use oribi_types::{DocKey, Vbid};

use crate::bucket::Bucket;
use crate::hash_table::KeyHash;

/// Bytes of a cache line on every processor that this runs on.
pub(crate) const LINE_BYTES: usize = 64;

/// A key that an operation will need soon, and its hash in that bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyAhead {
    pub(crate) vbid: Vbid,
    pub(crate) hash: KeyHash,
}

impl Bucket {
    /// Hashes a key and starts loading where the table would have it; `None` outside the vbucket map.
    #[inline]
    pub fn announce(&self, vbid: Vbid, key: DocKey<'_>) -> Option<KeyAhead> {
        let vbucket = self.vbucket(vbid)?;
        let hash = vbucket.hash_of(key);
        load_line(vbucket.group_hint(hash));
        Some(KeyAhead { vbid, hash })
    }

    /// Starts loading the lines that the first `bytes` of the item lie in that an announced key most likely has. A
    /// core has room for about a dozen lines on their way, so one that nobody needs costs as much as one that is missing.
    #[inline]
    pub fn locate(&self, ahead: &KeyAhead, bytes: usize) {
        let Some(vbucket) = self.vbucket(ahead.vbid) else { return };
        let Some(item) = vbucket.candidate_address(ahead.hash) else { return };
        let in_first_line = LINE_BYTES - item.addr() % LINE_BYTES;
        load_line(item);
        let mut loaded = in_first_line;
        while loaded < bytes {
            load_line(item.wrapping_add(loaded));
            loaded += LINE_BYTES;
        }
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
