//! The calls of one connection that wait for their replies.
//!
//! Invariants: no two calls have the same id. Ids grow, and restart at 0 only after `i32::MAX`. A
//! call whose caller has gone stays until its reply comes, to tell a late reply from a wrong one.
//! The connection calls it.

use std::collections::HashMap;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::{InterruptedCall, RpcError};
use super::frame::ReplyFrame;

/// The receiver of a call's reply.
pub(crate) type ReplySender = oneshot::Sender<Result<ReplyFrame, RpcError>>;

/// A call that waits for its reply.
#[derive(Debug)]
pub(crate) struct PendingCall {
    pub method: &'static str,
    pub deadline: Instant,
    pub reply: ReplySender,
}

/// The calls of one connection, by their ids.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    calls: HashMap<i32, PendingCall>,
    next_call_id: i32,
}

impl InFlight {
    /// An id that no call in flight has. It is used up even if no call is inserted.
    pub(crate) fn new_call_id(&mut self) -> i32 {
        loop {
            let call_id = self.next_call_id;
            self.next_call_id = call_id.checked_add(1).unwrap_or(0);
            if !self.calls.contains_key(&call_id) {
                return call_id;
            }
        }
    }

    /// Adds a call under an id from [`InFlight::new_call_id`].
    pub(crate) fn insert(&mut self, call_id: i32, call: PendingCall) {
        let previous = self.calls.insert(call_id, call);
        assert!(previous.is_none(), "call ids in flight are unique");
    }

    /// Removes the call that a reply belongs to.
    pub(crate) fn remove(&mut self, call_id: i32) -> Option<PendingCall> {
        self.calls.remove(&call_id)
    }

    /// True while a caller waits for a reply.
    pub(crate) fn is_awaited(&self, now: Instant) -> bool {
        self.calls.values().any(|call| call.deadline > now && !call.reply.is_closed())
    }

    /// Removes all calls, with their descriptions for an error, in the order of sending.
    pub(crate) fn interrupt(&mut self) -> (Vec<InterruptedCall>, Vec<ReplySender>) {
        let mut calls: Vec<_> =
            self.calls.drain().filter(|(_, call)| !call.reply.is_closed()).collect();
        calls.sort_unstable_by_key(|(call_id, _)| *call_id);
        calls
            .into_iter()
            .map(|(call_id, call)| (InterruptedCall { call_id, method: call.method }, call.reply))
            .unzip()
    }
}
