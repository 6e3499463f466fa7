//! Look-ups of many keys at once, in the order in which their records lie.
//!
//! Owns: which of them are read together. The index has no lengths, so a read covers the beginning
//! of each record and is repeated for the rest of a longer one. Invariants: each key is answered
//! once, until the caller has enough; the catalog's lock is held for a few dozen keys at a time and
//! never while the disk is read. Callers: background fetches, which come in batches.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use oribi_types::{DocKey, Vbid};

use super::catalog::{Catalog, Segment};
use super::index::Entry;
use super::layout::stored_bytes_of;
use super::log::Log;
use super::read::FIRST_READ_BYTES;
use super::window::Window;
use crate::counters::ReadCount;
use crate::{GetVisitor, LookupResult, Record, StoreError};

/// Keys that are looked up under one hold of the catalog's lock.
const KEYS_PER_HOLD: usize = 32;

/// Two records this near to each other are read together: what lies between costs less to read than
/// another call costs.
const GAP_BYTES_MAX: u64 = 8 << 10;

/// Most bytes of one joined read.
const JOINED_BYTES_MAX: u64 = 256 << 10;
const _: () = assert!(GAP_BYTES_MAX < JOINED_BYTES_MAX);

/// A record that is asked for; in order of place.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RequestedRecord {
    segment: u32,
    offset: u64,
    index: usize,
}

/// Where the records of keys are.
struct Places {
    /// By number; their files stay readable.
    segments: BTreeMap<u32, Segment>,
    wanted: Vec<RequestedRecord>,
    /// Keys of which there is nothing.
    absent: Vec<usize>,
    /// Keys with several records that may be theirs, which is rare.
    unsure: Vec<usize>,
}

impl Log {
    /// False only when nothing is shown under the key.
    pub(super) fn may_contain(&self, vbid: Vbid, key: DocKey<'_>) -> bool {
        self.catalog.read().candidates(vbid, key).next().is_some()
    }

    /// Starts loading the entries that the key may have. Does nothing while the catalog changes.
    pub(super) fn look_ahead(&self, vbid: Vbid, key: DocKey<'_>) {
        let Some(catalog) = self.catalog.try_read() else { return };
        if let Some(table) = catalog.tables.get(&(vbid, key.collection)) {
            table.load(Catalog::fingerprint(catalog.seed, key.key));
        }
    }

    pub(super) fn get_many(
        &self,
        keys: &[(Vbid, DocKey<'_>)],
        record_bytes_max: usize,
        visit: &mut GetVisitor<'_>,
    ) -> Result<(), StoreError> {
        let mut count = ReadCount::default();
        let Places { segments, wanted, absent, unsure } = self.places_of(keys);
        if absent.into_iter().any(|index| visit(index, LookupResult::Absent).is_break()) {
            return Ok(());
        }
        let mut window = Window::ahead(FIRST_READ_BYTES as u64);
        let mut read_all = || {
            let mut left = wanted.as_slice();
            while let [first, ..] = left {
                let (run, rest) = left.split_at(joined(left));
                let bytes = run.last().map_or(0, |last| last.offset - first.offset);
                let segment = &segments[&first.segment];
                window.cover(segment, first.offset, bytes + FIRST_READ_BYTES as u64)?;
                for one in run {
                    let stored_bytes = stored_bytes_of(window.head(segment, one.offset)?);
                    let answer = if stored_bytes > record_bytes_max as u64 {
                        LookupResult::Large
                    } else {
                        let stored = window.record(segment, one.offset)?;
                        let (vbid, key) = keys[one.index];
                        let is_it = stored.vbid == vbid && stored.record.key == key;
                        if is_it {
                            count.add(&stored.record);
                        }
                        if is_it {
                            LookupResult::Record(stored.record)
                        } else {
                            LookupResult::Absent
                        }
                    };
                    if visit(one.index, answer).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                left = rest;
            }
            Ok(ControlFlow::Continue(()))
        };
        let result = read_all();
        if self.has_read(&count, result)?.is_break() {
            return Ok(());
        }
        for index in unsure {
            let (vbid, key) = keys[index];
            let mut is_large = false;
            let mut room = |bytes| {
                is_large |= bytes > record_bytes_max;
                if is_large { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let mut flow = None;
            let mut show = |record: Record<'_>| {
                flow = Some(visit(index, LookupResult::of(record, record_bytes_max)));
            };
            self.get(vbid, key, &mut room, &mut show)?;
            let answer = if is_large { LookupResult::Large } else { LookupResult::Absent };
            if flow.unwrap_or_else(|| visit(index, answer)).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn places_of(&self, keys: &[(Vbid, DocKey<'_>)]) -> Places {
        let mut segments: BTreeMap<u32, Segment> = BTreeMap::new();
        let mut wanted = Vec::with_capacity(keys.len());
        let (mut absent, mut unsure) = (Vec::new(), Vec::new());
        for (number, chunk) in keys.chunks(KEYS_PER_HOLD).enumerate() {
            let catalog = self.catalog.read();
            for (index, (vbid, key)) in (number * KEYS_PER_HOLD..).zip(chunk) {
                let mut found = catalog.candidates(*vbid, *key).map(Entry::place);
                let Some(place) = found.next() else {
                    absent.push(index);
                    continue;
                };
                if found.next().is_some() {
                    unsure.push(index);
                    continue;
                }
                let segment = catalog.segment(place.slot);
                // By number, because a slot can have another segment at the next hold; and the
                // active segment grows from hold to hold.
                let kept = segments.entry(segment.id).or_insert_with(|| segment.clone());
                kept.bytes = segment.bytes;
                wanted.push(RequestedRecord { segment: segment.id, offset: place.offset(), index });
            }
        }
        wanted.sort_unstable();
        assert_eq!(
            wanted.len() + absent.len() + unsure.len(),
            keys.len(),
            "each key is answered once"
        );
        Places { segments, wanted, absent, unsure }
    }
}

/// How many of the first places, at least one, are read together.
fn joined(places: &[RequestedRecord]) -> usize {
    let Some(first) = places.first() else { return 0 };
    let is_joined = |pair: &&[RequestedRecord]| {
        let (left, right) = (&pair[0], &pair[1]);
        left.segment == right.segment
            && right.offset - left.offset <= GAP_BYTES_MAX
            && right.offset - first.offset <= JOINED_BYTES_MAX
    };
    1 + places.windows(2).take_while(is_joined).count()
}
