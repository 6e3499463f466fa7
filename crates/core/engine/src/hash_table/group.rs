//! Groups of slots: one cache line each, probed by one word compare.
//!
//! Owns: the array of groups and the probe sequence. Called only by the hash table.
//!
//! Slots and tags are atomics, because [`GroupView`] finds items without the lock that their writer
//! holds. A slot is filled before its tag is set, and the tag is removed before the slot is
//! emptied.
//!
//! Unsafe invariants:
//! 1. A [`Group`] of all zero bytes is a valid empty group: empty slots, tag 0 for each of them,
//!    overflow 0.
//! 2. A [`GroupArray`] is the only owner of its memory, which has space for `count` groups, and of
//!    the items in them; it drops these when it is dropped. Only its methods that take `&mut self`
//!    write to slots and tags.
//! 3. A view leads to groups of a table whose memory was not retired when the view was last shown
//!    the table. The table's owner shows it under the lock under which groups change, before it
//!    gives memory up, and memory of groups is retired, never freed at once. So the groups that a
//!    reader finds outlive its read section.

mod invariants;
mod published;
mod view;

/// The atomics of [`published`]; a model checker has its own.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicPtr, Ordering};
}

pub(crate) use published::TableLookup;
pub(crate) use view::GroupView;

use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_types::DocKey;

use super::hash::KeyHash;
use crate::block_arena::ZeroedMemory;
use crate::grace_period::{RetiredBlock, retire};
use crate::item::{ItemRef, ItemSlot};

/// Slots per group: eight words of a cache line, less one for the tags.
pub(super) const SLOTS: usize = 7;
const OVERFLOW_BYTE: usize = 7;
const OVERFLOW_STUCK: u8 = u8::MAX;
const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
/// High bit of each of the seven tag bytes (little endian: byte 7 is the overflow count).
const TAG_HIGH_BITS: u64 = 0x0080_8080_8080_8080;

#[repr(C, align(64))]
struct Group {
    slots: [ItemSlot; SLOTS],
    tags: GroupTags,
}

const _: () = assert!(size_of::<Group>() == 64);
const _: () = assert!(size_of::<ItemSlot>() == 8);
const _: () = assert!(align_of::<Group>() == 64, "a group is one cache line");
const _: () = assert!(SLOTS == OVERFLOW_BYTE, "the overflow count follows the tags");
const _: () = assert!(TAG_HIGH_BITS.count_ones() as usize == SLOTS, "a bit for each slot");
const _: () = assert!(std::mem::offset_of!(Group, tags) == SLOTS * size_of::<ItemSlot>());

/// Seven tags (0: empty slot), then the overflow count, as one word.
struct GroupTags(AtomicU64);

impl GroupTags {
    #[inline]
    fn load(&self) -> Tags {
        Tags(self.0.load(Ordering::Acquire))
    }

    /// Called with the lock that writers hold.
    #[inline]
    fn store(&self, tags: Tags) {
        self.0.store(tags.0, Ordering::Release);
    }
}

/// A group's tags at one moment; byte `i` is the tag of slot `i`.
#[derive(Clone, Copy)]
struct Tags(u64);

impl Tags {
    /// A bit mask with the high bit of byte `i` set when tag `i` equals `tag`. Exact, not a filter.
    fn matches(self, tag: u8) -> u64 {
        let differs = self.0 ^ (u64::from(tag) * 0x0101_0101_0101_0101);
        // A byte of `differs` is zero exactly when neither its low seven bits carry nor its top is
        // set.
        !(((differs & LOW_BITS) + LOW_BITS) | differs | LOW_BITS) & TAG_HIGH_BITS
    }

    fn byte(self, at: usize) -> u8 {
        debug_assert!(at <= OVERFLOW_BYTE, "a group has eight bytes of tags");
        (self.0 >> (at * 8)) as u8
    }

    fn with_byte(self, at: usize, byte: u8) -> Tags {
        debug_assert!(at <= OVERFLOW_BYTE, "a group has eight bytes of tags");
        Tags(self.0 & !(0xff << (at * 8)) | u64::from(byte) << (at * 8))
    }

    fn overflow(self) -> u8 {
        self.byte(OVERFLOW_BYTE)
    }

    fn with_overflow(self, overflow: u8) -> Tags {
        self.with_byte(OVERFLOW_BYTE, overflow)
    }
}

/// Place of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GroupPosition {
    pub(super) group: usize,
    pub(super) slot: usize,
}

/// A power of two of groups, or none at all.
pub(super) struct GroupArray {
    memory: GroupMemory,
    count: usize,
}

/// The memory of groups without items. It is retired when it is dropped.
pub(crate) struct GroupMemory(Option<Box<ZeroedMemory>>);

impl GroupMemory {
    fn new(bytes: usize) -> GroupMemory {
        GroupMemory((bytes > 0).then(|| Box::new(ZeroedMemory::new(bytes))))
    }

    fn groups(&self) -> NonNull<Group> {
        self.0.as_ref().map_or(NonNull::dangling(), |memory| memory.as_ptr().cast())
    }
}

impl Drop for GroupMemory {
    fn drop(&mut self) {
        let Some(memory) = self.0.take() else { return };
        let bytes = memory.occupied_bytes();
        let address = NonNull::from(Box::leak(memory)).cast();
        // SAFETY: (3) no view leads to the groups any more; the box came from the line above.
        unsafe { retire(RetiredBlock { address, bytes, release: free_memory }) }
    }
}

/// # Safety
/// The address is that of a leaked box of memory.
unsafe fn free_memory(address: NonNull<u8>, _bytes: usize) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(address.cast::<ZeroedMemory>().as_ptr()) });
}

// SAFETY: (2) it owns its groups, and items may be sent and shared.
unsafe impl Send for GroupArray {}
// SAFETY: (2) as above.
unsafe impl Sync for GroupArray {}

impl GroupArray {
    pub(super) fn empty() -> GroupArray {
        GroupArray { memory: GroupMemory::new(0), count: 0 }
    }

    /// `count` empty groups; a power of two.
    pub(super) fn with_groups(count: usize) -> GroupArray {
        assert!(count.is_power_of_two(), "the probe sequence masks by the number of groups");
        GroupArray { memory: GroupMemory::new(count * size_of::<Group>()), count }
    }

    /// The memory of groups that are all empty.
    pub(super) fn into_memory(mut self) -> GroupMemory {
        debug_assert!(
            self.all().iter().all(|group| group.slots.iter().all(|slot| slot.get().is_none())),
            "groups are empty"
        );
        self.count = 0;
        std::mem::replace(&mut self.memory, GroupMemory::new(0))
    }

    fn all(&self) -> &[Group] {
        // SAFETY: (1, 2) the memory holds `count` groups, is aligned to a cache line, and began as
        // zero.
        unsafe { std::slice::from_raw_parts(self.memory.groups().as_ptr(), self.count) }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn capacity(&self) -> usize {
        self.count * SLOTS
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.0.as_ref().map_or(0, |memory| memory.occupied_bytes())
    }

    /// Group indexes in probe order, each once.
    fn probe(&self, hash: KeyHash) -> impl Iterator<Item = usize> + use<> {
        let (home, mask) = (hash.0 as usize, self.count.wrapping_sub(1));
        (0..self.count).map(move |step| home.wrapping_add(step) & mask)
    }

    pub(super) fn position(&self, hash: KeyHash, key: DocKey<'_>) -> Option<GroupPosition> {
        let (groups, tag) = (self.all(), tag_of(hash));
        let mask = groups.len().wrapping_sub(1);
        let mut index = hash.0 as usize & mask;
        for _ in 0..groups.len() {
            let group = &groups[index];
            let tags = group.tags.load();
            let mut matches = tags.matches(tag);
            while matches != 0 {
                let slot = (matches.trailing_zeros() / 8) as usize;
                if group.slots[slot].get().is_some_and(|item| item.has_key(key)) {
                    return Some(GroupPosition { group: index, slot });
                }
                matches &= matches - 1;
            }
            if tags.overflow() == 0 {
                return None;
            }
            index = (index + 1) & mask;
        }
        None
    }

    /// Groups that a look-up of `hash` reads until it has read group `index`.
    pub(super) fn probes(&self, hash: KeyHash, index: usize) -> usize {
        debug_assert!(index < self.count, "a group is one of the array's");
        (index.wrapping_sub(hash.0 as usize) & self.count.wrapping_sub(1)) + 1
    }

    /// Where the groups are, in one word: their address, and in its low bits, which are zero, the
    /// logarithm of their number. Null for none.
    fn place(&self) -> *mut Group {
        match self.count {
            0 => null_mut(),
            count => self.memory.groups().as_ptr().map_addr(|at| at | count.ilog2() as usize),
        }
    }

    pub(super) fn find(&self, hash: KeyHash, key: DocKey<'_>) -> Option<&ItemRef> {
        self.at(self.position(hash, key)?)
    }

    pub(super) fn at(&self, at: GroupPosition) -> Option<&ItemRef> {
        debug_assert!(at.group < self.count && at.slot < SLOTS, "a place is inside the array");
        self.all()[at.group].slots[at.slot].get()
    }

    /// Puts `item` in the place of another version of its key, which it returns.
    pub(super) fn replace(&mut self, at: GroupPosition, item: ItemRef) -> Option<ItemRef> {
        let slot = &self.all()[at.group].slots[at.slot];
        debug_assert!(slot.get().is_some_and(|before| before.has_key(item.key())), "a stale place");
        // SAFETY: (2) no other thread writes.
        unsafe { slot.replace(item) }
    }

    /// Inserts an item whose key is known to be absent. The caller keeps the load below full.
    pub(super) fn insert_new(&mut self, hash: KeyHash, item: ItemRef) {
        let at = self.make_way(hash);
        self.fill(hash, at, item);
    }

    /// Moves the item of a slot to other groups. A reader finds it in one place or both.
    pub(super) fn move_to(
        &mut self,
        to: &mut GroupArray,
        at: GroupPosition,
        hash_of: impl FnOnce(&ItemRef) -> KeyHash,
    ) {
        let Some(item) = self.at(at) else { return };
        debug_assert!(to.count > 0, "an item moves to a table with groups");
        let hash = hash_of(item);
        let new_at = to.make_way(hash);
        // SAFETY: (2) no other thread writes, and the count that both slots own for a moment is
        // given up by the one below.
        to.fill(hash, new_at, unsafe { item.same_count() });
        std::mem::forget(self.take(at));
    }

    /// An empty slot for this hash, after the groups before it were marked as passed.
    fn make_way(&mut self, hash: KeyHash) -> GroupPosition {
        for index in self.probe(hash) {
            let group = &self.all()[index];
            let tags = group.tags.load();
            let empty = tags.matches(0);
            if empty != 0 {
                debug_assert_eq!(empty & !TAG_HIGH_BITS, 0, "only slots are empty");
                return GroupPosition { group: index, slot: (empty.trailing_zeros() / 8) as usize };
            }
            group.tags.store(tags.with_overflow(tags.overflow().saturating_add(1)));
        }
        unreachable!("the load factor keeps at least one slot empty");
    }

    fn fill(&mut self, hash: KeyHash, at: GroupPosition, item: ItemRef) {
        let group = &self.all()[at.group];
        debug_assert_eq!(group.tags.load().byte(at.slot), 0, "a free slot has no tag");
        // SAFETY: (2) no other thread writes.
        let before = unsafe { group.slots[at.slot].replace(item) };
        debug_assert!(before.is_none(), "a slot without a tag is empty");
        group.tags.store(group.tags.load().with_byte(at.slot, tag_of(hash)));
    }

    pub(super) fn remove(&mut self, hash: KeyHash, key: DocKey<'_>) -> Option<ItemRef> {
        let at = self.position(hash, key)?;
        for index in self.probe(hash).take_while(|index| *index != at.group) {
            let group = &self.all()[index];
            let tags = group.tags.load();
            if tags.overflow() != OVERFLOW_STUCK {
                debug_assert!(
                    tags.overflow() > 0,
                    "an insert has counted each group that it passed"
                );
                group.tags.store(tags.with_overflow(tags.overflow() - 1));
            }
        }
        self.take(at)
    }

    /// Empties one slot. Overflow counts stay, so a look-up still finds displaced items.
    pub(in crate::hash_table) fn take(&mut self, at: GroupPosition) -> Option<ItemRef> {
        let group = &self.all()[at.group];
        debug_assert!(
            group.slots[at.slot].get().is_none() || group.tags.load().byte(at.slot) != 0,
            "tagged"
        );
        group.tags.store(group.tags.load().with_byte(at.slot, 0));
        // SAFETY: (2) no other thread writes.
        unsafe { group.slots[at.slot].take() }
    }

    pub(super) fn items(&self, group: usize) -> impl Iterator<Item = &ItemRef> {
        self.all()[group].slots.iter().filter_map(ItemSlot::get)
    }
}

impl Drop for GroupArray {
    fn drop(&mut self) {
        for slot in self.all().iter().flat_map(|group| &group.slots) {
            // SAFETY: (2) no other thread writes.
            drop(unsafe { slot.take() });
        }
    }
}

/// The tag comes from the bits that do not choose the group; 0 is kept for "empty".
fn tag_of(hash: KeyHash) -> u8 {
    ((hash.0 >> 56) as u8).max(1)
}
