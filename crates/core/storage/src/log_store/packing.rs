//! Packed entries of the index, and commits that write their keys.
//!
//! Owns: how a commit finds the packed entries that it supersedes, and when a table is packed. A
//! packed entry has a part of its key's fingerprint, so the key is read from its record and
//! compared: then the entry goes in the moment in which the new one comes, and the index keeps one
//! entry for each key. Both run under the lock of commits, under which alone tables change. So an
//! entry stays where it was found, and a table may be packed while it is read. A new key meets
//! another's entry rarely; a key that has a packed entry costs one read of its record. Then its
//! entry is exact, and further writes of it read nothing until the table is packed again. Caller:
//! commits.

use oribi_types::DocKey;

use super::batches::Batches;
use super::catalog::{Catalog, Segment, SupersededEntry, TableKey};
use super::index::{Fingerprint, IndexTable};
use super::layout::{RECORD_HEADER_BYTES, RECORD_KEY_BYTES_AT};
use super::log::Log;
use super::planted::Bug;
use super::read::io_error;
use crate::state_layout::take;
use crate::{Record, StoreError};

/// Records whose places in a table are loaded side by side.
const LOOKED_UP_TOGETHER: usize = 32;

/// A packed entry that may be of a key that a commit writes.
struct UnsureEntry<'b> {
    entry: SupersededEntry,
    key: DocKey<'b>,
    segment: Segment,
}

impl Log {
    /// The packed entries that the batches supersede, by the numbers of their records, whose
    /// fingerprints these are.
    pub(super) fn superseded(
        &self,
        batches: Batches<'_, '_>,
        fingerprints: &[Fingerprint],
    ) -> Result<Vec<SupersededEntry>, StoreError> {
        let mut unsure = Vec::new();
        let mut index = 0;
        for batch in batches.iter() {
            let of_collection =
                |left: &Record<'_>, right: &Record<'_>| left.key.collection == right.key.collection;
            for run in batch.records.chunk_by(of_collection) {
                for some in run.chunks(LOOKED_UP_TOGETHER) {
                    let catalog = self.catalog.read();
                    if let Some(table) = catalog.tables.get(&(batch.vbid, some[0].key.collection)) {
                        let fingerprints = &fingerprints[index..index + some.len()];
                        look_up(&catalog, table, index, (some, fingerprints), &mut unsure);
                    }
                    index += some.len();
                }
            }
        }
        assert_eq!(index, fingerprints.len(), "every record has its fingerprint");
        let mut buffer = vec![0; RECORD_HEADER_BYTES + usize::from(u16::MAX)];
        let mut superseded = Vec::new();
        for one in unsure {
            if self.planted.has(Bug::TrustsAPrefix) || is_of(&one, &mut buffer)? {
                superseded.push(one.entry);
            }
        }
        debug_assert!(superseded.is_sorted_by_key(|one| one.index), "in the order of the records");
        Ok(superseded)
    }

    /// Packs those of the tables for which it is due. The caller is the only writer.
    pub(super) fn pack(&self, tables: impl Iterator<Item = TableKey>) {
        let Some(packing) = self.options.packing else { return };
        let mut old = None;
        for key in tables {
            let catalog = self.catalog.read();
            let Some(table) = catalog.tables.get(&key).filter(|table| table.is_due(packing)) else {
                continue;
            };
            if old.is_none() {
                old = catalog.packed_slots(packing);
            }
            let Some(old) = &old else { return };
            let packed = table.packed(packing, old);
            drop(catalog);
            let mut catalog = self.catalog.write();
            let table = catalog.tables.get_mut(&key);
            let before = table.map(|table| table.take_packed(packed, packing, old));
            drop(catalog);
            drop(before);
        }
    }
}

/// Adds the packed entries that may be of the records' keys. The table's lines load side by side.
fn look_up<'b>(
    catalog: &Catalog,
    table: &IndexTable,
    first: usize,
    (records, fingerprints): (&[Record<'b>], &[Fingerprint]),
    unsure: &mut Vec<UnsureEntry<'b>>,
) {
    debug_assert_eq!(records.len(), fingerprints.len(), "every record has its fingerprint");
    if table.packed_len() == 0 {
        return;
    }
    fingerprints.iter().for_each(|fingerprint| table.load(*fingerprint));
    for ((index, record), fingerprint) in (first..).zip(records).zip(fingerprints) {
        for entry in table.unsure(*fingerprint) {
            let segment = catalog.segment(entry.place().slot).clone();
            let entry = SupersededEntry { index, fingerprint: *fingerprint, place: entry.place() };
            unsure.push(UnsureEntry { entry, key: record.key, segment });
        }
    }
}

/// True when the record at the entry's place has the key. Vbucket and collection are those of the
/// table. Only the key is looked at, so a document that is damaged can be written anew.
fn is_of(unsure: &UnsureEntry<'_>, buffer: &mut [u8]) -> Result<bool, StoreError> {
    let UnsureEntry { entry, key, segment } = unsure;
    let key_bytes = key.key.len();
    let head = &mut buffer[..RECORD_HEADER_BYTES + key_bytes];
    let read = segment.file.read_at(head, entry.place.offset());
    if read.map_err(|error| io_error(segment.id, &error))? < head.len() {
        return Ok(false);
    }
    let found_bytes = u16::from_le_bytes(take(head, RECORD_KEY_BYTES_AT));
    Ok(usize::from(found_bytes) == key_bytes && head[RECORD_HEADER_BYTES..] == *key.key)
}
