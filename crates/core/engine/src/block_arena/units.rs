//! How the arena cuts its memory: chunks, and the units in them.
//!
//! Owns: these sizes, on which the rest of the arena is built, and whether the arena is used at
//! all.

/// Bytes of a chunk, and its alignment: one huge page of x86-64, and of ARM with 4 KiB pages.
pub(super) const CHUNK_BYTES: usize = 2 * 1024 * 1024;
/// Bytes of a unit. It has to hold a number of blocks of every class up to 1 KiB.
pub(super) const UNIT_BYTES: usize = 64 * 1024;
pub(super) const UNITS: usize = CHUNK_BYTES / UNIT_BYTES;
/// Logarithm of the units of a chunk.
pub(super) const CHUNK_ORDER: u32 = UNITS.ilog2();

/// True when every block comes from the system's allocator.
pub(super) const SYSTEM_BLOCKS: bool = cfg!(oribi_system_blocks);
