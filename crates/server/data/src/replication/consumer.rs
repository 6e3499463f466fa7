//! The consumer of one link, without I/O: frames of another node in, requests and changes of copies
//! out.
//!
//! Owns: the handshake ([`handshake`]), the streams of the copies ([`stream`]), and the receive
//! window. What blocks is handed out as [`LinkWork`]; the link gives its result back.
//!
//! The window bounds what the node may send before it is applied. Frames are acknowledged when they
//! are applied, so a copy without memory stops the node, and the memory of a link is bounded. When
//! half of the window waits, snapshots are applied in parts: one that is larger than the window
//! would otherwise never end.
//!
//! Invariants: no byte of another node panics; lengths are checked before use; a copy changes only
//! while it follows; a seqno is acknowledged at the end of a snapshot only, after it was applied.
//!
//! Callers: a worker's link, and tests.

pub(crate) mod handshake;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oribi_engine::PersistOutcome;
use oribi_protocol::dcp::durability::write_seqno_acknowledged;
use oribi_protocol::dcp::message::{self, Message, MessageError};
use oribi_protocol::dcp::stream_request::decode_rollback;
use oribi_protocol::frame::Frame;
use oribi_protocol::magic::Magic;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_types::{Seqno, Timestamp, Vbid};

use super::failure::{LinkFailure, StatusName};
use super::followed_copy::FollowedCopy;
use super::work::{LinkWork, LinkWorkResult};
use crate::connection::memory::Reservation;
pub(crate) use handshake::LinkIdentity;
use handshake::{Handshake, HandshakeProgress};
use stream::{ApplyProgress, CopyStream, CopyStreamPhase};
use window::ReceiveWindow;

/// Opaque of requests whose answer says nothing.
const OPAQUE_IGNORED: u32 = 1;
/// First opaque of stream requests; those of the handshake are below.
const OPAQUE_STREAMS: u32 = 0x100;

/// Pause before a copy asks again for its stream.
const STREAM_RETRY_MS: u64 = 100;
/// Pause before changes that found no memory, or a copy that is loading, are tried again.
const APPLY_RETRY_MS: u64 = 10;
const _: () = assert!(OPAQUE_IGNORED < OPAQUE_STREAMS, "streams have other opaques");

/// See the module text.
pub(crate) struct ReplicaConsumer {
    /// `None` once streams may be asked for.
    handshake: Option<Handshake>,
    streams: BTreeMap<Vbid, CopyStream>,
    /// Streams with something to do now.
    ready: BTreeSet<Vbid>,
    /// Streams with something to do later, by time.
    timers: BTreeSet<(u64, Vbid)>,
    /// Stream requests without an answer.
    asked: BTreeMap<u32, Vbid>,
    next_opaque: u32,
    window: ReceiveWindow,
    work: Vec<LinkWork>,
    /// Copies that began afresh since the last look, for the log.
    emptied: Vec<Vbid>,
    /// Copies that acknowledge more once their stores have these seqnos.
    store_waits: Vec<(Arc<FollowedCopy>, Seqno)>,
}

impl ReplicaConsumer {
    /// A consumer on a connection that was just made; its first requests go to `out`.
    pub(crate) fn begin(identity: LinkIdentity, out: &mut Vec<u8>) -> ReplicaConsumer {
        let window = ReceiveWindow::default();
        ReplicaConsumer {
            handshake: Some(Handshake::begin(identity, window.size(), out)),
            streams: BTreeMap::new(),
            ready: BTreeSet::new(),
            timers: BTreeSet::new(),
            asked: BTreeMap::new(),
            next_opaque: OPAQUE_STREAMS,
            window,
            work: Vec::new(),
            emptied: Vec::new(),
            store_waits: Vec::new(),
        }
    }

    /// True once streams may be asked for.
    pub(crate) fn is_open(&self) -> bool {
        self.handshake.is_none()
    }

    /// Adds a copy, in place of an earlier one of the vbucket.
    pub(crate) fn follow(&mut self, copy: Arc<FollowedCopy>, out: &mut Vec<u8>) {
        let vbid = copy.vbid;
        if self.streams.get(&vbid).is_some_and(|known| Arc::ptr_eq(known.copy(), &copy)) {
            return;
        }
        self.forget(vbid, out);
        self.streams.insert(vbid, CopyStream::new(copy));
        self.ready.insert(vbid);
    }

    /// Closes the streams of copies that have stopped to follow.
    pub(crate) fn drop_stopped(&mut self, out: &mut Vec<u8>) {
        let stopped = self.streams.values().filter(|stream| stream.copy().is_stopped());
        let stopped: Vec<Vbid> = stopped.map(|stream| stream.copy().vbid).collect();
        for vbid in stopped {
            self.forget(vbid, out);
        }
    }

    /// Ends a stream, and acknowledges what waits for it.
    fn forget(&mut self, vbid: Vbid, out: &mut Vec<u8>) {
        let Some(mut stream) = self.streams.remove(&vbid) else { return };
        self.ready.remove(&vbid);
        if stream.is_open_there() {
            close_stream(vbid, out);
        }
        stream.note_waiting();
        self.window.apply(stream.drop_parts());
    }

    /// The next piece of work that blocks.
    pub(crate) fn take_work(&mut self) -> Option<LinkWork> {
        self.work.pop()
    }

    /// Copies that began afresh since the last call.
    pub(crate) fn take_emptied(&mut self) -> Vec<Vbid> {
        std::mem::take(&mut self.emptied)
    }

    /// Copies for whose stores to wait; [`ReplicaConsumer::stored`] ends each wait.
    pub(crate) fn take_store_waits(&mut self) -> Vec<(Arc<FollowedCopy>, Seqno)> {
        std::mem::take(&mut self.store_waits)
    }

    /// A store has what was waited for, or failed: then the copy asks again later.
    pub(crate) fn stored(&mut self, vbid: Vbid, outcome: PersistOutcome, now_ms: u64) {
        let Some(stream) = self.streams.get_mut(&vbid) else { return };
        stream.stored();
        match outcome {
            PersistOutcome::Persisted | PersistOutcome::Committed(_) => {
                self.ready.insert(vbid);
            }
            PersistOutcome::Failed => {
                self.timers.insert((now_ms + STREAM_RETRY_MS, vbid));
            }
        }
    }

    /// When [`ReplicaConsumer::turn`] has something to do at the latest.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        match self.ready.is_empty() {
            true => self.timers.first().map(|(due_ms, _)| *due_ms),
            false => Some(0),
        }
    }

    /// Bytes of changes that wait to be applied.
    pub(crate) fn held_bytes(&self) -> usize {
        self.window.pending()
    }

    /// Takes one frame. Memory that was reserved for it is returned once it is applied.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub(crate) fn take(
        &mut self,
        frame: &Frame<'_>,
        reservation: Option<Reservation>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkFailure> {
        match frame.header.magic {
            Magic::ClientRequest | Magic::AltClientRequest => {
                self.take_message(frame, reservation, now, out)
            }
            Magic::ClientResponse | Magic::AltClientResponse => self.take_answer(frame, out),
            // News for clients.
            Magic::ServerRequest | Magic::ServerResponse => Ok(()),
        }
    }

    fn take_message(
        &mut self,
        frame: &Frame<'_>,
        reservation: Option<Reservation>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkFailure> {
        if frame.header.opcode == Opcode::DcpNoop as u8 {
            let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
            write_response(out, &ResponseParts::new(opcode, Status::Success, opaque));
            return Ok(());
        }
        if !self.is_open() {
            return Err(LinkFailure::Protocol("a message before the connection was open"));
        }
        let (head, message) = message::decode(frame).map_err(|error| match error {
            MessageError::NotDcp => LinkFailure::Protocol("a message that was not asked for"),
            MessageError::Malformed => LinkFailure::Protocol("a malformed message"),
        })?;
        let bytes = frame.header.frame_bytes();
        self.window.receive(bytes).ok_or(LinkFailure::Protocol("more than the window allows"))?;
        let stream = self.streams.get_mut(&head.vbid);
        let stream = stream.filter(|stream| stream.is_of(head.opaque));
        let Some(stream) = stream else {
            // Left over from a stream that was closed.
            self.window.apply(bytes);
            return Ok(());
        };
        if let Message::StreamEnd(_) = message {
            // The vbucket is perhaps active elsewhere; the records will say so.
            stream.end();
            self.window.apply(bytes);
            self.ready.insert(head.vbid);
            return Ok(());
        }
        if stream.take(&message, bytes, reservation, now)? {
            self.ready.insert(head.vbid);
        }
        Ok(())
    }

    fn take_answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), LinkFailure> {
        if let Some(handshake) = &mut self.handshake {
            match handshake.take(frame, out)? {
                HandshakeProgress::Waiting => {}
                HandshakeProgress::Work(work) => self.work.push(work),
                HandshakeProgress::Open => {
                    self.handshake = None;
                    self.ready.extend(self.streams.keys());
                }
            }
            return Ok(());
        }
        let Some(vbid) = self.asked.remove(&frame.header.opaque) else {
            let is_ignored = frame.header.opaque == OPAQUE_IGNORED;
            let is_ack = frame.header.opcode == Opcode::DcpSeqnoAcknowledged as u8
                || frame.header.opcode == Opcode::DcpBufferAcknowledgement as u8;
            return match is_ignored && !is_ack {
                true => Ok(()),
                false => Err(LinkFailure::Refused {
                    request: "an acknowledgement",
                    status: StatusName(frame.header.vbucket_or_status),
                }),
            };
        };
        let stream = self.streams.get_mut(&vbid);
        // The copy may have stopped to follow since.
        let Some(stream) = stream.filter(|stream| stream.is_of(frame.header.opaque)) else {
            return Ok(());
        };
        let status = frame.header.vbucket_or_status;
        match Status::from_u16(status) {
            Some(Status::Success) => {
                stream.accepted(frame.value)?;
                self.ready.insert(vbid);
            }
            Some(Status::Rollback) => {
                let to = decode_rollback(frame.value);
                let to = to.ok_or(LinkFailure::Protocol("a rollback without a seqno"))?;
                if let Some(work) = stream.roll_back(to)? {
                    self.work.push(work);
                    self.emptied.push(vbid);
                    return Ok(());
                }
                self.ready.insert(vbid);
            }
            // It is ahead of the history: it has changes that the active has not.
            Some(Status::Erange) => {
                self.work.push(stream.begin_afresh());
                self.emptied.push(vbid);
            }
            Some(
                Status::NotMyVbucket
                | Status::Etmpfail
                | Status::Enomem
                | Status::Ebusy
                | Status::KeyEexists,
            ) => {
                stream.end();
                self.ready.insert(vbid);
            }
            _ => {
                let status = StatusName(status);
                return Err(LinkFailure::Refused { request: "a stream request", status });
            }
        }
        Ok(())
    }

    /// Takes the result of work.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub(crate) fn work_done(
        &mut self,
        result: LinkWorkResult,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkFailure> {
        match result {
            LinkWorkResult::Resolved(_) => Ok(()),
            LinkWorkResult::LoggedIn(proof) => match &mut self.handshake {
                Some(handshake) => handshake.prove(proof?, out),
                None => Ok(()),
            },
            LinkWorkResult::Copy { copy, result } => {
                let stream = self.streams.get_mut(&copy.vbid);
                let stream = stream.filter(|stream| Arc::ptr_eq(stream.copy(), &copy));
                // The copy may have stopped to follow since.
                let Some(stream) = stream else { return Ok(()) };
                stream.work_done();
                self.ready.insert(copy.vbid);
                result
            }
        }
    }

    /// Asks for streams, applies what is complete, and acknowledges.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub(crate) fn turn(
        &mut self,
        now: Timestamp,
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), LinkFailure> {
        if !self.is_open() {
            return Ok(());
        }
        while let Some((due_ms, vbid)) = self.timers.first().copied()
            && due_ms <= now_ms
        {
            self.timers.remove(&(due_ms, vbid));
            self.ready.insert(vbid);
        }
        let is_pressed = self.window.is_pressed();
        if is_pressed {
            let waiting = self.streams.iter().filter(|(_, stream)| stream.has_parts());
            self.ready.extend(waiting.map(|(vbid, _)| *vbid));
        }
        for vbid in std::mem::take(&mut self.ready) {
            self.step(vbid, is_pressed, (now, now_ms), out)?;
        }
        if let Some(bytes) = self.window.acknowledge() {
            let extras = bytes.to_be_bytes();
            let parts = RequestParts {
                opaque: OPAQUE_IGNORED,
                extras: &extras,
                ..RequestParts::new(Opcode::DcpBufferAcknowledgement)
            };
            encode_request(out, &parts);
        }
        Ok(())
    }

    fn step(
        &mut self,
        vbid: Vbid,
        is_pressed: bool,
        (now, now_ms): (Timestamp, u64),
        out: &mut Vec<u8>,
    ) -> Result<(), LinkFailure> {
        let Some(stream) = self.streams.get_mut(&vbid) else { return Ok(()) };
        if stream.copy().is_stopped() {
            self.forget(vbid, out);
            return Ok(());
        }
        match stream.phase() {
            CopyStreamPhase::Idle => {
                let opaque = self.next_opaque;
                match stream.request(opaque, out) {
                    true => {
                        self.next_opaque = opaque.checked_add(1).unwrap_or(OPAQUE_STREAMS);
                        self.asked.insert(opaque, vbid);
                        assert!(opaque >= OPAQUE_STREAMS, "an answer names its stream");
                    }
                    false => {
                        self.timers.insert((now_ms + STREAM_RETRY_MS, vbid));
                    }
                }
            }
            CopyStreamPhase::Ended if stream.is_in_work() => {}
            CopyStreamPhase::Ended => {
                self.window.apply(stream.drop_parts());
                stream.rest();
                debug_assert!(!stream.has_parts(), "a stream at rest holds nothing");
                self.timers.insert((now_ms + STREAM_RETRY_MS, vbid));
            }
            CopyStreamPhase::Asked | CopyStreamPhase::Working => {}
            CopyStreamPhase::Streaming => {
                let (applied, progress) = stream.apply(is_pressed, now)?;
                self.window.apply(applied);
                if let Some((head, seqno)) = stream.take_acknowledgement() {
                    write_seqno_acknowledged(out, head, seqno);
                }
                if let Some(seqno) = stream.take_store_wait() {
                    self.store_waits.push((Arc::clone(stream.copy()), seqno));
                }
                match progress {
                    ApplyProgress::Done => {}
                    ApplyProgress::Work(work) => self.work.push(work),
                    ApplyProgress::Later => {
                        self.timers.insert((now_ms + APPLY_RETRY_MS, vbid));
                    }
                    ApplyProgress::Over => {
                        close_stream(vbid, out);
                        stream.end();
                        self.ready.insert(vbid);
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes that the copies have no stream any more.
    pub(crate) fn end(&mut self) {
        self.streams.values().for_each(CopyStream::note_waiting);
    }
}

fn close_stream(vbid: Vbid, out: &mut Vec<u8>) {
    let parts =
        RequestParts { opaque: OPAQUE_IGNORED, vbid, ..RequestParts::new(Opcode::DcpCloseStream) };
    encode_request(out, &parts);
}
