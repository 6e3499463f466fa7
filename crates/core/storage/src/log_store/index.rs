//! The table from keys to places in the log: one for each collection of each vbucket.
//!
//! Owns: [`IndexTable`], which has entries in two forms. **Exact** ones ([`exact`]) have 77 bits of
//! a keyed hash in sixteen bytes, and take 18 to 20. **Packed** ones ([`packed`]) have 32 bits of
//! the hash, and take seven to eight bytes. A store that packs ([`LogOptions`](super::LogOptions))
//! does so whenever a table has some more exact entries than its last packing left: a 32nd of the
//! packed ones, and an eighth of those left. So packed ones take about half a byte more.
//!
//! **Keys are not in the index**, so two keys with the same fingerprint would be taken for one.
//! Among `n` keys of a table a new one meets that with a chance of `n / 2^77`: for 16 million keys
//! in a table and 10^12 inserts, one in 9,000 that it happens once. That is below what disks and
//! memory do to data in the same time. Reads compare the key, so a wrong document is never shown.
//! A packed entry is taken for that of a key only after its record was read and compared.

mod entry;
mod exact;
#[allow(unsafe_code, reason = "memory of large tables; invariants in memory.rs")]
mod memory;
mod packed;
mod pieces;

pub(super) use self::entry::{Entry, Fingerprint, Mark, RecordPlace, SLOTS_MAX, Size};

use self::exact::ExactIndex;
#[cfg(test)]
pub(super) use self::memory::CHUNK_BYTES;
pub(super) use self::memory::IndexMemory;
use self::packed::PackedIndex;
use super::options::Packing;

/// Packed entries for each exact one that may come before the next packing. Each insert pays for
/// copying so many.
const PACKED_FOR_EXACT: usize = 32;
/// The same for exact entries that the last packing left: they are longer, so a few more of them
/// count for less, and passing over them costs more.
const LEFT_FOR_EXACT: usize = 8;

/// Entries of one collection in one vbucket.
///
/// All of them are exact, until [`IndexTable::packed`] packs them; entries that come later are
/// exact again. A key has one entry. A packed one may be taken for that of another key with the
/// same prefix. So whoever puts an entry of a key in takes its packed one out, and reads the record
/// to know which one that is. To whom the place is known, no entry is taken for another.
#[derive(Debug)]
pub(super) struct IndexTable {
    exact: ExactIndex,
    packed: PackedIndex,
    /// Exact entries that the last packing left, because they were young.
    left_exact: usize,
}

impl IndexTable {
    /// No entries; those that come lie in this memory.
    pub(super) fn new(memory: &IndexMemory) -> IndexTable {
        IndexTable {
            exact: ExactIndex::new(memory),
            packed: PackedIndex::new(memory),
            left_exact: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.exact.len() + self.packed.len()
    }

    /// Bytes allocated in addition to the memory that all tables share.
    pub(super) fn own_bytes(&self) -> usize {
        self.exact.own_bytes() + self.packed.own_bytes()
    }

    pub(super) fn packed_len(&self) -> usize {
        self.packed.len()
    }

    /// Entries in no useful order. Packed ones have only the upper bits of their fingerprints.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.exact.iter().chain(self.packed.iter())
    }

    /// Entries of this fingerprint and greater ones, ascending. Packed ones come in as if the lower
    /// bits of their fingerprints were zero, so `from` is a [`Fingerprint::group`].
    pub(super) fn iter_from(&self, from: Fingerprint) -> impl Iterator<Item = Entry> {
        let mut exact = self.exact.iter_from(from).peekable();
        let mut packed = self.packed.iter_from(from).peekable();
        std::iter::from_fn(move || {
            let is_exact_next = match (exact.peek(), packed.peek()) {
                (Some(exact), Some(packed)) => exact.fingerprint() < packed.fingerprint(),
                (exact, _) => exact.is_some(),
            };
            if is_exact_next { exact.next() } else { packed.next() }
        })
    }

    /// The entries of which one is that of the key, if it has one.
    pub(super) fn candidates(&self, fingerprint: Fingerprint) -> impl Iterator<Item = Entry> {
        let exact = self.exact.find(fingerprint);
        let packed = exact.is_none().then(|| self.packed.candidates(fingerprint));
        exact.into_iter().chain(packed.into_iter().flatten())
    }

    /// The packed entries that may be that of the key; none when it has an exact one.
    pub(super) fn unsure(&self, fingerprint: Fingerprint) -> impl Iterator<Item = Entry> {
        let mut packed = self.packed.candidates(fingerprint).peekable();
        let is_exact = packed.peek().is_some() && self.exact.find(fingerprint).is_some();
        packed.filter(move |_| !is_exact)
    }

    /// The entry of the key that points at this place.
    pub(super) fn at(&self, fingerprint: Fingerprint, place: RecordPlace) -> Option<Entry> {
        let exact = self.exact.find(fingerprint).filter(|entry| entry.place() == place);
        exact.or_else(|| self.packed.at(fingerprint, place))
    }

    /// Starts loading where the entry of the fingerprint is or belongs.
    pub(super) fn load(&self, fingerprint: Fingerprint) {
        self.exact.load(fingerprint);
        self.packed.load(fingerprint);
    }

    /// Loads where the exact entries belong into the cache, all at once: the loads do not wait for
    /// each other, as those of the changes that follow would.
    pub(super) fn touch(&self, entries: &[Entry]) {
        self.exact.touch(entries);
    }

    /// Puts the entry in and returns the exact one of the same fingerprint that it replaces.
    pub(super) fn put(&mut self, entry: Entry) -> Option<Entry> {
        self.exact.put(entry)
    }

    /// Takes out the entry of the key that points at this place.
    pub(super) fn remove_at(
        &mut self,
        fingerprint: Fingerprint,
        place: RecordPlace,
    ) -> Option<Entry> {
        if self.exact.find(fingerprint).is_some_and(|entry| entry.place() == place) {
            return self.exact.remove(fingerprint);
        }
        self.packed.remove_at(fingerprint, place)
    }

    /// Puts `new` in the place of the entry of the key that points at `from`, and returns that. The
    /// fingerprint is whole unless `new` points there as well.
    pub(super) fn replace_at(
        &mut self,
        fingerprint: Fingerprint,
        from: RecordPlace,
        new: Entry,
    ) -> Option<Entry> {
        debug_assert!(
            new.place() != from
                || self.at(fingerprint, from).is_none_or(|old| old.size() == new.size()),
            "the same record has the same length"
        );
        if self.exact.find(fingerprint).is_some_and(|entry| entry.place() == from) {
            return self.exact.put(new);
        }
        self.packed.replace_at(fingerprint, from, new).unwrap_or_else(|()| {
            let removed = self.packed.remove_at(fingerprint, from);
            self.exact.put(new);
            removed
        })
    }

    /// True when enough entries are exact or removed to justify a packing pass over all of them.
    pub(super) fn is_due(&self, packing: Packing) -> bool {
        let added = self.exact.len().saturating_sub(self.left_exact);
        added.max(self.packed.gone()) > self.tolerated(packing)
    }

    /// Entries that are added before the table is packed again.
    fn tolerated(&self, packing: Packing) -> usize {
        let of_packed = self.packed.len() / PACKED_FOR_EXACT;
        packing.exact_min.max(of_packed + self.left_exact / LEFT_FOR_EXACT)
    }

    /// The packed entries and the exact entries in the segments of `old`, by slot.
    /// `packing` is the same for all of a table's life.
    pub(super) fn packed(&self, packing: Packing, old: &[bool]) -> PackedIndex {
        let is_old = |entry: &Entry| is_in(old, *entry);
        PackedIndex::of(&self.packed, self.exact.iter().filter(is_old), packing.prefix_bits)
    }

    /// Installs the result of [`IndexTable::packed`]. Returns the previous entries, to be freed
    /// without a lock.
    pub(super) fn take_packed(
        &mut self,
        packed: PackedIndex,
        packing: Packing,
        old: &[bool],
    ) -> PackedIndex {
        let before = std::mem::replace(&mut self.packed, packed);
        assert!(self.packed.len() >= before.len(), "packing keeps every entry");
        self.left_exact = self.exact.len() - (self.packed.len() - before.len());
        let room = self.tolerated(packing);
        self.exact.retain(self.left_exact, room, |entry| !is_in(old, entry));
        assert_eq!(self.exact.len(), self.left_exact, "an entry is exact or packed");
        before
    }
}

fn is_in(old: &[bool], entry: Entry) -> bool {
    old.get(usize::from(entry.place().slot)).is_some_and(|is_old| *is_old)
}
