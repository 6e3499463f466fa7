//! Figures of one vbucket's hash table.
//!
//! Owns: their type and the sample of probe lengths. Counting every key's probes would visit every
//! item under the lock; groups spread evenly over the table, at most [`SAMPLE_GROUPS`], say the
//! same in some ten microseconds. Called by the vbucket, which adds what the table does not know.

use super::{HashTable, KeyHash};

/// Groups whose items a sample visits: at most 448 items, each of them a cache miss at worst.
const SAMPLE_GROUPS: usize = 64;

pub const PROBE_LENGTHS: usize = 8;

/// Figures of one vbucket's hash table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HashTableStats {
    pub items: usize,
    /// Tombstones that wait to leave the queue.
    pub tombstones: usize,
    /// Items that the table has space for, those of a table that is being replaced included.
    pub slots: usize,
    /// Cache lines that the slots are in.
    pub groups: usize,
    /// Locks over the table: always 1.
    pub locks: usize,
    /// Bytes of the slots.
    pub mem_bytes: usize,
    /// Bytes of the items' blocks.
    pub item_bytes: usize,
    /// Times that the table has grown since the bucket was opened.
    pub resizes: u64,
    /// Items whose probe length was looked at: those of evenly spread groups, at most 448.
    pub sampled: usize,
    /// Fewest groups that a look-up of a sampled item reads; 0 without a sample.
    pub min_probes: usize,
    /// Most groups that a look-up of a sampled item reads; 0 without a sample.
    pub max_probes: usize,
    /// Sampled items whose look-up reads 1, 2, 3 .. groups; the last entry counts all longer ones.
    pub probe_histogram: [u64; PROBE_LENGTHS],
}

impl HashTableStats {
    fn count(&mut self, probes: usize) {
        debug_assert!(probes > 0, "a look-up reads its home group");
        self.sampled += 1;
        self.min_probes = if self.sampled == 1 { probes } else { self.min_probes.min(probes) };
        self.max_probes = self.max_probes.max(probes);
        self.probe_histogram[probes.min(PROBE_LENGTHS) - 1] += 1;
    }
}

impl HashTable {
    /// The table's own figures; the caller fills in sums over items. Visits a bounded
    /// number of items, so the caller's lock is held briefly whatever the size.
    pub fn stats(&self) -> HashTableStats {
        let old_slots = self.old.as_ref().map_or(0, |old| old.groups.capacity());
        let mut stats = HashTableStats {
            slots: self.current.capacity() + old_slots,
            groups: self.group_count(),
            locks: 1,
            mem_bytes: self.table_bytes(),
            resizes: self.resizes,
            ..HashTableStats::default()
        };
        let (all, sampled) = (stats.groups, stats.groups.min(SAMPLE_GROUPS));
        for sample in 0..sampled {
            let index = sample * all / sampled;
            debug_assert!(index < all, "a sampled group is one of the table");
            let (groups, index) = match &self.old {
                Some(old) if index < old.groups.len() => (&old.groups, index),
                _ => (&self.current, index - (all - self.current.len())),
            };
            for item in groups.items(index) {
                let hash: KeyHash = self.seed.hash(item.key());
                stats.count(groups.probes(hash, index));
            }
        }
        debug_assert!(stats.min_probes <= stats.max_probes, "the sample has a shortest look-up");
        stats
    }
}
