//! Invariants of a bucket, as assertions.
//!
//! Owns: the check of all vbuckets and of the bucket's account of memory. The simulation calls it
//! between two steps.

use std::collections::BTreeMap;

use super::Bucket;
use crate::vbucket::VBucket;

impl Bucket {
    /// Panics unless every vbucket is sound and the bucket's sum of memory equals what the vbuckets
    /// have reported and streams hold.
    pub(crate) fn check_invariants(&self) {
        let memory = self.core.memory();
        let mut reported_bytes =
            memory.streams_bytes() + memory.indexes_bytes() + memory.dense().dictionary_bytes();
        for vbucket in self.vbuckets() {
            vbucket.check_invariants();
            reported_bytes += vbucket.memory_accounts().0;
        }
        assert_eq!(
            self.core.memory().used_bytes(),
            reported_bytes,
            "the bucket's account of memory"
        );
        self.check_dictionaries();
    }

    /// Panics unless every dense value in the tables is counted in a dictionary of the bucket, and
    /// the dictionaries in its memory.
    fn check_dictionaries(&self) {
        let tier = self.core.memory().dense();
        let dictionaries = tier.dictionaries().lock();
        let bytes: u64 = dictionaries.iter().map(|dictionary| dictionary.decoder_bytes()).sum();
        assert!(bytes <= tier.dictionary_bytes(), "bytes of dictionaries");
        let mut found: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        for item in self.vbuckets().iter().flat_map(VBucket::dense_items) {
            let slot = item.dictionary_slot().expect("a dense value names its dictionary");
            let sums = found.entry(slot).or_default();
            *sums = (sums.0 + 1, sums.1 + item.value_bytes() as u64);
        }
        for (slot, (values, plain_bytes)) in found {
            let dictionary = dictionaries.iter().find(|dictionary| dictionary.slot() == slot);
            let dictionary = dictionary.expect("the dictionary of a value is one of its bucket's");
            // Readers and the grace period may hold more.
            assert!(dictionary.values() >= values, "values of {}", dictionary.name());
            assert!(dictionary.plain_bytes() >= plain_bytes, "{}", dictionary.name());
        }
    }
}
