//! Makes a connection wait for documents from the store, and resumes it.
//!
//! Owns: the steps between a request that needs a fetch and its second try. The state of the
//! waiting requests is in [`crate::connection::fetches`]. Invariant: parked requests whose
//! fetch is over are served before the next frame, and only while the client takes output. A client
//! that reads nothing therefore costs no further memory for them.

use oribi_engine::{EvictionPolicy, FetchOutcome, ReadSection};
use oribi_protocol::frame::{self, DecodedFrame, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_types::{DocKey, Timestamp, Vbid};

use super::lookahead::{Lookahead, document_of};
use super::{ConnectionDriver, TurnProgress};
use crate::connection::fetches::{BEHIND_HEAD, FetchCompletion, HEAD, ParkedRequest, TryHistory};
use crate::connection::parked::ParkToken;
use crate::connection::pending::HeadWait;
use crate::connection::waker::ConnectionId;
use crate::dispatch::connection_state::ConnectionState;
use crate::dispatch::environment::Environment;
use crate::dispatch::{ServeResult, serve_frame};
use crate::limits::{FETCH_AHEAD_FRAMES_MAX, FETCH_AHEAD_MAX};

impl ConnectionDriver {
    /// Records that a fetch is over. Late and foreign tokens are ignored: they may belong to
    /// another bucket than the selected one, so they say nothing of its store either.
    pub fn fetched(&mut self, token: ParkToken, outcome: FetchOutcome) {
        let fetches = self.state.deferred.fetches();
        let completed =
            fetches.map_or(FetchCompletion::Stale, |fetches| fetches.complete(token, outcome));
        if completed == FetchCompletion::Stale {
            return;
        }
        if let Some(bucket) = self.state.bucket() {
            bucket.note_fetch(outcome);
        }
        if completed == FetchCompletion::Head {
            self.end_fetch_wait();
        }
    }

    /// Ends the waits for fetches that have passed their deadline; true when there were any.
    pub fn expire_fetches(&mut self, now_ms: u64) -> bool {
        let Some(fetches) = self.state.deferred.fetches().filter(|all| all.is_waiting()) else {
            return false;
        };
        let head_is_over = fetches.expire(now_ms);
        let any = head_is_over || fetches.has_ready();
        if head_is_over {
            self.end_fetch_wait();
        }
        any
    }

    /// True while some request of this connection waits for a fetch.
    pub fn waits_for_fetch(&self) -> bool {
        self.state.deferred.waits_for_fetch()
    }

    fn end_fetch_wait(&mut self) {
        self.state.pending.end_head_wait(|wait| wait == HeadWait::Fetch);
    }

    /// Serves the parked requests whose fetch is over; `Some` when the turn has to stop.
    pub(super) fn serve_fetched(&mut self, env: &mut Environment) -> Option<TurnProgress> {
        if !self.state.deferred.has_ready() {
            self.state.release_deferred();
            return None;
        }
        let section = ReadSection::open();
        while self.state.deferred.has_ready() {
            if self.state.closing().is_some() {
                return Some(TurnProgress::Closing);
            }
            if self.output_is_full() {
                return Some(TurnProgress::OutputFull);
            }
            if matches!(
                self.state.pending.head_wait(),
                Some(HeadWait::Memory { .. } | HeadWait::Drain)
            ) {
                return self.wait_progress();
            }
            let ready = self.state.deferred.fetches().and_then(|fetches| fetches.take_ready());
            let Some(ParkedRequest { frame: bytes, tries, .. }) = ready else { break };
            let Ok(DecodedFrame::Complete { frame, .. }) = frame::decode(&bytes) else { continue };
            let ConnectionDriver { id, writer, state, .. } = self;
            let served = serve_frame(*id, state, writer, env, &frame, (&section, None), tries);
            // A request that may be overtaken waits for nothing else, and its place is free again.
            if let ServeResult::Fetch { tries, .. } = served {
                park(*id, state, env, &bytes, &frame, tries);
            }
        }
        self.state.release_deferred();
        None
    }
}

/// Parks a copy of `frame`, which is `bytes` long, until its document is fetched. False when too
/// much is parked.
pub(super) fn park(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    bytes: &[u8],
    frame: &Frame<'_>,
    tries: TryHistory,
) -> bool {
    let fetches = state.deferred.fetches_or_new();
    let Some(position) = fetches.next_position(bytes.len()) else { return false };
    let serial = env.park_serial();
    fetches.park(serial, env.now_ms, bytes.into(), tries);
    fetch(state, env, frame, ParkToken { slot: id.slot, position, serial });
    true
}

/// Makes the connection wait until the document of `frame`, the next to be served, is fetched.
/// Also fetches documents for the requests after it, `behind`.
pub(super) fn wait_at_head(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    frame: &Frame<'_>,
    behind: &[u8],
    tries: TryHistory,
) {
    let token = wait_for(id, state, env, frame, tries);
    fetch_ahead(state, env, behind, token);
}

/// Makes the connection wait until the document of `frame`, the next to be served, is fetched.
/// Returns the token of fetches for the requests after it.
pub(super) fn wait_for(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    frame: &Frame<'_>,
    tries: TryHistory,
) -> ParkToken {
    let serial = env.park_serial();
    state.deferred.fetches_or_new().wait_at_head(serial, env.now_ms, tries);
    state.pending.wait_at_head(HeadWait::Fetch);
    fetch(state, env, frame, ParkToken { slot: id.slot, position: HEAD, serial });
    ParkToken { slot: id.slot, position: BEHIND_HEAD, serial }
}

/// Queues fetches of the documents that the first complete requests of `received` will wait for. It
/// stops at a request that is not about a document, because that request may change what the keys
/// mean.
fn fetch_ahead(state: &mut ConnectionState, env: &Environment, received: &[u8], token: ParkToken) {
    let section = ReadSection::open();
    let mut ahead = Lookahead::new(&section, env.server.connections.limits.prefetch_keys, 0);
    let mut rest = received;
    let (mut asked, mut seen) = (0, 0);
    while seen < FETCH_AHEAD_FRAMES_MAX {
        ahead.advance(state, rest);
        let Ok(DecodedFrame::Complete { frame, consumed }) = frame::decode(rest) else { break };
        if !ask_ahead(state, env, &frame, token, &mut asked) {
            break;
        }
        seen += 1;
        debug_assert!(0 < consumed && consumed <= rest.len(), "a whole frame was received");
        ahead.served(0);
        rest = &rest[consumed..];
    }
    wait_behind(state, asked, seen);
}

/// Asks for the document of a request after the head, if the request will wait for it, and counts
/// that. False at a request that is not about a document, and when enough are asked for.
pub(super) fn ask_ahead(
    state: &ConnectionState,
    env: &Environment,
    frame: &Frame<'_>,
    token: ParkToken,
    asked: &mut usize,
) -> bool {
    let Some((vbid, key)) = document_of(state, frame).filter(|_| *asked < FETCH_AHEAD_MAX) else {
        return false;
    };
    if needs_fetch(state, frame.header.opcode, vbid, key) {
        fetch(state, env, frame, token);
        *asked += 1;
    }
    true
}

/// Makes the head wait for the documents that were `asked` for, of the `seen` requests after it.
pub(super) fn wait_behind(state: &mut ConnectionState, asked: usize, seen: usize) {
    debug_assert!(asked <= FETCH_AHEAD_MAX, "a look ahead asks for few documents");
    // Completions arrive through the mailbox, so none has arrived yet.
    if let Some(fetches) = state.deferred.fetches() {
        fetches.wait_behind(asked, seen);
    }
}

/// True when a request will probably wait for its document. A request that replaces a value at most
/// depends on the document's absence. That needs no wait while keys stay in memory.
fn needs_fetch(state: &ConnectionState, opcode: u8, vbid: Vbid, key: DocKey<'_>) -> bool {
    let Some(bucket) = state.bucket() else { return false };
    let bucket = bucket.bucket();
    let is_full = bucket.eviction() == EvictionPolicy::Full;
    let Some(vbucket) = bucket.vbucket(vbid) else { return false };
    // At time 0 nothing has expired: a hint that errs on the side of the fetch.
    let context = bucket.context(Timestamp::default());
    (is_full || uses_value(opcode)) && vbucket.needs_fetch(&context, key)
}

fn fetch(state: &ConnectionState, env: &Environment, frame: &Frame<'_>, token: ParkToken) {
    let (Some(bucket), Some((vbid, key))) =
        (state.bucket(), state.document(&frame.header, frame.key))
    else {
        // The engine demands a fetch only of requests about a document of the selected bucket.
        return env.fetch_sink.fetched(token.encode(), FetchOutcome::Failed);
    };
    bucket.bucket().fetch(vbid, key, &env.fetch_sink, token.encode());
}

/// True for requests that need the current value.
fn uses_value(opcode: u8) -> bool {
    use Opcode::{
        Append, Appendq, Decrement, Decrementq, Gat, Gatq, Get, Getk, Getkq, Getq, Increment,
        Incrementq, Prepend, Prependq, Touch,
    };
    Opcode::from_u8(opcode).is_some_and(|opcode| {
        matches!(
            opcode,
            Get | Getq
                | Getk
                | Getkq
                | Gat
                | Gatq
                | Touch
                | Append
                | Appendq
                | Prepend
                | Prependq
                | Increment
                | Incrementq
                | Decrement
                | Decrementq
        )
    })
}
