//! How much disk a store takes.
//!
//! Owns: the sum over its files. It counts allocated blocks and not lengths, because fjall makes
//! each journal 64 MiB long at once and fills it later. Files come and go meanwhile, so what cannot
//! be looked at counts as nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Unit of `st_blocks`, whatever the file system's own block size.
const BLOCK_BYTES: u64 = 512;

/// Bytes that the files below `path` occupy.
pub(super) fn allocated_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .filter_map(|entry| entry.ok())
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => allocated_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * BLOCK_BYTES,
            Err(_) => 0,
        })
        .sum()
}
