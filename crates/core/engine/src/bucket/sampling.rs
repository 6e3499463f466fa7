//! A random document of a whole bucket.
//!
//! Owns: the draw of the vbucket, by how many documents of the collection it has; the draw within
//! it is in `vbucket/sampling.rs`. Called for GET_RANDOM_KEY.

use oribi_types::{Cas, CollectionId, Timestamp};

use super::Bucket;
use crate::item::ItemRef;
use crate::outcome::OperationRejection;

impl Bucket {
    /// A random document of a collection and the CAS that may be shown; nothing when no document's
    /// value is in memory.
    ///
    /// # Errors
    /// When there is no such collection.
    pub fn random_document(
        &self,
        collection: CollectionId,
        now: Timestamp,
    ) -> Result<Option<(ItemRef, Cas)>, OperationRejection> {
        if !self.manifest().contains(collection) {
            return Err(OperationRejection::UnknownCollection);
        }
        let items: Vec<u64> =
            self.vbuckets().iter().map(|vbucket| vbucket.collection_items(collection)).collect();
        let total: u64 = items.iter().sum();
        let mut random = || self.random_number();
        let Some(mut left) = random().checked_rem(total) else { return Ok(None) };
        let drawn = items.iter().position(|items| {
            let is_here = left < *items;
            left = left.wrapping_sub(*items);
            is_here
        });
        debug_assert!(drawn.is_some(), "a document that was drawn is in a vbucket");
        let vbuckets = self.vbuckets();
        let from = drawn.unwrap_or(0);
        let in_turn = (0..vbuckets.len()).map(|at| (from + at) % vbuckets.len());
        let mut with_items = in_turn.filter(|at| items[*at] > 0);
        Ok(with_items.find_map(|at| vbuckets[at].random_item(collection, now, &mut random)))
    }
}
