//! Counts and sizes of a store.

/// Counts for `stats` and metrics. Estimates are allowed and may lag.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    pub disk_bytes: u64,
    /// Records committed since open, tombstones included.
    pub records_committed: u64,
    pub deletions_committed: u64,
    /// Bytes of their keys and values, before headers and compression.
    pub bytes_committed: u64,
    /// Records of the last commit.
    pub last_commit_records: u64,
    /// Durable commits (groups) since open.
    pub commits: u64,
    /// Failed commits since open.
    pub commit_failures: u64,
    /// Documents in failed commits; a repeated one counts each time.
    pub set_failures: u64,
    /// Tombstones in failed commits; a repeated one counts each time.
    pub delete_failures: u64,
    /// Vbucket states in failed commits; a repeated one counts each time.
    pub vbucket_state_failures: u64,
    /// Records that look-ups and scans have read since open, tombstones included.
    pub records_read: u64,
    /// Bytes of their keys and values.
    pub bytes_read: u64,
    /// Look-ups and scans that failed since open.
    pub read_failures: u64,
    /// Purges of tombstones since open.
    pub compactions: u64,
    pub compact_failures: u64,
    /// The last step of compaction in the background failed.
    pub compaction_fails: bool,
}
