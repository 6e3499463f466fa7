//! Scans by key: the records of a collection in a vbucket, sorted in memory.
//!
//! Owns: the snapshot that a scan keeps. The index has neither keys nor their order, so a scan
//! reads the records as they lie, joined where they are near to each other, and sorts them. What it
//! keeps of them depends on the memory that scans of the process have left ([`Share`]):
//!
//! 1. the places of the records that it is about to read, of all or of so many as fit, in the
//!    order of fingerprints. A key keeps its fingerprint, and packing keeps the upper bits of it. A
//!    lot has all keys with the same upper bits. So commits, compaction and packing between two
//!    lots neither hide a key nor show it twice;
//! 2. whole records; of further ones the key and the length, and it reads each again in its turn;
//! 3. where not even all keys fit, the smallest ones. It shows these, and reads the records again
//!    for the greater ones.
//!
//! A scan with one lot of places and one pass shows one moment. Invariants: a scan never fails for
//! want of memory; every record is checked before it is shown; no lock is held while a scan reads.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use oribi_types::{CollectionId, DocKey, Vbid};

use super::catalog::{Catalog, Segment, TableKey};
use super::index::{Fingerprint, Mark};
use super::layout::{
    RECORD_HEADER_BYTES, UNIT_BYTES, decode_record, decode_unchecked, stored_bytes_of,
};
use super::log::Log;
use super::options::Packing;
use super::read::{FIRST_READ_BYTES, damaged};
use super::scan_memory::{FLOOR_BYTES, SHARED_BYTES_MAX, Share, ShareKind};
use super::window::Window;
use crate::counters::ReadCount;
use crate::{LARGE_RECORD_BYTES, Record, RecordVisitor, ReserveMemory, StoreError, unlimited};

/// Most bytes of one joined read: as many as stay in a core's own cache.
const JOINED_BYTES_MAX: u64 = 512 << 10;

/// Records this near to each other are read together, as in [`super::scan`].
const GAP_BYTES_MAX: u64 = 16 << 10;

/// Fewest and most places that are taken at a time. The fewest fit a share's floor next to keys;
/// the most take a quarter of what scans have.
const PLACES_MIN: usize = FLOOR_BYTES / 2 / size_of::<RecordPlace>();
const PLACES_MAX: usize = SHARED_BYTES_MAX / 4 / size_of::<RecordPlace>();

/// Room for keys that a scan has in addition to its places.
const KEYS_MIN: usize = 512;
const KEYS_BYTES_MIN: usize = 16 << 10;
const _: () = assert!(
    PLACES_MIN * size_of::<RecordPlace>() + KEYS_MIN * size_of::<FoundRecord>() + KEYS_BYTES_MIN
        <= FLOOR_BYTES
);

/// By how much lists grow, at first and when they are long.
const KEPT_STEPS: [usize; 2] = [8 << 10, 256 << 10];
const ORDER_STEPS: [usize; 2] = [256, 8 << 10];
const _: () = assert!(PLACES_MIN < PLACES_MAX && LARGE_RECORD_BYTES < SHARED_BYTES_MAX);
const _: () = assert!(GAP_BYTES_MAX < JOINED_BYTES_MAX);
const _: () = assert!(KEPT_STEPS[0] < KEPT_STEPS[1] && ORDER_STEPS[0] < ORDER_STEPS[1]);

/// A record: its segment, by its index in [`Pass::segments`], and where it begins there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RecordPlace {
    segment: u32,
    unit: u32,
}

impl RecordPlace {
    fn offset(self) -> u64 {
        u64::from(self.unit) * UNIT_BYTES
    }
}

/// A record that a pass will show.
#[derive(Clone, Copy)]
struct FoundRecord {
    place: RecordPlace,
    /// With header and padding.
    stored_bytes: u32,
    /// Where its key begins in the bytes that the pass keeps.
    key_at: u32,
    key_bytes: u16,
    /// The record is there, too, around its key.
    is_whole: bool,
}

impl FoundRecord {
    fn key(self) -> Range<usize> {
        let begin = self.key_at as usize;
        begin..begin + usize::from(self.key_bytes)
    }
}

/// One pass over a table: the smallest keys of a range that fit.
struct Pass<'s> {
    from: Vec<u8>,
    share: &'s mut Share,
    /// Those that places point into, and their indices by their numbers.
    segments: Vec<Segment>,
    known: BTreeMap<u32, u32>,
    places: Vec<RecordPlace>,
    kept: Vec<u8>,
    order: Vec<FoundRecord>,
    keeps_records: bool,
    /// Keys from here on are for the next pass.
    to: Option<Vec<u8>>,
}

impl<'s> Pass<'s> {
    fn new(from: Vec<u8>, share: &'s mut Share) -> Pass<'s> {
        Pass {
            from,
            share,
            segments: Vec::new(),
            known: BTreeMap::new(),
            places: Vec::new(),
            kept: Vec::new(),
            order: Vec::new(),
            keeps_records: true,
            to: None,
        }
    }

    /// Reads the table to its end.
    fn read(&mut self, log: &Log, table: TableKey) -> Result<(), StoreError> {
        let mut next = Some(Fingerprint::FIRST);
        while let Some(from) = next {
            next = self.take_places(&log.catalog.read(), table, from, log.options.packing);
            self.read_places()?;
        }
        self.places = Vec::new();
        let kept = &self.kept;
        let key = |found: &FoundRecord| &kept[found.key()];
        self.order.sort_unstable_by(|left, right| key(left).cmp(key(right)));
        debug_assert!(
            self.order.iter().all(|found| self.is_wanted(key(found))),
            "keys of the range"
        );
        Ok(())
    }

    /// Takes places from a fingerprint on, and returns the first fingerprint of the rest.
    fn take_places(
        &mut self,
        catalog: &Catalog,
        table: TableKey,
        from: Fingerprint,
        packing: Option<Packing>,
    ) -> Option<Fingerprint> {
        self.places.clear();
        let entries = catalog.tables.get(&table)?;
        let wanted = entries.len().clamp(PLACES_MIN, PLACES_MAX);
        if wanted > self.places.capacity() {
            let mut room = wanted;
            while room > PLACES_MIN && !self.has_room_for(KEYS_BYTES_MIN, KEYS_MIN, room) {
                room = (room / 2).max(PLACES_MIN);
            }
            self.places.reserve_exact(room);
        }
        let room = self.places.capacity();
        // By slot, which another segment has after this one.
        let mut indices: Vec<Option<u32>> = vec![None; catalog.segments.len()];
        let mut next = None;
        let (mut group, mut group_at) = (from, 0);
        for entry in entries.iter_from(from).filter(|entry| entry.mark() != Mark::Purged) {
            if entry.fingerprint().group(packing) != group {
                (group, group_at) = (entry.fingerprint().group(packing), self.places.len());
            }
            // A group that does not fit as a whole makes space: it has a handful of keys, and more
            // only with the few bits of tests.
            if self.places.len() >= room && group_at > 0 {
                debug_assert!(group_at <= self.places.len(), "a group begins among the places");
                self.places.truncate(group_at);
                debug_assert!(group > from, "each lot goes forward");
                next = Some(group);
                break;
            }
            let place = entry.place();
            let slot = usize::from(place.slot);
            let segment = *indices[slot].get_or_insert_with(|| self.index_of(catalog, slot));
            self.places.push(RecordPlace { segment, unit: place.unit });
        }
        // In the order in which they lie, so that the disk is read forwards.
        self.places.sort_unstable();
        next
    }

    /// The index of the segment that has this slot now.
    fn index_of(&mut self, catalog: &Catalog, slot: usize) -> u32 {
        let segment = catalog.segments[slot].as_ref();
        let segment = segment.expect("entries point into segments that are there");
        let index = *self.known.entry(segment.id).or_insert_with(|| {
            self.segments.push(segment.clone());
            (self.segments.len() - 1) as u32
        });
        // The active segment grows from lot to lot.
        debug_assert_eq!(self.segments.len(), self.known.len(), "a segment has one number");
        self.segments[index as usize].bytes = segment.bytes;
        index
    }

    /// Reads the records at the places.
    fn read_places(&mut self) -> Result<(), StoreError> {
        let mut window = Window::ahead(FIRST_READ_BYTES as u64);
        for index in 0..self.places.len() {
            let place = self.places[index];
            let segment = &self.segments[place.segment as usize];
            if !window.has_record(segment, place.offset()) {
                window.cover(segment, place.offset(), together(&self.places[index..]))?;
            }
            let stored_bytes = stored_bytes_of(window.head(segment, place.offset())?);
            if stored_bytes > LARGE_RECORD_BYTES as u64 {
                let key = window.check_by_pieces(segment, place.offset())?;
                if self.is_wanted(&key) {
                    self.keep(place, stored_bytes, None, &key);
                }
                continue;
            }
            let raw = window.raw(segment, place.offset())?;
            let (stored, _) =
                decode_record(raw).map_err(|what| damaged(segment.id, place.offset(), what))?;
            let key = stored.record.key.key;
            if self.is_wanted(key) {
                self.keep(place, stored_bytes, Some(raw), key);
            }
        }
        Ok(())
    }

    fn is_wanted(&self, key: &[u8]) -> bool {
        key >= self.from.as_slice() && self.to.as_ref().is_none_or(|to| key < to.as_slice())
    }

    /// Keeps a record, where it is here, or its key, at the cost of greater keys if need be.
    fn keep(&mut self, place: RecordPlace, stored_bytes: u64, raw: Option<&[u8]>, key: &[u8]) {
        let keeps = self.keeps_records;
        let whole =
            raw.filter(|raw| keeps && self.has_room_as(ShareKind::Records, raw.len(), 1, 0));
        if whole.is_none() {
            // A pass has one key at least, and so the scan comes to its end.
            while !self.order.is_empty() && !self.has_room_for(key.len(), 1, 0) {
                self.free_capacity();
                if !self.is_wanted(key) {
                    return;
                }
            }
        }
        let (bytes, skipped) = whole.map_or((key, 0), |raw| (raw, RECORD_HEADER_BYTES));
        grow(&mut self.kept, bytes.len(), KEPT_STEPS);
        grow(&mut self.order, 1, ORDER_STEPS);
        let number = |bytes: usize| u32::try_from(bytes).expect("a share is far below 4 GiB");
        self.order.push(FoundRecord {
            place,
            stored_bytes: number(stored_bytes as usize),
            key_at: number(self.kept.len() + skipped),
            key_bytes: u16::try_from(key.len()).expect("keys are checked when they are decoded"),
            is_whole: whole.is_some(),
        });
        self.kept.extend_from_slice(bytes);
        debug_assert!(
            self.order.last().is_some_and(|found| self.kept[found.key()] == *key),
            "a key is within the kept bytes"
        );
    }

    /// Drops whole records, and where there is none, the greater half of the keys.
    fn free_capacity(&mut self) {
        self.keeps_records = false;
        let kept = &self.kept;
        let key = |found: &FoundRecord| &kept[found.key()];
        if !self.order.iter().any(|found| found.is_whole) {
            let half = self.order.len() / 2;
            let by_key = |left: &FoundRecord, right: &FoundRecord| key(left).cmp(key(right));
            let (_, middle, _) = self.order.select_nth_unstable_by(half, by_key);
            self.to = Some(key(middle).to_vec());
            self.order.truncate(half);
        }
        // Keys move towards the beginning, each into room that is free by then.
        self.order.sort_unstable_by_key(|found| found.key_at);
        let mut end = 0;
        for found in &mut self.order {
            debug_assert!(end <= found.key().start, "keys move towards the beginning");
            self.kept.copy_within(found.key(), end);
            found.key_at = u32::try_from(end).expect("less than before");
            found.is_whole = false;
            end += usize::from(found.key_bytes);
        }
        self.kept.truncate(end);
        debug_assert!(
            self.order.last().is_none_or(|last| last.key().end == end),
            "keys follow each other"
        );
        debug_assert!(self.order.iter().all(|found| !found.is_whole), "only keys are in memory");
    }

    fn has_room_for(&mut self, bytes: usize, records: usize, places: usize) -> bool {
        self.has_room_as(ShareKind::Keys, bytes, records, places)
    }

    /// Whether the share has space for so much more, or can be made to.
    fn has_room_as(
        &mut self,
        what: ShareKind,
        bytes: usize,
        records: usize,
        places: usize,
    ) -> bool {
        let kept = grown(&self.kept, bytes, KEPT_STEPS);
        let order = grown(&self.order, records, ORDER_STEPS) * size_of::<FoundRecord>();
        let places = self.places.capacity().max(places) * size_of::<RecordPlace>();
        self.share.reaches(kept + order + places, what)
    }

    fn visit(
        &self,
        count: &mut ReadCount,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let mut window = Window::ahead(0);
        let mut show = |record: Record<'_>| {
            count.add(&record);
            visit(record)
        };
        for found in &self.order {
            let segment = &self.segments[found.place.segment as usize];
            let offset = found.place.offset();
            let flow = if found.is_whole {
                debug_assert!(
                    found.key().start >= RECORD_HEADER_BYTES,
                    "a whole record has its header"
                );
                let begin = found.key().start - RECORD_HEADER_BYTES;
                let raw = &self.kept[begin..begin + found.stored_bytes as usize];
                // It was checked when it was read.
                let decoded = decode_unchecked(raw);
                show(decoded.map_err(|what| damaged(segment.id, offset, what))?.0.record)
            } else {
                let bytes = found.stored_bytes as usize;
                if bytes > LARGE_RECORD_BYTES && reserve(bytes).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                window.cover(segment, offset, bytes as u64)?;
                let flow = show(window.record(segment, offset)?.record);
                window.keep_at_most(LARGE_RECORD_BYTES as u64);
                flow
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Bytes from the first record to the end of those that one read covers with it.
fn together(places: &[RecordPlace]) -> u64 {
    debug_assert!(places.is_sorted(), "records are read forwards");
    let first = places[0];
    let mut last = first.offset();
    for place in &places[1..] {
        let is_near = place.segment == first.segment
            && place.offset() - last <= GAP_BYTES_MAX
            && place.offset() - first.offset() <= JOINED_BYTES_MAX;
        if !is_near {
            break;
        }
        last = place.offset();
    }
    debug_assert!(last - first.offset() <= JOINED_BYTES_MAX, "a joined read is bounded");
    last - first.offset() + FIRST_READ_BYTES as u64
}

/// The capacity of a list that has so many more elements. It grows by the first step until it has
/// as many elements as the second, and then by that.
fn grown<T>(list: &Vec<T>, more: usize, [first, second]: [usize; 2]) -> usize {
    let needed = list.len() + more;
    if needed <= list.capacity() {
        return list.capacity();
    }
    needed.next_multiple_of(if needed < second { first } else { second })
}

fn grow<T>(list: &mut Vec<T>, more: usize, steps: [usize; 2]) {
    let capacity = grown(list, more, steps);
    list.reserve_exact(capacity - list.len());
    debug_assert!(list.capacity() - list.len() >= more, "a list has room for what comes");
}

impl Log {
    /// Visits the records of a vbucket in order of collection and key.
    pub(super) fn scan_keys(
        &self,
        vbid: Vbid,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let tables: Vec<TableKey> =
            self.catalog.read().tables_of(vbid).map(|(table, _)| *table).collect();
        self.scan_tables(&tables, b"", &mut unlimited, visit)
    }

    /// The same for one collection, without the documents before `from`.
    pub(super) fn scan_collection(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        self.scan_tables(&[(vbid, from.collection)], from.key, reserve, visit)
    }

    fn scan_tables(
        &self,
        tables: &[(Vbid, CollectionId)],
        from: &[u8],
        reserve: &mut ReserveMemory<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let mut share = Share::of(self.scan_memory);
        let mut scan = || {
            for table in tables {
                let mut from = Some(from.to_vec());
                while let Some(begin) = from {
                    let mut pass = Pass::new(begin, &mut share);
                    pass.read(self, *table)?;
                    if pass.visit(&mut count, reserve, visit)?.is_break() {
                        return Ok(());
                    }
                    from = pass.to;
                }
            }
            Ok(())
        };
        let result = scan();
        self.has_read(&count, result)
    }
}
