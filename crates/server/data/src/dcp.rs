//! A connection as a DCP producer.
//!
//! Owns: the negotiated options, the streams, and their turns. The parts: [`control`] applies
//! control requests, [`window`] is the flow control, [`noop`] finds dead consumers, [`pace`] delays
//! a busy producer until more changes have arrived, [`share`] is its part of the worker's time,
//! [`lending`] reserves memory for large documents, [`streams`] is the table of streams and their
//! order, [`frames`] writes messages, [`image`] shares the messages of backfills, and [`inbox`]
//! receives wake-ups of other threads. The bucket lists its producers
//! ([`crate::buckets::dcp_registry`]).
//!
//! Invariants:
//! - nothing is taken from a stream while the window is full or enough output is pending, so a slow
//!   consumer holds bounded memory;
//! - ready streams take turns, and a turn of the connection sends a bounded number of messages;
//! - the answer to a stream request is written before the first message of the stream;
//! - a stream ends once, and no message of it follows.
//!
//! The dispatcher opens the producer and its streams; the connection gives it a turn after its
//! requests.

pub(crate) mod control;
pub mod feed;
pub(crate) mod frames;
pub(crate) mod image;
pub(crate) mod inbox;
pub(crate) mod lending;
pub(crate) mod noop;
pub(crate) mod pace;
pub(crate) mod share;
pub(crate) mod stream_value;
pub(crate) mod streams;
pub(crate) mod window;

use std::sync::Arc;

use oribi_auth::{Privilege, PrivilegeSet};
use oribi_engine::dcp::{
    ChangedDocument, SnapshotSource, StreamChange, StreamEndReason as StreamEnd, StreamFilter,
    StreamStep,
};
use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::open::OpenFlags;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, Seqno, Timestamp};

use crate::buckets::BucketHandle;
use crate::buckets::dcp_registry::DcpOptions;
use crate::buckets::dcp_registry::{DcpProducerFigures, DcpProducerRecord, DcpStreamFigures};
use crate::connection::close_reason::CloseReason;
use crate::connection::features::Features;
use crate::connection::rights::Rights;
use crate::connection::send_buffer::SendBuffer;
use crate::limits::{CHANGES_PENDING_BYTES_MAX, CHANGES_PER_STREAM_TURN};
use control::DcpControl;
use frames::{DamagedDocument, FrameWriter};
use image::Image;
use inbox::Inbox;
use lending::{Lender, LoanDecision};
use noop::Noop;
use pace::Pace;
use share::TurnShare;
use streams::{DcpProducerStream, DcpStreamKey, DcpStreams};
use window::FlowWindow;

/// See the module text.
pub(crate) struct DcpProducer {
    /// The bucket whose changes are sent.
    pub bucket: Arc<BucketHandle>,
    /// Flags of the open request.
    pub flags: OpenFlags,
    /// Features of the connection; HELLO is refused from then on.
    pub features: Features,
    /// Options from control requests.
    pub options: DcpOptions,
    /// Bytes that the consumer has not acknowledged.
    pub window: FlowWindow,
    /// Keep-alive by DCP noops.
    pub noop: Noop,
    /// Pauses between looks at the streams.
    pub pace: Pace,
    /// Messages that this turn may still send.
    pub share: TurnShare,
    pub streams: DcpStreams,
    /// Where the engine announces that a stream has more.
    pub inbox: Arc<Inbox>,
    /// The figures that other threads read.
    pub record: Arc<DcpProducerRecord>,
    /// The connection is in the queue for memory.
    pub waits_for_memory: bool,
    /// A request of the connection is.
    request_waits: bool,
    /// DcpStreams whose next document needs memory.
    blocked: Vec<usize>,
    /// Acknowledged bytes when other connections last waited for memory.
    acknowledged_before: u64,
    /// Rises when the user's rights change; a stream compares before its next snapshot.
    rights_generation: u32,
    taken: Vec<u32>,
}

impl Drop for DcpProducer {
    fn drop(&mut self) {
        self.clear();
        self.bucket.producers().leave(&self.record);
    }
}

fn figures_of(open: &DcpProducerStream) -> DcpStreamFigures {
    DcpStreamFigures {
        head: open.head,
        request: open.request,
        filter: open.filter.clone(),
        stats: open.stream.stats(),
        acknowledged_seqno: open.acknowledged_seqno,
    }
}

/// How the turn of one stream ended.
enum Turn {
    /// It has more to send.
    More,
    /// It has sent everything, and is polled with the next look.
    Later,
    /// It waits for changes.
    Idle,
    /// Its next document needs memory first.
    Blocked,
    /// It is over, and its end is sent.
    Over,
}

impl DcpProducer {
    /// A producer without streams.
    pub fn new(
        bucket: Arc<BucketHandle>,
        flags: OpenFlags,
        features: Features,
        inbox: Arc<Inbox>,
        record: Arc<DcpProducerRecord>,
        now_ms: u64,
    ) -> DcpProducer {
        DcpProducer {
            bucket,
            flags,
            features,
            options: DcpOptions::default(),
            window: FlowWindow::default(),
            noop: Noop::new(now_ms),
            pace: Pace::default(),
            share: TurnShare::default(),
            streams: DcpStreams::default(),
            inbox,
            record,
            waits_for_memory: false,
            request_waits: false,
            blocked: Vec::new(),
            acknowledged_before: 0,
            rights_generation: 0,
            taken: Vec::new(),
        }
    }

    /// Notes that the user's rights may have changed. Every stream gets a turn, in which it ends if
    /// its right is lost, even if it has nothing to send.
    pub fn rights_changed(&mut self) {
        self.rights_generation = self.rights_generation.wrapping_add(1);
        self.streams.make_all_ready();
        self.inbox.give_turn();
    }

    /// The generation of rights that a new stream was checked against.
    pub fn rights_generation(&self) -> u32 {
        self.rights_generation
    }

    /// Closes a stream at the consumer's request; false when it does not exist.
    pub fn close_stream(&mut self, key: DcpStreamKey) -> bool {
        let Some(position) = self.streams.find(key) else { return false };
        let Some(open) = self.streams.get_mut(position) else { return false };
        if open.ending.is_some() {
            return false;
        }
        if self.options.ends_closed_streams {
            open.ending = Some(EndReason::Closed);
            self.streams.make_ready(position);
        } else {
            self.forget(position);
        }
        self.changed();
        true
    }

    /// Notes how far the replica of a stream is. False when it has more than was sent.
    pub fn acknowledge_seqno(&mut self, key: DcpStreamKey, seqno: Seqno) -> bool {
        let position = self.streams.find(key);
        let Some(open) = position.and_then(|position| self.streams.get_mut(position)) else {
            // The stream has just ended.
            return true;
        };
        let stats = open.stream.stats();
        let sent = stats.last_sent_snap_end_seqno.max(stats.start_seqno);
        if seqno > sent {
            return false;
        }
        open.acknowledged_seqno = open.acknowledged_seqno.max(Some(seqno));
        self.changed();
        true
    }

    /// Applies one control request.
    ///
    /// # Errors
    /// The status and the reason to refuse it with.
    pub fn choose(
        &mut self,
        name: &[u8],
        value: &[u8],
        now_ms: u64,
    ) -> Result<(), (Status, &'static str)> {
        let DcpProducer { flags, features, options, noop, window, .. } = self;
        let mut choices = DcpControl { flags: *flags, features: *features, options, noop, window };
        choices.take(name, value, now_ms)
    }

    /// Marks the figures as changed.
    pub fn changed(&self) {
        self.record.changed();
    }

    /// Publishes figures, if something changed since the last time.
    pub fn publish(&self) {
        let window = &self.window;
        self.record.publish(|| DcpProducerFigures {
            options: self.options,
            noop: (self.noop.is_on(), self.noop.interval_ms(), self.noop.is_waiting()),
            window: (window.size(), window.unacknowledged(), window.acknowledged()),
            streams: self.streams.iter().map(figures_of).collect(),
        });
    }

    /// Keeps the figures of a stream that ends.
    fn note_end(&self, open: &DcpProducerStream) {
        self.bucket.producers().note_end(&open.stream.stats());
    }

    fn forget(&mut self, position: usize) {
        if let Some(open) = self.streams.remove(position) {
            self.note_end(&open);
        }
    }

    /// Ends all streams, without a message.
    pub fn clear(&mut self) {
        self.streams.iter().for_each(|open| self.note_end(open));
        self.streams.clear();
    }

    /// True when the turn has another slice, and something to send in it.
    pub fn may_continue(&self, out: &SendBuffer) -> bool {
        self.share.may_continue() && self.has_more(out)
    }

    /// True when a turn would send something now.
    pub fn has_more(&self, out: &SendBuffer) -> bool {
        let is_unblocked = !self.blocked.is_empty() && !self.waits() && out.is_empty();
        (self.streams.has_ready() || is_unblocked) && self.may_send(out)
    }

    /// True while the connection is in the queue for memory.
    fn waits(&self) -> bool {
        self.waits_for_memory || self.request_waits
    }

    /// Makes streams release reserved memory when other connections wait for it and the consumer
    /// stalls: its socket takes no output, or its window is full and it has acknowledged nothing
    /// since the last call.
    pub fn give_up_unsent(&mut self, is_stalled: bool) {
        let before = std::mem::replace(&mut self.acknowledged_before, self.window.acknowledged());
        let is_idle = !self.window.is_open() && before == self.window.acknowledged();
        if is_stalled || is_idle {
            self.streams.iter_mut().for_each(DcpProducerStream::give_up);
        }
    }

    fn may_send(&self, out: &SendBuffer) -> bool {
        self.window.is_open() && out.pending_bytes() < CHANGES_PENDING_BYTES_MAX
    }

    /// Sends messages of streams that have some, up to a slice.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub fn take_turn(
        &mut self,
        out: &mut SendBuffer,
        rights: &mut Rights,
        lender: &mut Lender<'_>,
        now: Timestamp,
    ) -> Result<(), CloseReason> {
        if self.pace.begins_look() {
            self.streams.make_put_off_ready();
        }
        if !self.pace.is_held() {
            self.wake_streams();
        }
        if self.bucket.is_deleted() {
            return Err(CloseReason::BucketDeleted);
        }
        if self.record.is_replaced() {
            return Err(CloseReason::NameTaken);
        }
        self.request_waits = lender.request_waits;
        if !self.waits() {
            let mut blocked = std::mem::take(&mut self.blocked);
            blocked.drain(..).for_each(|position| self.streams.make_ready(position));
            self.blocked = blocked;
        }
        let (slice, live_before) = (self.share.slice(), self.pace.found_changes());
        let mut left = slice;
        while left > 0 && self.may_send(out) {
            let Some(key) = self.streams.next_ready() else { break };
            match self.send_from(key, &mut left, out, rights, lender)? {
                Turn::More => self.streams.make_ready(key),
                Turn::Later => {
                    if self.streams.put_off(key) {
                        self.inbox.give_turn();
                    }
                }
                Turn::Idle => {}
                Turn::Blocked => self.blocked.push(key),
                Turn::Over => self.forget(key),
            }
        }
        assert!(left <= slice, "a turn sends at most its slice");
        self.share.sent(slice - left, self.pace.found_changes() > live_before);
        self.record.note_turn(self.streams.has_ready() || !self.blocked.is_empty(), now);
        let is_told = self.streams.is_empty() || !self.may_send(out);
        if is_told && !rights.somewhere().holds(DCP_STREAM) {
            return Err(CloseReason::RightsLost);
        }
        Ok(())
    }

    /// Takes over the wake-ups that came since the last turn.
    fn wake_streams(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        self.inbox.take(&mut taken);
        for token in taken.drain(..) {
            self.streams.make_ready(token as usize);
        }
        self.taken = taken;
    }

    /// Sends some messages of one stream.
    fn send_from(
        &mut self,
        key: usize,
        left: &mut usize,
        out: &mut SendBuffer,
        rights: &mut Rights,
        lender: &mut Lender<'_>,
    ) -> Result<Turn, CloseReason> {
        for _ in 0..CHANGES_PER_STREAM_TURN {
            if *left == 0 || !self.may_send(out) {
                break;
            }
            let Some(open) = self.streams.get_mut(key) else { return Ok(Turn::Over) };
            if open.rights_generation != self.rights_generation {
                open.rights_generation = self.rights_generation;
                if may_stream(rights, &self.bucket, &open.filter).is_err() {
                    open.ending = Some(EndReason::LostPrivileges);
                }
            }
            let (flags, features, options) = (self.flags, self.features, &self.options);
            let writer = FrameWriter { flags, features, options };
            let pending = CHANGES_PENDING_BYTES_MAX - out.pending_bytes();
            let room = self.window.room().min(pending as u64);
            debug_assert!(room > 0, "a message needs an open window");
            let changes_max = CHANGES_PER_STREAM_TURN.min(*left);
            let mut lends = |document: &ChangedDocument<'_>, has_output: bool| {
                let Some(demand) = lender.demand(flags, document) else { return true };
                lender.ask(demand, has_output, &mut self.waits_for_memory) == LoanDecision::Yes
            };
            let sent = send_run(&writer, open, (changes_max, room), &mut lends, out);
            if let Some((changes, bytes)) = sent.map_err(|_| CloseReason::DamagedDocument)? {
                if changes == 0 {
                    return Ok(Turn::Blocked);
                }
                assert!(changes <= changes_max, "a run keeps to its share of the turn");
                *left -= changes;
                self.window.sent(bytes);
                self.record.note_sent(bytes, changes);
                if !open.stream.is_backfilling() {
                    self.pace.sent(changes, bytes);
                    if open.stream.has_caught_up() && self.pace.is_busy() {
                        return Ok(Turn::Later);
                    }
                }
                continue;
            }
            *left -= 1;
            let sent = send_one(&writer, open, &mut lends, out);
            let (bytes, kind) = match sent.map_err(|_| CloseReason::DamagedDocument)? {
                StepOutcome::Frame { bytes, kind } => (bytes, kind),
                StepOutcome::Nothing => return Ok(Turn::Idle),
                StepOutcome::Blocked => return Ok(Turn::Blocked),
            };
            self.window.sent(bytes);
            self.record.note_sent(bytes, usize::from(kind == Kind::Change));
            // The scan of a backfill waits for its readers, so they do not wait for it.
            match kind {
                Kind::Change if !open.stream.is_backfilling() => self.pace.sent(1, bytes),
                Kind::MemorySnapshot => self.pace.began_snapshot(),
                Kind::End => return Ok(Turn::Over),
                Kind::Change | Kind::Other => {}
            }
        }
        Ok(Turn::More)
    }
}

/// The result of one step of a stream.
enum StepOutcome {
    /// Nothing: the stream waits.
    Nothing,
    /// Nothing: the document needs memory first.
    Blocked,
    /// A frame of so many bytes.
    Frame { bytes: usize, kind: Kind },
}

#[derive(PartialEq, Eq)]
enum Kind {
    Change,
    /// The marker of a snapshot from memory.
    MemorySnapshot,
    End,
    Other,
}

/// Whether a document may be taken now; the flag is whether output is pending.
type LendingCheck<'a> = &'a mut dyn FnMut(&ChangedDocument<'_>, bool) -> bool;

/// Sends the next documents: at most `changes_max`, and only those that begin within `room` bytes.
/// Returns their number and bytes, zero when the first document waits for memory, and `None` when
/// the next message is no document.
fn send_run(
    writer: &FrameWriter<'_>,
    open: &mut DcpProducerStream,
    (changes_max, room): (usize, u64),
    lends: LendingCheck<'_>,
    out: &mut SendBuffer,
) -> Result<Option<(usize, usize)>, DamagedDocument> {
    if open.ending.is_some() || open.has_unsent_change {
        return Ok(None);
    }
    let Some(run) = open.stream.next_run(changes_max) else { return Ok(None) };
    let (mut changes, mut bytes, mut last) = (0, 0, Seqno(0));
    let image = run.part().and_then(|part| Some((part, Image::of(part, writer, open.head)?)));
    if let Some((part, image)) = image {
        let range = part.range();
        changes = image.fitting(range.clone(), room);
        let sent = range.start..range.start + changes;
        last = part.document(sent.end - 1).expect("a run has documents only").record.seqno;
        bytes = image.append(sent, open.head, out);
    } else {
        for document in run.documents() {
            if !lends(&document, !out.is_empty()) {
                break;
            }
            last = document.record.seqno;
            bytes += writer.change(out, open.head, &StreamChange::Document(document))?;
            changes += 1;
            if bytes as u64 >= room {
                break;
            }
        }
    }
    if changes > 0 {
        open.stream.pass_run(changes, last);
    }
    debug_assert_eq!(changes == 0, bytes == 0, "a change has bytes");
    Ok(Some((changes, bytes)))
}

/// Sends the next message of a stream, if there is one.
fn send_one(
    writer: &FrameWriter<'_>,
    open: &mut DcpProducerStream,
    lends: LendingCheck<'_>,
    out: &mut SendBuffer,
) -> Result<StepOutcome, DamagedDocument> {
    let head = open.head;
    if let Some(reason) = open.ending {
        return Ok(StepOutcome::Frame { bytes: writer.end(out, head, reason), kind: Kind::End });
    }
    if std::mem::take(&mut open.has_unsent_change) {
        return send_change(writer, open, lends, out);
    }
    let (bytes, kind) = match open.stream.next() {
        StreamStep::Idle => return Ok(StepOutcome::Nothing),
        StreamStep::Snapshot(marker) => {
            let kind = match marker.source {
                SnapshotSource::Memory => Kind::MemorySnapshot,
                SnapshotSource::Disk => Kind::Other,
            };
            (writer.marker(out, head, &marker), kind)
        }
        StreamStep::Change(_) => return send_change(writer, open, lends, out),
        StreamStep::SeqnoAdvanced(seqno) => (writer.advanced(out, head, seqno), Kind::Other),
        StreamStep::End(reason) => {
            let reason = match reason {
                StreamEnd::Ok => EndReason::Ok,
                StreamEnd::StateChanged => EndReason::StateChanged,
                StreamEnd::BackfillFailed => EndReason::BackfillFail,
                StreamEnd::FilterEmpty => EndReason::FilterEmpty,
            };
            (writer.end(out, head, reason), Kind::End)
        }
    };
    Ok(StepOutcome::Frame { bytes, kind })
}

/// Sends the stream's pending change, if memory for it can be reserved.
fn send_change(
    writer: &FrameWriter<'_>,
    open: &mut DcpProducerStream,
    lends: LendingCheck<'_>,
    out: &mut SendBuffer,
) -> Result<StepOutcome, DamagedDocument> {
    let Some(change) = open.stream.last_change() else { return Ok(StepOutcome::Nothing) };
    if let StreamChange::Document(document) = &change
        && !lends(document, !out.is_empty())
    {
        open.has_unsent_change = true;
        return Ok(StepOutcome::Blocked);
    }
    let bytes = writer.change(out, open.head, &change)?;
    open.stream.release_sent();
    Ok(StepOutcome::Frame { bytes, kind: Kind::Change })
}

/// Whether the user may read everything that a filter passes.
///
/// # Errors
/// The reason to refuse the stream with.
pub fn may_stream(
    rights: &mut Rights,
    bucket: &BucketHandle,
    filter: &StreamFilter,
) -> Result<(), StreamRejection> {
    if rights.everywhere().holds(DCP_STREAM) {
        return Ok(());
    }
    let manifest = bucket.bucket().manifest();
    let held = match filter {
        StreamFilter::All | StreamFilter::Replica => rights.everywhere(),
        StreamFilter::Default => rights.within(CollectionId::DEFAULT, manifest),
        StreamFilter::Scope(id) => {
            let scope = manifest.scopes().iter().find(|scope| scope.id == *id);
            scope.map_or(PrivilegeSet::NONE, |scope| rights.within_scope(&scope.name))
        }
        StreamFilter::Collections(ids) => {
            // A dropped collection shows only its end.
            let known = ids.iter().filter(|id| manifest.contains(**id));
            let mut held = PrivilegeSet::ALL;
            for id in known {
                let here = rights.within(*id, Arc::clone(&manifest));
                if here.is_empty() {
                    return Err(StreamRejection::SeeIt);
                }
                held = held.without(PrivilegeSet::ALL.without(here));
            }
            held
        }
    };
    let missing = DCP_STREAM.without(held);
    if missing.is_empty() { Ok(()) } else { Err(StreamRejection::Read(missing)) }
}

/// Why a user may not have a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamRejection {
    /// The user may not see that the collection exists.
    SeeIt,
    /// The user lacks these privileges.
    Read(PrivilegeSet),
}

/// The privilege for streams.
pub(crate) const DCP_STREAM: PrivilegeSet = PrivilegeSet::of(&[Privilege::DcpStream]);
