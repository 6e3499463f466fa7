//! A table's groups for readers without its lock.
//!
//! Owns: the look-up that takes no lock and writes nothing. A found item was in the table at the
//! moment of its last load: a slot that has been emptied leads nowhere. A miss means that the item
//! was not there, unless the look-up reports that the table has grown concurrently; then the caller
//! repeats it under the lock. [`shown`](super::published) says why. The numbers of unsafe
//! invariants are those of `group.rs`.
//!
//! Within one array items do not move, so its search needs no check. A group that an item's insert
//! has passed is seen to overflow before the item is seen, and while the item is there.

use std::ptr::null_mut;

use oribi_types::DocKey;

use super::published::{PublishedGroups, TableLookup};
use super::{Group, GroupArray, Tags, tag_of};
use crate::grace_period::ReadSection;
use crate::hash_table::KeyHash;
use crate::item::SharedItem;

/// Bits of a place that are the logarithm of the number of groups.
const LOGARITHM: usize = align_of::<Group>() - 1;
const _: () = assert!(usize::BITS as usize <= LOGARITHM + 1);

/// See the top of the file. Written when a table grows, so it stays in every reader's cache.
pub(crate) struct GroupView(PublishedGroups<Group>);

impl Default for GroupView {
    fn default() -> GroupView {
        GroupView(PublishedGroups::new(null_mut()))
    }
}

impl GroupView {
    /// Shows the groups that the table has now. The caller holds the table's lock.
    #[inline]
    pub(in crate::hash_table) fn show(&self, current: &GroupArray, old: Option<&GroupArray>) {
        debug_assert!(old.is_none_or(|old| old.len() <= current.len()), "a table grows");
        self.0.show(current.place(), old.map_or(null_mut(), GroupArray::place));
    }

    /// Address of the group that a look-up of `hash` reads first, most likely. For prefetches.
    #[inline]
    pub(crate) fn group_address(&self, hash: KeyHash) -> *const u8 {
        let (groups, mask) = unpack(self.0.current());
        groups.wrapping_add(hash.0 as usize & mask).cast_const().cast()
    }

    /// Address of the first item in the home group whose tag fits, most likely the item under the
    /// key. For prefetches.
    #[inline]
    pub(crate) fn item_address(&self, _section: &ReadSection, hash: KeyHash) -> Option<*const u8> {
        // SAFETY: (3) the section is open.
        let groups = unsafe { groups_at(self.0.current()) };
        let group = groups.get(hash.0 as usize & groups.len().wrapping_sub(1))?;
        let matches = group.tags.load().matches(tag_of(hash));
        (matches != 0).then(|| group.slots[slot_of(matches)].address())
    }

    /// The item under a key, without the lock.
    #[inline]
    pub(crate) fn find<'s>(
        &self,
        section: &'s ReadSection,
        hash: KeyHash,
        key: DocKey<'_>,
    ) -> TableLookup<SharedItem<'s>> {
        self.0.look_up(|place| {
            // SAFETY: (3) the section is open.
            find(unsafe { groups_at(place) }, section, hash, key)
        })
    }
}

/// Address and mask of the groups at a place.
#[inline]
fn unpack(place: *mut Group) -> (*mut Group, usize) {
    let logarithm = place.addr() & LOGARITHM;
    (place.map_addr(|at| at & !LOGARITHM), (1 << logarithm) - 1)
}

/// # Safety
/// (3) A read section was opened before the place was loaded, and outlives the groups.
#[inline]
unsafe fn groups_at<'s>(place: *mut Group) -> &'s [Group] {
    if place.is_null() {
        return &[];
    }
    let (groups, mask) = unpack(place);
    debug_assert!((mask + 1).is_power_of_two(), "a mask selects one of the groups");
    // SAFETY: (1, 3) the caller's promise.
    unsafe { std::slice::from_raw_parts(groups, mask + 1) }
}

#[inline]
fn find<'s>(
    groups: &[Group],
    section: &'s ReadSection,
    hash: KeyHash,
    key: DocKey<'_>,
) -> Option<SharedItem<'s>> {
    let tag = tag_of(hash);
    let mask = groups.len().wrapping_sub(1);
    let mut index = hash.0 as usize & mask;
    for _ in 0..groups.len() {
        let group = groups.get(index)?;
        let tags: Tags = group.tags.load();
        let mut matches = tags.matches(tag);
        while matches != 0 {
            // Another item may have taken the slot since the tags were loaded: the key decides.
            match group.slots[slot_of(matches)].read(section) {
                Some(item) if item.has_key(key) => return Some(item),
                _ => matches &= matches - 1,
            }
        }
        if tags.overflow() == 0 {
            return None;
        }
        index = (index + 1) & mask;
    }
    None
}

#[inline]
fn slot_of(matches: u64) -> usize {
    (matches.trailing_zeros() / 8) as usize
}
