//! The table from keys to places in the log: one for each collection of each vbucket.
//!
//! Owns: [`Table`], an ordered array with gaps (linear probing in which entries stay sorted by
//! fingerprint). Sixteen bytes an entry: 77 bits of a keyed hash, the record's class of length,
//! what it is, and its place. A table is filled to at most nine tenths and grows by an eighth, so
//! an entry costs 18 to 20 bytes once a table has a few hundred of them. Growing is one pass in
//! order of memory, because the order of entries does not depend on the capacity.
//!
//! **Keys are not in the index**, so two keys with the same fingerprint would be taken for one.
//! Among `n` keys of a table a new one meets that with a chance of `n / 2^77`: for 16 million keys
//! in a table and 10^12 inserts, one in 9,000 that it happens once. That is below what disks and
//! memory do to data in the same time. Reads compare the key, so a wrong document is never shown.

/// Bits of the fingerprint.
const FINGERPRINT_BITS: u32 = 77;
const SIZE_BITS: u32 = 5;
const MARK_BITS: u32 = 2;
const SLOT_BITS: u32 = 14;
const UNIT_BITS: u32 = 30;
const _: () =
    assert!(FINGERPRINT_BITS + SIZE_BITS + MARK_BITS + SLOT_BITS + UNIT_BITS == u128::BITS);

/// Most segments that a store can have at a time.
pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// Capacity of the smallest table.
const CAPACITY_MIN: usize = 8;
/// Room behind the last home for entries that were moved on, and by how much it grows when needed.
const OVERFLOW: usize = 32;

/// What tells keys of one table apart: the upper bits of a hash of the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    /// None is less.
    pub(super) const FIRST: Fingerprint = Fingerprint(0);

    /// The fingerprint of a key whose 128-bit hash this is.
    pub(super) fn of(hash: u128) -> Fingerprint {
        Fingerprint(hash >> (u128::BITS - FINGERPRINT_BITS))
    }

    /// As a number, to be stored.
    pub(super) fn number(self) -> u128 {
        self.0
    }

    /// From what was stored; `None` for a number that is none.
    pub(super) fn from_number(number: u128) -> Option<Fingerprint> {
        (number >> FINGERPRINT_BITS == 0).then_some(Fingerprint(number))
    }
}

/// About how long a record is: a class of lengths, two for each power of two from 64 bytes to 4
/// MiB. Good enough to know how much of a segment still counts, whatever mix of lengths it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size(u8);

impl Size {
    /// Shortest length that is told from others, and the highest class.
    const BYTES_MIN: u64 = 64;
    const HIGHEST: u8 = (1 << SIZE_BITS) - 1;

    /// Of a record that takes this many bytes on disk.
    pub(super) fn of(stored_bytes: u64) -> Size {
        let times = stored_bytes.max(Size::BYTES_MIN) / (Size::BYTES_MIN / 2);
        let octave = times.ilog2();
        let class = 2 * (octave - 1) + (times >> (octave - 1) & 1) as u32;
        Size(class.min(u32::from(Size::HIGHEST)) as u8)
    }

    /// As a number, to be stored.
    pub(super) fn number(self) -> u8 {
        self.0
    }

    /// From what was stored; `None` for a number that is none.
    pub(super) fn from_number(number: u8) -> Option<Size> {
        (number <= Size::HIGHEST).then_some(Size(number))
    }

    /// The middle of the class in bytes.
    pub(super) fn bytes(self) -> u64 {
        let (octave, half) = (self.0 / 2, u64::from(self.0 % 2));
        (Size::BYTES_MIN + Size::BYTES_MIN / 4 + half * Size::BYTES_MIN / 2) << octave
    }
}

/// What an entry's record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// A document.
    Document,
    /// A tombstone.
    Tombstone,
    /// A purged tombstone, which readers are not shown.
    Purged,
}

/// A segment by its slot, and where in it, in units of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) slot: u16,
    pub(super) unit: u32,
}

impl Place {
    /// The place at byte `offset`, which is a multiple of the unit, of the segment in `slot`.
    pub(super) fn at(slot: u16, offset: u64) -> Place {
        let unit = offset / super::layout::UNIT_BYTES;
        assert!(offset.is_multiple_of(super::layout::UNIT_BYTES) && unit < 1 << UNIT_BITS);
        Place { slot, unit: unit as u32 }
    }

    /// Offset in the segment in bytes.
    pub(super) fn offset(self) -> u64 {
        u64::from(self.unit) * super::layout::UNIT_BYTES
    }
}

/// An entry of a table. Zero is no entry, because no record stands at offset zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(u128);

impl Entry {
    pub(super) fn new(fingerprint: Fingerprint, size: Size, mark: Mark, place: Place) -> Entry {
        debug_assert!(place.unit > 0 && usize::from(place.slot) < SLOTS_MAX);
        let mark = match mark {
            Mark::Document => 0,
            Mark::Tombstone => 1,
            Mark::Purged => 2,
        };
        let what = u128::from(size.0) << MARK_BITS | mark;
        let low = (what << SLOT_BITS | u128::from(place.slot)) << UNIT_BITS;
        let above = u128::BITS - FINGERPRINT_BITS;
        Entry(fingerprint.0 << above | low | u128::from(place.unit))
    }

    /// The same record as something else.
    pub(super) fn marked(self, mark: Mark) -> Entry {
        Entry::new(self.fingerprint(), self.size(), mark, self.place())
    }

    pub(super) fn size(self) -> Size {
        Size((self.0 >> (MARK_BITS + SLOT_BITS + UNIT_BITS)) as u8 & Size::HIGHEST)
    }

    pub(super) fn fingerprint(self) -> Fingerprint {
        Fingerprint::of(self.0)
    }

    pub(super) fn mark(self) -> Mark {
        match (self.0 >> (SLOT_BITS + UNIT_BITS)) & ((1 << MARK_BITS) - 1) {
            0 => Mark::Document,
            1 => Mark::Tombstone,
            _ => Mark::Purged,
        }
    }

    pub(super) fn place(self) -> Place {
        let slot = (self.0 >> UNIT_BITS) & ((1 << SLOT_BITS) - 1);
        Place { slot: slot as u16, unit: (self.0 & ((1 << UNIT_BITS) - 1)) as u32 }
    }
}

/// Entries of one collection in one vbucket.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// `capacity` homes and [`OVERFLOW`] more, or nothing at all.
    entries: Vec<u128>,
    capacity: usize,
    len: usize,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes allocated.
    pub(super) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u128>()
    }

    /// Entries in no useful order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
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
