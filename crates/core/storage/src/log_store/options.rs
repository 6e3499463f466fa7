//! Options of opening a log store, and their defaults.

/// Options of opening a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Logs of a store that is created, clamped to 1..=64: vbuckets are divided among them, and
    /// each log commits its group of vbuckets by itself ([`commit_groups`]). An existing
    /// store keeps its number whatever this says. Changing it takes a backup and a restore.
    ///
    /// [`commit_groups`]: crate::StoreProperties::commit_groups
    pub logs: usize,
    /// Length at which a segment is sealed and the next one begun; a small store seals earlier. A
    /// store of several logs divides it among them, but not below 8 MiB.
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
    /// Open a store with damaged or missing segments, and drop unreadable records; readable ones
    /// are moved to a new segment at once. An older version can come back where a newer one was
    /// lost, so use this only without a better copy.
    pub accepts_damage: bool,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            logs: 1,
            segment_bytes: 64 << 20,
            garbage_percent: 50,
            compacts_in_background: true,
            reads_hints: true,
            packing: None,
            accepts_damage: false,
        }
    }
}

/// Least length of segments that several logs divide among them: shorter ones cost more in files
/// and syncs than they save in memory for entries.
const DIVIDED_SEGMENT_BYTES_MIN: u64 = 8 << 20;

impl LogOptions {
    /// The options of each log of a store of so many: together the logs keep as much in memory as
    /// one log does.
    pub(super) fn of_each(&self, logs: usize) -> LogOptions {
        assert!(logs > 0, "a store has a log");
        let part = |number: u64| number / logs as u64;
        let segment_bytes_min = DIVIDED_SEGMENT_BYTES_MIN.min(self.segment_bytes);
        let packing = self.packing.map(|packing| Packing {
            exact_keys: part(packing.exact_keys),
            recent_bytes: part(packing.recent_bytes),
            ..packing
        });
        let segment_bytes = part(self.segment_bytes).max(segment_bytes_min);
        debug_assert!(segment_bytes <= self.segment_bytes, "several logs have shorter segments");
        LogOptions { segment_bytes, packing, ..self.clone() }
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
