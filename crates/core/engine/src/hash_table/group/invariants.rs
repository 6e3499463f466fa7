//! Invariants of groups, as assertions.
//!
//! Owns: the check of one array of groups. It visits every item and hashes its key, so it is for
//! the simulation and for slow points of debug builds.

use super::{GroupArray, OVERFLOW_STUCK, SLOTS, tag_of};
use crate::hash_table::KeyHash;
use crate::item::ItemRef;

impl GroupArray {
    /// Panics unless every slot, tag and overflow count agrees with the items. Returns their
    /// number. Groups that are being drained may count more overflows than there are, because
    /// [`GroupArray::take`] lowers none.
    pub(in crate::hash_table) fn check_invariants(
        &self,
        hash_of: impl Fn(&ItemRef) -> KeyHash,
        is_draining: bool,
    ) -> usize {
        assert!(self.count == 0 || self.count.is_power_of_two(), "{} groups", self.count);
        let mut overflows = vec![0usize; self.count];
        let mut items = 0;
        for (index, group) in self.all().iter().enumerate() {
            for slot in 0..SLOTS {
                let tag = group.tags.load().byte(slot);
                let Some(item) = group.slots[slot].get() else {
                    assert_eq!(tag, 0, "an empty slot has a tag");
                    continue;
                };
                let hash = hash_of(item);
                assert_eq!(tag, tag_of(hash), "a tag is not that of its item");
                let found = self.position(hash, item.key()).map(|at| (at.group, at.slot));
                assert_eq!(found, Some((index, slot)), "a look-up leads elsewhere");
                for passed in self.probe(hash).take_while(|passed| *passed != index) {
                    overflows[passed] += 1;
                }
                items += 1;
            }
        }
        for (group, overflows) in self.all().iter().zip(overflows) {
            let counted = group.tags.load().overflow();
            let is_exact = usize::from(counted) == overflows;
            let may_differ =
                counted == OVERFLOW_STUCK || is_draining && usize::from(counted) > overflows;
            assert!(is_exact || may_differ, "{counted} overflows counted, {overflows} there are");
        }
        items
    }
}
