//! What may be chosen when a log store is opened, and the defaults.

/// What may be chosen when a store is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Length at which a segment is sealed and the next one begun; a small store seals earlier.
    pub segment_bytes: u64,
    /// Share of the log, in percent, that may be garbage; compaction begins some way before.
    /// Compaction costs less the higher it is, and the log is larger.
    pub garbage_percent: u64,
    /// Compact on a thread of the store's own. Without it, the owner calls
    /// [`LogStore::compaction_step`](crate::LogStore::compaction_step).
    pub compacts_in_background: bool,
    /// Use index files at opening. Without them every segment is read and checked from beginning to
    /// end.
    pub reads_hints: bool,
    /// Open a store with damaged or missing segments, and give up what cannot be read; what can be
    /// is moved to a new segment at once. An older version can come back where a newer one was
    /// lost, so this is for the operator who has no better copy.
    pub accepts_damage: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            segment_bytes: 64 << 20,
            garbage_percent: 50,
            compacts_in_background: true,
            reads_hints: true,
            accepts_damage: false,
        }
    }
}
