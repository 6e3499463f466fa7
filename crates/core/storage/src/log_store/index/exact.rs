//! Entries with their whole fingerprints: an ordered array with gaps.
//!
//! Owns: [`ExactIndex`], linear probing in which entries stay sorted by fingerprint. It is filled
//! to at most nine tenths and grows by an eighth, so an entry costs 18 to 20 bytes once there are a
//! few hundred of them. Growing is one pass in order of memory, because the order of entries does
//! not depend on the capacity. The pass releases each piece of the old array once it is read, so
//! both together never take more than one. Caller: the table.

use super::entry::{Entry, FINGERPRINT_BITS, Fingerprint};
use super::memory::IndexMemory;
use super::pieces::Pieces;
use crate::prefetch::load_line;

/// Capacity of the smallest array.
const CAPACITY_MIN: usize = 8;
/// Memory is given up when there is more than needed by this part.
const ROOM_KEPT_PART: usize = 8;
/// Capacity after the last home for displaced entries, and the step by which it grows.
const OVERFLOW: usize = 32;
const _: () = assert!(CAPACITY_MIN > 0 && OVERFLOW > 0);

/// See the module text.
#[derive(Debug)]
pub(super) struct ExactIndex {
    /// `capacity` homes and [`OVERFLOW`] more, or nothing at all.
    entries: Pieces<u128>,
    capacity: usize,
    len: usize,
}

impl ExactIndex {
    pub(super) fn new(memory: &IndexMemory) -> ExactIndex {
        ExactIndex { entries: Pieces::new(memory), capacity: 0, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated in addition to the memory that all tables share.
    pub(super) fn own_bytes(&self) -> usize {
        self.entries.own_bytes()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + Clone {
        self.entries.iter().filter(|entry| *entry != 0).map(Entry)
    }

    /// Entries of this fingerprint and greater ones, ascending.
    pub(super) fn iter_from(&self, from: Fingerprint) -> impl Iterator<Item = Entry> {
        let slices = self.entries.slices_from(self.seek(from));
        slices.flatten().filter(|entry| **entry != 0).map(|entry| Entry(*entry))
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<Entry> {
        let entry = Entry(self.entries.get(self.seek(fingerprint))?);
        (entry.0 != 0 && entry.fingerprint() == fingerprint).then_some(entry)
    }

    /// Starts loading where the entry of the fingerprint is or belongs.
    pub(super) fn load(&self, fingerprint: Fingerprint) {
        let home = self.home(fingerprint.0 << (u128::BITS - FINGERPRINT_BITS));
        load_line(self.entries.address(home).cast());
    }

    /// Loads where the entries belong into the cache, all at once: the loads do not wait for each
    /// other, as those of the changes that follow would.
    pub(super) fn touch(&self, entries: &[Entry]) {
        let homes = entries.iter().filter_map(|entry| self.entries.get(self.home(entry.0)));
        std::hint::black_box(homes.fold(0, |sum, entry| sum ^ entry));
    }

    /// Puts the entry in and returns the one of the same fingerprint that it replaces.
    pub(super) fn put(&mut self, entry: Entry) -> Option<Entry> {
        let mut at = self.seek(entry.fingerprint());
        if let Some(slot) = self.entries.get_mut(at)
            && *slot != 0
            && Entry(*slot).fingerprint() == entry.fingerprint()
        {
            return Some(Entry(std::mem::replace(slot, entry.0)));
        }
        if (self.len + 1) * 10 > self.capacity * 9 {
            self.lay_out((self.len + 1) * 10 / 8, |_| true);
            at = self.seek(entry.fingerprint());
        }
        self.insert(at, entry.0);
        self.len += 1;
        debug_assert!(self.len * 10 <= self.capacity * 9, "the array has gaps");
        debug_assert_eq!(self.find(entry.fingerprint()), Some(entry), "an entry is found");
        None
    }

    /// Puts an entry in at a place. Those after it move on by one, up to the next gap.
    fn insert(&mut self, mut at: usize, entry: u128) {
        debug_assert_ne!(entry, 0, "zero is no entry");
        let together = self.entries.slice_from_mut(at);
        if let Some(gap) = together.iter().position(|slot| *slot == 0) {
            together.copy_within(..gap, 1);
            together[0] = entry;
            return;
        }
        // The run of entries continues in the next piece.
        let mut moved = entry;
        while moved != 0 {
            if at == self.entries.len() {
                // Or it reaches the end, which is rare: make it longer.
                self.entries.extend([0; OVERFLOW].into_iter());
            }
            let slot = self.entries.get_mut(at).expect("the array was made longer");
            moved = std::mem::replace(slot, moved);
            at += 1;
        }
    }

    /// Takes the entry of this fingerprint out.
    pub(super) fn remove(&mut self, fingerprint: Fingerprint) -> Option<Entry> {
        let mut at = self.seek(fingerprint);
        let entry = Entry(self.entries.get(at)?);
        if entry.0 == 0 || entry.fingerprint() != fingerprint {
            return None;
        }
        while let Some((_, next)) = self.entries.pair(at)
            && next != 0
            && self.home(next) <= at
        {
            self.set(at, next);
            at += 1;
        }
        debug_assert!(at < self.entries.len(), "the gap is inside the array");
        self.set(at, 0);
        assert!(self.len > 0, "the array counts its entries");
        self.len -= 1;
        if self.capacity > CAPACITY_MIN && self.len * 5 < self.capacity * 2 {
            self.lay_out(self.len * 10 / 8, |_| true);
        }
        Some(entry)
    }

    /// Takes out all entries but the `left` ones that `stays` is true for. Releases memory beyond
    /// `room` further ones.
    pub(super) fn retain(&mut self, left: usize, room: usize, stays: impl Fn(Entry) -> bool) {
        debug_assert!(left <= self.len, "only present entries stay");
        let needed = (left + room) * 10 / 9 + 1;
        let has_more = self.capacity > needed + needed / ROOM_KEPT_PART;
        if left < self.len || has_more {
            self.lay_out(if has_more { needed } else { self.capacity }, stays);
        }
        assert_eq!(self.len, left, "the entries that stay were counted");
    }

    fn set(&mut self, at: usize, entry: u128) {
        *self.entries.get_mut(at).expect("the caller has read it") = entry;
    }

    /// Where the entry of the fingerprint is, or where it belongs.
    fn seek(&self, fingerprint: Fingerprint) -> usize {
        // Less than every entry of the fingerprint, and greater than those of lesser ones.
        let wanted = fingerprint.0 << (u128::BITS - FINGERPRINT_BITS);
        let home = self.home(wanted);
        let is_there = |entry: &u128| *entry == 0 || *entry >= wanted;
        let together = self.entries.slice_from(home);
        if let Some(steps) = together.iter().position(is_there) {
            return home + steps;
        }
        let mut at = home + together.len();
        while self.entries.get(at).is_some_and(|entry| !is_there(&entry)) {
            at += 1;
        }
        at
    }

    /// First choice for an entry: its fingerprint's share of the capacity. Monotone, so entries
    /// that are sorted by home can be sorted by fingerprint as well.
    fn home(&self, entry: u128) -> usize {
        home_of(entry, self.capacity)
    }

    /// Lays those of the entries out anew that stay, in order, with `capacity` homes.
    fn lay_out(&mut self, capacity: usize, stays: impl Fn(Entry) -> bool) {
        let capacity = capacity.max(CAPACITY_MIN);
        let memory = self.entries.memory().clone();
        let old = std::mem::replace(&mut self.entries, Pieces::new(&memory));
        let mut new = Pieces::with_capacity(&memory, capacity + OVERFLOW);
        let (mut end, mut len) = (0, 0);
        old.into_slices(|slice| {
            for entry in slice.iter().filter(|entry| **entry != 0 && stays(Entry(**entry))) {
                let home = home_of(*entry, capacity);
                while end < home {
                    new.push(0);
                    end += 1;
                }
                new.push(*entry);
                (end, len) = (end + 1, len + 1);
            }
        });
        let missing = (capacity + OVERFLOW).saturating_sub(end);
        new.extend(std::iter::repeat_n(0, missing));
        new.shrink_to_fit();
        assert!(new.len() >= capacity + OVERFLOW, "the array has its overflow slots");
        debug_assert!(len <= capacity, "every entry has a home");
        (self.entries, self.capacity, self.len) = (new, capacity, len);
    }
}

fn home_of(entry: u128, capacity: usize) -> usize {
    let high = entry >> 64;
    let home = ((high * capacity as u128) >> 64) as usize;
    debug_assert!(home < capacity || capacity == 0, "a home is inside the array");
    home
}
