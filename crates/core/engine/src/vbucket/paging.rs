//! Evicting versions from a vbucket's memory.
//!
//! Owns: one slice of the item pager's work. A slice looks at some groups of the table under its
//! lock, builds the victims' successors without it, and swaps under it again: no client waits for a
//! copy or a free.
//!
//! A version may go when it is clean: durable, and only the table refers to it. Then neither the
//! queue nor an answer has it, and none can get it while the table's lock is held. The second hold
//! of the lock checks this again. Readers without the lock may still read the version; it is freed
//! after their sections end.

use oribi_types::policy::EvictionPolicy;
use oribi_types::{Cas, DocKey, Seqno};

use super::VBucket;
use super::context::Context;
use super::locks::Claim;
use super::stats::HistoryEnds;
use crate::attributes::tombstone;
use crate::hash_table::ScanCursor;
use crate::item::{ItemRef, NewItem};
use crate::memory::HOT_FREQUENCY;
use crate::newest_documents::NewestDocuments;

/// Makes values dense; the item pager's compressor does.
pub(crate) trait Densify {
    /// True for a version that [`Densify::densified`] would try, or whose collection has to be
    /// sampled first. Asked under the table's lock.
    fn wants(&self, item: &ItemRef) -> bool;

    /// The version in its dense form with the newest dictionary; `None` when it stays as it is.
    fn densified(&mut self, item: &ItemRef) -> Option<ItemRef>;
}

/// How one slice chooses its victims.
pub(crate) struct Sweep<'a> {
    pub(crate) policy: EvictionPolicy,
    /// Groups that the slice visits.
    pub(crate) groups: usize,
    /// Documents that a cache spares.
    pub(crate) newest: &'a mut NewestDocuments,
    /// Makes values dense that are not hot, while the tier is on.
    pub(crate) dense: Option<&'a mut dyn Densify>,
    /// Cold versions that do not become dense may be evicted.
    pub(crate) may_evict: bool,
}

/// Report of one slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SweepReport {
    /// Versions that could be evicted, or become dense, now or once they are clean and unused.
    pub(crate) candidates: u64,
    /// Values or whole documents that were evicted.
    pub(crate) evicted: u64,
    /// Values that became dense.
    pub(crate) densified: u64,
}

/// Replacement of a victim in the table.
pub(super) enum Successor {
    /// The same version, without its value or elsewhere.
    Copy(ItemRef),
    /// Nothing: a clean document or tombstone that the store has, or a marker of absence.
    Nothing,
    /// A deletion, as a client's.
    Tombstone,
}

impl VBucket {
    /// Sweeps the groups after the cursor: makes values dense that are not hot, evicts versions
    /// that were not used of late, and lowers the frequency of the rest. True when the scan is
    /// complete.
    pub(crate) fn sweep(
        &self,
        context: &Context<'_>,
        mut sweep: Sweep<'_>,
        cursor: &mut ScanCursor,
    ) -> (SweepReport, bool) {
        let mut report = SweepReport::default();
        let (policy, groups) = (sweep.policy, sweep.groups);
        debug_assert!(groups > 0, "a sweep goes forward");
        let (victims, is_complete) = self
            .table
            .lock()
            .pick(cursor, groups, |item| self.is_victim(&mut sweep, item, &mut report));
        for victim in victims {
            let dense = sweep.dense.as_mut().and_then(|pass| pass.densified(&victim));
            if let Some(dense) = dense {
                let is_dense = self.replace(context, victim, Successor::Copy(dense));
                report.densified += u64::from(is_dense);
                // Other policies have counted it as a candidate for eviction.
                report.candidates += u64::from(is_dense && policy == EvictionPolicy::None);
                continue;
            }
            if victim.frequency() > 0 {
                self.age(&victim);
                continue;
            }
            let is_spared = policy == EvictionPolicy::Nru && sweep.newest.is_spared(victim.cas());
            if (!sweep.may_evict || is_spared) && !victim.is_deleted() {
                continue;
            }
            let successor = self.successor(policy, &victim);
            // The removal of a tombstone is not counted.
            let is_counted = !victim.is_deleted();
            if self.replace(context, victim, successor) && is_counted {
                report.evicted += 1;
                debug_assert!(
                    report.evicted <= report.candidates,
                    "an evicted document was a candidate"
                );
            }
        }
        self.report_memory(context);
        (report, is_complete)
    }

    /// Evicts the version under one key, however often it is used; false when nothing may go.
    pub(crate) fn evict(&self, context: &Context<'_>, key: DocKey<'_>) -> bool {
        let policy = context.memory.policy();
        let hash = self.table.seed().hash(key);
        let victim = {
            let table = self.table.lock();
            let found = table.index.get(hash, key).filter(|item| !item.is_deleted());
            let Some(item) = found.filter(|item| self.can_go(policy, item)) else { return false };
            debug_assert!(policy != EvictionPolicy::None, "the policy evicts");
            (0..=item.frequency()).for_each(|_| item.age());
            item.clone()
        };
        let successor = self.successor(policy, &victim);
        let is_gone = self.replace(context, victim, successor);
        self.report_memory(context);
        is_gone
    }

    /// Lowers the frequency of a version that might have become dense and did not.
    #[cold]
    fn age(&self, item: &ItemRef) {
        let _only_one_lowers_it = self.table.lock();
        item.age();
    }

    /// Asked under the table's lock.
    fn is_victim(&self, sweep: &mut Sweep<'_>, item: &ItemRef, report: &mut SweepReport) -> bool {
        let is_wanted = || sweep.dense.as_ref().is_some_and(|pass| pass.wants(item));
        let becomes_dense = || item.frequency() < HOT_FREQUENCY && is_wanted();
        if sweep.policy == EvictionPolicy::None {
            // A version that cannot become smaller is no candidate: writes fail because memory is
            // full.
            let is_victim = becomes_dense() && self.is_clean(item);
            if !is_victim && is_wanted() {
                report.candidates += 1;
                item.age();
            }
            return is_victim;
        }
        if item.is_deleted() {
            // During loading, a tombstone keeps the stored version from being loaded.
            return self.is_clean(item) && !self.is_loading();
        }
        if !self.can_ever_go(sweep.policy, item) {
            return false;
        }
        report.candidates += 1;
        if !self.is_clean(item) {
            return false;
        }
        if sweep.policy == EvictionPolicy::Nru && sweep.newest.spares(item.cas()) {
            // Spared from eviction, not from compression.
            return becomes_dense();
        }
        if becomes_dense() {
            return true;
        }
        let was_used = item.frequency() > 0;
        debug_assert!(!item.is_deleted(), "a tombstone is not aged");
        if was_used {
            item.age();
        }
        !was_used && sweep.may_evict
    }

    fn can_go(&self, policy: EvictionPolicy, item: &ItemRef) -> bool {
        self.can_ever_go(policy, item) && self.is_clean(item)
    }

    /// True for a document whose eviction would free memory, once it is unused.
    fn can_ever_go(&self, policy: EvictionPolicy, item: &ItemRef) -> bool {
        match policy {
            EvictionPolicy::Nru => true,
            EvictionPolicy::Full if !self.is_loading() => true,
            EvictionPolicy::Value | EvictionPolicy::Full => {
                !item.is_in_store_only() && item.block_bytes_evicted() < item.block_bytes()
            }
            EvictionPolicy::None => false,
        }
    }

    /// Asked under the table's lock.
    fn is_clean(&self, item: &ItemRef) -> bool {
        item.references() == 1
            && (self.is_in_memory_only() || item.seqno() <= self.persisted_seqno())
    }

    pub(super) fn is_in_memory_only(&self) -> bool {
        self.persistence_cursor.is_none()
    }

    fn successor(&self, policy: EvictionPolicy, victim: &ItemRef) -> Successor {
        debug_assert!(policy != EvictionPolicy::None || victim.is_deleted(), "the policy evicts");
        let hash = self.table.seed().hash(victim.key());
        match policy {
            _ if victim.is_deleted() => Successor::Nothing,
            EvictionPolicy::Nru => Successor::Tombstone,
            EvictionPolicy::Full if !self.is_loading() && !self.is_pending(hash) => {
                Successor::Nothing
            }
            _ => Successor::Copy(NewItem::copy_of(victim, true).publish()),
        }
    }

    /// Puts the successor in the victim's place, if the victim is still unused.
    pub(super) fn replace(
        &self,
        context: &Context<'_>,
        victim: ItemRef,
        successor: Successor,
    ) -> bool {
        let hash = self.table.seed().hash(victim.key());
        let is_unused = |current: &ItemRef| {
            // The table's reference and ours.
            current.same_block(&victim) && current.references() == 2
        };
        let copy = match successor {
            Successor::Copy(copy) => Some(copy),
            Successor::Nothing => None,
            Successor::Tombstone => {
                let new = tombstone(victim.key(), context.now);
                return self.publish_over(context, hash, new, Claim::Cas(Cas(0)), is_unused);
            }
        };
        let mut table = self.table.lock();
        let place = table.index.locate(hash, victim.key());
        let current = place.and_then(|place| table.index.at(place));
        let Some(place) = place.filter(|_| current.is_some_and(is_unused)) else { return false };
        if table.pending.has(hash) {
            // Below a prepare only the value may go, so that its commit finds what it replaces.
            let is_smaller =
                copy.as_ref().is_some_and(|copy| copy.block_bytes() < victim.block_bytes());
            if !is_smaller || table.pending.before(hash).is_some() {
                return false;
            }
        }
        if copy.is_none() && !victim.is_deleted() && self.is_loading() {
            return false;
        }
        debug_assert!(
            copy.as_ref().is_none_or(|copy| copy.seqno() == victim.seqno()),
            "a copy is of the same version"
        );
        let left = match copy {
            Some(copy) => table.substitute(hash, place, copy),
            None => {
                if victim.is_deleted() && self.is_in_memory_only() {
                    self.raise_purge_seqno(victim.seqno());
                }
                table.evict_whole(hash, &victim)
            }
        };
        drop(table);
        drop(left);
        true
    }

    /// Reports to the bucket by how much the vbucket has grown or shrunk.
    pub(crate) fn report_memory(&self, context: &Context<'_>) {
        let mut table = self.table.lock();
        let mut queue = self.queue.lock();
        let queue_bytes = queue.own_bytes();
        debug_assert!(queue.queue_bytes() >= queue.open_bytes(), "the queue counts its items");
        let queued = queue.change(context.memory.report_bytes());
        drop(queue);
        let change = table.unreported(queue_bytes, 1);
        drop(table);
        if let Some(bytes) = change {
            context.memory.report(bytes);
        }
        if queued != 0 {
            context.memory.report_queued(queued);
        }
    }

    /// The ends of the vbucket's history, for its readers.
    pub(crate) fn history_ends(&self) -> HistoryEnds {
        let table = self.table.lock();
        let queue = self.queue.lock();
        let (high, readable) = (queue.high_seqno(), queue.readable_seqno());
        HistoryEnds { high, readable, visible: table.pending.visible_seqno(high) }
    }

    /// The highest seqno that the vbucket has given out.
    pub fn high_seqno(&self) -> Seqno {
        self.queue.lock().high_seqno()
    }
}
