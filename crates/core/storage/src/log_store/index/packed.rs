//! Entries with a prefix of their fingerprints: bits without gaps, in order.
//!
//! Owns: [`PackedIndex`], made in one pass from another one and exact entries, both in the order of
//! their fingerprints. Afterwards entries change in their places or go; none comes. The upper bits
//! of the prefix select a bucket of 64 to 128 entries, and an entry has only the rest of it. Slot
//! and unit have as many bits as the entries need. So `n` entries with prefixes of `p` bits, in
//! segments of `u` units, take
//!
//! ```text
//! p - floor(log2(n / 64)) + 7 + log2(2 * slots) + log2(u)    bits each, and
//! 32 * 2^floor(log2(n / 64)) / n                             bits for the directory of buckets:
//! ```
//!
//! that is 7.4 bytes for 156,000 keys in 100 segments of 64 MiB. The directory is small enough to
//! stay in a cache. Within a bucket, hashes are spread evenly, so a look-up begins where the rest
//! of the prefix should be, and reads one or two lines.
//!
//! A key that is not there meets the prefix of another with a chance of `n / 2^p`: 1 in 4,000 for a
//! million keys. So a found entry may be another key's, until its record is read. Caller: the
//! table.

use std::ops::Range;

use super::entry::{
    Entry, FINGERPRINT_BITS, Fingerprint, MARK_BITS, Mark, RecordPlace, SIZE_BITS, SLOT_BITS, Size,
};
use super::memory::IndexMemory;
use super::pieces::Pieces;
use crate::prefetch::load_lines;

/// Entries of a bucket at least.
const BUCKET_ENTRIES: usize = 64;

/// Entries that are loaded on both sides of where one should be: about the deviation of a hash from
/// its place in a bucket.
const ENTRIES_AROUND: usize = 4;

/// The number that stands for an entry that has gone, where others have their mark.
const GONE: u64 = 3;

/// Which bits of an entry are what, from the lowest: unit, slot, size, mark, rest of the prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Widths {
    prefix: u32,
    bucket: u32,
    slot: u32,
    unit: u32,
}

impl Widths {
    fn rest(self) -> u32 {
        debug_assert!(self.bucket <= self.prefix, "a bucket is chosen by a part of the prefix");
        self.prefix - self.bucket
    }

    /// Bits of everything but the rest of the prefix.
    fn payload(self) -> u32 {
        MARK_BITS + SIZE_BITS + self.slot + self.unit
    }

    fn entry(self) -> u32 {
        self.rest() + self.payload()
    }

    fn prefix_of(self, fingerprint: Fingerprint) -> u64 {
        debug_assert!(self.prefix <= FINGERPRINT_BITS, "a prefix is a part of the fingerprint");
        (fingerprint.0 >> (FINGERPRINT_BITS - self.prefix)) as u64
    }

    /// Bucket of a prefix, and the rest of it.
    fn split(self, prefix: u64) -> (usize, u64) {
        let rest = self.rest();
        ((prefix >> rest) as usize, prefix & mask_of(rest))
    }

    /// `None` when slot or unit have more bits than there are.
    fn payload_of(self, entry: Entry) -> Option<u64> {
        let Widths { slot, unit, .. } = self;
        let place = entry.place();
        let fits = u64::from(place.slot) >> slot == 0 && u64::from(place.unit) >> unit == 0;
        let mark: u64 = match entry.mark() {
            Mark::Document => 0,
            Mark::Tombstone => 1,
            Mark::Purged => 2,
        };
        let what = mark << SIZE_BITS | u64::from(entry.size().0);
        fits.then_some((what << slot | u64::from(place.slot)) << unit | u64::from(place.unit))
    }
}

/// See the module text.
#[derive(Debug)]
pub(in super::super) struct PackedIndex {
    widths: Widths,
    /// Number of the first entry of each bucket, and at last of all entries.
    starts: Vec<u32>,
    /// Bits of the entries one after the other, and two words, to read beyond the last.
    words: Pieces<u64>,
    gone: usize,
}

impl PackedIndex {
    pub(super) fn new(memory: &IndexMemory) -> PackedIndex {
        let (widths, words) = (Widths::default(), Pieces::new(memory));
        PackedIndex { widths, starts: Vec::new(), words, gone: 0 }
    }

    /// Entries of both, of which `prefix_bits` bits are kept.
    pub(super) fn of(
        old: &PackedIndex,
        exact: impl Iterator<Item = Entry> + Clone,
        prefix_bits: u32,
    ) -> PackedIndex {
        assert!(prefix_bits <= u32::BITS, "a packed entry has at most 32 bits of the hash");
        let (mut count, mut slot_max, mut unit_max) = (old.len(), 0, 0);
        for place in exact.clone().map(Entry::place) {
            count += 1;
            (slot_max, unit_max) = (place.slot.max(slot_max), place.unit.max(unit_max));
        }
        if count == 0 {
            return PackedIndex::new(old.words.memory());
        }
        let slot = bits_of(slot_max.into());
        let widths = Widths {
            prefix: prefix_bits,
            bucket: (count / BUCKET_ENTRIES).max(1).ilog2().min(prefix_bits),
            // Compaction moves entries to new segments, of which there may be as many again.
            slot: match old.count() > 0 && slot <= old.widths.slot {
                true => old.widths.slot,
                false => SLOT_BITS.min(slot + 1),
            },
            unit: bits_of(unit_max.into()).max(old.widths.unit),
        };
        // Those that have gone are left out, and fields of other widths are written anew.
        let building = PackedIndexBuilder::of(widths, count, old.words.memory());
        let packed = match old.gone == 0 && old.widths == widths {
            true => old.with(exact, building),
            false => old.rewritten(exact, building),
        };
        assert_eq!(packed.len(), count, "packing keeps every entry");
        packed
    }

    /// Writes every entry by itself.
    fn rewritten(
        &self,
        exact: impl Iterator<Item = Entry>,
        mut building: PackedIndexBuilder,
    ) -> PackedIndex {
        let widths = building.widths;
        let mut exact = exact.map(|entry| (widths.prefix_of(entry.fingerprint()), entry));
        let mut next = exact.next();
        self.visit(|prefix, number| {
            while let Some((_, entry)) = next.filter(|(before, _)| *before <= prefix) {
                building.push_entry(entry);
                next = exact.next();
            }
            building.push_packed(self, prefix, number);
        });
        next.into_iter().chain(exact).for_each(|(_, entry)| building.push_entry(entry));
        building.finish()
    }

    /// Takes over the entries between two new ones as they are, many at a time.
    fn with(
        &self,
        exact: impl Iterator<Item = Entry>,
        mut building: PackedIndexBuilder,
    ) -> PackedIndex {
        let mut from = 0;
        for entry in exact {
            let (bucket, to) = self.seek(entry.fingerprint());
            debug_assert!(from <= to, "exact entries come in order");
            building.push_run(self, from..to, bucket);
            building.push_entry(entry);
            from = to;
        }
        building.push_run(self, from..self.count(), 1 << self.widths.bucket);
        building.finish()
    }

    /// Entries that are there.
    pub(super) fn len(&self) -> usize {
        debug_assert!(self.gone <= self.count(), "an entry goes once");
        self.count() - self.gone
    }

    /// Entries that have gone and still take their bits.
    pub(super) fn gone(&self) -> usize {
        self.gone
    }

    /// Bytes allocated in addition to the memory that all tables share.
    pub(super) fn own_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<u32>() + self.words.own_bytes()
    }

    /// Entries by prefix. The lower bits of their fingerprints are zero.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> {
        self.iter_from(Fingerprint::FIRST)
    }

    /// The same from the prefix of a fingerprint on.
    pub(super) fn iter_from(&self, from: Fingerprint) -> impl Iterator<Item = Entry> {
        let (first_bucket, first) = self.seek(from);
        let buckets = self.starts.windows(2).enumerate().skip(first_bucket);
        let numbers = buckets.flat_map(move |(bucket, ends)| {
            ((ends[0] as usize).max(first)..ends[1] as usize).map(move |number| (bucket, number))
        });
        numbers.filter_map(|(bucket, number)| self.entry(bucket, number))
    }

    /// Prefixes and numbers of the entries, in order.
    fn visit(&self, mut visit: impl FnMut(u64, usize)) {
        let (rest, mark_at) = (self.widths.rest(), self.mark_at());
        for (bucket, ends) in (0_u64..).zip(self.starts.windows(2)) {
            for number in ends[0] as usize..ends[1] as usize {
                if self.gone == 0 || self.payload(number) >> mark_at != GONE {
                    visit(bucket << rest | self.rest(number), number);
                }
            }
        }
    }

    /// The entries that may be of the key with this fingerprint.
    pub(super) fn candidates(&self, fingerprint: Fingerprint) -> impl Iterator<Item = Entry> {
        self.numbers(fingerprint).filter_map(move |(bucket, number)| self.entry(bucket, number))
    }

    /// The entry of this place, if it has the prefix of the fingerprint.
    pub(super) fn at(&self, fingerprint: Fingerprint, place: RecordPlace) -> Option<Entry> {
        self.candidates(fingerprint).find(|entry| entry.place() == place)
    }

    /// Takes out the entry of this place, if it has the prefix of the fingerprint.
    pub(super) fn remove_at(
        &mut self,
        fingerprint: Fingerprint,
        place: RecordPlace,
    ) -> Option<Entry> {
        let (number, entry) = self.number_at(fingerprint, place)?;
        let payload = self.payload(number) & !(GONE << self.mark_at());
        let (_, rest) = self.split(fingerprint);
        self.set(number, payload | GONE << self.mark_at(), rest);
        self.gone += 1;
        assert!(self.gone <= self.count(), "an entry goes once");
        Some(entry)
    }

    /// Changes the entry of this place, if it has the prefix of the fingerprint, and returns it as
    /// it was. `Err` when its bits cannot represent the new place.
    pub(super) fn replace_at(
        &mut self,
        fingerprint: Fingerprint,
        place: RecordPlace,
        new: Entry,
    ) -> Result<Option<Entry>, ()> {
        let Some((number, entry)) = self.number_at(fingerprint, place) else { return Ok(None) };
        let payload = self.widths.payload_of(new).ok_or(())?;
        debug_assert!(payload <= mask_of(self.widths.payload()), "a payload has its width");
        let (_, rest) = self.split(fingerprint);
        self.set(number, payload, rest);
        Ok(Some(entry))
    }

    /// Starts loading where the entry of the fingerprint would be.
    pub(super) fn load(&self, fingerprint: Fingerprint) {
        let (bucket, rest) = self.split(fingerprint);
        let Some((start, end)) = self.ends(bucket) else { return };
        let number = self.guess(start, end, rest);
        let width = self.widths.entry() as usize;
        let first = number.saturating_sub(ENTRIES_AROUND).max(start) * width / 64;
        let last = (number + ENTRIES_AROUND).min(end) * width / 64;
        let bytes = (last - first + 1) * size_of::<u64>();
        load_lines(self.words.address(first).cast(), bytes);
    }

    /// The entries of a bucket, by their numbers.
    fn ends(&self, bucket: usize) -> Option<(usize, usize)> {
        let ends = self.starts.get(bucket..bucket + 2)?;
        debug_assert!(ends[0] <= ends[1], "buckets follow each other");
        Some((ends[0] as usize, ends[1] as usize))
    }

    /// Number of the entry that most likely has this rest of a prefix, or of one next to it.
    fn guess(&self, start: usize, end: usize, rest: u64) -> usize {
        start + ((rest * (end - start) as u64) >> self.widths.rest()) as usize
    }

    fn count(&self) -> usize {
        self.starts.last().map_or(0, |count| *count as usize)
    }

    /// Bucket of a fingerprint, and the rest of its prefix.
    fn split(&self, fingerprint: Fingerprint) -> (usize, u64) {
        self.widths.split(self.widths.prefix_of(fingerprint))
    }

    /// Bucket of a fingerprint, and the number of the first entry that has its prefix or a greater
    /// one.
    fn seek(&self, fingerprint: Fingerprint) -> (usize, usize) {
        let (bucket, rest) = self.split(fingerprint);
        let (start, end) = self.ends(bucket).unwrap_or_default();
        let mut first = self.guess(start, end, rest);
        debug_assert!((start..=end).contains(&first), "a guess is in the bucket");
        while first > start && self.rest(first - 1) >= rest {
            first -= 1;
        }
        while first < end && self.rest(first) < rest {
            first += 1;
        }
        debug_assert!((start..=end).contains(&first), "a prefix is looked for in its bucket");
        (bucket, first)
    }

    /// Buckets and numbers of the entries with the prefix of the fingerprint, those that have gone
    /// among them.
    fn numbers(&self, fingerprint: Fingerprint) -> impl Iterator<Item = (usize, usize)> {
        let (bucket, first) = self.seek(fingerprint);
        let (_, rest) = self.split(fingerprint);
        let (_, end) = self.ends(bucket).unwrap_or_default();
        let same = (first..end).take_while(move |number| self.rest(*number) == rest);
        same.map(move |number| (bucket, number))
    }

    fn number_at(&self, fingerprint: Fingerprint, place: RecordPlace) -> Option<(usize, Entry)> {
        self.numbers(fingerprint).find_map(|(bucket, number)| {
            let entry = self.entry(bucket, number)?;
            (entry.place() == place).then_some((number, entry))
        })
    }

    /// The entry of this number; `None` when it has gone.
    fn entry(&self, bucket: usize, number: usize) -> Option<Entry> {
        let Widths { slot, unit, prefix, .. } = self.widths;
        let payload = self.payload(number);
        let mark = match payload >> self.mark_at() {
            0 => Mark::Document,
            1 => Mark::Tombstone,
            2 => Mark::Purged,
            _ => return None,
        };
        let field = |at: u32, width: u32| payload >> at & mask_of(width);
        let place = RecordPlace { slot: field(unit, slot) as u16, unit: field(0, unit) as u32 };
        let size = Size(field(unit + slot, SIZE_BITS) as u8);
        let prefix_bits = (bucket as u128) << self.widths.rest() | u128::from(self.rest(number));
        let fingerprint = Fingerprint(prefix_bits << (FINGERPRINT_BITS - prefix));
        Some(Entry::new(fingerprint, size, mark, place))
    }

    /// Where the mark is in the payload.
    fn mark_at(&self) -> u32 {
        self.widths.payload() - MARK_BITS
    }

    fn payload(&self, number: usize) -> u64 {
        self.bits(number * self.widths.entry() as usize, self.widths.payload())
    }

    fn rest(&self, number: usize) -> u64 {
        let at = number * self.widths.entry() as usize + self.widths.payload() as usize;
        self.bits(at, self.widths.rest())
    }

    fn set(&mut self, number: usize, payload: u64, rest: u64) {
        debug_assert!(number < self.count(), "an entry that changes is in the index");
        let at = number * self.widths.entry() as usize;
        self.set_bits(at, self.widths.payload(), payload);
        self.set_bits(at + self.widths.payload() as usize, self.widths.rest(), rest);
    }

    /// `width` bits, fewer than 64, from bit `at` on.
    fn bits(&self, at: usize, width: u32) -> u64 {
        debug_assert!(width < u64::BITS, "a field is shorter than a word");
        let (low, high) = self.words.pair(at / 64).expect("two words follow the last entry");
        let both = u128::from(low) | u128::from(high) << 64;
        (both >> (at % 64)) as u64 & mask_of(width)
    }

    fn set_bits(&mut self, at: usize, width: u32, value: u64) {
        debug_assert!(value <= mask_of(width), "a number has its width");
        let mask = u128::from(mask_of(width)) << (at % 64);
        let value = u128::from(value) << (at % 64);
        for (word, shift) in [(at / 64, 0), (at / 64 + 1, 64)] {
            let word = self.words.get_mut(word).expect("two words follow the last entry");
            *word = *word & !((mask >> shift) as u64) | (value >> shift) as u64;
        }
    }
}

/// A [`PackedIndex`] that is being written from its first bit to its last.
struct PackedIndexBuilder {
    widths: Widths,
    starts: Vec<u32>,
    words: Pieces<u64>,
    /// Bits that fill no word yet, and how many.
    open: u128,
    open_bits: u32,
    count: u32,
}

impl PackedIndexBuilder {
    fn of(widths: Widths, count: usize, memory: &IndexMemory) -> PackedIndexBuilder {
        let words = (count * widths.entry() as usize).div_ceil(64) + 2;
        PackedIndexBuilder {
            widths,
            starts: Vec::with_capacity((1 << widths.bucket) + 1),
            words: Pieces::with_capacity(memory, words),
            open: 0,
            open_bits: 0,
            count: 0,
        }
    }

    fn push_entry(&mut self, entry: Entry) {
        let payload = self.widths.payload_of(entry).expect("the widths are those of the entries");
        self.push(self.widths.prefix_of(entry.fingerprint()), payload);
    }

    /// Takes over an entry, most often with fields of the same widths.
    fn push_packed(&mut self, old: &PackedIndex, prefix: u64, number: usize) {
        let payload = old.payload(number);
        if (old.widths.slot, old.widths.unit) == (self.widths.slot, self.widths.unit) {
            return self.push(prefix, payload);
        }
        let Widths { slot, unit, .. } = old.widths;
        let place = payload & mask_of(unit) | (payload >> unit & mask_of(slot)) << self.widths.unit;
        let what = payload >> (unit + slot);
        self.push(prefix, what << (self.widths.unit + self.widths.slot) | place);
    }

    fn push(&mut self, prefix: u64, payload: u64) {
        let (bucket, rest) = self.widths.split(prefix);
        while self.starts.len() <= bucket {
            self.starts.push(self.count);
        }
        debug_assert_eq!(
            self.starts.len(),
            bucket + 1,
            "entries come in the order of their buckets"
        );
        self.count += 1;
        self.push_bits(payload, self.widths.payload());
        self.push_bits(rest, self.widths.rest());
    }

    /// Takes over a run of entries as they are, which ends in this bucket or before it. Both have
    /// the same widths.
    fn push_run(&mut self, old: &PackedIndex, run: Range<usize>, bucket: usize) {
        debug_assert_eq!(self.widths, old.widths, "a reused run has the same widths");
        debug_assert!(run.start <= run.end && run.end <= old.count(), "a run is of the index");
        let added = self.count - run.start as u32;
        let starts = old.starts[self.starts.len().min(bucket + 1)..=bucket].iter();
        self.starts.extend(starts.map(|start| start + added));
        self.count += run.len() as u32;
        let width = self.widths.entry() as usize;
        self.push_words(old, run.start * width..run.end * width);
    }

    /// Appends bits of other entries, by whole words.
    fn push_words(&mut self, old: &PackedIndex, bits: Range<usize>) {
        let mut from = bits.start;
        if self.open_bits > 0 {
            let width = bits.len().min(64 - self.open_bits as usize);
            self.push_bits(old.bits(from, width as u32), width as u32);
            from += width;
        }
        let (mut word, shift, words) = (from / 64, from % 64, (bits.end - from) / 64);
        let end = word + words;
        let shifted = |(low, high)| ((u128::from(low) | u128::from(high) << 64) >> shift) as u64;
        while word < end {
            let slice = old.words.slice_from(word);
            let pairs = slice[..slice.len().min(end - word + 1)].windows(2);
            word += pairs.len();
            self.words.extend(pairs.map(|pair| shifted((pair[0], pair[1]))));
            // The last word of a piece has its neighbour in the next one.
            if word < end {
                let pair = old.words.pair(word).expect("two words follow the last entry");
                self.words.push(shifted(pair));
                word += 1;
            }
        }
        from += words * 64;
        debug_assert!(bits.end - from < 64, "less than a word is left");
        let width = (bits.end - from) as u32;
        self.push_bits(old.bits(from, width), width);
    }

    fn push_bits(&mut self, value: u64, width: u32) {
        debug_assert!(width < u64::BITS && value <= mask_of(width), "a number has its width");
        debug_assert!(self.open_bits < u64::BITS, "a full word is written");
        self.open |= u128::from(value) << self.open_bits;
        self.open_bits += width;
        if self.open_bits >= 64 {
            self.words.push(self.open as u64);
            self.open >>= 64;
            self.open_bits -= 64;
        }
    }

    fn finish(mut self) -> PackedIndex {
        assert!(self.starts.len() <= (1 << self.widths.bucket) + 1, "a bucket begins once");
        self.starts.resize((1 << self.widths.bucket) + 1, self.count);
        assert_eq!(
            self.starts.last(),
            Some(&self.count),
            "the last bucket ends with the last entry"
        );
        debug_assert!(self.starts.is_sorted(), "buckets follow each other");
        self.words.extend([self.open as u64, 0].into_iter());
        self.words.shrink_to_fit();
        PackedIndex { widths: self.widths, starts: self.starts, words: self.words, gone: 0 }
    }
}

/// The lowest bits, fewer than 64.
fn mask_of(width: u32) -> u64 {
    debug_assert!(width < u64::BITS, "a field is shorter than a word");
    (1 << width) - 1
}

/// Bits of a number.
fn bits_of(number: u64) -> u32 {
    (number + 1).next_power_of_two().ilog2()
}
