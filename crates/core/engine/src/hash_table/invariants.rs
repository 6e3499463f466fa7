//! Invariants of a hash table, as assertions.
//!
//! Owns: the check of the whole table. It visits every item, so it is for the simulation and for
//! slow points of debug builds.

use super::HashTable;

impl HashTable {
    /// Panics unless counts, bytes and groups agree with the items, and no key is in twice.
    pub(crate) fn check_invariants(&self) {
        let hash_of = |item: &crate::item::ItemRef| self.seed.hash(item.key());
        let mut len = self.current.check_invariants(hash_of, false);
        let mut bytes = self.current.bytes();
        if let Some(old) = &self.old {
            assert!(old.next < old.groups.len(), "a table that has moved is still there");
            for group in 0..old.groups.len() {
                for item in old.groups.items(group) {
                    assert!(group >= old.next, "a group that has moved has an item");
                    let twin = self.current.find(hash_of(item), item.key());
                    assert!(twin.is_none(), "a key is in both tables");
                }
            }
            len += old.groups.check_invariants(hash_of, true);
            bytes += old.groups.bytes();
        }
        assert_eq!(self.len, len, "the number of items");
        assert_eq!(self.bytes, bytes, "the bytes of all groups");
        assert!(self.len * 5 <= self.current.capacity() * 4, "the table is too full");
    }
}
