//! Freed memory of the allocator, returned to the operating system.
//!
//! glibc keeps the pages of freed small blocks for the next use, and each of its heaps keeps its
//! own: statements that sorted and were refused left 200 MiB in each. Caller: the query service,
//! after a statement that kept much.
//!
//! Unsafe invariant: 1. `malloc_trim` takes an integer, and any thread may call it at any time.

/// Returns the pages of free blocks to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn trim() {
    // SAFETY: (1).
    unsafe { libc::malloc_trim(0) };
}

/// Other systems have no such call.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() {}
