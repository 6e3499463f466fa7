//! A vbucket as a copy of one that is active on another node.
//!
//! Owns: how changes of the active enter table and queue, where the copy stands, and the changes of
//! role. Invariants:
//! 1. A copy gives out no seqno, CAS or revision: it has those of the active, with gaps where the
//!    active de-duplicated.
//! 2. A snapshot that comes as a unit is applied under one hold of both locks. One that comes in
//!    parts is marked as incomplete in memory and in the store until its end is here.
//! 3. A copy expires and purges nothing by itself, and adds no event.
//!
//! Lock order and incarnations are those of the other operations. Called by the bucket, on behalf
//! of the consumer of a replication stream.

use std::sync::atomic::Ordering;

use oribi_storage::{FailoverEntry, VbucketPhase, VbucketState};
use oribi_types::{
    Cas, CollectionId, CopiesEpoch, Datatype, DocKey, DurabilityLevel, RevSeqno, Seqno, Timestamp,
    VbUuid,
};

use super::context::Context;
use super::copy_state::copy_state_of;
use super::events::item_of;
use super::fetching::is_absence_marker;
use super::pending::{PendingWrite, PrepareStatus};
use super::table::VbucketTable;
use super::{FAILED, LOADING, RECOMMITTING, REPLICA, REPLICA_LOADING, VBucket, push_history};
use crate::checkpoint::{CheckpointManager, ReplicatedVersion, StreamWaker};
use crate::collections::BucketManifest;
use crate::datatype;
use crate::hash_table::KeyHash;
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::limits::{REPLICATED_REV_SEQNO_MAX, REPLICATED_SEQNO_MAX};
use crate::prepare;
use crate::system_event::ManifestEvent;

/// A version of a document as the active has it.
#[derive(Clone, Copy, Debug)]
pub struct ReplicatedDocument<'a> {
    pub key: DocKey<'a>,
    pub version: ReplicatedVersion,
    pub flags: u32,
    /// Absolute expiry; for a deletion the time of it.
    pub expiry: u32,
    pub datatype: Datatype,
    pub deleted: bool,
    /// The deletion is an expiration.
    pub expired: bool,
    /// Extended attributes, then the body. Only the body may be compressed.
    pub value: &'a [u8],
}

/// What a change is about.
enum ChangeKind {
    Document(KeyHash),
    /// An event, which no table has.
    Event,
    /// A prepare of the key with this hash; without a document, an abort.
    Prepare {
        hash: KeyHash,
        document: Option<(NewItem, DurabilityLevel)>,
    },
}

/// One change, built outside of the locks.
struct Change {
    version: ReplicatedVersion,
    kind: ChangeKind,
    item: NewItem,
}

/// Changes of one snapshot, in ascending seqno.
#[derive(Default)]
pub struct SnapshotChanges {
    changes: Vec<Change>,
    bytes: usize,
}

impl SnapshotChanges {
    /// How many changes were added and not applied.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of the blocks, which the caller counts until the changes are applied.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn last_seqno(&self) -> Option<Seqno> {
        self.changes.last().map(|last| last.version.seqno)
    }

    /// Checks what comes from a network: the order of seqnos after `high`, and that this node can
    /// continue above each version.
    fn check_versions(&self, high: Seqno, snapshot_end: Seqno) -> Result<(), ApplyError> {
        if snapshot_end < high || snapshot_end.0 > REPLICATED_SEQNO_MAX {
            return Err(ApplyError::SeqnoOrder(snapshot_end));
        }
        let mut last = high;
        for ReplicatedVersion { seqno, cas, rev_seqno } in
            self.changes.iter().map(|change| change.version)
        {
            if seqno <= last || seqno > snapshot_end {
                return Err(ApplyError::SeqnoOrder(seqno));
            }
            let is_rev_valid = (1..=REPLICATED_REV_SEQNO_MAX).contains(&rev_seqno.0);
            if !is_rev_valid || cas.0 == 0 || cas.0 == u64::MAX {
                return Err(ApplyError::InvalidVersion(seqno));
            }
            last = seqno;
        }
        Ok(())
    }

    fn push(&mut self, version: ReplicatedVersion, kind: ChangeKind, item: NewItem) {
        self.bytes += item.as_item().block_bytes();
        if let ChangeKind::Prepare { document: Some((document, _)), .. } = &kind {
            self.bytes += document.as_item().block_bytes();
        }
        self.changes.push(Change { version, kind, item });
    }
}

/// Why changes are not applied. Nothing of them is, and they may be applied later.
#[derive(Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// The vbucket is no replica.
    NotReplica,
    /// The documents are still being loaded.
    Loading,
    /// Memory is short: the caller withholds acknowledgements and tries again.
    NoMemory,
    /// The store has to be asked for these keys first.
    NeedsFetch(Vec<(CollectionId, Vec<u8>)>),
    /// A collection that the manifest does not have and never had.
    UnknownCollection(CollectionId),
    /// A seqno is not above those before it, or above its snapshot, or the snapshot's end is not.
    SeqnoOrder(Seqno),
    /// The version of this seqno has a CAS or a revision that no active gives out.
    InvalidVersion(Seqno),
}

/// A promotion that the store has to know before it takes effect.
pub(crate) struct Promotion {
    /// The history that begins.
    entry: FailoverEntry,
    high_seqno: Seqno,
    pub(crate) state: VbucketState,
}

/// Where a copy stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaPosition {
    /// The last seqno that it has.
    pub high_seqno: Seqno,
    /// Everything up to here is complete; the high seqno unless it has a part of a snapshot.
    pub complete_end: Seqno,
    /// End of the snapshot that the high seqno belongs to.
    pub snapshot_end: Seqno,
    pub failover_table: Vec<FailoverEntry>,
}

impl VBucket {
    /// Adds a document to the changes of a snapshot.
    pub fn add_replicated(&self, changes: &mut SnapshotChanges, document: &ReplicatedDocument<'_>) {
        let fields = ItemFields {
            flags: document.flags,
            expiry: document.expiry,
            datatype: document.datatype,
            deleted: document.deleted,
            expired: document.expired,
            ..ItemFields::default()
        };
        let new = NewItem::new(document.key, fields, &[document.value]);
        let new = match document.deleted {
            true => new,
            false => {
                // The body decides, not the sender's datatype; compressed bodies are
                // taken at the sender's word.
                let is_compressed = document.datatype.contains(Datatype::SNAPPY);
                let known = Datatype(document.datatype.0 & !Datatype::JSON.0);
                let json = match is_compressed {
                    true => Datatype(document.datatype.0 & Datatype::JSON.0),
                    false => datatype::detect(new.as_item().body()),
                };
                new.with_datatype(Datatype(known.0 | json.0))
            }
        };
        let kind = ChangeKind::Document(self.table.seed().hash(document.key));
        changes.push(document.version, kind, new);
    }

    /// Adds a version of [`CollectionId::PREPARES`] to the changes of a snapshot: a prepare, or an
    /// abort if it is deleted. False for bytes that no node sends.
    pub fn add_prepare(
        &self,
        changes: &mut SnapshotChanges,
        sent: &ReplicatedDocument<'_>,
    ) -> bool {
        debug_assert_eq!(sent.key.collection, CollectionId::PREPARES, "no other collection");
        let Some(key) = prepare::document_key(sent.key.key) else { return false };
        let document = match sent.deleted {
            true => None,
            false => {
                let Some(decoded) = prepare::decode(sent.value) else { return false };
                Some((NewItem::new(key, decoded.fields, &[decoded.value]), decoded.level))
            }
        };
        let fields = ItemFields {
            expiry: if sent.deleted { sent.expiry } else { 0 },
            deleted: sent.deleted,
            ..ItemFields::default()
        };
        let value = if sent.deleted { &[][..] } else { sent.value };
        let item = NewItem::new(sent.key, fields, &[value]);
        let kind = ChangeKind::Prepare { hash: self.table.seed().hash(key), document };
        changes.push(sent.version, kind, item);
        true
    }

    /// Adds a system event to the changes of a snapshot.
    pub fn add_replicated_event(
        &self,
        changes: &mut SnapshotChanges,
        event: &ManifestEvent<'_>,
        cas: Cas,
    ) {
        let clock = Timestamp { unix_ns: cas.0 & !0xffff };
        let version = ReplicatedVersion { seqno: event.seqno, cas, rev_seqno: RevSeqno(1) };
        changes.push(version, ChangeKind::Event, item_of(event, clock));
    }

    /// Applies changes of the snapshot that ends at `snapshot_end`, all of them or none; changes of
    /// collections that were dropped are left out. With `is_complete` the snapshot has no more. A
    /// snapshot that ends inside of the one of which the copy has a part completes nothing.
    ///
    /// # Errors
    /// Why nothing was applied; the changes are kept then.
    pub fn apply_snapshot(
        &self,
        context: &Context<'_>,
        changes: &mut SnapshotChanges,
        (snapshot_end, is_complete): (Seqno, bool),
    ) -> Result<(), ApplyError> {
        if !changes.is_empty() && context.memory.refuses(false).is_some() {
            return Err(ApplyError::NoMemory);
        }
        let mut garbage = Vec::with_capacity(changes.len());
        let (mut commits, mut closed) = (Vec::new(), Vec::new());
        let mut streams = Vec::new();
        let retired;
        {
            let mut table = self.table.lock();
            if !self.is_replica() {
                return Err(ApplyError::NotReplica);
            }
            if self.is_loading() {
                return Err(ApplyError::Loading);
            }
            self.check_changes(context, &table, changes)?;
            let mut queue = self.queue.lock();
            changes.check_versions(queue.high_seqno(), snapshot_end)?;
            let manifest = context.manifest.load();
            let part_end = queue.incomplete().map_or(Seqno(0), |part| part.snapshot_end);
            let is_complete = is_complete && snapshot_end >= part_end;
            queue.begin_snapshot(snapshot_end.max(part_end));
            for Change { version, kind, mut item } in changes.changes.drain(..) {
                let hash = match kind {
                    ChangeKind::Document(hash) => hash,
                    ChangeKind::Event => {
                        queue.enqueue_alone_at(item, version);
                        continue;
                    }
                    ChangeKind::Prepare { hash, document } => {
                        let open = table.pending.take(hash);
                        let pending = self.enqueue_prepare(
                            (&mut queue, &manifest),
                            (item, version),
                            document,
                        );
                        // After what completes it has entered the queue, as on the active.
                        closed.extend(open.map(|open| {
                            self.close_prepare(&mut table, &mut queue, open, version.seqno)
                        }));
                        if let Some(pending) = pending {
                            table.pending.hold(hash, pending);
                        }
                        continue;
                    }
                };
                let key = item.as_item().key();
                if manifest.has_dropped(key.collection) {
                    queue.advance_to(version.seqno);
                    continue;
                }
                if let Some(pending) = table.pending.take(hash) {
                    // The active wrote this version after it had committed the pending one.
                    match pending.prepare {
                        None => commits.push(self.commit(&mut table, &mut queue, pending)),
                        Some(_) => closed.push(self.close_prepare(
                            &mut table,
                            &mut queue,
                            pending,
                            version.seqno,
                        )),
                    }
                }
                let key = item.as_item().key();
                let place = table.index.locate(hash, key);
                let found = place.and_then(|place| table.index.at(place));
                let previous = found.filter(|item| !is_absence_marker(item)).cloned();
                if let Some(previous) = &previous {
                    item.inherit_frequency(previous);
                }
                let queued = queue.enqueue_at(item, previous.as_ref(), version);
                let replaced = table.write(hash, place, queued.item);
                table.show();
                garbage.push((queued.displaced, replaced, previous));
            }
            changes.bytes = 0;
            assert!(changes.is_empty(), "a snapshot is applied as a whole");
            if !commits.is_empty() {
                streams = self.released(&table, &mut queue);
            }
            self.has_pending.store(!table.pending.is_empty(), Ordering::Release);
            if is_complete {
                queue.complete_snapshot(snapshot_end);
                assert_eq!(queue.complete_end(), snapshot_end, "a complete snapshot has no rest");
            }
            retired = table.index.take_retired();
        }
        drop((garbage, commits, closed, retired));
        streams.iter().for_each(StreamWaker::wake);
        self.report_memory(context);
        self.mark_dirty(context.signals);
        Ok(())
    }

    /// Queues a prepare or an abort of the active. Returns what a prepare holds.
    fn enqueue_prepare(
        &self,
        (queue, manifest): (&mut CheckpointManager, &BucketManifest),
        (item, version): (NewItem, ReplicatedVersion),
        document: Option<(NewItem, DurabilityLevel)>,
    ) -> Option<PendingWrite> {
        debug_assert!(self.is_replica(), "an active prepares by itself");
        let Some((document, level)) = document else {
            queue.enqueue_alone_at(item, version);
            return None;
        };
        if manifest.has_dropped(document.as_item().key().collection) {
            queue.advance_to(version.seqno);
            return None;
        }
        let queued = queue.enqueue_at(item, None, version).item;
        let pending = pending_of(document, level, &queued);
        queue.pending_added(pending.counted_bytes());
        Some(pending)
    }

    /// Finds the changes whose keys the store has to be asked for. Asked under the table's lock.
    fn check_changes(
        &self,
        context: &Context<'_>,
        table: &VbucketTable,
        changes: &SnapshotChanges,
    ) -> Result<(), ApplyError> {
        let manifest = context.manifest.load();
        let collections = changes.changes.iter().filter_map(|change| match &change.kind {
            ChangeKind::Event | ChangeKind::Prepare { document: None, .. } => None,
            ChangeKind::Document(_) => Some(change.item.as_item().key().collection),
            ChangeKind::Prepare { document: Some((document, _)), .. } => {
                Some(document.as_item().key().collection)
            }
        });
        let is_known = |id: &CollectionId| manifest.contains(*id) || manifest.has_dropped(*id);
        if let Some(unknown) = collections.into_iter().find(|id| !is_known(id)) {
            return Err(ApplyError::UnknownCollection(unknown));
        }
        if !self.is_absence_uncertain() {
            return Ok(());
        }
        let mut keys = Vec::new();
        for Change { kind, item, .. } in &changes.changes {
            // A prepare looks for nothing under its key; its commit does.
            let (ChangeKind::Document(hash), key) = (kind, item.as_item().key()) else { continue };
            let hash = *hash;
            if manifest.has_dropped(key.collection) {
                continue;
            }
            let is_here = table.index.get(hash, key).is_some();
            if !is_here && context.memory.may_be_stored(self.id, key) {
                keys.push((key.collection, key.key.to_vec()));
            }
        }
        if keys.is_empty() { Ok(()) } else { Err(ApplyError::NeedsFetch(keys)) }
    }

    /// Where the copy stands; `None` when the vbucket is no replica.
    pub fn replica_position(&self) -> Option<ReplicaPosition> {
        let queue = self.queue.lock();
        if !self.is_replica() {
            return None;
        }
        let (high_seqno, complete_end) = (queue.high_seqno(), queue.complete_end());
        assert!(complete_end <= high_seqno, "the complete part is in the queue");
        let incomplete = queue.incomplete();
        drop(queue);
        Some(ReplicaPosition {
            high_seqno,
            complete_end,
            snapshot_end: incomplete.map_or(high_seqno, |incomplete| incomplete.snapshot_end),
            failover_table: self.failover_table(),
        })
    }

    /// True when the store has a part of a snapshot of which the queue has more, or will have one
    /// after the next flush.
    pub(crate) fn has_unflushed_part(&self) -> bool {
        let has_part = self.persisted_incomplete.lock().is_some();
        let queue = self.queue.lock();
        let is_flushed = queue.high_seqno() == self.persisted_seqno();
        !is_flushed && (has_part || queue.has_incomplete_checkpoint())
    }

    /// Takes the active's histories over, when it has accepted the stream.
    pub fn adopt_failover_table(&self, table: &[FailoverEntry]) {
        let _phase_is_steady = self.table.lock();
        if !self.is_replica() || table.is_empty() {
            return;
        }
        let mut own = self.failover_table.lock();
        *own = table.iter().take(crate::limits::FAILOVER_ENTRIES_MAX).copied().collect();
        self.uuid.store(own.first().map_or(0, |entry| entry.uuid.0), Ordering::Release);
    }

    /// The state with which the store has to know the vbucket before it becomes a copy with what
    /// it has. `None` when that is unknown: its documents could not be loaded, or it was given up.
    /// No flush is under way.
    pub(crate) fn replica_state(&self) -> Option<VbucketState> {
        let phase = self.table.phase().load(Ordering::Acquire);
        let is_known = phase != FAILED && phase != VbucketPhase::Dead as u8;
        is_known.then(|| VbucketState { phase: VbucketPhase::Replica, ..self.persisted_state() })
    }

    /// Becomes a copy with what it has; the store knows that. Streams end, and waiters are failed:
    /// what they wait for may be rolled back. Pending versions are committed when they are flushed,
    /// or when the active's stream has a newer version of their key. No flush is under way. False
    /// when its documents could not be loaded.
    pub(crate) fn become_replica(&self) -> bool {
        let streams = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            let phase = match self.table.phase().load(Ordering::Acquire) {
                FAILED => return false,
                LOADING => REPLICA_LOADING,
                _ => REPLICA,
            };
            self.table.phase().store(phase, Ordering::Release);
            table.locks.clear();
            self.end_streams(&mut queue)
        };
        streams.iter().for_each(StreamWaker::wake);
        self.fail_waits();
        true
    }

    /// What a promotion would make of a copy; `None` when the vbucket is no replica. No flush is
    /// under way.
    pub(crate) fn promotion(&self, uuid: VbUuid, epoch: CopiesEpoch) -> Option<Promotion> {
        let (seqno, high_seqno) = {
            let queue = self.queue.lock();
            (queue.complete_end(), queue.high_seqno())
        };
        if !self.is_replica() {
            return None;
        }
        if self.is_loading() && self.has_pending.load(Ordering::Acquire) {
            // A key that is not loaded would be served as it was before its prepare.
            return None;
        }
        let entry = FailoverEntry { uuid, seqno, epoch };
        let persisted = self.persisted_state();
        let end = persisted.high_seqno;
        let mut state = VbucketState { phase: VbucketPhase::Active, ..persisted }.complete_at(end);
        push_history(&mut state.failover_table, entry);
        assert_eq!(state.failover_table.first(), Some(&entry), "the newest history comes first");
        Some(Promotion { entry, high_seqno, state })
    }

    /// Begins to serve, with a history that begins where everything is complete. What is above
    /// stays. The store knows that. False when the vbucket is no replica any more, or has received
    /// something since [`VBucket::promotion`]. No flush is under way.
    pub(crate) fn promote(&self, promotion: &Promotion) -> bool {
        let mut table = self.table.lock();
        let mut queue = self.queue.lock();
        let stands = (queue.complete_end(), queue.high_seqno());
        if !self.is_replica() || stands != (promotion.entry.seqno, promotion.high_seqno) {
            return false;
        }
        queue.give_up_snapshot();
        assert_eq!(queue.complete_end(), queue.high_seqno(), "an active has no incomplete part");
        *self.persisted_incomplete.lock() = None;
        push_history(&mut self.failover_table.lock(), promotion.entry);
        self.uuid.store(promotion.entry.uuid.0, Ordering::Release);
        table.pending.forget_limits();
        let phase = match self.is_loading() {
            true => LOADING,
            false if table.pending.oldest_prepare().is_some() => RECOMMITTING,
            false => VbucketPhase::Active as u8,
        };
        self.table.phase().store(phase, Ordering::Release);
        let (prepares, end) = (table.pending.len(), queue.high_seqno());
        drop((queue, table));
        if phase == RECOMMITTING {
            tracing::info!(
                vbucket = self.id.0,
                prepares,
                end = end.0,
                "a promoted copy answers once a majority of the copies has the prepares of the \
                 former active"
            );
        }
        true
    }

    /// Forgets everything, durable or not, and is dead: it serves, flushes and applies nothing,
    /// whatever the store still has. No flush is under way. Returns the state of an empty copy. It
    /// keeps its promise, and it is not intact: it lacks what it has acknowledged.
    pub(crate) fn give_up_copy(&self) -> VbucketState {
        let promised_epoch = self.copy_state.lock().promised_epoch;
        let phase = VbucketPhase::Dead;
        let is_intact = false;
        let state = VbucketState { phase, promised_epoch, is_intact, ..VbucketState::empty() };
        let (streams, dropped, pending, cleared) = {
            let mut table = self.table.lock();
            let mut queue = self.queue.lock();
            self.table.phase().store(phase as u8, Ordering::Release);
            self.incarnation.fetch_add(1, Ordering::AcqRel);
            let streams = self.end_streams(&mut queue);
            let pending = self.clear_pending(&mut table, &mut queue);
            let (dropped, cleared) = (table.clear(), queue.restart(Seqno(0), Cas(0)));
            table.continue_from(RevSeqno(0), Seqno(0));
            assert_eq!(table.index.len(), 0, "a copy that was given up has nothing in memory");
            assert_eq!(queue.high_seqno(), Seqno(0), "a copy that was given up begins again");
            self.failover_table.lock().clear();
            self.uuid.store(0, Ordering::Release);
            *self.copy_state.lock() = copy_state_of(&state);
            *self.persisted_incomplete.lock() = None;
            self.persisted_seqno.store(0, Ordering::Release);
            self.purge_seqno.store(0, Ordering::Relaxed);
            self.purged_before.store(0, Ordering::Relaxed);
            self.doubtful_seqno.store(0, Ordering::Relaxed);
            self.is_unreadable.store(false, Ordering::Release);
            (streams, dropped, pending, cleared)
        };
        drop((dropped, pending));
        self.settle(cleared);
        streams.iter().for_each(StreamWaker::wake);
        self.fail_waits();
        state
    }

    /// Continues as an empty copy after [`VBucket::give_up_copy`]; the store knows that.
    pub(crate) fn begin_empty_copy(&self) {
        let _phase_is_steady = self.table.lock();
        assert!(!self.is_owned(), "only a copy that was given up begins empty");
        self.table.phase().store(REPLICA, Ordering::Release);
    }
}

/// The pending version of a prepare that is queued.
fn pending_of(mut document: NewItem, level: DurabilityLevel, queued: &ItemRef) -> PendingWrite {
    document.set_version(queued.cas(), queued.seqno(), queued.rev_seqno());
    debug_assert_eq!(queued.key().collection, CollectionId::PREPARES, "a prepare is queued");
    let queued_bytes = queued.block_bytes();
    let prepare = PrepareStatus { level, queued_bytes, is_overdue: false, needs_majority: false };
    PendingWrite { item: document.publish(), prepare: Some(prepare) }
}
