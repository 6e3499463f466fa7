//! How versions leave a vbucket's memory, and how they move within it.
//!
//! Owns: one slice of the item pager's work. A slice looks at some groups of the table under its lock, builds what takes
//! the victims' places without it, and swaps under it again: nothing is copied or freed while a client waits.
//!
//! A version may go when it is clean: durable, and referred to by nobody but the table. Then no slot of the
//! queue has it and no reader is at it, and while the table's lock is held none can begin to be. The second hold
//! checks that this is still so.

use oribi_types::{Cas, DocKey, Seqno};

use super::VBucket;
use super::locks::Claim;
use super::operations::Context;
use crate::attributes::tombstone;
use crate::block_arena;
use crate::eviction::EvictionPolicy;
use crate::item::{ItemRef, NewItem};
use crate::planted::{self, Bug};

/// What a slice is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sweep {
    /// Takes out of memory what was not used of late, and lowers the frequency of what was.
    Evict(EvictionPolicy),
    /// Moves blocks out of chunks that are to become empty.
    Compact,
}

/// What a slice, or several, did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SweepReport {
    /// Versions that could be evicted, now or once they are clean and out of use.
    pub(crate) candidates: u64,
    /// Values, or whole documents, that left.
    pub(crate) evicted: u64,
    /// Blocks that moved.
    pub(crate) moved: u64,
}

impl SweepReport {
    pub(crate) fn add(&mut self, slice: SweepReport) {
        self.candidates += slice.candidates;
        self.evicted += slice.evicted;
        self.moved += slice.moved;
    }
}

/// What takes a victim's place in the table.
enum Successor {
    /// The same version, without its value or elsewhere.
    Copy(ItemRef),
    /// Nothing: a clean document or tombstone that the store has, or a marker of absence.
    Nothing,
    /// A deletion, by the rules of a client's.
    Tombstone,
}

impl VBucket {
    /// Number of groups; a sweep over all of them sees every version that stays in the table.
    pub(crate) fn group_count(&self) -> usize {
        self.table.lock().index.group_count()
    }

    /// Sweeps `count` groups from `first` on.
    pub(crate) fn sweep(
        &self,
        context: &Context<'_>,
        sweep: Sweep,
        first: usize,
        count: usize,
    ) -> SweepReport {
        let mut report = SweepReport::default();
        let mut victims: Vec<ItemRef> = Vec::new();
        {
            let table = self.table.lock();
            let end = first.saturating_add(count).min(table.index.group_count());
            for group in first..end {
                table.index.visit_group(group, |item| {
                    if self.is_victim(sweep, item, &mut report) {
                        victims.push(item.clone());
                    }
                });
            }
        }
        // All copies are made before the first original is freed, so that none goes where one was.
        let successors: Vec<Successor> =
            victims.iter().map(|victim| self.successor(sweep, victim)).collect();
        let is_move = sweep == Sweep::Compact;
        for (victim, successor) in victims.into_iter().zip(successors) {
            // A victim that is not a document any more is removed without being counted.
            let is_counted = !victim.is_deleted();
            if self.replace(context, victim, successor) && is_counted {
                let counter = if is_move { &mut report.moved } else { &mut report.evicted };
                *counter += 1;
            }
        }
        if report.moved > 0 {
            block_arena::give_back_kept_blocks();
        }
        self.report_memory(context);
        report
    }

    /// Evicts what is under one key, however much it is in use; false when there is nothing that may go.
    pub(crate) fn evict(&self, context: &Context<'_>, key: DocKey<'_>) -> bool {
        let sweep = Sweep::Evict(context.memory.policy);
        let hash = self.seed.hash(key);
        let victim = {
            let table = self.table.lock();
            let found = table.index.get(hash, key).filter(|item| !item.is_deleted());
            let Some(item) = found.filter(|item| self.can_go(sweep, item)) else { return false };
            (0..=item.frequency()).for_each(|_| item.age());
            item.clone()
        };
        let successor = self.successor(sweep, &victim);
        let is_gone = self.replace(context, victim, successor);
        self.report_memory(context);
        is_gone
    }

    /// Asked under the table's lock.
    fn is_victim(&self, sweep: Sweep, item: &ItemRef, report: &mut SweepReport) -> bool {
        if sweep == Sweep::Compact {
            return item.is_to_move() && self.is_clean(item);
        }
        if item.is_deleted() {
            // While loading a tombstone says that the version in the store is not to be loaded.
            return self.is_clean(item) && !self.is_loading();
        }
        if !self.can_ever_go(sweep, item) {
            return false;
        }
        report.candidates += 1;
        if !self.is_clean(item) {
            return false;
        }
        let was_used = item.frequency() > 0;
        if was_used {
            item.age();
        }
        !was_used
    }

    fn can_go(&self, sweep: Sweep, item: &ItemRef) -> bool {
        self.can_ever_go(sweep, item) && self.is_clean(item)
    }

    /// True for a document that eviction would make room by, once nobody is at it.
    fn can_ever_go(&self, sweep: Sweep, item: &ItemRef) -> bool {
        match sweep {
            Sweep::Evict(EvictionPolicy::Nru) => true,
            Sweep::Evict(EvictionPolicy::Full) if !self.is_loading() => true,
            Sweep::Evict(EvictionPolicy::Value | EvictionPolicy::Full) => {
                !item.is_evicted() && item.block_bytes_evicted() < item.block_bytes()
            }
            Sweep::Evict(EvictionPolicy::None) | Sweep::Compact => false,
        }
    }

    /// Asked under the table's lock.
    fn is_clean(&self, item: &ItemRef) -> bool {
        planted::has(Bug::EvictsDirtyItems)
            || item.references() == 1
                && (self.is_in_memory_only() || item.seqno() <= self.persisted_seqno())
    }

    fn is_in_memory_only(&self) -> bool {
        self.persistence_cursor.is_none()
    }

    fn successor(&self, sweep: Sweep, victim: &ItemRef) -> Successor {
        match sweep {
            Sweep::Compact => {
                let mut copy = NewItem::copy_of(victim, victim.is_evicted());
                copy.inherit_frequency(victim);
                Successor::Copy(copy.publish())
            }
            Sweep::Evict(_) if victim.is_deleted() => Successor::Nothing,
            Sweep::Evict(EvictionPolicy::Nru) => Successor::Tombstone,
            Sweep::Evict(EvictionPolicy::Full) if !self.is_loading() => Successor::Nothing,
            Sweep::Evict(_) => Successor::Copy(NewItem::copy_of(victim, true).publish()),
        }
    }

    /// Puts the successor in the victim's place, if nobody has come to it meanwhile.
    fn replace(&self, context: &Context<'_>, victim: ItemRef, successor: Successor) -> bool {
        let hash = self.seed.hash(victim.key());
        let is_unused = |current: Option<&ItemRef>| {
            // The table's reference and ours.
            let is_alone =
                |item: &ItemRef| item.references() == 2 || planted::has(Bug::EvictsDirtyItems);
            current.is_some_and(|item| item.same_block(&victim) && is_alone(item))
        };
        let copy = match successor {
            Successor::Copy(copy) => Some(copy),
            Successor::Nothing => None,
            Successor::Tombstone => {
                let new = tombstone(victim.key(), context.now);
                let claim = Claim::Cas(Cas(0));
                let written = self.write_version(context, hash, new, claim, |current, _, _| {
                    if is_unused(current) { Ok(()) } else { Err(()) }
                });
                return written.is_ok();
            }
        };
        let mut table = self.table.lock();
        let place = table.index.locate(hash, victim.key());
        let current = place.and_then(|place| table.index.at(place));
        let Some(place) = place.filter(|_| is_unused(current)) else { return false };
        if copy.is_none() && !victim.is_deleted() && self.is_loading() {
            return false;
        }
        let left = match copy {
            Some(copy) => table.substitute(hash, place, copy),
            None => table.evict_whole(hash, &victim),
        };
        drop(table);
        drop(left);
        true
    }

    /// Tells the bucket how much the vbucket has grown or shrunk, if it is enough to be told.
    pub(crate) fn report_memory(&self, context: &Context<'_>) {
        let mut table = self.table.lock();
        let queue_bytes = self.queue.lock().own_bytes();
        let change = table.unreported(queue_bytes, 1);
        drop(table);
        if let Some(bytes) = change {
            context.memory.report(bytes);
        }
    }

    /// The highest seqno that the vbucket has given out.
    pub(super) fn high_seqno(&self) -> Seqno {
        self.queue.lock().high_seqno()
    }
}
