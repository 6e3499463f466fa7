//! Reading documents back: one by key, or a vbucket in order.
//!
//! Owns: what a reader is shown. Invariants: every record is checked before it is shown; a reader
//! works on a copy of the entries or segments that it began with, whose files stay readable for it
//! even when compaction removes their names; purged tombstones are never shown.

use std::io;

use oribi_types::{CollectionId, DocKey, Vbid};

use super::catalog::{Catalog, Segment};
use super::index::{Entry, Mark, Place};
use super::layout::{RECORD_HEADER_BYTES, Stored, decode_record, stored_bytes_of};
use super::log::Log;
use super::reader::ReadFault;
use super::writer::segment_name;
use crate::counters::ReadCount;
use crate::{Record, RecordVisitor, StoreError};

/// First read of a record of unknown length: one read is enough for most.
pub(super) const FIRST_READ_BYTES: usize = 1024;

/// Says which bytes are damaged.
pub(super) fn damaged(id: u32, offset: u64, what: &str) -> StoreError {
    StoreError::Corrupt(format!("{}: {what} at offset {offset}", segment_name(id)))
}

/// The error for a segment that cannot be read.
pub(super) fn read_error(id: u32, fault: &ReadFault) -> StoreError {
    match fault {
        ReadFault::Io(error) => io_error(id, error),
        ReadFault::Bad { offset, what } => damaged(id, *offset, what),
    }
}

pub(super) fn io_error(id: u32, error: &io::Error) -> StoreError {
    StoreError::Io(format!("{}: {error}", segment_name(id)))
}

/// Reads and checks the record at `offset` of the segment.
pub(super) fn read_record<'b>(
    segment: &Segment,
    offset: u64,
    buffer: &'b mut Vec<u8>,
) -> Result<Stored<'b>, StoreError> {
    buffer.resize(buffer.len().max(FIRST_READ_BYTES), 0);
    let file = &segment.file;
    let first = file.read_at(&mut buffer[..FIRST_READ_BYTES], offset);
    let first = first.map_err(|error| io_error(segment.id, &error))?;
    let cut_off = || damaged(segment.id, offset, "a record that is cut off");
    let head = buffer[..first].first_chunk::<RECORD_HEADER_BYTES>().ok_or_else(cut_off)?;
    let stored_bytes = stored_bytes_of(head);
    if offset + stored_bytes > segment.bytes {
        return Err(damaged(segment.id, offset, "a record that is longer than its segment"));
    }
    let stored_bytes = stored_bytes as usize;
    if stored_bytes > first {
        buffer.resize(buffer.len().max(stored_bytes), 0);
        let rest = &mut buffer[first..stored_bytes];
        let read = file.read_at(rest, offset + first as u64);
        if read.map_err(|error| io_error(segment.id, &error))? < stored_bytes - first {
            return Err(cut_off());
        }
    }
    let decoded = decode_record(&buffer[..stored_bytes]);
    decoded.map(|(stored, _)| stored).map_err(|what| damaged(segment.id, offset, what))
}

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

    fn read<'b>(&self, place: Place, buffer: &'b mut Vec<u8>) -> Result<Stored<'b>, StoreError> {
        let segment = self.segments.get(usize::from(place.slot)).and_then(Option::as_ref);
        let segment = segment.expect("the copy has every segment that its entries point into");
        read_record(segment, place.offset(), buffer)
    }
}

impl Log {
    pub(super) fn get(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let mut count = ReadCount::default();
        let result = self.get_counted(vbid, key, &mut |record| {
            count.add(&record);
            visit(record);
        });
        self.counters.read(&count, result)
    }

    fn get_counted(
        &self,
        vbid: Vbid,
        key: DocKey<'_>,
        visit: &mut dyn FnMut(Record<'_>),
    ) -> Result<bool, StoreError> {
        let (segment, offset) = {
            let catalog = self.catalog.read();
            let Some(entry) = catalog.find(vbid, key) else { return Ok(false) };
            if entry.mark() == Mark::Purged {
                return Ok(false);
            }
            (catalog.segment(entry.place().slot).clone(), entry.place().offset())
        };
        let mut buffer = Vec::new();
        let stored = read_record(&segment, offset, &mut buffer)?;
        let is_it = stored.vbid == vbid && stored.record.key == key;
        if is_it {
            visit(stored.record);
        }
        Ok(is_it)
    }

    /// Reads the vbucket twice: once for the keys, which it sorts in memory (16 bytes and the key
    /// for each), then each document. Who needs no order loads.
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
        let mut scan = || {
            let mut keys: Vec<u8> = Vec::new();
            let mut order: Vec<(CollectionId, usize, usize, Place)> = Vec::new();
            let mut buffer = Vec::new();
            for (collection, entry) in &view.entries {
                let key = view.read(entry.place(), &mut buffer)?.record.key.key;
                if key < from {
                    continue;
                }
                order.push((*collection, keys.len(), keys.len() + key.len(), entry.place()));
                keys.extend_from_slice(key);
            }
            order.sort_unstable_by(|left, right| {
                let of =
                    |item: &(CollectionId, usize, usize, Place)| (item.0, &keys[item.1..item.2]);
                of(left).cmp(&of(right))
            });
            let places = order.iter().map(|(_, _, _, place)| *place);
            visit_places(view, places, &mut count, visit)
        };
        let result = scan();
        self.counters.read(&count, result)
    }
}

fn visit_places(
    view: &View,
    places: impl Iterator<Item = Place>,
    count: &mut ReadCount,
    visit: &mut RecordVisitor<'_>,
) -> Result<(), StoreError> {
    let mut buffer = Vec::new();
    for place in places {
        let record = view.read(place, &mut buffer)?.record;
        count.add(&record);
        if visit(record).is_break() {
            break;
        }
    }
    Ok(())
}
