//! One piece of retired memory.
//!
//! Owns: its address, and how it is freed. The numbers of unsafe invariants are those of
//! `grace_period.rs`.

use std::ptr::NonNull;

/// Memory that no reader can find any more.
#[derive(Clone, Copy)]
pub(crate) struct RetiredBlock {
    pub(crate) address: NonNull<u8>,
    pub(crate) bytes: usize,
    /// Frees it, given address and bytes. It retires nothing.
    pub(crate) release: unsafe fn(NonNull<u8>, usize),
}

// SAFETY: (1) the memory has no owner but this, and any thread may free it.
unsafe impl Send for RetiredBlock {}

impl RetiredBlock {
    /// # Safety
    /// (2) The grace period is over.
    pub(super) unsafe fn release(self) {
        debug_assert!(self.bytes > 0, "retired memory has bytes");
        // SAFETY: (1) the caller of `retire` gave it up.
        unsafe { (self.release)(self.address, self.bytes) }
    }
}
