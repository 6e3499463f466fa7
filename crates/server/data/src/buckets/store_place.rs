//! Where a bucket's store is, and how it is opened.
//!
//! Owns: the parameters. Every kind of storage is opened with them.

use std::path::Path;

/// Parameters for opening a bucket's store.
pub struct StorePlace<'a> {
    pub path: &'a Path,
    /// Name of the bucket.
    pub bucket: &'a str,
    pub vbuckets: u16,
    /// Whether damage in its files is accepted.
    pub accepts_damage: bool,
    /// Logs of a store that is created; by processors and quota when not given.
    pub logs: Option<usize>,
    /// Memory quota of the bucket, in bytes.
    pub memory_quota_bytes: u64,
    /// Memory of a bucket that may have many more keys than fit in it, in bytes.
    pub many_keys_memory_bytes: Option<u64>,
    /// Whether to wait without limit while a remote store is unreachable.
    pub waits: bool,
}
