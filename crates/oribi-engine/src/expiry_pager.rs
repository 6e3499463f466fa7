//! The expiry pager: deletes documents that have expired and that nobody reads.
//!
//! Owns: when a pass over all tables begins, where it is, and one step of it. A reader that meets an expired document
//! deletes it; this finds the others, so that their memory and disk come back and change streams learn of
//! it. A step looks at a bounded number of table groups, under each vbucket's lock for some microseconds at a
//! time, and deletes what it found by the rules of any other write. It stops for a while when writes are refused.
//! Documents that were evicted whole have left the tables and are not found here; who asks for one does not
//! get it either. Driven by the bucket's pager thread, and by tests.

use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::tasks::{StepClock, Task};

/// Groups that are looked at under one hold of a table's lock: some hundred items, some microseconds.
const GROUPS_PER_SLICE: usize = 64;
/// Groups of one step: a millisecond or a few.
const GROUPS_PER_STEP: usize = 8192;

/// Where a pass is.
#[derive(Clone, Copy, Debug, Default)]
struct Hand {
    vbucket: usize,
    group: usize,
}

#[derive(Debug, Default)]
struct Passes {
    /// `None` between two passes.
    hand: Option<Hand>,
    /// When the last pass began, or the bucket was first looked at.
    begun: Option<Timestamp>,
}

/// The expiry pager of one bucket.
#[derive(Default)]
pub(crate) struct ExpiryPager(Mutex<Passes>);

/// What one step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExpiryReport {
    /// Documents deleted.
    pub expired: usize,
    /// True when the pass goes on, at once.
    pub more: bool,
}

impl Bucket {
    /// Does a piece of the pass that is under way, or begins one if it is time. The first begins one interval
    /// after the first call. An interval of 0 means never.
    pub fn expiry_pager_step(&self, clock: StepClock<'_>) -> ExpiryReport {
        let mut passes = self.expiry_pager.0.lock();
        let interval_s = u64::from(self.config().upkeep.expiry_pager_interval_s);
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
        self.tasks.run(Task::ExpiryPager, clock, || self.expire_some(&mut passes, clock()))
    }

    fn expire_some(&self, passes: &mut Passes, now: Timestamp) -> ExpiryReport {
        let mut report = ExpiryReport::default();
        let Some(mut hand) = passes.hand else { return report };
        let mut looked = 0;
        while let Some(vbucket) = self.vbuckets().get(hand.vbucket) {
            if looked >= GROUPS_PER_STEP {
                passes.hand = Some(hand);
                report.more = true;
                return report;
            }
            let context = self.context(now);
            let slice = vbucket.expire_groups(&context, hand.group, GROUPS_PER_SLICE);
            report.expired += slice.expired;
            if slice.found > 0 && slice.expired == 0 {
                // Writes are refused. The pass goes on where it is, when it is called again.
                passes.hand = Some(hand);
                return report;
            }
            looked += GROUPS_PER_SLICE;
            hand.group += GROUPS_PER_SLICE;
            if hand.group >= vbucket.group_count() {
                hand = Hand { vbucket: hand.vbucket + 1, group: 0 };
            }
        }
        passes.hand = None;
        report
    }
}
