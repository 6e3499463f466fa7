//! The memory of one index, reserved in its bucket's quota.
//!
//! Owns: the reservation of what an index holds besides its entries. Invariant: bytes are reserved
//! before they are allocated, and returned with the index.

use std::sync::Arc;

use oribi_engine::Bucket;
use oribi_query::{IndexDefinition, MemoryBudget};

/// Trees of expressions take several times their text, and an index has tables of fixed size.
const TREE_BYTES_PER_TEXT_BYTE: usize = 16;
const TABLE_BYTES: usize = 8 << 10;

/// See the module text.
pub(super) struct IndexReservation {
    bucket: Arc<Bucket>,
    own_bytes: u64,
}

impl IndexReservation {
    /// Memory for an index of a definition; none if not even its tables fit.
    pub fn new(bucket: &Arc<Bucket>, definition: &IndexDefinition) -> Option<IndexReservation> {
        let text: usize = definition.keys.iter().map(String::len).sum();
        let text = text + definition.condition.as_ref().map_or(0, String::len);
        let own_bytes = (TABLE_BYTES + TREE_BYTES_PER_TEXT_BYTE * text) as u64;
        debug_assert!(own_bytes >= TABLE_BYTES as u64, "an index has a table");
        let is_reserved = bucket.reserve_for_index(own_bytes);
        is_reserved.then(|| IndexReservation { bucket: Arc::clone(bucket), own_bytes })
    }
}

impl MemoryBudget for IndexReservation {
    fn reserve(&self, bytes: usize) -> bool {
        self.bucket.reserve_for_index(bytes as u64)
    }

    fn release(&self, bytes: usize) {
        self.bucket.release_from_index(bytes as u64);
    }
}

impl Drop for IndexReservation {
    fn drop(&mut self) {
        self.bucket.release_from_index(self.own_bytes);
    }
}
