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
    /// Pack the index: seven to eight bytes a key instead of eighteen to twenty. For stores of many
    /// more keys than fit in memory. The first write of a key that was not written of late reads
    /// the record that it supersedes, and [`KvStore::may_contain`](crate::KvStore::may_contain) is
    /// true for some keys that are not there.
    pub packing: Option<Packing>,
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
            packing: None,
            accepts_damage: false,
        }
    }
}

/// How the index is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packing {
    /// Bits of a key's hash that a packed entry has, at most 32: a key that is not there is taken
    /// for one of `n` keys with a chance of `n / 2^prefix_bits`, until the record is read.
    pub prefix_bits: u32,
    /// Keys that the store may have before it packs any: as many as it has memory for in the longer
    /// form.
    pub exact_keys: u64,
    /// Keys that a table may have in the longer form in any case.
    pub exact_min: usize,
    /// Keys that were written this many bytes of log ago at most keep the longer form, so that
    /// writing them again reads nothing. More than the documents in memory take.
    pub recent_bytes: u64,
}

impl Default for Packing {
    fn default() -> Packing {
        Packing { prefix_bits: 32, exact_keys: 0, exact_min: 256, recent_bytes: 0 }
    }
}
