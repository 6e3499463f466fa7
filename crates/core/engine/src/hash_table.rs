//! A vbucket's index from key to item: open addressing by cache-line groups.
//!
//! Owns: the slots. A group is one cache line: seven item references, seven one-byte tags and an
//! overflow count. A look-up reads the group of its hash, compares all seven tags in one word, and
//! follows only references whose tag matches: one cache miss for the group, one for the item. All
//! tags fit one 64-bit word, so the comparison is plain integer arithmetic on every architecture
//! and needs no SIMD intrinsics.
//!
//! An insert that finds its group full moves to the next and raises the overflow count of each
//! group it passed; a look-up stops at the first group whose count is zero. Removal lowers the same
//! counts, so there are no tombstone slots and no rehash in place. (A count that reached 255 stays
//! there.)
//!
//! Growth is incremental: the doubled table starts empty (zeroed pages, untouched until used) and
//! every later insert moves [`MIGRATE_GROUPS`] groups of the old one, so no operation pays for all.
//! A pass over all items uses a [`ScanCursor`], which stays right while the table grows.
//!
//! The caller holds the vbucket's table lock; only [`GroupView`] finds items without it. It does
//! not know about expiry, tombstones or memory quotas.

use oribi_types::DocKey;

use crate::item::ItemRef;
use crate::prefetch::load_line;

mod group;
mod hash;
mod invariants;
mod scan;
mod stats;
#[cfg(test)]
mod tests;

pub use hash::{HashSeed, KeyHash};
pub use scan::ScanCursor;
pub use stats::{HashTableStats, PROBE_LENGTHS};

use group::{GroupArray, GroupPosition, SLOTS};
pub(crate) use group::{GroupMemory, GroupView, TableLookup};

/// Old groups moved per insert. One would do: growth at 4/5 load leaves 5.6 inserts per old group
/// before the next growth; two finish early.
const MIGRATE_GROUPS: usize = 2;
const _: () = assert!(MIGRATE_GROUPS > 1, "a growth ends before the next begins");

/// Place of one item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablePlace {
    is_old: bool,
    position: GroupPosition,
}

struct Migration {
    groups: GroupArray,
    next: usize,
}

/// The index of one vbucket.
pub struct HashTable {
    current: GroupArray,
    old: Option<Migration>,
    /// Memory of tables before, once all of it has moved: to be dropped after the lock.
    retired: Vec<GroupMemory>,
    len: usize,
    /// Bytes of all groups.
    bytes: usize,
    resizes: u64,
    seed: HashSeed,
    /// A view was shown where the groups are now.
    is_shown: bool,
}

impl HashTable {
    /// An empty table that owns no memory until the first insert.
    pub fn new(seed: HashSeed) -> HashTable {
        HashTable {
            current: GroupArray::empty(),
            old: None,
            retired: Vec::new(),
            len: 0,
            bytes: 0,
            resizes: 0,
            seed,
            is_shown: false,
        }
    }

    /// Number of items, tombstones included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the slot arrays.
    #[inline]
    pub fn table_bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that the table no longer needs, to be dropped after the lock: giving it back is a
    /// system call.
    pub(crate) fn take_retired(&mut self) -> Vec<GroupMemory> {
        // Mostly there is none, and a line that is not written stays in other cores' caches.
        if self.retired.is_empty() { Vec::new() } else { std::mem::take(&mut self.retired) }
    }

    /// The hash function's seed, for hashing before the lock is taken.
    pub fn seed(&self) -> &HashSeed {
        &self.seed
    }

    /// The item stored under `key`.
    #[inline(always)]
    pub fn get(&self, hash: KeyHash, key: DocKey<'_>) -> Option<&ItemRef> {
        self.current
            .find(hash, key)
            .or_else(|| self.old.as_ref().and_then(|old| old.groups.find(hash, key)))
    }

    /// Shows `view`, always the same one, where the groups are now. The caller does so before it
    /// releases the lock under which it has changed the table, before it drops memory of the table,
    /// and between two inserts.
    #[inline]
    pub(crate) fn show_to(&mut self, view: &GroupView) {
        if !self.is_shown {
            self.show_change_to(view);
        }
    }

    #[cold]
    fn show_change_to(&mut self, view: &GroupView) {
        view.show(&self.current, self.old.as_ref().map(|old| &old.groups));
        self.is_shown = true;
    }

    /// Where the item stored under `key` is. Good until the table changes.
    pub(crate) fn locate(&self, hash: KeyHash, key: DocKey<'_>) -> Option<TablePlace> {
        if let Some(position) = self.current.position(hash, key) {
            return Some(TablePlace { is_old: false, position });
        }
        let position = self.old.as_ref()?.groups.position(hash, key)?;
        Some(TablePlace { is_old: true, position })
    }

    /// The item at a place.
    pub(crate) fn at(&self, place: TablePlace) -> Option<&ItemRef> {
        match (place.is_old, &self.old) {
            (true, Some(old)) => old.groups.at(place.position),
            _ => self.current.at(place.position),
        }
    }

    /// Stores `item` under its key, which is at `place` or, without one, not in the table. Returns
    /// the item that was there.
    pub(crate) fn put(
        &mut self,
        hash: KeyHash,
        place: Option<TablePlace>,
        item: ItemRef,
    ) -> Option<ItemRef> {
        let Some(place) = place else {
            self.insert_new(hash, item);
            return None;
        };
        let replaced = match (place.is_old, &mut self.old) {
            (true, Some(old)) => old.groups.replace(place.position, item),
            _ => self.current.replace(place.position, item),
        };
        self.migrate(MIGRATE_GROUPS);
        replaced
    }

    /// Makes space for `items` items in an empty table, so that none has to move while it fills.
    pub(crate) fn reserve(&mut self, items: usize) {
        const ITEMS_MAX: usize = 1 << 32;
        let capacity = items.min(ITEMS_MAX) * 5 / 4 + SLOTS;
        let groups = capacity.div_ceil(SLOTS).next_power_of_two();
        if items > 0 && self.len == 0 && self.old.is_none() && groups > self.current.len() {
            let before = std::mem::replace(&mut self.current, GroupArray::with_groups(groups));
            self.retired.push(before.into_memory());
            self.bytes = self.current.bytes();
            assert!(
                self.current.capacity() * 4 >= items.min(ITEMS_MAX) * 5,
                "a reserved table never grows"
            );
            self.is_shown = false;
        }
    }

    /// Stores `item` under its key and returns the item that was there. For a table without readers
    /// next to the owner of its lock.
    #[cfg(test)]
    pub fn insert(&mut self, hash: KeyHash, item: ItemRef) -> Option<ItemRef> {
        let place = self.locate(hash, item.key());
        self.is_shown = true;
        self.put(hash, place, item)
    }

    fn insert_new(&mut self, hash: KeyHash, item: ItemRef) {
        debug_assert!(self.get(hash, item.key()).is_none(), "the key is in the table already");
        self.migrate(MIGRATE_GROUPS);
        if (self.len + 1) * 5 > self.current.capacity() * 4 {
            self.grow();
        }
        self.current.insert_new(hash, item);
        self.len += 1;
        debug_assert!(self.len * 5 <= self.current.capacity() * 4, "the table has free slots");
    }

    /// Removes the item stored under `key`.
    pub fn remove(&mut self, hash: KeyHash, key: DocKey<'_>) -> Option<ItemRef> {
        let removed = self
            .current
            .remove(hash, key)
            .or_else(|| self.old.as_mut().and_then(|old| old.groups.remove(hash, key)))?;
        debug_assert!(self.len > 0, "the table counts its items");
        self.len -= 1;
        Some(removed)
    }

    /// Number of groups, including those of a table that is being replaced.
    pub fn group_count(&self) -> usize {
        self.current.len() + self.old.as_ref().map_or(0, |old| old.groups.len())
    }

    fn grow(&mut self) {
        // The old table is drained long before the new one fills up; finishing here keeps that true
        // for every sequence of removals and inserts.
        self.migrate(usize::MAX);
        assert!(self.old.is_none(), "a table grows when the last growth is over");
        self.resizes += 1;
        let doubled = GroupArray::with_groups((self.current.len() * 2).max(1));
        self.bytes += doubled.bytes();
        let groups = std::mem::replace(&mut self.current, doubled);
        self.old = (groups.len() > 0).then_some(Migration { groups, next: 0 });
        assert!(self.len * 5 <= self.current.capacity() * 4, "a grown table has free slots");
        self.is_shown = false;
    }

    fn migrate(&mut self, count: usize) {
        let Some(old) = &mut self.old else { return };
        debug_assert!(self.is_shown, "readers are shown a growth before anything moves");
        let end = old.next.saturating_add(count).min(old.groups.len());
        debug_assert!(old.next < old.groups.len(), "a table that has moved is gone");
        for group in old.next..end {
            for slot in 0..SLOTS {
                let at = GroupPosition { group, slot };
                old.groups.move_to(&mut self.current, at, |item| self.seed.hash(item.key()));
            }
        }
        old.next = end;
        // The keys of the next ones are read with the next insert.
        let next_end = end.saturating_add(count).min(old.groups.len());
        let next = (end..next_end).flat_map(|group| old.groups.items(group));
        next.for_each(|item| load_line(item.address()));
        if end == old.groups.len() {
            assert!(self.bytes >= old.groups.bytes(), "the bytes of all groups are counted");
            debug_assert!(
                (0..end).all(|group| old.groups.items(group).next().is_none()),
                "each item has moved"
            );
            self.bytes -= old.groups.bytes();
            self.retired.extend(self.old.take().map(|old| old.groups.into_memory()));
            self.is_shown = false;
        }
    }
}
