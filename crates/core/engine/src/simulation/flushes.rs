//! The flushers of a simulated bucket.
//!
//! Owns: which of them takes a step, and that none of them forgets a vbucket.

use oribi_types::Vbid;

use super::world::{VBUCKETS, World};
use crate::tasks::no_clock;

impl World {
    /// A process may also die before it has recovered from a failure.
    pub(super) fn flush_or_die(&self) {
        let before = self.counts.borrow().failed_commits;
        self.flush();
        let has_failed = self.counts.borrow().failed_commits > before;
        if has_failed && !self.setup.is_calm && !self.files.is_off() && self.below(2) == 0 {
            self.die();
        }
    }

    /// A step of one flusher, or of each.
    pub(super) fn flush(&self) {
        let flushers = self.bucket().flusher_count();
        let chosen = self.below(flushers as u64 + 1) as usize;
        for group in (0..flushers).filter(|group| chosen == flushers || chosen == *group) {
            self.flush_group(group);
        }
    }

    /// While a flusher is at work, another one is as well. Never the first: it waits for the others
    /// when it purges a collection.
    pub(super) fn flush_another(&self) {
        let bucket = self.bucket();
        let others = bucket.flusher_count() as u64 - 1;
        let group = 1 + self.below(others.max(1)) as usize;
        if group < bucket.flusher_count() && !bucket.flushers().is_held(group) {
            self.count(|counts| counts.overlapping_flushes += 1);
            self.flush_group(group);
        }
    }

    pub(super) fn is_any_flusher_held(&self) -> bool {
        let bucket = self.bucket();
        (0..bucket.flusher_count()).any(|group| bucket.flushers().is_held(group))
    }

    fn flush_group(&self, group: usize) {
        let flushers = self.bucket().flusher_count();
        match self.bucket().flusher_step(group, &no_clock) {
            Ok(report) => {
                // Nothing else would wake the flusher for the rest.
                let is_left =
                    |vbid: Vbid| !self.bucket().vbuckets()[usize::from(vbid.0)].is_flushed();
                let of_group = (group..usize::from(VBUCKETS)).step_by(flushers);
                let mut of_group = of_group.map(|vbid| Vbid(vbid as u16));
                let forgotten = of_group.find(|vbid| !report.more && is_left(*vbid));
                assert!(forgotten.is_none(), "{forgotten:?} waits for a flush that is over");
                self.count(|counts| {
                    counts.commits += u64::from(report.vbuckets > 0);
                    counts.unfinished_passes += u64::from(report.is_mid_pass);
                });
            }
            Err(error) => {
                self.count(|counts| counts.failed_commits += 1);
                self.failed("a flush", &error);
            }
        }
    }
}
