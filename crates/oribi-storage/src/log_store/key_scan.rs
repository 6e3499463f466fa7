//! Scans by key: the records of a vbucket at one moment, sorted in memory.
//!
//! Owns: what a scan keeps of its moment. The index has neither keys nor their order, so a scan
//! reads its records once as they lie, joined where they are near to each other, and sorts them.
//! It keeps whole records, while all scans of the log together keep few enough ([`Share`]). Of
//! further ones it keeps the key and the length, and reads each again when its turn comes.
//! Invariants: every record is checked before it is shown; no lock is held while a scan reads.
//! Memory: 40 bytes and the key for each record, and the whole records.

use std::ops::Range;

use oribi_types::{CollectionId, DocKey, Vbid};

use super::catalog::{Catalog, Segment};
use super::index::{Entry, Mark, Place};
use super::kept_bytes::{KEPT_STEP_BYTES, Share};
use super::layout::{RECORD_HEADER_BYTES, decode_record, decode_unchecked};
use super::log::Log;
use super::read::{FIRST_READ_BYTES, damaged};
use super::window::Window;
use crate::counters::ReadCount;
use crate::{Record, RecordVisitor, StoreError};

/// Most bytes of one joined read: as many as stay in a core's own cache.
const JOINED_BYTES_MAX: u64 = 512 << 10;

/// Records this near to each other are read together, as in [`super::scan`].
const GAP_BYTES_MAX: u64 = 16 << 10;

/// Entries of a vbucket with the segments that they point into, as they were at one time.
struct View {
    /// By slot.
    segments: Vec<Option<Segment>>,
    entries: Vec<(CollectionId, Entry)>,
}

impl View {
    /// Of one collection, or of all.
    fn of(catalog: &Catalog, vbid: Vbid, only: Option<CollectionId>) -> View {
        let mut entries = Vec::new();
        for ((_, collection), table) in catalog.tables_of(vbid) {
            if only.is_some_and(|only| only != *collection) {
                continue;
            }
            let shown = table.iter().filter(|entry| entry.mark() != Mark::Purged);
            entries.extend(shown.map(|entry| (*collection, entry)));
        }
        // In the order in which they lie, so that the disk is read forwards.
        entries.sort_unstable_by_key(|(_, entry)| entry.place());
        View { segments: catalog.segments.clone(), entries }
    }

    fn segment(&self, place: Place) -> &Segment {
        let segment = self.segments.get(usize::from(place.slot)).and_then(Option::as_ref);
        segment.expect("the copy has every segment that its entries point into")
    }

    /// Bytes from the record of the entry at `index` to the end of those that are worth reading
    /// with it.
    fn together(&self, index: usize) -> u64 {
        let first = self.entries[index].1.place();
        let mut last = first.offset();
        for (_, entry) in &self.entries[index + 1..] {
            let place = entry.place();
            let is_near = place.slot == first.slot
                && place.offset() - last <= GAP_BYTES_MAX
                && place.offset() - first.offset() <= JOINED_BYTES_MAX;
            if !is_near {
                break;
            }
            last = place.offset();
        }
        last - first.offset() + FIRST_READ_BYTES as u64
    }
}

/// A record of a scan.
struct Found {
    collection: CollectionId,
    /// In the bytes that the scan keeps.
    key: Range<usize>,
    /// The record is there, too, around its key.
    is_whole: bool,
    place: Place,
    /// With header and padding.
    stored_bytes: usize,
}

/// The records of a scan in order of collection and key.
struct Sorted {
    kept: Vec<u8>,
    order: Vec<Found>,
}

impl Sorted {
    /// Reads all records of the view whose key is not before `from`.
    fn read(view: &View, from: &[u8], share: &mut Share<'_>) -> Result<Sorted, StoreError> {
        let mut window = Window::ahead(FIRST_READ_BYTES as u64);
        let (mut kept, mut order): (Vec<u8>, Vec<Found>) = (Vec::new(), Vec::new());
        let mut whole_bytes = 0;
        for (index, (collection, entry)) in view.entries.iter().enumerate() {
            let place = entry.place();
            let (segment, offset) = (view.segment(place), place.offset());
            if !window.has_head(segment, offset) {
                window.cover(segment, offset, view.together(index))?;
            }
            let raw = window.raw(segment, offset)?;
            let (stored, _) =
                decode_record(raw).map_err(|what| damaged(segment.id, offset, what))?;
            let key = stored.record.key.key;
            if key < from {
                continue;
            }
            let is_whole = share.reaches(whole_bytes + raw.len());
            let (bytes, skipped) = if is_whole { (raw, RECORD_HEADER_BYTES) } else { (key, 0) };
            if kept.len() + bytes.len() > kept.capacity() {
                kept.reserve_exact(bytes.len().next_multiple_of(KEPT_STEP_BYTES));
            }
            let begin = kept.len() + skipped;
            let (collection, stored_bytes) = (*collection, raw.len());
            let key = begin..begin + key.len();
            order.push(Found { collection, key, is_whole, place, stored_bytes });
            kept.extend_from_slice(bytes);
            whole_bytes += if is_whole { bytes.len() } else { 0 };
        }
        order.sort_unstable_by(|left, right| {
            let of = |found: &Found| (found.collection, &kept[found.key.clone()]);
            of(left).cmp(&of(right))
        });
        Ok(Sorted { kept, order })
    }

    fn visit(
        &self,
        view: &View,
        count: &mut ReadCount,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut window = Window::ahead(0);
        let mut show = |record: Record<'_>| {
            count.add(&record);
            visit(record)
        };
        for found in &self.order {
            let (segment, offset) = (view.segment(found.place), found.place.offset());
            let flow = if found.is_whole {
                let begin = found.key.start - RECORD_HEADER_BYTES;
                let raw = &self.kept[begin..begin + found.stored_bytes];
                // It was checked when it was read.
                let decoded = decode_unchecked(raw);
                show(decoded.map_err(|what| damaged(segment.id, offset, what))?.0.record)
            } else {
                window.cover(segment, offset, found.stored_bytes as u64)?;
                show(window.record(segment, offset)?.record)
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }
}

impl Log {
    /// Visits the records of a vbucket in order of collection and key.
    pub(super) fn scan_keys(
        &self,
        vbid: Vbid,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let view = View::of(&self.catalog.read(), vbid, None);
        self.scan_view(&view, b"", visit)
    }

    /// The same for one collection, without the documents before `from`.
    pub(super) fn scan_keys_from(
        &self,
        vbid: Vbid,
        from: DocKey<'_>,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let view = View::of(&self.catalog.read(), vbid, Some(from.collection));
        self.scan_view(&view, from.key, visit)
    }

    fn scan_view(
        &self,
        view: &View,
        from: &[u8],
        visit: &mut RecordVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let mut share = Share::of(&self.kept_by_scans);
        let result = Sorted::read(view, from, &mut share)
            .and_then(|sorted| sorted.visit(view, &mut count, visit));
        self.counters.read(&count, result)
    }
}
