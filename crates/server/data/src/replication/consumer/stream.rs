//! The stream of one copy: messages in, changes of the copy out.
//!
//! Owns: where the stream is asked from, the snapshots that wait, and how they are applied.
//! A snapshot from memory is applied as a unit, one from disk in parts. A producer may give up a
//! snapshot whose rest has left its memory; the next marker then begins inside of it, and what was
//! received belongs to the new one.
//!
//! Invariants: seqnos ascend and lie inside their marker; a part is applied as a whole or waits.

mod messages;

use std::collections::VecDeque;
use std::sync::Arc;

use oribi_engine::{ApplyError, SnapshotChanges, VBucket};
use oribi_protocol::dcp::StreamHead;
use oribi_protocol::dcp::marker::{MarkerFlags, SnapshotMarker};
use oribi_protocol::dcp::message::Message;
use oribi_protocol::dcp::stream_request::{
    ReplicaStreamAnswer, StreamFlags, StreamRequestExtras, StreamValue,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_storage::FailoverEntry;
use oribi_types::{Cas, Seqno, Timestamp, VbUuid};

use messages::{DocumentFields, add_document, deletion, owned};

use crate::buckets::ReplicaSource;
use crate::connection::memory::Reservation;
use crate::replication::failure::LinkFailure;
use crate::replication::followed_copy::{FollowedCopy, ReplicaPhase, ReplicaProgress};
use crate::replication::work::{CopyWork, LinkWork, OwnedEvent};

/// Bytes of a part of a snapshot from disk: some hundred documents, for one hold of the locks.
const PART_BYTES: usize = 64 << 10;

/// No history comes near it.
const SEQNO_MAX: Seqno = Seqno(u64::MAX >> 1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyStreamPhase {
    /// To be asked for.
    Idle,
    Asked,
    Streaming,
    /// Work that blocks is under way; messages still come.
    Working,
    /// Its end has come; what waits is dropped.
    Ended,
}

/// What follows a call of [`CopyStream::apply`].
pub(super) enum ApplyProgress {
    /// Everything that is complete was applied.
    Done,
    Work(LinkWork),
    /// Memory is short, or the copy is loading.
    Later,
    /// The vbucket is no replica any more.
    Over,
}

/// Changes that are applied together.
#[derive(Default)]
struct SnapshotPart {
    changes: SnapshotChanges,
    /// Events among the changes that are not in force yet.
    events: Vec<OwnedEvent>,
    /// End of its snapshot.
    end: Seqno,
    /// Nothing of the snapshot follows.
    is_complete: bool,
    /// No change is added any more.
    is_closed: bool,
    wire_bytes: usize,
    /// Memory of its large documents, until the bucket counts them.
    reservations: Vec<Reservation>,
}

/// See the module text.
pub(super) struct CopyStream {
    copy: Arc<FollowedCopy>,
    phase: CopyStreamPhase,
    /// Opaque of the last request; 0 for none.
    opaque: u32,
    is_in_work: bool,
    /// Index in the failover table of the history that the last request named.
    history: usize,
    /// Seqno behind which the stream was asked for.
    start: Seqno,
    parts: VecDeque<SnapshotPart>,
    is_from_disk: bool,
    /// Seqno of the last message.
    last: Seqno,
    /// The messages that come next belong to the part at the back.
    is_in_snapshot: bool,
    /// Something may be acknowledged that was not before.
    may_acknowledge: bool,
    /// The last seqno acknowledged on this stream.
    acknowledged: Option<Seqno>,
    /// The store has to have this seqno before more is acknowledged; a wait for it is under way.
    store_wait: Option<Seqno>,
    /// Once the copy has everything up to here, it has the beginning of the epoch, and all that it
    /// acknowledged before an unclean stop.
    record_at: Option<Seqno>,
    /// Everything up to here is applied.
    complete_end: Seqno,
}

impl CopyStream {
    pub(super) fn new(copy: Arc<FollowedCopy>) -> CopyStream {
        CopyStream {
            copy,
            phase: CopyStreamPhase::Idle,
            opaque: 0,
            is_in_work: false,
            history: 0,
            start: Seqno(0),
            parts: VecDeque::new(),
            is_from_disk: false,
            last: Seqno(0),
            is_in_snapshot: false,
            may_acknowledge: false,
            acknowledged: None,
            store_wait: None,
            record_at: None,
            complete_end: Seqno(0),
        }
    }

    pub(super) fn copy(&self) -> &Arc<FollowedCopy> {
        &self.copy
    }

    pub(super) fn phase(&self) -> CopyStreamPhase {
        self.phase
    }

    /// True for messages and answers of the present stream.
    pub(super) fn is_of(&self, opaque: u32) -> bool {
        let is_open = !matches!(self.phase, CopyStreamPhase::Idle | CopyStreamPhase::Ended);
        is_open && opaque != 0 && self.opaque == opaque
    }

    /// True while the active may have a stream that this side would have to close.
    pub(super) fn is_open_there(&self) -> bool {
        match self.phase {
            CopyStreamPhase::Idle | CopyStreamPhase::Ended => false,
            CopyStreamPhase::Asked | CopyStreamPhase::Streaming => true,
            // Only a stream that was not accepted has no opaque.
            CopyStreamPhase::Working => self.opaque != 0,
        }
    }

    /// True while work that blocks is under way.
    pub(super) fn is_in_work(&self) -> bool {
        self.is_in_work
    }

    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    fn vbucket(&self) -> Option<&VBucket> {
        self.copy.bucket.bucket().vbucket(self.copy.vbid)
    }

    fn head(&self) -> StreamHead {
        StreamHead { opaque: self.opaque, vbid: self.copy.vbid, stream_id: None }
    }

    /// Asks for the stream from where the copy stands. False when it cannot follow now.
    pub(super) fn request(&mut self, opaque: u32, out: &mut Vec<u8>) -> bool {
        let Some(position) = self.vbucket().and_then(VBucket::replica_position) else {
            return false;
        };
        let start = position.high_seqno;
        let entry = position.failover_table.get(self.history);
        // A start of 0 has no history.
        let vb_uuid = entry.filter(|_| start != Seqno(0)).map_or(VbUuid(0), |entry| entry.uuid);
        let (snapshot_start, snapshot_end) = match position.complete_end < start {
            true => (position.complete_end, position.snapshot_end.max(start)),
            false => (start, start),
        };
        let extras = StreamRequestExtras {
            flags: StreamFlags::ACTIVE_ONLY,
            start,
            end: Seqno(u64::MAX),
            vb_uuid,
            snapshot_start,
            snapshot_end,
        };
        let mut value = String::new();
        let ReplicaSource { epoch, copy, .. } = self.copy.source;
        let (copies_epoch, copy) = (Some(epoch), Some(copy));
        StreamValue { copies_epoch, copy, ..StreamValue::default() }.write(&mut value);
        let parts = RequestParts {
            opaque,
            vbid: self.copy.vbid,
            extras: &extras.encode(),
            value: value.as_bytes(),
            ..RequestParts::new(Opcode::DcpStreamReq)
        };
        encode_request(out, &parts);
        (self.opaque, self.start, self.last) = (opaque, start, start);
        (self.complete_end, self.record_at) = (position.complete_end, None);
        self.phase = CopyStreamPhase::Asked;
        true
    }

    /// The stream was accepted, with these histories.
    pub(super) fn accepted(&mut self, log: &[u8]) -> Result<(), LinkFailure> {
        if self.phase != CopyStreamPhase::Asked {
            return Err(LinkFailure::Protocol("a second answer to a stream request"));
        }
        let answer = ReplicaStreamAnswer::decode(log);
        let answer = answer.ok_or(LinkFailure::Protocol("a malformed failover log"))?;
        let entry = |(uuid, seqno, epoch)| FailoverEntry { uuid, seqno, epoch };
        let table: Vec<FailoverEntry> = answer.histories().map(entry).collect();
        let newest = table.first().filter(|newest| newest.epoch == self.copy.source.epoch);
        let newest = newest.ok_or(LinkFailure::Protocol("histories of another epoch"))?;
        self.record_at = Some(answer.high_seqno.max(newest.seqno));
        if let (Some(_gate), Some(vbucket)) = (self.copy.enter(), self.vbucket()) {
            vbucket.adopt_failover_table(&table);
        }
        (self.history, self.is_in_snapshot) = (0, false);
        // What the copy has is acknowledged again on each stream: the active may have forgotten.
        (self.may_acknowledge, self.acknowledged) = (true, None);
        self.phase = CopyStreamPhase::Streaming;
        Ok(())
    }

    /// The copy has changes that the active has not. Returns the work to be done first; `None` when
    /// an earlier history may do.
    pub(super) fn roll_back(&mut self, to: Seqno) -> Result<Option<LinkWork>, LinkFailure> {
        if self.phase != CopyStreamPhase::Asked {
            return Err(LinkFailure::Protocol("a rollback of a stream that was accepted"));
        }
        if to >= self.start {
            return Err(LinkFailure::Protocol("a rollback that goes forward"));
        }
        let position = self.vbucket().and_then(VBucket::replica_position);
        let table = position.map(|position| position.failover_table).unwrap_or_default();
        let has_none_of_it = table.get(self.history).is_some_and(|entry| entry.seqno >= self.start);
        if has_none_of_it && self.history + 1 < table.len() {
            self.history += 1;
            self.phase = CopyStreamPhase::Idle;
            return Ok(None);
        }
        Ok(Some(self.begin_afresh()))
    }

    /// The work by which the copy forgets everything.
    pub(super) fn begin_afresh(&mut self) -> LinkWork {
        (self.phase, self.history, self.opaque) = (CopyStreamPhase::Working, 0, 0);
        self.is_in_work = true;
        LinkWork::Copy { copy: Arc::clone(&self.copy), work: CopyWork::Empty }
    }

    /// The work is done.
    pub(super) fn work_done(&mut self) {
        (self.is_in_work, self.may_acknowledge) = (false, true);
        if self.phase == CopyStreamPhase::Working {
            let is_open = self.is_open_there();
            self.phase = if is_open { CopyStreamPhase::Streaming } else { CopyStreamPhase::Idle };
        }
    }

    pub(super) fn end(&mut self) {
        self.note_waiting();
        self.phase = CopyStreamPhase::Ended;
    }

    /// The stream is to be asked for again.
    pub(super) fn rest(&mut self) {
        (self.phase, self.opaque, self.history) = (CopyStreamPhase::Idle, 0, 0);
    }

    /// Drops what waits, and returns its bytes.
    pub(super) fn drop_parts(&mut self) -> usize {
        self.parts.drain(..).map(|part| part.wire_bytes).sum()
    }

    pub(super) fn note_waiting(&self) {
        self.copy.note_waiting();
    }

    /// Takes a message. True when something may be applied.
    pub(super) fn take(
        &mut self,
        message: &Message<'_>,
        bytes: usize,
        reservation: Option<Reservation>,
        now: Timestamp,
    ) -> Result<bool, LinkFailure> {
        if self.phase == CopyStreamPhase::Asked {
            return Err(LinkFailure::Protocol("a message before the stream was accepted"));
        }
        if let Message::SnapshotMarker(marker) = message {
            self.begin_snapshot(marker)?;
        }
        if !self.is_in_snapshot {
            return Err(LinkFailure::Protocol("a change outside of a snapshot"));
        }
        let Some(back) = self.parts.back() else {
            return Err(LinkFailure::Protocol("a change outside of a snapshot"));
        };
        let (end, is_closed) = (back.end, back.is_closed);
        if is_closed {
            self.parts.push_back(SnapshotPart { end, ..SnapshotPart::default() });
        }
        let seqno = match message {
            Message::SnapshotMarker(_) => None,
            Message::SeqnoAdvanced(seqno) => Some(*seqno),
            Message::Mutation(document) => Some(document.extras.by_seqno),
            Message::Deletion(document) | Message::Expiration(document) => {
                Some(document.extras.by_seqno)
            }
            Message::SystemEvent(event) => Some(event.by_seqno),
            Message::StreamEnd(_) | Message::Noop => {
                return Err(LinkFailure::Protocol("a message that is none of a stream"));
            }
        };
        if let Some(seqno) = seqno {
            if seqno <= self.last || seqno > end {
                return Err(LinkFailure::Protocol("a seqno out of order"));
            }
            self.last = seqno;
        }
        self.add(message, now)?;
        let is_from_disk = self.is_from_disk;
        let is_complete = self.last == end;
        let part = self.parts.back_mut().expect("one was added above");
        part.wire_bytes += bytes;
        part.reservations.extend(reservation);
        part.is_complete = is_complete;
        part.is_closed = is_complete || is_from_disk && part.wire_bytes >= PART_BYTES;
        self.is_in_snapshot = !is_complete;
        Ok(part.is_closed)
    }

    fn begin_snapshot(&mut self, marker: &SnapshotMarker) -> Result<(), LinkFailure> {
        let is_range = marker.start <= marker.end && marker.end <= SEQNO_MAX;
        if !is_range || marker.end <= self.last {
            return Err(LinkFailure::Protocol("a snapshot that goes back"));
        }
        self.is_from_disk = marker.flags.has(MarkerFlags::DISK);
        if let Some(part) = self.parts.back_mut().filter(|_| self.is_in_snapshot) {
            // The snapshot before has lost its rest.
            part.end = marker.end;
        } else {
            let part = SnapshotPart { end: marker.end, ..SnapshotPart::default() };
            self.parts.push_back(part);
        }
        self.is_in_snapshot = true;
        let phase = match self.is_from_disk {
            true => ReplicaPhase::Backfilling,
            false => ReplicaPhase::Streaming,
        };
        self.copy.note(ReplicaProgress { phase, active_seqno: marker.end });
        Ok(())
    }

    fn add(&mut self, message: &Message<'_>, now: Timestamp) -> Result<(), LinkFailure> {
        let missing = LinkFailure::Protocol("a vbucket that the bucket does not have");
        let vbucket = self.copy.bucket.bucket().vbucket(self.copy.vbid).ok_or(missing)?;
        let part = self.parts.back_mut().expect("messages are added to a part");
        match message {
            Message::Mutation(document) => {
                let extras = &document.extras;
                let fields = DocumentFields {
                    seqno: extras.by_seqno,
                    rev_seqno: extras.rev_seqno,
                    flags: extras.flags,
                    expiry: extras.expiry,
                    deleted: false,
                    expired: false,
                };
                add_document(vbucket, &mut part.changes, document, fields)?;
            }
            Message::Deletion(document) => {
                add_document(vbucket, &mut part.changes, document, deletion(document, false))?;
            }
            Message::Expiration(document) => {
                add_document(vbucket, &mut part.changes, document, deletion(document, true))?;
            }
            Message::SystemEvent(event) => {
                let event = owned(event)?;
                let cas = Cas(now.unix_ns & !0xffff);
                vbucket.add_replicated_event(&mut part.changes, &event.borrowed(), cas);
                part.events.push(event);
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies the parts that are closed, and with `is_pressed` all. Returns the bytes applied.
    pub(super) fn apply(
        &mut self,
        is_pressed: bool,
        now: Timestamp,
    ) -> Result<(usize, ApplyProgress), LinkFailure> {
        let mut applied = 0;
        if let Some(work) = self.record() {
            return Ok((applied, ApplyProgress::Work(work)));
        }
        while let Some(part) = self.parts.front_mut() {
            if !part.is_closed && (!is_pressed || part.changes.is_empty()) {
                break;
            }
            let copy = Arc::clone(&self.copy);
            if !part.events.is_empty() {
                let work = CopyWork::FollowEvents(std::mem::take(&mut part.events));
                (self.phase, self.is_in_work) = (CopyStreamPhase::Working, true);
                return Ok((applied, ApplyProgress::Work(LinkWork::Copy { copy, work })));
            }
            let bucket = copy.bucket.bucket();
            let Some(vbucket) = bucket.vbucket(copy.vbid) else { break };
            let Some(gate) = copy.enter() else { return Ok((applied, ApplyProgress::Over)) };
            let snapshot = (part.end, part.is_complete);
            let result = match part.changes.is_empty() && !part.is_complete {
                true => Ok(()),
                false => vbucket.apply_snapshot(&bucket.context(now), &mut part.changes, snapshot),
            };
            drop(gate);
            match result {
                Ok(()) => {}
                Err(ApplyError::NoMemory | ApplyError::Loading) => {
                    return Ok((applied, ApplyProgress::Later));
                }
                Err(ApplyError::NotReplica) => return Ok((applied, ApplyProgress::Over)),
                Err(ApplyError::NeedsFetch(keys)) => {
                    let work = CopyWork::Fetch(keys);
                    (self.phase, self.is_in_work) = (CopyStreamPhase::Working, true);
                    return Ok((applied, ApplyProgress::Work(LinkWork::Copy { copy, work })));
                }
                Err(ApplyError::UnknownCollection(_)) => {
                    return Err(LinkFailure::Protocol("a document of an unknown collection"));
                }
                Err(ApplyError::InvalidVersion(_)) => {
                    return Err(LinkFailure::Protocol("a CAS or revision that no node gives out"));
                }
                Err(ApplyError::SeqnoOrder(_)) => {
                    return Err(LinkFailure::Protocol("a change that the copy has already"));
                }
            }
            applied += std::mem::take(&mut part.wire_bytes);
            part.reservations.clear();
            if part.is_complete {
                (self.may_acknowledge, self.complete_end) = (true, part.end);
            }
            if !part.is_closed {
                // The rest of the snapshot is added to the same part.
                break;
            }
            let end = part.end;
            self.parts.pop_front();
            if self.parts.is_empty() && self.is_in_snapshot {
                // The next message belongs to this snapshot still.
                self.parts.push_back(SnapshotPart { end, ..SnapshotPart::default() });
            }
            if let Some(work) = self.record() {
                return Ok((applied, ApplyProgress::Work(work)));
            }
        }
        Ok((applied, ApplyProgress::Done))
    }

    /// The work by which the copy notes that it has caught up in this epoch, if it has and did not.
    fn record(&mut self) -> Option<LinkWork> {
        if self.record_at.is_none_or(|at| at > self.complete_end) {
            return None;
        }
        self.record_at = None;
        let standing = self.vbucket()?.copy_standing();
        if standing.recorded == self.copy.source.epoch && standing.is_intact {
            return None;
        }
        (self.phase, self.is_in_work) = (CopyStreamPhase::Working, true);
        let copy = Arc::clone(&self.copy);
        Some(LinkWork::Copy { copy, work: CopyWork::Record })
    }

    /// What the copy acknowledges now, if it is more than before: complete snapshots, once it has
    /// recorded the epoch, and nothing that has to be stored and is not.
    pub(super) fn take_acknowledgement(&mut self) -> Option<(StreamHead, Seqno)> {
        if !std::mem::take(&mut self.may_acknowledge) {
            return None;
        }
        let vbucket = self.vbucket()?;
        if vbucket.copy_standing().recorded != self.copy.source.epoch {
            return None;
        }
        let (seqno, _) = vbucket.acknowledgeable_seqno();
        let seqno = seqno.min(self.complete_end);
        if self.acknowledged.is_some_and(|before| before >= seqno) {
            return None;
        }
        assert!(seqno <= self.complete_end, "only complete snapshots are acknowledged");
        self.acknowledged = Some(seqno);
        Some((self.head(), seqno))
    }

    /// The seqno that the store has to have before more can be acknowledged, once.
    pub(super) fn take_store_wait(&mut self) -> Option<Seqno> {
        let (_, fence) = self.vbucket()?.acknowledgeable_seqno();
        let fence = fence.filter(|fence| Some(*fence) != self.store_wait)?;
        self.store_wait = Some(fence);
        Some(fence)
    }

    /// The wait for the store is over.
    pub(super) fn stored(&mut self) {
        (self.store_wait, self.may_acknowledge) = (None, true);
    }
}
