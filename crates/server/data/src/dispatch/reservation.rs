//! Reserves memory for large answers. Makes writes wait for memory of their bucket, and stream
//! requests for their vbucket to be loaded.
//!
//! Owns: when a request has to wait before its operation, because its answer would hold much
//! memory. Also when a write waits instead of being refused: clients of memcached do not repeat a
//! refused write.
//!
//! Invariants:
//! - no document changes before the answer is reserved, so the request can be served again;
//! - a request that was overtaken, or holds memory itself, is refused instead of waiting.
//!
//! Handlers that answer with documents call this.

use oribi_engine::{GetOutcome, ItemRef};
use oribi_protocol::status::Status;

use super::outcome::Rejection;
use super::request::{Request, RequestLocation};
use crate::connection::memory::budget::Demand;
use crate::connection::pending::HeadWait;
use crate::limits::{LOADING_WAIT_MS, ROOM_WAIT_MS};

const NO_MEMORY: Rejection =
    Rejection::Because(Status::Etmpfail, "the memory for connections is in use");

/// True when a write that the bucket refuses for now is tried again instead of answered. The
/// connection then waits at its head.
#[cold]
pub(super) fn waits_for_bucket(req: &mut Request<'_>) -> bool {
    if !req.state.is_memcached() || req.tries.is_overtaken {
        return false;
    }
    tries_again(req, ROOM_WAIT_MS)
}

/// True when a stream request whose vbucket is being loaded is tried again instead of answered. The
/// connection then waits at its head; its other streams continue.
#[cold]
pub(super) fn waits_to_load(req: &mut Request<'_>) -> bool {
    tries_again(req, LOADING_WAIT_MS)
}

/// False when the request has waited for so long.
fn tries_again(req: &mut Request<'_>, wait_ms: u64) -> bool {
    let waits = req.state.pending.wait_for_bucket(req.env.now_ms, wait_ms);
    if waits {
        req.env.bucket_waits.push(req.connection);
    }
    waits
}

/// Makes the connection wait with this request at its head. [`waits_to_load`] has begun its wait.
pub(super) fn wait(req: &mut Request<'_>, wait: HeadWait) {
    debug_assert!(!req.tries.is_overtaken, "an overtaken request does not wait at the head");
    if req.state.pending.head_wait() != Some(wait) {
        req.state.pending.wait_at_head(wait);
    }
}

impl Request<'_> {
    /// Reserves memory for an answer that holds `bytes` until it is sent.
    #[inline(always)]
    pub fn reserve_answer(&mut self, bytes: usize) -> Result<(), Rejection> {
        match bytes < self.env.memory.reserved_answer_bytes_min() {
            true => Ok(()),
            false => self.reserve(Demand::of_bytes(bytes)),
        }
    }

    /// Makes space for an answer that sends the value of this version from its place.
    #[inline(always)]
    pub fn reserve_in_place(&mut self, item: &ItemRef) -> Result<(), Rejection> {
        match item.value_bytes() < self.env.memory.reserved_answer_bytes_min() {
            true => Ok(()),
            false => self.reserve(Demand::of_block(item)),
        }
    }

    /// Makes space for the answer when a document is about to be changed.
    pub fn reserve_document(&mut self, document: RequestLocation<'_>) -> Result<(), Rejection> {
        match document.get(self) {
            GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
                self.reserve_answer(item.value_bytes())
            }
            GetOutcome::Miss | GetOutcome::Refused(_) => Ok(()),
        }
    }

    #[cold]
    fn reserve(&mut self, demand: Demand) -> Result<(), Rejection> {
        let memory = &self.env.server.connections.memory;
        let may_wait = !self.tries.is_overtaken;
        if may_wait && self.state.pending.take_memory_timeout() {
            return Err(NO_MEMORY);
        }
        let demand = Demand { bytes: memory.counted(demand.bytes), ..demand };
        if self.state.reserved.covers(demand, self.has_output) {
            return Ok(());
        }
        if may_wait && self.has_output {
            return Err(Rejection::Retry(HeadWait::Drain));
        }
        // A request for a block has reserved nothing else, so this was for another version, or
        // another request.
        let exchanges = may_wait && self.state.reserved.is_any() && demand.block.is_some();
        let may_wait = exchanges || (may_wait && !self.state.reserved.is_any());
        let grant = match may_wait {
            true if exchanges && self.state.reserved.take_is_fresh() => {
                self.env.memory.exchange(&mut self.state.reserved, demand, self.connection)
            }
            true => {
                memory.release_all(&mut self.state.reserved);
                self.env.memory.reserve(demand, self.connection)
            }
            false => memory.try_grant(demand),
        };
        let Some(grant) = grant else {
            debug_assert!(demand.bytes > 0, "a wait is for memory");
            if !may_wait {
                return Err(NO_MEMORY);
            }
            let since_ms = self.env.now_ms;
            return Err(Rejection::Retry(HeadWait::Memory { since_ms }));
        };
        self.state.reserved.add(grant, self.env.now_ms);
        debug_assert!(self.state.reserved.is_any(), "what was granted is held");
        Ok(())
    }
}
