//! A call on its way from its caller to the connection's task.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use crate::rpc::in_flight::ReplySender;
use crate::rpc::{CallOptions, Method};

/// Calls that the task takes from its queue at a time.
pub(super) const CALLS_PER_TURN: usize = 64;

/// A call on its way to the task.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub method: Method,
    pub options: CallOptions,
    pub pieces: Vec<Bytes>,
    pub room: OwnedSemaphorePermit,
    pub reply: ReplySender,
}
