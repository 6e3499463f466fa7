//! The prefetch instructions: loads of cache lines, started early and side by side.
//!
//! A prefetch decides nothing: a wrong hint costs one cache line. Called by the log store, which
//! looks ahead in what it writes, and by the engine.
//!
//! Unsafe invariant: 1. a prefetch instruction never faults, reads nothing that the program can
//! observe, and is allowed on any address.

/// Bytes of a cache line on every processor that this runs on.
const LINE_BYTES: usize = 64;

/// Starts loading the lines of the first `bytes` from `address` on. Any address will do.
#[inline]
pub fn load_lines(address: *const u8, bytes: usize) {
    let in_first_line = LINE_BYTES - address.addr() % LINE_BYTES;
    load_line(address);
    let mut loaded = in_first_line;
    while loaded < bytes {
        load_line(address.wrapping_add(loaded));
        loaded += LINE_BYTES;
    }
}

/// Starts loading the same lines to be written: other cores' copies of them are given up
/// concurrently.
#[inline]
pub fn load_lines_to_write(address: *const u8, bytes: usize) {
    let in_first_line = LINE_BYTES - address.addr() % LINE_BYTES;
    load_line_to_write(address);
    let mut loaded = in_first_line;
    while loaded < bytes {
        load_line_to_write(address.wrapping_add(loaded));
        loaded += LINE_BYTES;
    }
}

/// Starts loading one cache line to be written. Any address will do.
#[inline(always)]
pub fn load_line_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: (1); processors without the instruction take it for one that does nothing. The
    // intrinsic would be a plain prefetch where the target is not known to have it.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: (1)
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Starts loading one cache line. Any address will do.
#[inline(always)]
pub fn load_line(address: *const u8) {
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
