//! Makes the system's allocator give memory back.
//!
//! It owns four settings of glibc's allocator, made once, before the server's threads begin. By
//! default glibc maps large blocks one by one only until the first of them is freed. From then on
//! blocks up to that size, 32 MiB at most, come from heaps that shrink only at their end, so one
//! client's memory stays resident. A threshold that is set does not grow. Heaps are few, because
//! each keeps its own free memory. On other systems this module does nothing.
//!
//! Unsafe invariant: 1. `mallopt` takes two integers and is called while there is one thread.

#![allow(unsafe_code)]

/// Blocks from this size on are mapped separately and unmapped when freed: glibc's initial value.
/// Pools keep those that are needed repeatedly (output blocks, blocks of large documents).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM_BYTES: libc::c_int = 128 * 1024;

/// Most separately mapped blocks at a time; more come from heaps. A quarter of Linux's default
/// limit of mappings per process (`vm.max_map_count`).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_MAX: libc::c_int = 16 * 1024;

/// Free memory at the end of a heap that is kept: enough that a flush does not shrink and grow it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: libc::c_int = 1024 * 1024;

/// Heaps. Operations allocate from the block arena and from pools; a heap is used by background
/// threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS: libc::c_int = 4;

/// Makes the settings. Call it before there are other threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn configure() {
    let settings = [
        (libc::M_MMAP_THRESHOLD, MAPPED_FROM_BYTES),
        (libc::M_MMAP_MAX, MAPPED_MAX),
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        (libc::M_ARENA_MAX, HEAPS),
    ];
    for (parameter, value) in settings {
        // SAFETY: (1) the caller has started no thread yet.
        let is_taken = unsafe { libc::mallopt(parameter, value) } == 1;
        debug_assert!(is_taken, "glibc knows its own parameters");
    }
}

/// Makes the settings. Call it before there are other threads.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn configure() {}
