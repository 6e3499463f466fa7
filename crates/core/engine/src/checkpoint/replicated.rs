//! The queue of a replica: versions come with the seqno, CAS and revision of the active.
//!
//! Owns: how they are queued, and which part of a snapshot the replica has. Invariants: the seqnos
//! ascend and may leave gaps; a snapshot that comes as a unit is queued under one hold of the lock,
//! so the open checkpoint closes before or after it; a checkpoint that closes inside of a snapshot
//! that comes in parts says so, and whatever ends with it is no exact prefix of the history.

use oribi_types::Seqno;

use super::replicated_version::{IncompleteSnapshot, ReplicatedVersion};
use super::{CheckpointManager, EnqueueResult};
use crate::item::{ItemRef, NewItem};

impl CheckpointManager {
    /// The snapshot of which the queue has a part; `None` when all of it is a prefix of a history.
    pub fn incomplete(&self) -> Option<IncompleteSnapshot> {
        self.incomplete
    }

    /// The last seqno at which everything is complete.
    pub fn complete_end(&self) -> Seqno {
        self.incomplete.map_or(self.high_seqno(), |incomplete| incomplete.complete_end)
    }

    /// True when a checkpoint ends inside of a snapshot.
    pub fn has_incomplete_checkpoint(&self) -> bool {
        self.closed.iter().any(|closed| {
            closed.incomplete.is_some_and(|incomplete| incomplete.snapshot_end.0 > closed.end)
        })
    }

    /// Begins a snapshot that ends at `snapshot_end`. The caller holds the queue
    /// until it says that the snapshot is complete, or that what came so far is a part.
    pub fn begin_snapshot(&mut self, snapshot_end: Seqno) {
        let slots = self.open.slots.sparse_len();
        let is_full = self.open.items >= self.limits.items_max
            || self.open.item_bytes >= self.limits.bytes_max
            || slots as u64 >= self.limits.slots_max
            || slots == 0;
        if is_full {
            self.close_open();
        }
        let complete_end = self.complete_end();
        assert!(complete_end <= snapshot_end, "a snapshot ends after the complete part");
        self.incomplete = Some(IncompleteSnapshot { complete_end, snapshot_end });
    }

    /// Everything up to the high seqno, and up to `end` at least, is complete.
    pub fn complete_snapshot(&mut self, end: Seqno) {
        self.advance_to(end);
        debug_assert!(
            self.incomplete.is_none_or(|part| part.snapshot_end <= end),
            "a snapshot is completed at its end"
        );
        self.incomplete = None;
    }

    /// Abandons an incomplete snapshot: the history continues from its last queued version.
    pub fn give_up_snapshot(&mut self) {
        self.close_open();
        self.incomplete = None;
    }

    /// Continues from a state of the store that has a part of a snapshot.
    pub fn resume_incomplete(&mut self, incomplete: Option<IncompleteSnapshot>) {
        self.incomplete = incomplete;
    }

    /// Seqnos up to `seqno` hold no version.
    pub fn advance_to(&mut self, seqno: Seqno) {
        self.pass_gap(seqno.0 + 1);
        self.high_seqno = self.high_seqno.max(seqno.0);
    }

    /// Queues a version of the active. `previous` is the version of the same key that the hash
    /// table releases now.
    ///
    /// # Panics
    /// When the seqno is not above the high one: the caller checks what comes from a network.
    pub fn enqueue_at(
        &mut self,
        mut new: NewItem,
        previous: Option<&ItemRef>,
        version: ReplicatedVersion,
    ) -> EnqueueResult {
        let ReplicatedVersion { seqno, cas, rev_seqno } = version;
        assert!(seqno.0 > self.high_seqno, "seqnos of a replica ascend");
        debug_assert!(
            previous.is_none_or(|previous| previous.seqno() < seqno),
            "versions in order"
        );
        assert!(!self.cursors.is_empty(), "a replica has a persistence cursor");
        self.pass_gap(seqno.0);
        debug_assert!(self.open.start <= seqno.0, "a change enters the open checkpoint");
        (self.max_cas, self.high_seqno) = (cas.0.max(self.max_cas), seqno.0);
        new.set_version(cas, seqno, rev_seqno);
        let (item, queued) = new.publish_twice();
        let displaced = previous.and_then(|previous| self.supersede_sparse(previous));
        self.open.push_sparse(queued);
        EnqueueResult { item, displaced }
    }

    /// Queues a version that no table has, in its own checkpoint. See
    /// [`CheckpointManager::enqueue_alone`].
    pub fn enqueue_alone_at(&mut self, new: NewItem, version: ReplicatedVersion) -> ItemRef {
        self.close_open();
        let item = self.enqueue_at(new, None, version).item;
        if self.close_open() {
            self.orphan(item.seqno().0);
        }
        item
    }

    /// Seqnos of the gap before `next` were never queued.
    fn pass_gap(&mut self, next: u64) {
        let gap = next.saturating_sub(self.high_seqno + 1);
        self.seqno_at_start = self.seqno_at_start.wrapping_add(gap);
    }

    fn supersede_sparse(&mut self, previous: &ItemRef) -> Option<ItemRef> {
        let seqno = previous.seqno();
        if seqno.0 < self.open.start {
            self.orphan(seqno.0);
            return None;
        }
        self.open.take_sparse(seqno)
    }
}
