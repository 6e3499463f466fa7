//! Returns SQLite's freed memory to the operating system.
//!
//! SQLite sorts and groups in small blocks from the system's allocator. glibc keeps the pages of
//! freed small blocks for the next use, and each of its heaps keeps its own: refused statements
//! left 200 MiB behind in each. [`HeapTrim`] is dropped with a database, after its connection.
//!
//! Unsafe invariant: 1. `malloc_trim` and `sqlite3_memory_highwater` take an integer and may be
//! called by any thread at any time.

use rusqlite::ffi;

/// Most that statements may have used for their memory to stay with the allocator.
const UNTRIMMED_BYTES: i64 = 1 << 20;

/// Trims the allocator when it is dropped, if SQLite has used much since the last time.
pub(crate) struct HeapTrim;

impl Drop for HeapTrim {
    fn drop(&mut self) {
        // SAFETY: (1).
        let most_bytes = unsafe { ffi::sqlite3_memory_highwater(1) };
        if most_bytes > UNTRIMMED_BYTES {
            trim();
        }
    }
}

/// Returns the pages of free blocks to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn trim() {
    // SAFETY: (1).
    unsafe { libc::malloc_trim(0) };
}

/// Other systems have no such call.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() {}
