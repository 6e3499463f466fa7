//! Loads of cache lines that will be needed shortly, started early and side by side.
//!
//! A look-up in a table larger than the caches is two dependent misses, then one for each line of the
//! value. Alone they cost 200 to 400 ns; sixteen look-ups interleaved hide most of it, because the
//! processor keeps ten and more loads in flight. So a caller that knows several keys ahead, as a
//! pipelined connection does, announces them here ([`Bucket::prefetch`]), and the operations that follow
//! find their lines in the cache.
//!
//! Three passes over the keys, each of which starts what the next one needs: the table's groups, the
//! first lines of the items whose tag fits, the rest of the values. Nothing is decided here: a hint
//! that turns out wrong costs a line of cache and no more. Called by the server's connections.
//!
//! Unsafe invariant: 1. a prefetch instruction never faults, reads nothing that the program can
//! observe, and is allowed on any address.

use oribi_types::{DocKey, Vbid};

use crate::bucket::Bucket;
use crate::hash_table::{HashTable, KeyHash};

/// Bytes of a cache line on every processor that this runs on.
const LINE_BYTES: usize = 64;

/// Lines of an item that are fetched before its length is known: header, key, a small value.
const FIRST_LINES: usize = 2;

/// Most bytes of one item that are fetched ahead. Longer values are read in order, which the
/// processor's own prefetcher follows.
const ITEM_BYTES_MAX: usize = 2048;

/// A key that an operation will need soon.
#[derive(Clone, Copy, Debug)]
pub struct KeyAhead {
    vbid: Vbid,
    hash: KeyHash,
}

impl Bucket {
    /// A key to announce; `None` outside the vbucket map. Its bytes are not needed afterwards.
    pub fn key_ahead(&self, vbid: Vbid, key: DocKey<'_>) -> Option<KeyAhead> {
        let vbucket = self.vbucket(vbid)?;
        Some(KeyAhead { vbid, hash: vbucket.hash_of(key) })
    }

    /// Starts loading what operations on `keys` will read. Ten to twenty keys at a time are best.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k KeyAhead> + Clone) {
        self.each_table(keys.clone(), |table, hash| {
            if let Some(address) = table.group_address(hash) {
                line(address);
            }
        });
        self.each_table(keys.clone(), |table, hash| {
            if let Some(item) = table.candidate(hash) {
                lines(item.address(), 0, FIRST_LINES);
            }
        });
        self.each_table(keys, |table, hash| {
            if let Some(item) = table.candidate(hash) {
                let bytes = item.block_bytes().min(ITEM_BYTES_MAX);
                lines(item.address(), FIRST_LINES, bytes.div_ceil(LINE_BYTES) + 1);
            }
        });
    }

    fn each_table<'k>(
        &self,
        keys: impl Iterator<Item = &'k KeyAhead>,
        look: impl Fn(&HashTable, KeyHash),
    ) {
        for key in keys {
            if let Some(vbucket) = self.vbucket(key.vbid) {
                vbucket.look_at(|table| look(table, key.hash));
            }
        }
    }
}

/// Starts loading lines `from..to` after the one at `address`.
fn lines(address: *const u8, from: usize, to: usize) {
    for number in from..to {
        line(address.wrapping_add(number * LINE_BYTES));
    }
}

/// Starts loading one cache line.
#[inline(always)]
fn line(address: *const u8) {
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
