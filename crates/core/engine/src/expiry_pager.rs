//! The expiry pager: deletes expired documents that no client reads.
//!
//! Owns: when a pass over all tables begins, its position, and one step of it. A reader that meets
//! an expired document deletes it; the pager finds the others, so that their memory and disk are
//! freed and change streams learn of it. A step scans a bounded number of table groups, under each
//! vbucket's lock for some microseconds at a time, and deletes the expired documents by the rules
//! of any other write. While the bucket refuses deletions, the pass stays where it is. Some
//! documents are left to the next pass: those that changed concurrently, whose collection is being
//! purged, or whose vbucket is not served here. Documents that were evicted whole are not in the
//! tables, so the pager does not find them; a read finds them expired. Driven by the bucket's pager
//! thread, and by tests.

use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::core::Core;
use crate::hash_table::ScanCursor;
use crate::tasks::{StepClock, Task};

/// Groups under one hold of a table's lock: some hundred items, some microseconds.
const GROUPS_PER_SLICE: usize = 64;
/// Groups of one step: a millisecond or a few.
const GROUPS_PER_STEP: usize = 8192;
const _: () = assert!(GROUPS_PER_STEP.is_multiple_of(GROUPS_PER_SLICE));

/// The position of a pass.
#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    vbucket: usize,
    cursor: ScanCursor,
}

#[derive(Debug, Default)]
struct Passes {
    /// `None` between two passes.
    hand: Option<Hand>,
    /// When the last pass began, or the first step ran.
    begun: Option<Timestamp>,
}

/// The expiry pager of one bucket.
#[derive(Default)]
pub(crate) struct ExpiryPager(Mutex<Passes>);

/// Result of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiryReport {
    pub expired: usize,
    /// True when the pass continues, at once.
    pub more: bool,
}

impl ExpiryPager {
    /// Continues with the pass, or begins one if it is time. The first begins one interval after
    /// the first call. An interval of 0 means never.
    pub(crate) fn step(&self, core: &Core, clock: StepClock<'_>) -> ExpiryReport {
        let mut passes = self.0.lock();
        let interval_s = u64::from(core.config().upkeep.expiry_pager_interval_s);
        if interval_s == 0 {
            return ExpiryReport::default();
        }
        if passes.hand.is_none() {
            let now = clock();
            let begun = *passes.begun.get_or_insert(now);
            if now.unix_ns.saturating_sub(begun.unix_ns) < interval_s * 1_000_000_000 {
                return ExpiryReport::default();
            }
            (passes.begun, passes.hand) = (Some(now), Some(Hand::default()));
        }
        core.tasks().run(Task::ExpiryPager, clock, || expire_some(core, &mut passes, clock()))
    }
}

fn expire_some(core: &Core, passes: &mut Passes, now: Timestamp) -> ExpiryReport {
    let mut report = ExpiryReport::default();
    let Some(mut hand) = passes.hand else { return report };
    let mut looked = 0;
    while let Some(vbucket) = core.vbuckets().get(hand.vbucket) {
        if looked >= GROUPS_PER_STEP {
            passes.hand = Some(hand);
            report.more = true;
            return report;
        }
        let context = core.context(now);
        let mut cursor = hand.cursor;
        let slice = vbucket.expire_slice(&context, &mut cursor, GROUPS_PER_SLICE);
        report.expired += slice.expired;
        assert!(slice.expired <= slice.found, "the pager deletes the documents that it has found");
        if slice.expired < slice.found && core.memory().refuses_deletions() {
            // The pass continues with the same slice when it is called again.
            passes.hand = Some(hand);
            return report;
        }
        looked += GROUPS_PER_SLICE;
        debug_assert!(looked <= GROUPS_PER_STEP, "a step is bounded");
        hand = Hand { vbucket: hand.vbucket + usize::from(slice.is_last), cursor };
    }
    passes.hand = None;
    report
}
