//! Versions of one segment on their way into the catalog, table by table.
//!
//! Owns: the sorting of an opening's versions by table. One look-up of a table for many versions,
//! and loads of the places in it that do not wait for each other, make an opening several times
//! faster than one version at a time. Invariant: versions of one key keep their order, and
//! everything of a segment is in the catalog before anything of the next one. Callers: opening.

use std::collections::BTreeMap;

use oribi_types::Vbid;

use super::bounds::{LogBounds, LogPosition};
use super::catalog::{Catalog, TableKey};
use super::hint::HintVersion;
use super::index::{Entry, Mark, RecordPlace};
use super::layout::Kind;

/// Entries that collect before they go into the catalog: bounds the memory of an opening.
const ENTRIES_MAX: usize = 1 << 17;

/// Some of the vbuckets, which one pass over all segments takes up.
#[derive(Clone, Copy)]
pub(super) struct Part {
    number: u16,
    parts: u16,
}

impl Part {
    /// All vbuckets in so many parts.
    pub(super) fn split(parts: u16) -> impl Iterator<Item = Part> {
        assert!(parts > 0, "the vbuckets are in one part at least");
        (0..parts).map(move |number| Part { number, parts })
    }

    /// True for the part that comes first.
    pub(super) fn is_first(self) -> bool {
        self.number == 0
    }

    fn has(self, vbid: Vbid) -> bool {
        debug_assert!(self.number < self.parts, "a part is one of all");
        vbid.0 % self.parts == self.number
    }
}

/// See the module text.
pub(super) struct Intake<'c> {
    part: Part,
    catalog: &'c mut Catalog,
    bounds: &'c LogBounds,
    id: u32,
    slot: u16,
    groups: BTreeMap<TableKey, Vec<Entry>>,
    /// Entries of the table that came last; most come in runs.
    run: Vec<Entry>,
    run_of: TableKey,
    collected: usize,
}

impl<'c> Intake<'c> {
    /// For the part's versions of segment `id`, which is in `slot`.
    pub(super) fn new(
        part: Part,
        catalog: &'c mut Catalog,
        bounds: &'c LogBounds,
        id: u32,
        slot: u16,
    ) -> Intake<'c> {
        Intake {
            part,
            catalog,
            bounds,
            id,
            slot,
            groups: BTreeMap::new(),
            run: Vec::new(),
            run_of: TableKey::default(),
            collected: 0,
        }
    }

    /// Takes up one version, unless it is gone by a bound.
    pub(super) fn take(&mut self, version: &HintVersion) {
        if self.part.is_first() {
            self.catalog.segment_mut(self.slot).wrote(version.size);
        }
        if !self.part.has(version.vbid) {
            return;
        }
        let position = LogPosition { segment: self.id, offset: version.offset };
        let table = (version.vbid, version.collection);
        if self.bounds.is_gone(version.vbid, version.collection, position) {
            return;
        }
        let is_purged = || self.bounds.is_purged(version.vbid, version.expiry, position);
        let mark = match version.kind {
            Kind::Tombstone if is_purged() => Mark::Purged,
            Kind::Tombstone => Mark::Tombstone,
            Kind::PurgedTombstone => Mark::Purged,
            _ => Mark::Document,
        };
        if table != self.run_of {
            self.end_run();
            self.run_of = table;
        }
        let place = RecordPlace::at(self.slot, version.offset);
        self.run.push(Entry::new(version.fingerprint, version.size, mark, place));
        self.collected += 1;
        debug_assert!(self.collected <= ENTRIES_MAX, "what collects is bounded");
        if self.collected == ENTRIES_MAX {
            self.apply();
        }
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.groups.entry(self.run_of).or_default().append(&mut self.run);
            debug_assert!(self.run.is_empty(), "a run is in one group");
        }
    }

    fn apply(&mut self) {
        self.end_run();
        debug_assert_eq!(
            self.groups.values().map(Vec::len).sum::<usize>(),
            self.collected,
            "every accepted version is in a group"
        );
        for (table, entries) in &mut self.groups {
            self.catalog.put_all(*table, entries, &[]);
            entries.clear();
        }
        self.collected = 0;
    }

    /// Everything that was taken up is in the catalog.
    pub(super) fn finish(mut self) {
        self.apply();
    }
}
