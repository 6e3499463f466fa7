//! The state of a change stream without I/O: frames of servers in, events and requests out.
//!
//! Each vbucket is idle, has asked something, streams or is finished. An idle one that starts now,
//! or ends now, first asks for its history and its last seqno. Then it asks for its stream. A
//! refusal with a rollback is an event, and the request is repeated from the earlier place.
//!
//! A request's opaque names its vbucket and counts up, so what belongs to an earlier request, or to
//! a connection that the vbucket has left, is recognised and ignored.
//!
//! Invariants: a vbucket's position covers exactly the changes that were taken out, so a
//! stream that begins there repeats and omits none; frames of a vbucket are taken in their order.

use std::collections::VecDeque;

use bytes::Bytes;
use oribi_protocol::change_cursor::ChangeCursor;
use oribi_protocol::change_token::{ChangeToken, Position, Rest};
use oribi_protocol::dcp::message::{self, Message, MessageError};
use oribi_protocol::frame::Frame;
use oribi_protocol::magic::Magic;
use oribi_types::{CollectionId, ManifestUid, ScopeId, Seqno, Vbid};

use super::event::{ChangeKind, DcpEvent, PlacedChange, Rollback};
use super::names::CollectionNameCache;
use crate::collection::CollectionsManifest;
use crate::error::{MalformedResponse, RejectionKind};

mod answers;
mod requests;
mod translation;

/// Number of a connection.
pub(super) type DcpConnectionId = u64;

/// Which documents are wanted, by id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CollectionFilter {
    All,
    Scope(ScopeId),
    Collections(Vec<CollectionId>),
}

/// Follow-up of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FollowUp {
    /// Nothing else.
    GoOn,
    /// The vbucket is idle: try again in a moment.
    Later(Vbid),
    /// The vbucket is idle, and perhaps on another node: what the refusal carried.
    Moved(Vbid, Bytes),
    /// The vbucket is idle, and a collection of the filter may be gone.
    CheckFilter(Vbid),
    /// The vbucket streams from now on.
    Streaming(Vbid),
    /// The stream cannot continue.
    Fail(RejectionKind),
}

/// Result of a frame.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct FrameResult {
    pub then: FollowUp,
    /// A document's change, in the frame's block.
    pub change: Option<PlacedChange>,
}

impl From<FollowUp> for FrameResult {
    fn from(then: FollowUp) -> FrameResult {
        FrameResult { then, change: None }
    }
}

/// A vbucket's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Asked { request: RequestId, question: Question },
    Streaming(RequestId),
    Finished,
}

/// A request, on its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RequestId {
    feed: DcpConnectionId,
    opaque: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    History,
    LastSeqno,
    Stream,
}

#[derive(Debug)]
struct Vbucket {
    /// None while a stream that starts now does not know where that is.
    cursor: Option<ChangeCursor>,
    /// Where a stream ends that ends now, once it is known.
    end: Option<Seqno>,
    phase: Phase,
}

/// See the module text.
#[derive(Debug)]
pub(super) struct DcpStateMachine {
    vbuckets: Vec<Vbucket>,
    wanted: CollectionFilter,
    until_now: bool,
    names: CollectionNameCache,
    manifest_uid: ManifestUid,
    /// Upper half of the next opaque.
    generation: u16,
    unfinished: usize,
    events: VecDeque<DcpEvent>,
}

impl DcpStateMachine {
    /// A stream of `vbuckets` vbuckets from a token on.
    pub fn new(
        vbuckets: u16,
        from: &ChangeToken,
        wanted: CollectionFilter,
        until_now: bool,
        names: CollectionNameCache,
    ) -> DcpStateMachine {
        let cursor = |vbid| match (from.position(vbid), from.rest) {
            (Some(position), _) => Some(ChangeCursor::new(*position)),
            (None, Rest::Beginning) => Some(ChangeCursor::new(Position::beginning(vbid))),
            (None, Rest::Now) => None,
        };
        let idle = |vbid| Vbucket { cursor: cursor(vbid), end: None, phase: Phase::Idle };
        DcpStateMachine {
            vbuckets: (0..vbuckets).map(|vbid| idle(Vbid(vbid))).collect(),
            wanted,
            until_now,
            names,
            manifest_uid: from.manifest_uid,
            generation: 0,
            unfinished: usize::from(vbuckets),
            events: VecDeque::new(),
        }
    }

    /// Leaves all other vbuckets where they are. Called before the stream begins.
    pub fn show_only(&mut self, wanted: &[Vbid]) {
        for vbid in (0..self.vbuckets.len() as u16).map(Vbid) {
            if !wanted.contains(&vbid) {
                self.finish(vbid);
            }
        }
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<DcpEvent> {
        self.events.pop_front()
    }

    /// Adds an event that no frame brought.
    pub fn tell(&mut self, event: DcpEvent) {
        self.events.push_back(event);
    }

    /// True when nothing can come any more.
    pub fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// True when the vbucket is finished.
    pub fn has_finished(&self, vbid: Vbid) -> bool {
        self.vbuckets.get(usize::from(vbid.0)).is_none_or(|v| v.phase == Phase::Finished)
    }

    /// Where the stream is.
    pub fn token(&self) -> ChangeToken {
        // Only a stream that starts now has vbuckets without a position.
        let is_now = self.vbuckets.iter().any(|vbucket| vbucket.cursor.is_none());
        let mut token = ChangeToken::new(if is_now { Rest::Now } else { Rest::Beginning });
        token.manifest_uid = self.manifest_uid;
        for cursor in self.vbuckets.iter().filter_map(|vbucket| vbucket.cursor.as_ref()) {
            token.set(cursor.position());
        }
        token
    }

    /// True when a vbucket uses the connection.
    pub fn uses(&self, feed: DcpConnectionId) -> bool {
        self.vbuckets.iter().any(|vbucket| vbucket.feed() == Some(feed))
    }

    /// A connection ended; returns its vbuckets, which are idle now.
    pub fn lose(&mut self, feed: DcpConnectionId) -> Vec<Vbid> {
        let lost = (0..).map(Vbid).zip(&mut self.vbuckets);
        let lost = lost.filter(|(_, vbucket)| vbucket.feed() == Some(feed));
        lost.map(|(vbid, vbucket)| {
            vbucket.rest();
            vbid
        })
        .collect()
    }

    /// Takes a manifest: collections that are gone are no longer asked for.
    pub fn check_filter(&mut self, manifest: &CollectionsManifest) {
        self.names.learn(manifest);
        let is_gone = match &mut self.wanted {
            CollectionFilter::All => false,
            CollectionFilter::Scope(id) => !manifest.scopes.iter().any(|scope| scope.id == *id),
            CollectionFilter::Collections(ids) => {
                let collections = || manifest.scopes.iter().flat_map(|scope| &scope.collections);
                ids.retain(|id| collections().any(|collection| collection.id == *id));
                ids.is_empty()
            }
        };
        if is_gone {
            let idle = self.vbuckets.iter_mut().filter(|vbucket| vbucket.phase == Phase::Idle);
            let finished = idle.map(|vbucket| vbucket.phase = Phase::Finished).count();
            self.unfinished -= finished;
        }
    }

    /// Takes a frame of a connection, which is a part of `block`. Requests are appended to `out`. A
    /// document's change comes before the events that the frame added.
    ///
    /// # Errors
    /// When the server breaks the protocol: nothing more of this connection can be trusted.
    pub fn take(
        &mut self,
        feed: DcpConnectionId,
        frame: &Frame<'_>,
        block: &Bytes,
        has_collections: bool,
        out: &mut Vec<u8>,
    ) -> Result<FrameResult, MalformedResponse> {
        match frame.header.magic {
            // News that other connections bring too; and what no server sends.
            Magic::ServerRequest | Magic::ServerResponse => return Ok(FollowUp::GoOn.into()),
            magic if magic.is_request() => {}
            _ => {
                let then = self.take_answer(feed, frame, block, has_collections, out)?;
                return Ok(then.into());
            }
        }
        let (stream, message) = match message::decode(frame) {
            Ok(decoded) => decoded,
            // One that the protocol gets later; nothing was asked for that would need it.
            Err(MessageError::NotDcp) => return Ok(FollowUp::GoOn.into()),
            Err(MessageError::Malformed) => {
                return Err(MalformedResponse::new("a malformed message"));
            }
        };
        if let Message::Noop = message {
            // The connection has answered it.
            return Ok(FollowUp::GoOn.into());
        }
        let request = RequestId { feed, opaque: stream.opaque };
        let Some(vbucket) = self.vbuckets.get_mut(usize::from(stream.vbid.0)) else {
            return Err(MalformedResponse::new(
                "a message of a vbucket that the bucket does not have",
            ));
        };
        if vbucket.phase != Phase::Streaming(request) {
            // Left over from a stream that was given up; but none is before its answer.
            return match vbucket.phase {
                Phase::Asked { request: asked, .. } if asked == request => {
                    Err(MalformedResponse::new("a message before the stream was accepted"))
                }
                _ => Ok(FollowUp::GoOn.into()),
            };
        }
        self.take_message(stream.vbid, &message, block, has_collections)
    }

    fn take_message(
        &mut self,
        vbid: Vbid,
        message: &Message<'_>,
        block: &[u8],
        has_collections: bool,
    ) -> Result<FrameResult, MalformedResponse> {
        if let Message::StreamEnd(reason) = message {
            return Ok(self.end_stream(vbid, *reason).into());
        }
        let vbucket = &mut self.vbuckets[usize::from(vbid.0)];
        let Some(cursor) = &mut vbucket.cursor else {
            return Err(MalformedResponse::new("a message of a stream without a start"));
        };
        let seqno = match message {
            Message::SnapshotMarker(marker) => {
                cursor.announce(marker.start, marker.end)?;
                return Ok(FollowUp::GoOn.into());
            }
            Message::SeqnoAdvanced(seqno) => {
                let was_at_end = cursor.position().is_at_snapshot_end();
                let before = cursor.position().seqno;
                let position = cursor.advance_to(*seqno)?;
                let is_news = !(was_at_end && before == *seqno);
                if position.is_at_snapshot_end() && is_news {
                    self.events.push_back(DcpEvent::SnapshotEnd(position));
                }
                return Ok(FollowUp::GoOn.into());
            }
            Message::Mutation(document) => document.extras.by_seqno,
            Message::Deletion(document) | Message::Expiration(document) => document.extras.by_seqno,
            Message::SystemEvent(event) => event.by_seqno,
            Message::StreamEnd(_) | Message::Noop => return Ok(FollowUp::GoOn.into()),
        };
        let mut moved = *cursor;
        let position = moved.advance(seqno)?;
        let change = match message {
            Message::Mutation(document) => {
                let extras = &document.extras;
                let change =
                    Self::placed(position, document, extras.rev_seqno, block, has_collections)?;
                Some(PlacedChange { flags: extras.flags, expiry: extras.expiry, ..change })
            }
            Message::Deletion(document) | Message::Expiration(document) => {
                let kind = match message {
                    Message::Expiration(_) => ChangeKind::Expiration,
                    _ => ChangeKind::Deletion,
                };
                let extras = &document.extras;
                let change =
                    Self::placed(position, document, extras.rev_seqno, block, has_collections)?;
                let deleted_at = extras.delete_time.filter(|time| *time != 0);
                Some(PlacedChange { kind, deleted_at, ..change })
            }
            _ => None,
        };
        if let Message::SystemEvent(event) = message {
            let event = self.system_event(position, event);
            self.events.push_back(event);
        }
        self.vbuckets[usize::from(vbid.0)].cursor = Some(moved);
        if position.is_at_snapshot_end() {
            self.events.push_back(DcpEvent::SnapshotEnd(position));
        }
        Ok(FrameResult { then: FollowUp::GoOn, change })
    }

    fn finish(&mut self, vbid: Vbid) {
        let vbucket = &mut self.vbuckets[usize::from(vbid.0)];
        if vbucket.phase != Phase::Finished {
            vbucket.phase = Phase::Finished;
            self.unfinished -= 1;
        }
    }

    fn roll_back(&mut self, vbid: Vbid, to: Seqno) -> Result<(), MalformedResponse> {
        let vbucket = &mut self.vbuckets[usize::from(vbid.0)];
        let Some(cursor) = &mut vbucket.cursor else {
            return Err(MalformedResponse::new("a rollback of a stream without a start"));
        };
        let from = cursor.position().seqno;
        let to = cursor.roll_back(to)?;
        // The end was one of the history that is lost.
        vbucket.end = None;
        self.events.push_back(DcpEvent::Rollback(Rollback { from, to }));
        Ok(())
    }
}

impl Vbucket {
    fn feed(&self) -> Option<DcpConnectionId> {
        match self.phase {
            Phase::Asked { request, .. } | Phase::Streaming(request) => Some(request.feed),
            Phase::Idle | Phase::Finished => None,
        }
    }

    /// Gives its request up.
    fn rest(&mut self) {
        self.phase = Phase::Idle;
        // The next history may be shorter than this end.
        self.end = None;
    }
}

#[cfg(test)]
mod tests;
