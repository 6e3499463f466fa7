//! Groups of slots: one cache line each, probed by one word compare.
//!
//! Owns: the array of groups and the probe sequence. Called only by the hash table.
//!
//! Unsafe invariants:
//! 1. A [`Group`] of all zero bytes is a valid empty group (`None` is the null pointer by the niche
//!    of `ItemRef`, tag 0 means empty, overflow 0).
//! 2. A [`Groups`] is the only owner of its memory, which has room for `count` groups, and of the
//!    items in them; it drops these when it is dropped.

mod invariants;

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use oribi_types::DocKey;

use super::hash::KeyHash;
use crate::block_arena::ZeroedMemory;
use crate::item::ItemRef;

/// Slots per group: eight words of a cache line, less one for the tags.
pub(super) const SLOTS: usize = 7;
const OVERFLOW_BYTE: usize = 7;
const OVERFLOW_STUCK: u8 = u8::MAX;
const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
/// High bit of each of the seven tag bytes (little endian: byte 7 is the overflow count).
const TAG_HIGH_BITS: u64 = 0x0080_8080_8080_8080;

#[repr(C, align(64))]
struct Group {
    slots: [Option<ItemRef>; SLOTS],
    /// Seven tags (0: empty slot), then the overflow count.
    tags: [u8; SLOTS + 1],
}

const _: () = assert!(size_of::<Group>() == 64);
const _: () = assert!(size_of::<Option<ItemRef>>() == 8);

impl Group {
    /// A bit mask with the high bit of byte `i` set when tag `i` equals `tag`. Exact, not a filter.
    fn matches(&self, tag: u8) -> u64 {
        let differs = u64::from_le_bytes(self.tags) ^ (u64::from(tag) * 0x0101_0101_0101_0101);
        // A byte of `differs` is zero exactly when neither its low seven bits carry nor its top is
        // set.
        !(((differs & LOW_BITS) + LOW_BITS) | differs | LOW_BITS) & TAG_HIGH_BITS
    }

    fn overflow(&self) -> u8 {
        self.tags[OVERFLOW_BYTE]
    }
}

/// Place of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Position {
    group: usize,
    slot: usize,
}

/// Where a table's groups were a moment ago, to be read without its lock. Good for prefetching
/// only: by the time somebody looks there, the memory may belong to something else.
#[derive(Default)]
pub(crate) struct GroupHint {
    groups: AtomicPtr<u8>,
    mask: AtomicUsize,
}

impl GroupHint {
    /// Address of the group that a look-up of `hash` reads first, most likely.
    pub(crate) fn address(&self, hash: KeyHash) -> *const u8 {
        let group = hash.0 as usize & self.mask.load(Ordering::Relaxed);
        // Pointer and mask may belong to different tables, so this may overflow and lead anywhere.
        let offset = group.wrapping_mul(size_of::<Group>());
        self.groups.load(Ordering::Relaxed).wrapping_add(offset)
    }
}

/// A power of two of groups, or none at all.
pub(super) struct Groups {
    memory: ZeroedMemory,
    count: usize,
}

// SAFETY: (2) it owns its groups, and items may be sent and shared.
unsafe impl Send for Groups {}
// SAFETY: (2) as above.
unsafe impl Sync for Groups {}

impl Groups {
    pub(super) fn empty() -> Groups {
        Groups { memory: ZeroedMemory::new(0), count: 0 }
    }

    /// `count` empty groups; a power of two.
    pub(super) fn with_groups(count: usize) -> Groups {
        assert!(count.is_power_of_two());
        Groups { memory: ZeroedMemory::new(count * size_of::<Group>()), count }
    }

    /// The memory of groups that are all empty.
    pub(super) fn into_memory(mut self) -> ZeroedMemory {
        self.count = 0;
        std::mem::replace(&mut self.memory, ZeroedMemory::new(0))
    }

    fn all(&self) -> &[Group] {
        // SAFETY: (1, 2) the memory holds `count` groups, is aligned to a cache line, and began as
        // zero.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast().as_ptr(), self.count) }
    }

    fn all_mut(&mut self) -> &mut [Group] {
        // SAFETY: (1, 2) as above, and this is the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().cast().as_ptr(), self.count) }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn capacity(&self) -> usize {
        self.count * SLOTS
    }

    pub(super) fn bytes(&self) -> usize {
        self.memory.occupied_bytes()
    }

    /// Group indexes in probe order, each once.
    fn probe(&self, hash: KeyHash) -> impl Iterator<Item = usize> + use<> {
        let (home, mask) = (hash.0 as usize, self.count.wrapping_sub(1));
        (0..self.count).map(move |step| home.wrapping_add(step) & mask)
    }

    pub(super) fn position(&self, hash: KeyHash, key: DocKey<'_>) -> Option<Position> {
        let (groups, tag) = (self.all(), tag_of(hash));
        let mask = groups.len().wrapping_sub(1);
        let mut index = hash.0 as usize & mask;
        for _ in 0..groups.len() {
            let group = &groups[index];
            let mut matches = group.matches(tag);
            while matches != 0 {
                let slot = (matches.trailing_zeros() / 8) as usize;
                if group.slots[slot].as_ref().is_some_and(|item| item.has_key(key)) {
                    return Some(Position { group: index, slot });
                }
                matches &= matches - 1;
            }
            if group.overflow() == 0 {
                return None;
            }
            index = (index + 1) & mask;
        }
        None
    }

    /// Groups that a look-up of `hash` reads until it has read group `index`.
    pub(super) fn probes(&self, hash: KeyHash, index: usize) -> usize {
        (index.wrapping_sub(hash.0 as usize) & self.count.wrapping_sub(1)) + 1
    }

    /// Tells `hint` where the groups are.
    pub(super) fn show_to(&self, hint: &GroupHint) {
        let groups = self.memory.as_ptr().as_ptr();
        if hint.groups.load(Ordering::Relaxed) != groups {
            hint.groups.store(groups, Ordering::Relaxed);
            hint.mask.store(self.count.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// The first item in the home group whose tag fits.
    pub(super) fn candidate(&self, hash: KeyHash) -> Option<&ItemRef> {
        let group = &self.all()[self.probe(hash).next()?];
        let matches = group.matches(tag_of(hash));
        if matches == 0 {
            return None;
        }
        group.slots[(matches.trailing_zeros() / 8) as usize].as_ref()
    }

    pub(super) fn find(&self, hash: KeyHash, key: DocKey<'_>) -> Option<&ItemRef> {
        self.at(self.position(hash, key)?)
    }

    pub(super) fn at(&self, at: Position) -> Option<&ItemRef> {
        self.all()[at.group].slots[at.slot].as_ref()
    }

    pub(super) fn slot_mut(&mut self, at: Position) -> Option<&mut ItemRef> {
        self.all_mut()[at.group].slots[at.slot].as_mut()
    }

    /// Inserts an item whose key is known to be absent. The caller keeps the load below full.
    pub(super) fn insert_new(&mut self, hash: KeyHash, item: ItemRef) {
        for index in self.probe(hash) {
            let group = &mut self.all_mut()[index];
            let empty = group.matches(0);
            if empty != 0 {
                let slot = (empty.trailing_zeros() / 8) as usize;
                group.tags[slot] = tag_of(hash);
                group.slots[slot] = Some(item);
                return;
            }
            group.tags[OVERFLOW_BYTE] = group.overflow().saturating_add(1);
        }
        unreachable!("the load factor keeps at least one slot empty");
    }

    pub(super) fn remove(&mut self, hash: KeyHash, key: DocKey<'_>) -> Option<ItemRef> {
        let at = self.position(hash, key)?;
        for index in self.probe(hash).take_while(|index| *index != at.group) {
            let count = &mut self.all_mut()[index].tags[OVERFLOW_BYTE];
            if *count != OVERFLOW_STUCK {
                *count -= 1;
            }
        }
        self.take(at.group, at.slot)
    }

    /// Empties one slot. Overflow counts stay, so a look-up of what was displaced still finds it.
    pub(super) fn take(&mut self, group: usize, slot: usize) -> Option<ItemRef> {
        let group = &mut self.all_mut()[group];
        group.tags[slot] = 0;
        group.slots[slot].take()
    }

    pub(super) fn items(&self, group: usize) -> impl Iterator<Item = &ItemRef> {
        self.all()[group].slots.iter().flatten()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in self.all_mut() {
            group.slots.iter_mut().for_each(|slot| drop(slot.take()));
        }
    }
}

/// The tag comes from the bits that do not choose the group; 0 is kept for "empty".
fn tag_of(hash: KeyHash) -> u8 {
    ((hash.0 >> 56) as u8).max(1)
}
