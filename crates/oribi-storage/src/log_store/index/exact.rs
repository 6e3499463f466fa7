//! Entries with their whole fingerprints: an ordered array with gaps.
//!
//! Owns: [`Exact`], linear probing in which entries stay sorted by fingerprint. It is filled to at
//! most nine tenths and grows by an eighth, so an entry costs 18 to 20 bytes once there are a few
//! hundred of them. Growing is one pass in order of memory, because the order of entries does not
//! depend on the capacity. Caller: the table.

use super::entry::{Entry, FINGERPRINT_BITS, Fingerprint};
use crate::prefetch::load_line;

/// Capacity of the smallest array.
const CAPACITY_MIN: usize = 8;
/// Memory is given up when there is more than needed by this part.
const ROOM_KEPT_PART: usize = 8;
/// Room behind the last home for entries that were moved on, and by how much it grows when needed.
const OVERFLOW: usize = 32;

/// See the module text.
#[derive(Debug, Default)]
pub(super) struct Exact {
    /// `capacity` homes and [`OVERFLOW`] more, or nothing at all.
    entries: Vec<u128>,
    capacity: usize,
    len: usize,
}

impl Exact {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u128>()
    }

    /// Entries by fingerprint.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + Clone {
        self.entries.iter().filter(|entry| **entry != 0).map(|entry| Entry(*entry))
    }

    /// Entries of this fingerprint and greater ones, ascending.
    pub(super) fn iter_from(&self, from: Fingerprint) -> impl Iterator<Item = Entry> {
        let rest = self.entries.get(self.seek(from)..).unwrap_or_default();
        rest.iter().filter(|entry| **entry != 0).map(|entry| Entry(*entry))
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<Entry> {
        let at = self.seek(fingerprint);
        let entry = Entry(*self.entries.get(at)?);
        (entry.0 != 0 && entry.fingerprint() == fingerprint).then_some(entry)
    }

    /// Starts loading where the entry of the fingerprint is or belongs.
    pub(super) fn load(&self, fingerprint: Fingerprint) {
        let home = self.home(fingerprint.0 << (u128::BITS - FINGERPRINT_BITS));
        load_line(self.entries.as_ptr().wrapping_add(home).cast());
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
            self.resize((self.len + 1) * 10 / 8);
            at = self.seek(entry.fingerprint());
        }
        let gap = self.entries[at..].iter().position(|slot| *slot == 0);
        let gap = gap.unwrap_or_else(|| {
            // The run of entries reaches the end, which is rare: make it longer.
            let end = self.entries.len();
            self.entries.resize(end + OVERFLOW, 0);
            end - at
        });
        self.entries.copy_within(at..at + gap, at + 1);
        self.entries[at] = entry.0;
        self.len += 1;
        None
    }

    /// Takes the entry of this fingerprint out.
    pub(super) fn remove(&mut self, fingerprint: Fingerprint) -> Option<Entry> {
        let mut at = self.seek(fingerprint);
        let entry = Entry(*self.entries.get(at)?);
        if entry.0 == 0 || entry.fingerprint() != fingerprint {
            return None;
        }
        while let Some(next) = self.entries.get(at + 1).copied()
            && next != 0
            && self.home(next) <= at
        {
            self.entries[at] = next;
            at += 1;
        }
        self.entries[at] = 0;
        self.len -= 1;
        if self.capacity > CAPACITY_MIN && self.len * 5 < self.capacity * 2 {
            self.resize(self.len * 10 / 8);
        }
        Some(entry)
    }

    /// Takes out all entries but those that `stays` is true for. Keeps the memory.
    pub(super) fn retain(&mut self, stays: impl Fn(Entry) -> bool) {
        let (mut free, mut left) = (0, 0);
        for from in 0..self.entries.len() {
            let entry = std::mem::take(&mut self.entries[from]);
            if entry != 0 && stays(Entry(entry)) {
                // Never behind its place so far: those before it have become fewer.
                let at = self.home(entry).max(free);
                self.entries[at] = entry;
                (free, left) = (at + 1, left + 1);
            }
        }
        self.len = left;
    }

    /// Gives up memory that is not needed for `room` further entries.
    pub(super) fn keep_room(&mut self, room: usize) {
        let needed = (self.len + room) * 10 / 9 + 1;
        if self.capacity > needed + needed / ROOM_KEPT_PART {
            self.resize(needed);
        }
    }

    /// Where the entry of the fingerprint is, or where it belongs.
    fn seek(&self, fingerprint: Fingerprint) -> usize {
        let wanted = fingerprint.0 << (u128::BITS - FINGERPRINT_BITS);
        let mut at = self.home(wanted);
        while let Some(entry) = self.entries.get(at)
            && *entry != 0
            && Entry(*entry).fingerprint() < fingerprint
        {
            at += 1;
        }
        at
    }

    /// First choice for an entry: its fingerprint's share of the capacity. Monotone, so entries
    /// that are sorted by home can be sorted by fingerprint as well.
    fn home(&self, entry: u128) -> usize {
        let high = entry >> 64;
        ((high * self.capacity as u128) >> 64) as usize
    }

    /// Lays the entries out anew, in order, with `capacity` homes.
    fn resize(&mut self, capacity: usize) {
        let capacity = capacity.max(CAPACITY_MIN);
        let length = capacity + OVERFLOW;
        if length < self.entries.len() {
            let mut fewer = Vec::with_capacity(length);
            fewer.extend(self.entries.iter().filter(|entry| **entry != 0));
            self.entries = fewer;
        }
        self.capacity = capacity;
        self.entries.reserve_exact(length.saturating_sub(self.entries.len()));
        self.entries.resize(length.max(self.entries.len()), 0);
        self.spread();
    }

    /// Moves every entry to its place, in the memory that there is: first all to the end, in order,
    /// then each forwards. An entry never passes the next one, because all of them have room behind
    /// it.
    fn spread(&mut self) {
        let mut next = self.entries.len();
        for from in (0..self.entries.len()).rev() {
            let entry = std::mem::take(&mut self.entries[from]);
            if entry != 0 {
                next -= 1;
                self.entries[next] = entry;
            }
        }
        let (mut from, mut free) = (next, 0);
        while from < self.entries.len() {
            let at = self.home(self.entries[from]).max(free);
            if at > from {
                // The last ones are crowded, which is rare: they need more room behind them.
                self.entries.splice(from..from, [0; OVERFLOW]);
                from += OVERFLOW;
                continue;
            }
            let entry = std::mem::take(&mut self.entries[from]);
            self.entries[at] = entry;
            (from, free) = (from + 1, at + 1);
        }
    }
}
