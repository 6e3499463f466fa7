//! Invariants of a bucket, as assertions.
//!
//! Owns: the check of all vbuckets and of the bucket's account of memory. The simulation calls it
//! between two steps.

use super::Bucket;

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
    }
}
