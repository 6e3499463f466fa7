//! A value that shares no cache line with others.
//!
//! Owns: the alignment that keeps what one core writes off the lines that others read. Processors
//! of every architecture here have lines of 64 bytes.

use std::ops::Deref;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;

/// Begins a cache line, and nothing else is on its last one. What changes most often comes first
/// in it; a lock is its first byte.
#[repr(C, align(64))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

const _: () = assert!(align_of::<CachePadded<u8>>() == LINE_BYTES);
