//! One copy of a vbucket: its role, its promise, the stream that feeds it, and whether it serves.
//!
//! The owner of the machine moves bytes, stores state and reads the clock; the machine decides. It
//! keeps no document. Invariants: a copy appends only as the active of the epoch that it began; a
//! promise of e ends every role of an earlier epoch; a role never outlives the process.

use oribi_types::{DurabilityLevel, Seqno, VbUuid};

use crate::change::CopyChangeKind;
use crate::copies::{CopiesEpoch, CopiesRecord, CopyId};
use crate::election::PromiseReport;
use crate::grant::{GivenGrant, HeldGrants, ServingGrant};
use crate::high_prepared::HighPrepared;
use crate::history::HistoryEntry;
use crate::monitor::{DurabilityMonitor, DurabilityOutcome, OpenPrepare};
use crate::state::CopyState;

/// The marker of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRange {
    pub end: Seqno,
    pub from_disk: bool,
    /// All prepares up to here are completed, at the end of a snapshot from disk.
    pub high_completed: Seqno,
}

/// An active's answer to the request for a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamAcceptance {
    pub epoch: CopiesEpoch,
    /// The seqno at which the epoch began.
    pub begins_after: Seqno,
    /// The active's high seqno at the answer.
    pub high: Seqno,
    pub history: crate::history::History,
}

/// The stream that feeds a replica.
#[derive(Clone, Debug)]
struct InboundStream {
    epoch: CopiesEpoch,
    begins_after: Seqno,
    /// The copy is intact again from here on.
    caught_up_at: Seqno,
    prepared: HighPrepared,
    snapshot: Option<SnapshotRange>,
}

/// The epoch in which this copy is active.
#[derive(Clone, Debug)]
struct Reign {
    record: CopiesRecord,
    begins_after: Seqno,
    held: HeldGrants,
    monitor: DurabilityMonitor,
    /// The active hands over: it appends and answers nothing more.
    is_retired: bool,
}

/// Why an active does not answer a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServingRejection {
    NotActive,
    /// Too few grants run.
    NoGrants,
    /// The key has a prepare that an earlier active may have committed.
    Recommitting,
}

/// Why a change or a stream is not accepted; the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InboundStreamRejection {
    /// The copy promised a later epoch, or the stream is another one.
    OldEpoch,
    /// A change outside its snapshot, or not above the last one.
    OutOfRange,
}

/// Action on a received change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceivedChange {
    /// The snapshot from memory is not complete: keep the change aside.
    Buffer,
    /// Apply the buffered changes and this one as a unit.
    ApplySnapshot,
    /// Part of a snapshot from disk: apply it now.
    Apply,
}

/// The rules of one copy.
#[derive(Clone, Debug)]
pub struct CopyMachine {
    id: CopyId,
    state: CopyState,
    /// Newest promise that is stored.
    stored_promise: CopiesEpoch,
    /// Newest epoch whose record is stored with everything up to `stored_end`.
    stored_epoch: CopiesEpoch,
    stored_end: Seqno,
    /// The promise that this process reported; nothing was accepted since.
    reported: Option<CopiesEpoch>,
    given: GivenGrant,
    reign: Option<Reign>,
    stream: Option<InboundStream>,
}

impl CopyMachine {
    /// A copy whose process starts with the stored state.
    pub fn start(id: CopyId, stored: CopyState, stopped_cleanly: bool, now_ms: u64) -> CopyMachine {
        let mut state = stored;
        state.is_intact &= stopped_cleanly;
        CopyMachine {
            id,
            stored_promise: state.promised,
            stored_epoch: state.recorded,
            stored_end: state.complete_end,
            state,
            reported: None,
            given: GivenGrant::at_start(now_ms),
            reign: None,
            stream: None,
        }
    }

    pub fn id(&self) -> CopyId {
        self.id
    }

    pub fn state(&self) -> &CopyState {
        &self.state
    }

    /// The epoch in which this copy is active and has not retired.
    pub fn active_epoch(&self) -> Option<CopiesEpoch> {
        let reign = self.reign.as_ref().filter(|reign| !reign.is_retired)?;
        Some(reign.record.epoch)
    }

    /// The record under which this copy is active, retired or not.
    pub fn active_record(&self) -> Option<&CopiesRecord> {
        self.reign.as_ref().map(|reign| &reign.record)
    }

    pub fn is_retired(&self) -> bool {
        self.reign.as_ref().is_some_and(|reign| reign.is_retired)
    }

    // Promises.

    /// Promises `epoch`, unless a grant to an earlier active runs. The caller stores the state and
    /// then calls [`CopyMachine::promise_stored`]. False when the copy rejects it.
    pub fn promise(&mut self, epoch: CopiesEpoch, now_ms: u64) -> bool {
        if epoch < self.state.promised || self.given.runs(now_ms) {
            return false;
        }
        if epoch > self.state.promised {
            self.raise_promise(epoch);
        }
        // A promise that was made for a stream of this epoch is no report.
        self.state.recorded < epoch && self.reign.is_none() && self.stream.is_none()
    }

    fn raise_promise(&mut self, epoch: CopiesEpoch) {
        assert!(epoch > self.state.promised, "a promise is never taken back");
        self.state.promised = epoch;
        self.reported = None;
        self.reign = None;
        self.stream = None;
    }

    /// A promise up to `epoch` is stored.
    pub fn promise_stored(&mut self, epoch: CopiesEpoch) {
        self.stored_promise = self.stored_promise.max(epoch);
    }

    pub fn is_promise_stored(&self, epoch: CopiesEpoch) -> bool {
        self.stored_promise >= epoch
    }

    /// The report for a candidate, once the promise of `epoch` is stored and as long as it is the
    /// newest.
    pub fn report(&mut self, epoch: CopiesEpoch) -> Option<PromiseReport> {
        let is_valid = self.is_promise_stored(epoch) && self.state.promised == epoch;
        if !is_valid || self.stream.is_some() || self.reign.is_some() {
            return None;
        }
        assert!(
            self.stored_promise >= self.state.promised,
            "a promise is stored before it is reported"
        );
        self.reported = Some(epoch);
        let CopyState { recorded, complete_end, is_intact, .. } = self.state;
        Some(PromiseReport { recorded, complete_end, is_intact })
    }

    // The active.

    /// True when the record makes this copy active and it may begin: it reported the promise that
    /// decided, or holds exactly the prefix that was handed over. After an unclean stop it may have
    /// begun that epoch before, and lost what it appended.
    pub fn may_begin(&self, record: &CopiesRecord) -> bool {
        let promised = self.state.promised <= record.epoch;
        let is_elected = record.handover.is_none() && self.reported == Some(record.epoch);
        let is_handed_over = record.handover == Some(self.state.complete_end)
            && self.state.recorded.next() == record.epoch
            && self.state.partial_end.is_none()
            && self.state.is_intact;
        record.active == self.id && promised && (is_elected || is_handed_over)
    }

    /// Begins the epoch of a record as active. `open` are the prepares without outcome.
    pub fn begin(
        &mut self,
        record: CopiesRecord,
        uuid: VbUuid,
        open: impl IntoIterator<Item = (Seqno, DurabilityLevel)>,
    ) {
        assert!(self.may_begin(&record), "only a promoted copy begins an epoch");
        self.stream = None;
        self.reported = None;
        self.state.promised = record.epoch;
        self.enter(record.epoch, uuid);
        self.state.is_intact = true;
        self.state.complete_end = self.state.high;
        self.state.partial_end = None;
        self.reign = Some(Reign {
            begins_after: self.state.high,
            held: HeldGrants::default(),
            monitor: DurabilityMonitor::new(record.clone(), open),
            record,
            is_retired: false,
        });
    }

    /// The active wrote the successor of its record and stays active in it. Its history stays, too:
    /// what it appends is above all that any copy has of it.
    pub fn continue_with(&mut self, record: CopiesRecord) {
        let Some(reign) = &mut self.reign else { return };
        let is_next = record.active == self.id && record.epoch == reign.record.epoch.next();
        if !is_next || reign.is_retired || self.state.promised > record.epoch {
            return;
        }
        reign.begins_after = self.state.high;
        reign.held = HeldGrants::default();
        reign.monitor.continue_with(record.clone());
        let epoch = record.epoch;
        reign.record = record;
        self.state.promised = epoch;
        let newest = self.state.history.entries.first().expect("an active has a history");
        let uuid = newest.uuid;
        self.enter(epoch, uuid);
    }

    fn enter(&mut self, epoch: CopiesEpoch, uuid: VbUuid) {
        let seqno = self.state.complete_end;
        self.state.history.begin(HistoryEntry { uuid, seqno, epoch });
        self.state.recorded = epoch;
    }

    /// The active appended a change.
    pub fn appended(&mut self, seqno: Seqno, kind: CopyChangeKind, deadline_ms: Option<u64>) {
        let reign = self.reign.as_mut().expect("only the active appends");
        assert!(!reign.is_retired && seqno > self.state.high, "an append is above all others");
        self.state.high = seqno;
        self.state.complete_end = seqno;
        match kind {
            CopyChangeKind::Prepare(level) => {
                reign.monitor.track(OpenPrepare { seqno, level, deadline_ms });
            }
            CopyChangeKind::Commit { prepared } | CopyChangeKind::Abort { prepared } => {
                self.state.high_completed = self.state.high_completed.max(prepared);
            }
            CopyChangeKind::Mutation => {}
        }
    }

    /// Whether the active may answer: reads, writes, and misses.
    pub fn may_answer(&self, now_ms: u64) -> Result<(), ServingRejection> {
        let reign = self.reign.as_ref().filter(|reign| !reign.is_retired);
        let reign = reign.ok_or(ServingRejection::NotActive)?;
        let is_granted = |member| member == self.id || reign.held.runs(member, now_ms);
        match reign.record.is_write_quorum(is_granted) {
            true => Ok(()),
            false => Err(ServingRejection::NoGrants),
        }
    }

    /// Whether a read of a key may be answered whose open prepare, if any, has this seqno.
    pub fn may_read(&self, prepare: Option<Seqno>, now_ms: u64) -> Result<(), ServingRejection> {
        self.may_answer(now_ms)?;
        let reign = self.reign.as_ref().ok_or(ServingRejection::NotActive)?;
        let is_inherited = |open: &OpenPrepare| open.deadline_ms.is_none();
        let maybe_visible = prepare.is_some_and(|seqno| {
            reign.monitor.open().any(|open| open.seqno == seqno && is_inherited(open))
        });
        if maybe_visible { Err(ServingRejection::Recommitting) } else { Ok(()) }
    }

    pub fn is_durability_possible(&self) -> bool {
        self.reign.as_ref().is_some_and(|reign| reign.record.is_durability_possible())
    }

    /// A member's acknowledgement, in the epoch of its stream.
    pub fn acknowledged(&mut self, member: CopyId, epoch: CopiesEpoch, seqno: Seqno) {
        if let Some(reign) = &mut self.reign {
            reign.monitor.acknowledged(member, epoch, seqno);
        }
    }

    /// The next outcome of a durable write. The caller appends it.
    pub fn next_outcome(&mut self, now_ms: u64) -> Option<DurabilityOutcome> {
        let reign = self.reign.as_mut().filter(|reign| !reign.is_retired)?;
        reign.monitor.next_outcome(now_ms)
    }

    pub fn receive_grant(&mut self, from: CopyId, grant: ServingGrant) {
        if let Some(reign) = self.reign.as_mut()
            && grant.epoch == reign.record.epoch
        {
            reign.held.receive(from, grant.sent_at_ms);
        }
    }

    /// Stops appending and answering, for good. Streams continue.
    pub fn retire(&mut self) {
        if let Some(reign) = &mut self.reign {
            reign.is_retired = true;
        }
    }

    /// The active's answer to a copy that asks for a stream of `epoch`.
    pub fn acceptance(&self, epoch: CopiesEpoch) -> Option<StreamAcceptance> {
        let reign = self.reign.as_ref().filter(|reign| reign.record.epoch == epoch)?;
        Some(StreamAcceptance {
            epoch,
            begins_after: reign.begins_after,
            high: self.state.high,
            history: self.state.history.clone(),
        })
    }

    // The replica.

    /// A member answers a beacon of the active of `epoch`.
    pub fn grant(
        &mut self,
        epoch: CopiesEpoch,
        sent_at_ms: u64,
        now_ms: u64,
    ) -> Option<ServingGrant> {
        if epoch < self.state.promised {
            return None;
        }
        self.given.give(now_ms);
        Some(ServingGrant { epoch, sent_at_ms, stored_epoch: self.stored_epoch })
    }

    /// Prepares to follow the active of `epoch`. False when the copy promised a later one. The
    /// caller asks for a stream once the promise is stored.
    pub fn follow(&mut self, epoch: CopiesEpoch) -> bool {
        if epoch < self.state.promised {
            return false;
        }
        if epoch > self.state.promised {
            self.raise_promise(epoch);
        }
        self.stream = None;
        self.reported = None;
        true
    }

    /// The active told this copy to roll back; its open prepares are above `high_completed`. The
    /// copy is not intact, and what it says it holds
    /// wins no election until it caught up.
    pub fn roll_back(&mut self, to: Seqno, high_completed: Seqno) {
        self.state.recorded = CopiesEpoch(0);
        self.state.is_intact = false;
        self.state.is_rewound = to > Seqno(0);
        self.state.complete_end = to;
        self.state.high = to;
        self.state.partial_end = None;
        let history = &mut self.state.history;
        history.entries.retain(|entry| entry.seqno < to);
        self.state.high_completed = high_completed;
    }

    /// True when the next snapshot has to come from disk. A snapshot from memory may complete
    /// prepares that this copy does not hold.
    pub fn needs_disk_snapshot(&self) -> bool {
        self.state.is_rewound || self.state.partial_end.is_some()
    }

    /// The active accepted the request for a stream; `open` are the prepares without outcome.
    pub fn accept_stream(
        &mut self,
        acceptance: StreamAcceptance,
        open: impl IntoIterator<Item = (Seqno, DurabilityLevel)>,
    ) -> Result<(), InboundStreamRejection> {
        let StreamAcceptance { epoch, begins_after, high, history } = acceptance;
        debug_assert!(
            self.stored_epoch <= self.state.promised,
            "nothing is stored above the promise"
        );
        if epoch != self.state.promised || !self.is_promise_stored(epoch) {
            return Err(InboundStreamRejection::OldEpoch);
        }
        if self.reported.is_some() || self.reign.is_some() {
            return Err(InboundStreamRejection::OldEpoch);
        }
        self.state.history = history;
        let persisted = if self.stored_epoch == epoch { self.stored_end } else { Seqno(0) };
        let (completed, complete_end) = (self.state.high_completed, self.state.complete_end);
        let prepared = HighPrepared::new(completed, open, complete_end, persisted);
        let (caught_up_at, snapshot) = (high, None);
        self.stream = Some(InboundStream { epoch, begins_after, caught_up_at, prepared, snapshot });
        if !self.state.is_rewound {
            self.complete(complete_end);
        }
        Ok(())
    }

    /// A snapshot begins. An earlier one has to be complete, and its end is above what the copy
    /// holds.
    pub fn marker(&mut self, range: SnapshotRange) -> Result<(), InboundStreamRejection> {
        let stream = self.stream.as_mut().ok_or(InboundStreamRejection::OldEpoch)?;
        let is_empty = range.end == self.state.complete_end && !range.from_disk;
        if range.end < self.state.complete_end || is_empty || stream.snapshot.is_some() {
            return Err(InboundStreamRejection::OutOfRange);
        }
        stream.snapshot = Some(range);
        if range.from_disk {
            self.state.partial_end = Some(range.end);
        }
        Ok(())
    }

    /// A change came on the stream; the answer says what to do with it. Every snapshot ends with a
    /// change, or with the notice that its end carries none.
    pub fn received(&mut self, seqno: Seqno) -> Result<ReceivedChange, InboundStreamRejection> {
        let stream = self.stream.as_mut().ok_or(InboundStreamRejection::OldEpoch)?;
        let range = stream.snapshot.ok_or(InboundStreamRejection::OutOfRange)?;
        if seqno > range.end || seqno <= self.state.complete_end {
            return Err(InboundStreamRejection::OutOfRange);
        }
        Ok(match range.from_disk {
            true => ReceivedChange::Apply,
            false if seqno == range.end => ReceivedChange::ApplySnapshot,
            false => ReceivedChange::Buffer,
        })
    }

    /// The copy applied a change of its stream.
    pub fn applied(&mut self, seqno: Seqno, kind: CopyChangeKind) {
        let Some(stream) = &mut self.stream else { return };
        self.state.high = self.state.high.max(seqno);
        let from_disk = stream.snapshot.is_some_and(|range| range.from_disk);
        match kind {
            // A prepare from disk may be completed within its snapshot, so all of that is a fence.
            CopyChangeKind::Prepare(_) if from_disk => {
                stream.prepared.received(seqno, DurabilityLevel::PersistToMajority);
            }
            CopyChangeKind::Prepare(level) => stream.prepared.received(seqno, level),
            CopyChangeKind::Commit { prepared } | CopyChangeKind::Abort { prepared } => {
                self.state.high_completed = self.state.high_completed.max(prepared);
            }
            CopyChangeKind::Mutation => {}
        }
    }

    /// The copy applied all of a snapshot.
    pub fn snapshot_applied(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let Some(range) = stream.snapshot.take() else { return };
        if range.from_disk {
            self.state.is_rewound = false;
            self.state.high_completed = self.state.high_completed.max(range.high_completed);
        }
        self.complete(range.end);
    }

    fn complete(&mut self, end: Seqno) {
        let Some(stream) = &mut self.stream else { return };
        assert!(end >= self.state.complete_end, "what a copy has completely only grows");
        self.state.complete_end = end;
        self.state.high = self.state.high.max(end);
        if self.state.high == end {
            self.state.partial_end = None;
        }
        if end >= stream.begins_after {
            self.state.recorded = stream.epoch;
        }
        if end >= stream.caught_up_at {
            self.state.is_intact = true;
        }
        stream.prepared.complete(end);
    }

    /// The high prepared seqno to acknowledge, in the epoch of the stream. It counts only from a
    /// copy that recorded the epoch. The copy sends it again whenever a stream is accepted.
    pub fn acknowledgement(&self) -> Option<(CopiesEpoch, Seqno)> {
        let stream = self.stream.as_ref()?;
        let is_recorded = self.state.recorded == stream.epoch;
        is_recorded.then_some((stream.epoch, stream.prepared.seqno()))
    }

    // Both.

    /// A batch is stored, with this state.
    pub fn stored(&mut self, state: &CopyState) {
        self.stored_promise = self.stored_promise.max(state.promised);
        (self.stored_epoch, self.stored_end) = (state.recorded, state.complete_end);
        if let Some(reign) = &mut self.reign
            && reign.record.epoch == state.recorded
        {
            reign.monitor.persisted(state.complete_end);
        }
        if let Some(stream) = &mut self.stream
            && stream.epoch == state.recorded
        {
            stream.prepared.persisted(state.complete_end);
        }
    }

    /// The stream that fed the copy ended.
    pub fn stream_ended(&mut self) {
        self.stream = None;
    }

    /// The epoch whose stream feeds this copy.
    pub fn stream_epoch(&self) -> Option<CopiesEpoch> {
        self.stream.as_ref().map(|stream| stream.epoch)
    }
}
