//! Durable writes of a vbucket that has copies on other nodes: prepare, acknowledgement, outcome.
//!
//! Owns: those steps on the active copy, and the prepares of a replica. A prepare is queued as a
//! separate version ([`crate::prepare`]), while its document is held next to the table. The oldest
//! prepare is committed when the copies acknowledged it, or aborted when its client stopped to
//! wait. A commit writes the document like any other write, with its own seqno and the CAS and
//! revision of the prepare. Invariants:
//! 1. Outcomes have the order of prepares.
//! 2. A promoted copy answers nothing until the prepares that it inherited are committed: its
//!    predecessor may have shown them.
//! 3. A replica acknowledges nothing from the first prepare on that has to be stored and is not.
//!
//! A prepare whose value left memory waits for it before it is committed
//! ([`super::prepare_paging`]).
//!
//! Called by writes, the replication consumer, the flusher and the owner of the assignment.

use std::sync::atomic::Ordering;

use oribi_storage::{Record, VbucketPhase};
use oribi_types::{
    Cas, CollectionId, CopiesEpoch, CopyId, DocKey, DurabilityLevel, RevSeqno, Seqno,
};

use super::committing::{COMMITS_PER_SLICE, CommitGarbage};
use super::context::Context;
use super::fetching::is_absence_marker;
use super::pending::{PendingWrite, PrepareStatus, without_value};
use super::shared_table::TableGuard;
use super::write_quorum::WriteQuorum;
use super::{HANDING_OVER, LOADING, RECOMMITTING, VBucket};
use crate::checkpoint::{CheckpointManager, StreamWaker};
use crate::hash_table::KeyHash;
use crate::item::{ItemRef, NewItem};
use crate::outcome::AppliedMutation;
use crate::persistence::PersistOutcome;
use crate::prepare::{self, PreparedDocument};

/// What an outcome has displaced, to be dropped after the locks.
type OutcomeGarbage = (Option<ItemRef>, Option<ItemRef>, CommitGarbage);

impl VBucket {
    /// Queues the prepare of a version, and holds the version until the copies have it.
    #[cold]
    pub(super) fn prepare<K>(
        &self,
        context: &Context<'_>,
        mut table: TableGuard<'_>,
        (hash, mut new): (KeyHash, NewItem),
        (rev_seqno, cas, level): (RevSeqno, Option<Cas>, DurabilityLevel),
        keep: impl FnOnce(&ItemRef) -> K,
    ) -> (AppliedMutation, K) {
        let report_bytes = context.memory.report_bytes();
        let prepare = prepare::prepare_of(new.as_item(), level);
        let mut queue = self.queue.lock();
        let queued = queue.enqueue_with_cas(prepare, None, rev_seqno, cas, context.now).item;
        assert_eq!(queued.seqno(), queue.high_seqno(), "a prepare has the highest seqno");
        new.set_version(queued.cas(), queued.seqno(), rev_seqno);
        let item = new.publish();
        let queued_bytes = queued.block_bytes();
        let prepare =
            PrepareStatus { level, queued_bytes, is_overdue: false, needs_majority: true };
        let (cas, seqno, vb_uuid) = (item.cas(), item.seqno(), self.uuid());
        let written = (AppliedMutation { cas, seqno, vb_uuid }, keep(&item));
        let pending = PendingWrite { item, prepare: Some(prepare) };
        queue.pending_added(pending.counted_bytes());
        let (queue_bytes, queued_bytes) = (queue.own_bytes(), queue.growth(report_bytes));
        // Before its seqno can be seen: a writer that reads the seqno asks for pending writes next.
        self.has_pending.store(true, Ordering::Release);
        let has_idle_stream = queue.has_idle_stream();
        drop(queue);
        table.pending.hold(hash, pending);
        let change = table.unreported(queue_bytes, report_bytes);
        drop(table);
        self.note_queued(context, change, queued_bytes, has_idle_stream);
        // The active copy may be a majority of one.
        if self.durability.lock().commits(written.0.seqno, level, Seqno(0)) {
            self.complete_prepares(context);
        }
        written
    }

    /// The vbucket is, or will be, active in an epoch with these copies.
    /// [`VBucket::complete_prepares`] follows once it is.
    pub fn set_quorum(&self, quorum: WriteQuorum) {
        self.durability.lock().begin(quorum);
    }

    /// What a copy has acknowledged in the epoch of the quorum.
    pub fn acknowledged_by(&self, member: CopyId) -> Option<Seqno> {
        self.durability.lock().acknowledged_by(member)
    }

    /// From here on a durable write is committed only once this copy's disk has it. Returns the end
    /// of everything that was committed before: with that stored, the copy may be alone.
    pub fn demand_storage(&self) -> Seqno {
        let mut durability = self.durability.lock();
        // A commit holds `durability` until it is in the queue.
        let high = self.queue.lock().high_seqno();
        durability.demand_storage(high)
    }

    /// The copy is not to be alone: commits demand what their levels say.
    pub fn waive_storage(&self) {
        self.durability.lock().waive_storage();
    }

    /// False while fewer copies exist than a durable write asks for.
    pub fn is_durability_possible(&self) -> bool {
        self.durability.lock().is_possible()
    }

    /// A copy has everything up to `seqno` in `epoch`, stored where the level demands it.
    pub fn copy_acknowledged(
        &self,
        context: &Context<'_>,
        (member, epoch): (CopyId, CopiesEpoch),
        seqno: Seqno,
    ) {
        self.durability.lock().acknowledged(member, epoch, seqno);
        self.complete_prepares(context);
    }

    /// No client waits for a prepare any more: it is aborted when it is the oldest one, unless it
    /// is committed by then.
    pub fn expire_prepare(&self, context: &Context<'_>, seqno: Seqno) {
        if !self.has_pending.load(Ordering::Acquire) {
            return;
        }
        {
            let mut table = self.table.lock();
            let phase = self.table.phase().load(Ordering::Acquire);
            let is_decided_here = [VbucketPhase::Active as u8, LOADING, HANDING_OVER];
            if !is_decided_here.contains(&phase) {
                // Another epoch decides about it: an inherited prepare has no limit.
                return;
            }
            table.pending.set_overdue(seqno);
        }
        self.complete_prepares(context);
    }

    /// Prepares up to here are completed in what the store has.
    pub(crate) fn stored_completed_seqno(&self) -> Seqno {
        self.copy_state.lock().high_completed_seqno
    }

    /// The outcome of the prepare of this seqno, for a client that begins to wait for it; `None`
    /// while it has none. One that is stored already was committed, because a prepare is aborted
    /// only when its client waits no more. Where is forgotten: not later than the high seqno.
    pub(crate) fn prepare_outcome(&self, seqno: Seqno) -> Option<PersistOutcome> {
        let table = self.table.lock();
        if table.pending.has_prepare(seqno) {
            return None;
        }
        let known = table.pending.log.outcome_of(seqno);
        Some(known.unwrap_or_else(|| PersistOutcome::Committed(self.queue.lock().high_seqno())))
    }

    /// Commits and aborts the prepares whose outcome is known, some at a time.
    pub fn complete_prepares(&self, context: &Context<'_>) {
        let mut is_last = !self.has_pending.load(Ordering::Acquire);
        while !is_last {
            let mut outcomes: Vec<(Seqno, PersistOutcome)> = Vec::new();
            let mut garbage: Vec<OutcomeGarbage> = Vec::new();
            let mut wants_value = false;
            let streams = {
                let mut table = self.table.lock();
                if !self.has_outcomes() {
                    return;
                }
                let durability = self.durability.lock();
                let mut queue = self.queue.lock();
                while outcomes.len() < COMMITS_PER_SLICE
                    && let Some((seqno, prepare)) = table.pending.oldest_prepare()
                {
                    let PrepareStatus { level, is_overdue, needs_majority, .. } = prepare;
                    let commits = (durability.is_possible() || !needs_majority)
                        && durability.commits(seqno, level, self.persisted_seqno());
                    if !commits && !is_overdue {
                        break;
                    }
                    wants_value = commits && table.pending.oldest_without_value().is_some();
                    if wants_value {
                        break;
                    }
                    let (outcome, displaced) =
                        self.complete(context, &mut table, &mut queue, commits);
                    garbage.push(displaced);
                    outcomes.push((seqno, outcome));
                }
                is_last = outcomes.len() < COMMITS_PER_SLICE;
                self.end_recommitting(&table);
                self.released(&table, &mut queue)
            };
            // Also without an outcome: they are not taken for idle any more.
            streams.iter().for_each(StreamWaker::wake);
            if wants_value {
                self.ask_for_value(context);
            }
            if outcomes.is_empty() {
                return;
            }
            drop(garbage);
            self.mark_dirty(context.signals);
            self.report_memory(context);
            self.commit_waiters.decided(&outcomes);
        }
    }

    /// True while this copy decides about prepares.
    fn has_outcomes(&self) -> bool {
        let phase = self.table.phase().load(Ordering::Acquire);
        [VbucketPhase::Active as u8, LOADING, RECOMMITTING, HANDING_OVER].contains(&phase)
    }

    fn complete(
        &self,
        context: &Context<'_>,
        table: &mut TableGuard<'_>,
        queue: &mut CheckpointManager,
        commits: bool,
    ) -> (PersistOutcome, OutcomeGarbage) {
        let hash = |item: &ItemRef| self.table.seed().hash(item.key());
        let pending = table.pending.take_first(hash).expect("the caller has found it");
        let (seqno, item) = (pending.item.seqno(), &pending.item);
        queue.pending_removed(pending.counted_bytes());
        // The prepare leaves the queue after the outcome has entered it: a checkpoint that closes
        // in between must not end without both.
        let (replaced, displaced) = match commits {
            true => {
                assert!(!item.is_evicted(), "a commit has its value");
                let mut new = NewItem::copy_of(item, false);
                let hash = hash(item);
                let place = table.index.locate(hash, item.key());
                let found = place.and_then(|place| table.index.at(place));
                let previous = found.filter(|found| !is_absence_marker(found)).cloned();
                if let Some(previous) = &previous {
                    new.inherit_frequency(previous);
                }
                let (rev_seqno, cas) = (item.rev_seqno(), Some(item.cas()));
                let queued =
                    queue.enqueue_with_cas(new, previous.as_ref(), rev_seqno, cas, context.now);
                let replaced = table.write(hash, place, queued.item);
                if let Some(replaced) = &replaced {
                    table.locks.end(replaced);
                }
                table.show();
                (replaced, queued.displaced.or(previous))
            }
            false => {
                let abort = prepare::abort_of(item.key(), context.now.unix_s());
                let _ = queue.enqueue_alone(abort, item.rev_seqno(), context.now);
                (None, None)
            }
        };
        let at = queue.high_seqno();
        assert!(seqno < at, "an outcome has its own seqno");
        table.pending.log.completed(seqno, at, commits);
        let dequeued = dequeue(queue, &pending);
        let outcome = if commits { PersistOutcome::Committed(at) } else { PersistOutcome::Failed };
        let replaced = (replaced, table.index.take_retired(), Some(pending.item));
        (outcome, (dequeued, displaced, replaced))
    }

    /// A prepare of a replica is completed by a change of its key at `at`, or given up.
    pub(super) fn close_prepare(
        &self,
        table: &mut TableGuard<'_>,
        queue: &mut CheckpointManager,
        pending: PendingWrite,
        at: Seqno,
    ) -> OutcomeGarbage {
        let seqno = pending.item.seqno();
        assert!(pending.prepare.is_some(), "only a prepare is closed");
        assert!(seqno < at, "a prepare is completed after it was made");
        queue.pending_removed(pending.counted_bytes());
        let dequeued = dequeue(queue, &pending);
        table.pending.log.completed(seqno, at, false);
        (dequeued, None, (None, Vec::new(), Some(pending.item)))
    }

    /// Serves again once nothing is open that an earlier active may have shown. The table is
    /// locked.
    pub(super) fn end_recommitting(&self, table: &TableGuard<'_>) {
        let phase = self.table.phase().load(Ordering::Acquire);
        if phase == RECOMMITTING && table.pending.is_empty() {
            self.table.phase().store(VbucketPhase::Active as u8, Ordering::Release);
        }
    }

    /// The last seqno that a replica may acknowledge: the end of its last complete snapshot, but
    /// nothing from the first prepare on that has to be stored. The second says that this seqno
    /// waits for the store.
    pub fn acknowledgeable_seqno(&self) -> (Seqno, Option<Seqno>) {
        let table = self.table.lock();
        let complete_end = self.queue.lock().complete_end();
        let fence = table.pending.fence(self.persisted_seqno());
        match fence.filter(|fence| *fence <= complete_end) {
            Some(fence) => {
                debug_assert!(fence > Seqno(0), "a prepare has a seqno");
                (Seqno(fence.0 - 1), Some(fence))
            }
            None => (complete_end, None),
        }
    }

    /// Holds the prepares that a store has open. Before the vbucket is used.
    pub(crate) fn hold_stored(&self, prepares: &[OwnedPrepare]) {
        let mut table = self.table.lock();
        let mut queue = self.queue.lock();
        for OwnedPrepare { item, level } in prepares {
            let (level, queued_bytes) = (*level, 0);
            let open =
                PrepareStatus { level, queued_bytes, is_overdue: false, needs_majority: false };
            let pending = PendingWrite { item: item.clone(), prepare: Some(open) };
            queue.pending_added(pending.counted_bytes());
            table.pending.hold(self.table.seed().hash(item.key()), pending);
        }
        debug_assert_eq!(table.pending.len(), prepares.len(), "all of them are held");
        self.has_pending.store(!table.pending.is_empty(), Ordering::Release);
    }
}

/// Takes the queued block of a completed prepare out, unless its checkpoint counts it already.
fn dequeue(queue: &mut CheckpointManager, pending: &PendingWrite) -> Option<ItemRef> {
    let queued_bytes = pending.prepare.map_or(0, |prepare| prepare.queued_bytes);
    if queued_bytes > 0 { queue.complete_prepare(pending.item.seqno()) } else { None }
}

/// A prepare as the store has it.
pub(crate) struct OwnedPrepare {
    pub(super) item: ItemRef,
    level: DurabilityLevel,
}

impl OwnedPrepare {
    /// The prepare of a record; `None` for an abort, and for bytes that no node writes.
    pub(crate) fn of(record: &Record<'_>) -> Option<OwnedPrepare> {
        if record.key.collection != CollectionId::PREPARES || record.deleted {
            return None;
        }
        let key = prepare::document_key(record.key.key)?;
        let PreparedDocument { level, fields, value } = prepare::decode(record.value)?;
        let mut new = NewItem::new(key, fields, &[value]);
        new.set_version(record.cas, record.seqno, record.rev_seqno);
        Some(OwnedPrepare { item: new.publish(), level })
    }

    /// The same without its value, which stays in the store.
    pub(crate) fn without_value(self) -> OwnedPrepare {
        OwnedPrepare { item: without_value(&self.item), ..self }
    }

    pub(crate) fn seqno(&self) -> Seqno {
        self.item.seqno()
    }

    /// The key of the document.
    pub(crate) fn key(&self) -> DocKey<'_> {
        self.item.key()
    }
}
