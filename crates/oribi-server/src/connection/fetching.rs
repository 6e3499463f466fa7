//! How a connection waits for documents from the store, and goes on.
//!
//! Owns: the steps between a request that needs a fetch and its second try; who waits is kept in
//! [`super::fetches`]. Invariant: parked requests whose fetch is over are served before the next frame, and
//! only while output is taken, so that a client that reads nothing costs no more for them.

use oribi_engine::{EvictionPolicy, FetchOutcome, FetchSink};
use oribi_protocol::frame::{self, Decoded, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_types::{DocKey, Vbid};

use super::fetches::{BEHIND_HEAD, HEAD, ParkedRequest, Tries};
use super::lookahead::document_of;
use super::parked::ParkToken;
use super::serving::serve_frame;
use super::state::{ConnectionState, Wait};
use super::{Connection, Progress};
use crate::dispatch::Served;
use crate::environment::Environment;
use crate::limits::{FETCH_AHEAD_FRAMES_MAX, FETCH_AHEAD_MAX};
use crate::mailbox::ConnectionId;

impl Connection {
    /// A fetch is over. Late and foreign tokens are ignored.
    pub fn fetched(&mut self, token: ParkToken, outcome: FetchOutcome) {
        if let Some(bucket) = &self.state.bucket {
            bucket.note_fetch(outcome);
        }
        let fetches = self.state.fetches.as_mut();
        if fetches.is_some_and(|fetches| fetches.complete(token, outcome)) {
            self.end_fetch_wait();
        }
    }

    /// Gives up on fetches that take too long; true when there were any.
    pub fn expire_fetches(&mut self, now_ms: u64) -> bool {
        let Some(fetches) = self.state.fetches.as_mut().filter(|all| all.is_waiting()) else {
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
        self.state.fetches.as_ref().is_some_and(|fetches| fetches.is_waiting())
    }

    fn end_fetch_wait(&mut self) {
        if self.state.wait == Wait::Fetch {
            self.state.wait = Wait::Nothing;
        }
    }

    /// Serves the parked requests whose fetch is over; `Some` when that has to stop.
    pub(super) fn serve_fetched(&mut self, env: &mut Environment) -> Option<Progress> {
        while self.state.has_ready() {
            if self.state.closing.is_some() {
                return Some(Progress::Closing);
            }
            if self.output_is_full() {
                return Some(Progress::OutputFull);
            }
            let ready = self.state.fetches.as_mut().and_then(|fetches| fetches.take_ready());
            let Some(ParkedRequest { frame: bytes, tries, .. }) = ready else { break };
            let Ok(Decoded::Complete { frame, .. }) = frame::decode(&bytes) else { continue };
            let Connection { id, writer, state, .. } = self;
            let served = serve_frame(*id, state, writer, env, &frame, None, tries);
            // What may be overtaken waits for nothing else, and there is room for it once more.
            if let Served::Fetch { tries, .. } = served {
                park(*id, state, env, &bytes, &frame, tries);
            }
        }
        self.state.release_parked();
        None
    }
}

/// Parks a copy of `frame`, which is `bytes` long, until its document is fetched. False: too much is parked.
pub(super) fn park(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    bytes: &[u8],
    frame: &Frame<'_>,
    tries: Tries,
) -> bool {
    let fetches = state.fetches.get_or_insert_default();
    let Some(position) = fetches.next_position(bytes.len()) else { return false };
    let serial = env.park_serial();
    fetches.park(serial, env.now_ms, bytes.into(), tries);
    fetch(state, env, frame, ParkToken { slot: id.slot, position, serial });
    true
}

/// Makes the connection wait until the document of `frame`, which is to be served next, is fetched, and
/// fetches documents for the requests `behind` it along with it.
pub(super) fn wait_at_head(
    id: ConnectionId,
    state: &mut ConnectionState,
    env: &mut Environment,
    frame: &Frame<'_>,
    behind: &[u8],
    tries: Tries,
) {
    let serial = env.park_serial();
    state.fetches.get_or_insert_default().wait_at_head(serial, env.now_ms, tries);
    state.wait = Wait::Fetch;
    fetch(state, env, frame, ParkToken { slot: id.slot, position: HEAD, serial });
    let token = ParkToken { slot: id.slot, position: BEHIND_HEAD, serial };
    fetch_ahead(state, env, behind, token);
}

/// Asks for the documents that the first complete requests of `received` will wait for. What is behind
/// a request that is not about a document is left alone: that may change what the keys mean.
fn fetch_ahead(state: &mut ConnectionState, env: &Environment, received: &[u8], token: ParkToken) {
    let mut rest = received;
    let mut asked = 0;
    for _ in 0..FETCH_AHEAD_FRAMES_MAX {
        let Ok(Decoded::Complete { frame, consumed }) = frame::decode(rest) else { break };
        let Some((vbid, key)) = document_of(state, &frame).filter(|_| asked < FETCH_AHEAD_MAX)
        else {
            break;
        };
        if needs_fetch(state, frame.header.opcode, vbid, key) {
            fetch(state, env, &frame, token);
            asked += 1;
            if let Some(fetches) = &mut state.fetches {
                fetches.wait_for_one_more();
            }
        }
        rest = &rest[consumed..];
    }
}

/// True when a request will probably wait for its document. One that replaces a value needs at most to know
/// that there is none, which is nothing to wait for while keys stay in memory.
fn needs_fetch(state: &ConnectionState, opcode: u8, vbid: Vbid, key: DocKey<'_>) -> bool {
    let Some(bucket) = &state.bucket else { return false };
    let is_full = bucket.bucket().config().eviction == EvictionPolicy::Full;
    (is_full || uses_value(opcode)) && bucket.bucket().needs_fetch(vbid, key)
}

fn fetch(state: &ConnectionState, env: &Environment, frame: &Frame<'_>, token: ParkToken) {
    let (Some(bucket), Some((vbid, key))) =
        (&state.bucket, state.document(&frame.header, frame.key))
    else {
        // Only a request about a document of the selected bucket is ever told to fetch it.
        return env.mailbox.fetched(token.encode(), FetchOutcome::Failed);
    };
    bucket.bucket().fetch(vbid, key, &env.fetch_sink, token.encode());
}

/// True for requests that need the value that there is.
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
