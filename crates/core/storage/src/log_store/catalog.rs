//! The store's knowledge without reading the disk: the place of each key's newest record, which
//! segments there are and how much of each still counts, vbucket states and local documents.
//!
//! Owns: the tables of the index and the counts that go with every change of them. Invariants: an
//! entry points at the last record of its key that is neither superseded nor gone by a bound;
//! `live` of a segment is the number of entries that point into it; only what is synced is in here,
//! commits and moved copies alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oribi_types::{CollectionId, DocKey, Vbid};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::files::LogFile;
use super::index::{
    Entry, Fingerprint, IndexMemory, IndexTable, Mark, RecordPlace, SLOTS_MAX, Size,
};
use super::options::Packing;
use super::spans::{SegmentKnowledge, Span, Spans};
use crate::VbucketState;

#[derive(Clone)]
pub(super) struct Segment {
    pub(super) id: u32,
    pub(super) file: Arc<dyn LogFile>,
    pub(super) bytes: u64,
    /// Versions of documents written to it.
    pub(super) versions: u64,
    /// Of these, those that the index points at.
    pub(super) live: u64,
    /// Bytes of both, estimated from their classes of length, which are all that the index has.
    written_bytes: u64,
    live_bytes: u64,
    /// Compaction could not read it and leaves it alone.
    pub(super) is_damaged: bool,
}

impl Segment {
    /// A segment of which nothing is known yet but its length.
    pub(super) fn new(id: u32, file: Arc<dyn LogFile>, bytes: u64) -> Segment {
        Segment {
            id,
            file,
            bytes,
            versions: 0,
            live: 0,
            written_bytes: 0,
            live_bytes: 0,
            is_damaged: false,
        }
    }

    /// A version of this size was written to it.
    pub(super) fn wrote(&mut self, size: Size) {
        self.versions += 1;
        self.written_bytes += size.bytes();
    }

    /// The index points at one more of them.
    fn gain(&mut self, entry: Entry) {
        self.live += 1;
        self.live_bytes += entry.size().bytes();
    }

    /// The index points at one less of them.
    fn lose(&mut self, entry: Entry) {
        assert!(self.live > 0, "an entry leaves a segment once");
        assert!(self.live_bytes >= entry.size().bytes(), "an entry leaves with its bytes");
        self.live -= 1;
        self.live_bytes -= entry.size().bytes();
    }

    /// Share of the versions' bytes that still count.
    pub(super) fn live_share(&self) -> f64 {
        self.live_bytes as f64 / self.written_bytes.max(1) as f64
    }

    /// Bytes that a compaction would give back.
    pub(super) fn garbage_bytes(&self) -> u64 {
        debug_assert!(self.live_bytes <= self.written_bytes, "what counts was written");
        let gone = u128::from(self.written_bytes - self.live_bytes);
        let share = u128::from(self.bytes) * gone / u128::from(self.written_bytes.max(1));
        if self.versions == 0 { self.bytes } else { share as u64 }
    }
}

/// A packed entry of a key that a commit writes again.
pub(super) struct SupersededEntry {
    /// Number of the record in the commit.
    pub(super) index: usize,
    pub(super) fingerprint: Fingerprint,
    pub(super) place: RecordPlace,
}

/// Entries whose places are loaded side by side before they are put in: as many as a processor
/// loads at a time, and few enough to be still there.
const TOUCHED_TOGETHER: usize = 64;

/// Key of a table.
pub(super) type TableKey = (Vbid, CollectionId);

/// Everything that is in memory of the log.
#[derive(Default)]
pub(super) struct Catalog {
    /// Of the log; part of every fingerprint.
    pub(super) seed: u64,
    pub(super) tables: BTreeMap<TableKey, IndexTable>,
    /// Of all tables, of other logs of the store as well.
    memory: IndexMemory,
    pub(super) segments: Vec<Option<Segment>>,
    /// By slot, as the segments.
    spans: Vec<Spans>,
    /// Slot of the segment that is written to.
    pub(super) active: u16,
    pub(super) states: BTreeMap<Vbid, VbucketState>,
    pub(super) locals: BTreeMap<String, Vec<u8>>,
    /// Entries of all tables, and those of them that are purged tombstones.
    entries: u64,
    purged: u64,
}

impl Catalog {
    /// The catalog of a log with this seed, of which nothing else is known yet. Its tables lie in
    /// this memory.
    pub(super) fn new(seed: u64, memory: &IndexMemory) -> Catalog {
        Catalog { seed, memory: memory.clone(), ..Catalog::default() }
    }

    /// Fingerprint of a key in a store with this seed.
    pub(super) fn fingerprint(seed: u64, key: &[u8]) -> Fingerprint {
        Fingerprint::of(xxh3_128_with_seed(key, seed))
    }

    /// The entries of which one is that of the key, if it is shown; most often there is at most
    /// one.
    pub(super) fn candidates(&self, vbid: Vbid, key: DocKey<'_>) -> impl Iterator<Item = Entry> {
        let table = self.tables.get(&(vbid, key.collection));
        let found = table.map(|table| table.candidates(Catalog::fingerprint(self.seed, key.key)));
        found.into_iter().flatten().filter(|entry| entry.mark() != Mark::Purged)
    }

    /// The segment in this slot, to which some entry points.
    pub(super) fn segment(&self, slot: u16) -> &Segment {
        let segment = self.segments.get(usize::from(slot)).and_then(Option::as_ref);
        segment.expect("a segment stays until no entry points into it")
    }

    pub(super) fn segment_mut(&mut self, slot: u16) -> &mut Segment {
        let segment = self.segments.get_mut(usize::from(slot)).and_then(Option::as_mut);
        segment.expect("a segment stays until no entry points into it")
    }

    /// True when there can be one more segment.
    pub(super) fn has_free_slot(&self) -> bool {
        self.segments.iter().flatten().count() < SLOTS_MAX
    }

    /// Puts a segment into a free slot; `None` when there are as many as there can be.
    pub(super) fn add_segment(&mut self, segment: Segment) -> Option<u16> {
        debug_assert!(self.slot_of(segment.id).is_none(), "a segment has one slot");
        let free = self.segments.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.segments.len());
        if slot >= SLOTS_MAX {
            return None;
        }
        if slot == self.segments.len() {
            self.segments.push(None);
            self.spans.push(Spans::default());
        }
        assert!(self.segments[slot].is_none(), "a segment gets a free slot");
        assert_eq!(self.segments.len(), self.spans.len(), "a slot has its spans");
        self.segments[slot] = Some(segment);
        self.spans[slot] = Spans::default();
        Some(slot as u16)
    }

    /// Slot of the segment with this number.
    pub(super) fn slot_of(&self, id: u32) -> Option<u16> {
        let is_it = |segment: &Option<Segment>| segment.as_ref().is_some_and(|one| one.id == id);
        self.segments.iter().position(is_it).map(|slot| slot as u16)
    }

    /// The seqnos of all that the segment in this slot has so far.
    pub(super) fn has_spans(&mut self, slot: u16, spans: Spans) {
        debug_assert!(self.segments[usize::from(slot)].is_some(), "spans are of a segment");
        self.spans[usize::from(slot)] = spans;
    }

    /// Known seqnos in the segment in this slot.
    pub(super) fn spans(&self, slot: u16) -> &Spans {
        &self.spans[usize::from(slot)]
    }

    /// Versions were written to the segment in this slot, after all others.
    pub(super) fn wrote(&mut self, slot: u16, vbid: Vbid, span: Span) {
        debug_assert!(self.segments[usize::from(slot)].is_some(), "spans are of a segment");
        self.spans[usize::from(slot)].wrote(vbid, span);
    }

    /// A scan has found these seqnos in segment `id`, if that is still in the slot. It was sealed
    /// when the scan began.
    pub(super) fn learn(&mut self, slot: u16, id: u32, vbid: Vbid, span: Span) {
        let segment = self.segments.get(usize::from(slot)).and_then(Option::as_ref);
        if segment.is_some_and(|segment| segment.id == id) {
            debug_assert_ne!(slot, self.active, "a scan knows all of a sealed segment only");
            self.spans[usize::from(slot)].learn(vbid, span);
        }
    }

    /// Which seqnos the segment in this slot has of a vbucket.
    pub(super) fn span(&self, slot: u16, vbid: Vbid) -> SegmentKnowledge {
        self.spans.get(usize::from(slot)).map_or(SegmentKnowledge::Nothing, |spans| spans.of(vbid))
    }

    /// Segments with their slots, oldest first.
    pub(super) fn segments_by_age(&self) -> Vec<(u16, Segment)> {
        let taken = self.segments.iter().zip(0u16..);
        let mut found: Vec<(u16, Segment)> =
            taken.filter_map(|(segment, slot)| Some((slot, segment.clone()?))).collect();
        found.sort_by_key(|(_, segment)| segment.id);
        debug_assert!(
            found.is_sorted_by(|(_, left), (_, right)| left.id < right.id),
            "segments have different numbers"
        );
        found
    }

    /// By slot, whether the segment's entries are packed: those of the newest bytes are not. `None`
    /// while all entries are few enough.
    pub(super) fn packed_slots(&self, packing: Packing) -> Option<Vec<bool>> {
        if self.entries <= packing.exact_keys {
            return None;
        }
        let mut old = vec![false; self.segments.len()];
        let mut behind = 0;
        for (slot, segment) in self.segments_by_age().iter().rev() {
            old[usize::from(*slot)] = behind >= packing.recent_bytes;
            behind += segment.bytes;
        }
        Some(old)
    }

    /// Number of the oldest segment other than the one in `slot`.
    pub(super) fn oldest_but(&self, slot: u16) -> Option<u32> {
        let others = self.segments.iter().zip(0u16..).filter(|(_, other)| *other != slot);
        others.filter_map(|(segment, _)| segment.as_ref().map(|segment| segment.id)).min()
    }

    /// Points the key's entry at a new record that supersedes whatever it pointed at.
    pub(super) fn put(&mut self, table: TableKey, entry: Entry) {
        self.gain(entry);
        let memory = &self.memory;
        let table = self.tables.entry(table).or_insert_with(|| IndexTable::new(memory));
        if let Some(replaced) = table.put(entry) {
            self.forget(replaced);
        }
    }

    /// As [`Catalog::put`] for many entries of one table, without looking it up for each. The
    /// packed entries that they supersede go.
    pub(super) fn put_all(
        &mut self,
        key: TableKey,
        entries: &[Entry],
        superseded: &[SupersededEntry],
    ) {
        for one in superseded {
            self.remove_at(key, one.fingerprint, one.place);
        }
        let memory = &self.memory;
        let table = self.tables.entry(key).or_insert_with(|| IndexTable::new(memory));
        for some in entries.chunks(TOUCHED_TOGETHER) {
            table.touch(some);
            for entry in some {
                let replaced = table.put(*entry);
                if let Some(segment) = &mut self.segments[usize::from(entry.place().slot)] {
                    segment.gain(*entry);
                }
                self.entries += 1;
                self.purged += u64::from(entry.mark() == Mark::Purged);
                let Some(replaced) = replaced else { continue };
                if let Some(segment) = &mut self.segments[usize::from(replaced.place().slot)] {
                    segment.lose(replaced);
                }
                self.entries -= 1;
                self.purged -= u64::from(replaced.mark() == Mark::Purged);
                debug_assert!(self.purged <= self.entries, "a purged tombstone has an entry");
            }
        }
    }

    /// Takes out the entry that points at `place`, if the table still has it.
    pub(super) fn remove_at(
        &mut self,
        table: TableKey,
        fingerprint: Fingerprint,
        place: RecordPlace,
    ) {
        let Some(entries) = self.tables.get_mut(&table) else { return };
        if let Some(removed) = entries.remove_at(fingerprint, place) {
            self.forget(removed);
        }
    }

    /// Puts `entry` in the place of the key's entry that points at `from`, if the table still has
    /// it.
    pub(super) fn repoint(
        &mut self,
        table: TableKey,
        fingerprint: Fingerprint,
        from: RecordPlace,
        entry: Entry,
    ) {
        let Some(entries) = self.tables.get_mut(&table) else { return };
        let Some(replaced) = entries.replace_at(fingerprint, from, entry) else { return };
        self.gain(entry);
        self.forget(replaced);
    }

    /// The key's entry, if it points at `place`.
    pub(super) fn points_at(
        &self,
        table: TableKey,
        fingerprint: Fingerprint,
        place: RecordPlace,
    ) -> Option<Entry> {
        self.tables.get(&table)?.at(fingerprint, place)
    }

    /// Takes out every entry of the vbucket, and its state.
    pub(super) fn drop_vbucket(&mut self, vbid: Vbid) {
        self.states.remove(&vbid);
        let keys: Vec<TableKey> = self.tables_of(vbid).map(|(key, _)| *key).collect();
        keys.into_iter().for_each(|key| self.drop_table(key));
        debug_assert!(self.tables_of(vbid).next().is_none(), "a dropped vbucket has no table");
    }

    /// Takes out every entry of a table.
    pub(super) fn drop_table(&mut self, key: TableKey) {
        let Some(table) = self.tables.remove(&key) else { return };
        table.iter().for_each(|entry| self.forget(entry));
    }

    /// Tables of a vbucket in order of collection.
    pub(super) fn tables_of(&self, vbid: Vbid) -> impl Iterator<Item = (&TableKey, &IndexTable)> {
        self.tables.range((vbid, CollectionId(0))..=(vbid, CollectionId(u32::MAX)))
    }

    fn gain(&mut self, entry: Entry) {
        self.segment_mut(entry.place().slot).gain(entry);
        self.entries += 1;
        self.purged += u64::from(entry.mark() == Mark::Purged);
        debug_assert!(self.purged <= self.entries, "a purged tombstone has an entry");
    }

    /// An entry is no longer there.
    fn forget(&mut self, entry: Entry) {
        assert!(self.entries > 0, "an entry is forgotten once");
        debug_assert!(self.purged <= self.entries, "a purged tombstone has an entry");
        self.segment_mut(entry.place().slot).lose(entry);
        self.entries -= 1;
        self.purged -= u64::from(entry.mark() == Mark::Purged);
    }

    /// Takes away a segment that nothing points into.
    pub(super) fn remove_segment(&mut self, slot: u16) {
        assert_eq!(self.segment(slot).live, 0, "a segment goes after its last record has moved");
        assert_ne!(slot, self.active, "the segment that is written to stays");
        self.segments[usize::from(slot)] = None;
    }

    /// Bytes of the index, as allocated, in addition to the memory that the tables of all logs
    /// share.
    pub(super) fn own_index_bytes(&self) -> u64 {
        self.tables.values().map(IndexTable::own_bytes).sum::<usize>() as u64
    }

    /// Vbuckets that have entries.
    pub(super) fn vbuckets_with_keys(&self) -> BTreeSet<Vbid> {
        let tables = self.tables.iter().filter(|(_, table)| table.len() > 0);
        tables.map(|((vbid, _), _)| *vbid).collect()
    }

    /// Entries, and how many of them are purged tombstones.
    pub(super) fn entries(&self) -> (u64, u64) {
        (self.entries, self.purged)
    }

    /// Bytes of all segments, and how many of them compaction would give back.
    pub(super) fn log_bytes(&self) -> (u64, u64) {
        let segments = self.segments.iter().flatten();
        segments.fold((0, 0), |(bytes, garbage), segment| {
            (bytes + segment.bytes, garbage + segment.garbage_bytes())
        })
    }
}
