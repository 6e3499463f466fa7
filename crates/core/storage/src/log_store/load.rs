//! Loading everything: all records as they lie, in stretches that threads take in turn.
//!
//! Owns: the split into stretches. The places of all records are collected first (four bytes a
//! record), so reading looks nothing up. Garbage is not checked, and long runs of it are not read.
//! Stretches come from the end of the log to its beginning, so the newest records come first,
//! except those that compaction has moved. Invariant: every record is checked before it is shown.
//! Caller: warmup.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_types::Vbid;

use super::catalog::{Segment, TableKey};
use super::index::{Mark, RecordPlace};
use super::layout::UNIT_BYTES;
use super::log::Log;
use super::window::Window;
use crate::counters::ReadCount;
use crate::{LoadPart, LoadPlan, Record, StoreError};

/// Length of a stretch: some hundredths of a second of work for one thread, so that several end at
/// about the same time and progress can be reported between two.
const STRETCH_BYTES: u64 = 8 << 20;

/// Bytes that are read at a time: few enough to stay in a core's own cache.
const LOAD_BYTES: u64 = 512 << 10;
const _: () = assert!(LOAD_BYTES <= STRETCH_BYTES && STRETCH_BYTES.is_multiple_of(UNIT_BYTES));

/// Some records of one segment, by place in no order.
pub(super) struct RecordStretch {
    /// Number of the log.
    pub(super) log: usize,
    segment: Arc<Segment>,
    units: Vec<u32>,
}

impl Log {
    /// Splits everything that is shown. Takes the catalog a table at a time, so that no one waits
    /// for all of it; no segment goes concurrently.
    pub(super) fn plan_load(&self) -> LoadPlan {
        let _nothing_moves = self.moves.read();
        let tables: Vec<TableKey> = self.catalog.read().tables.keys().copied().collect();
        let mut records: BTreeMap<Vbid, u64> = BTreeMap::new();
        let mut units: BTreeMap<u16, Vec<Vec<u32>>> = BTreeMap::new();
        for key in tables {
            let catalog = self.catalog.read();
            let Some(table) = catalog.tables.get(&key) else { continue };
            *records.entry(key.0).or_default() += table.len() as u64;
            for entry in table.iter().filter(|entry| entry.mark() != Mark::Purged) {
                let (slot, stretch) = stretch_of(entry.place());
                debug_assert!(
                    catalog.segments[usize::from(slot)].is_some(),
                    "an entry has its segment"
                );
                let of_slot = units.entry(slot).or_default();
                if of_slot.len() <= stretch {
                    of_slot.resize(stretch + 1, Vec::new());
                }
                of_slot[stretch].push(entry.place().unit);
            }
        }
        let mut parts = Vec::new();
        let log = self.member.number();
        let segments = self.catalog.read().segments_by_age();
        for (slot, segment) in segments.into_iter().rev() {
            let segment = Arc::new(segment);
            let of_slot = units.remove(&slot).unwrap_or_default();
            for units in of_slot.into_iter().rev().filter(|units| !units.is_empty()) {
                let segment = Arc::clone(&segment);
                parts.push(LoadPart::own(Box::new(RecordStretch { log, segment, units })));
            }
        }
        debug_assert!(units.is_empty(), "an entry points into an existing segment");
        let records_estimate = records.values().sum();
        LoadPlan { parts, records: records.into_iter().collect(), records_estimate }
    }

    /// Visits the records of a stretch from its beginning to its end.
    pub(super) fn load_stretch(
        &self,
        mut stretch: RecordStretch,
        visit: &mut dyn FnMut(Vbid, Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        debug_assert!(!stretch.units.is_empty(), "a stretch has a record");
        assert_eq!(stretch.log, self.member.number(), "a stretch is loaded from its log");
        let mut count = ReadCount::default();
        let mut load = || {
            let mut window = Window::ahead(LOAD_BYTES);
            stretch.units.sort_unstable();
            for unit in &stretch.units {
                let offset = u64::from(*unit) * UNIT_BYTES;
                let stored = window.record(&stretch.segment, offset)?;
                count.add(&stored.record);
                if visit(stored.vbid, stored.record).is_break() {
                    break;
                }
            }
            Ok(())
        };
        let result = load();
        self.has_read(&count, result)
    }
}

/// The plans of several logs as one. Their parts come in turn, so that the newest records of each
/// come first.
pub(super) fn merged(plans: impl Iterator<Item = LoadPlan>) -> LoadPlan {
    let mut merged = LoadPlan::default();
    let mut of_logs = Vec::new();
    for LoadPlan { parts, records, records_estimate } in plans {
        of_logs.push(parts.into_iter());
        merged.records.extend(records);
        merged.records_estimate += records_estimate;
    }
    loop {
        let before = merged.parts.len();
        debug_assert!(!of_logs.is_empty() || before == 0, "parts come from a log");
        merged.parts.extend(of_logs.iter_mut().filter_map(Iterator::next));
        if merged.parts.len() == before {
            return merged;
        }
    }
}

/// Slot and number of the stretch in which a place is.
fn stretch_of(place: RecordPlace) -> (u16, usize) {
    (place.slot, (place.offset() / STRETCH_BYTES) as usize)
}
