//! Index entry of a record: 128 bits.
//!
//! Owns: [`Entry`] and its parts. Callers: the table, and everything that fills or queries it.

use super::super::layout::{SEGMENT_BYTES_MAX, UNIT_BYTES};
use super::super::options::Packing;

/// Bits of the fingerprint.
pub(super) const FINGERPRINT_BITS: u32 = 77;
pub(super) const SIZE_BITS: u32 = 5;
pub(super) const MARK_BITS: u32 = 2;
pub(super) const SLOT_BITS: u32 = 14;
pub(super) const UNIT_BITS: u32 = 30;
const _: () =
    assert!(FINGERPRINT_BITS + SIZE_BITS + MARK_BITS + SLOT_BITS + UNIT_BITS == u128::BITS);

/// Most segments that a store can have at a time.
pub(in super::super) const SLOTS_MAX: usize = 1 << SLOT_BITS;
const _: () = assert!(SLOTS_MAX <= 1 << u16::BITS);
const _: () = assert!(SEGMENT_BYTES_MAX == UNIT_BYTES << UNIT_BITS);

/// Fingerprint of a key within one table: the upper bits of its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in super::super) struct Fingerprint(pub(super) u128);

impl Fingerprint {
    pub(in super::super) const FIRST: Fingerprint = Fingerprint(0);

    /// The least of the fingerprints that a store cannot tell apart once they are packed.
    pub(in super::super) fn group(self, packing: Option<Packing>) -> Fingerprint {
        debug_assert!(packing.is_none_or(|one| one.prefix_bits <= FINGERPRINT_BITS), "a prefix");
        let below = FINGERPRINT_BITS - packing.map_or(FINGERPRINT_BITS, |one| one.prefix_bits);
        Fingerprint(self.0 >> below << below)
    }

    /// The fingerprint of a key whose 128-bit hash this is.
    pub(in super::super) fn of(hash: u128) -> Fingerprint {
        Fingerprint(hash >> (u128::BITS - FINGERPRINT_BITS))
    }

    /// As a number, to be stored.
    pub(in super::super) fn number(self) -> u128 {
        self.0
    }

    /// From what was stored; `None` for a number that is none.
    pub(in super::super) fn from_number(number: u128) -> Option<Fingerprint> {
        (number >> FINGERPRINT_BITS == 0).then_some(Fingerprint(number))
    }
}

/// About how long a record is: a class of lengths, two for each power of two from 64 bytes to 4
/// MiB. Good enough to know how much of a segment still counts, whatever mix of lengths it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Size(pub(super) u8);

impl Size {
    /// Shortest length that has its own class, and the highest class.
    const BYTES_MIN: u64 = 64;
    const HIGHEST: u8 = (1 << SIZE_BITS) - 1;

    /// Of a record that takes this many bytes on disk.
    pub(in super::super) fn of(stored_bytes: u64) -> Size {
        let times = stored_bytes.max(Size::BYTES_MIN) / (Size::BYTES_MIN / 2);
        let octave = times.ilog2();
        let class = 2 * (octave - 1) + (times >> (octave - 1) & 1) as u32;
        Size(class.min(u32::from(Size::HIGHEST)) as u8)
    }

    /// As a number, to be stored.
    pub(in super::super) fn number(self) -> u8 {
        self.0
    }

    /// From what was stored; `None` for a number that is none.
    pub(in super::super) fn from_number(number: u8) -> Option<Size> {
        (number <= Size::HIGHEST).then_some(Size(number))
    }

    /// The middle of the class in bytes.
    pub(in super::super) fn bytes(self) -> u64 {
        let (octave, half) = (self.0 / 2, u64::from(self.0 % 2));
        (Size::BYTES_MIN + Size::BYTES_MIN / 4 + half * Size::BYTES_MIN / 2) << octave
    }
}

/// Kind of an entry's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Mark {
    Document,
    Tombstone,
    /// A purged tombstone, which readers are not shown.
    Purged,
}

/// A segment by its slot, and where in it, in units of eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in super::super) struct RecordPlace {
    pub(in super::super) slot: u16,
    pub(in super::super) unit: u32,
}

impl RecordPlace {
    /// The place at byte `offset`, which is a multiple of the unit, of the segment in `slot`.
    pub(in super::super) fn at(slot: u16, offset: u64) -> RecordPlace {
        let unit = offset / UNIT_BYTES;
        assert!(offset.is_multiple_of(UNIT_BYTES), "a record begins at a unit");
        assert!(unit < 1 << UNIT_BITS, "a segment is as long as places reach");
        RecordPlace { slot, unit: unit as u32 }
    }

    /// Offset in the segment in bytes.
    pub(in super::super) fn offset(self) -> u64 {
        u64::from(self.unit) * UNIT_BYTES
    }
}

/// An entry of a table. Zero is no entry, because no record stands at offset zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Entry(pub(super) u128);

impl Entry {
    pub(in super::super) fn new(
        fingerprint: Fingerprint,
        size: Size,
        mark: Mark,
        place: RecordPlace,
    ) -> Entry {
        debug_assert!(place.unit > 0, "no record stands at offset zero");
        debug_assert!(usize::from(place.slot) < SLOTS_MAX, "a slot has its width");
        debug_assert!(fingerprint.0 >> FINGERPRINT_BITS == 0, "a fingerprint has its width");
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
    pub(in super::super) fn marked(self, mark: Mark) -> Entry {
        let marked = Entry::new(self.fingerprint(), self.size(), mark, self.place());
        debug_assert_eq!(marked.place(), self.place(), "the same record");
        marked
    }

    pub(in super::super) fn size(self) -> Size {
        Size((self.0 >> (MARK_BITS + SLOT_BITS + UNIT_BITS)) as u8 & Size::HIGHEST)
    }

    pub(in super::super) fn fingerprint(self) -> Fingerprint {
        Fingerprint::of(self.0)
    }

    pub(in super::super) fn mark(self) -> Mark {
        match (self.0 >> (SLOT_BITS + UNIT_BITS)) & ((1 << MARK_BITS) - 1) {
            0 => Mark::Document,
            1 => Mark::Tombstone,
            _ => Mark::Purged,
        }
    }

    pub(in super::super) fn place(self) -> RecordPlace {
        let slot = (self.0 >> UNIT_BITS) & ((1 << SLOT_BITS) - 1);
        RecordPlace { slot: slot as u16, unit: (self.0 & ((1 << UNIT_BITS) - 1)) as u32 }
    }
}
