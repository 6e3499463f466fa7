//! Calls to Kudu's servers: the wire protocol, connections, and the messenger that hands them out.
//!
//! It owns everything between an encoded request and a decoded reply. The codec ([`frame`]) and the
//! negotiation do no I/O; one task per server ([`connection`]) owns the socket. The rest of the
//! client sees the [`Messenger`]. Invariants: a request's body goes to the socket from the caller's
//! buffers, and a reply's sidecars are slices of the block it was read into. A call ends by its
//! deadline, whatever the server does. A call is sent at most once. Retries, leaders and the
//! meaning of a reply's own error field belong to the callers.

mod connection;
mod error;
pub(crate) mod frame;
mod in_flight;
mod limits;
mod link;
mod messenger;
pub(crate) mod negotiation;
mod options;
pub(crate) mod read_block;
mod shared;
pub(crate) mod tls;
mod write_queue;

use bytes::Bytes;
use tokio::time::Instant;

pub(crate) use error::{NegotiationError, RpcError};
pub(crate) use limits::MESSAGE_BYTES_MAX;
pub(crate) use messenger::Messenger;
pub use options::EncryptionPolicy;
pub(crate) use options::MessengerOptions;

use crate::proto::rpc::RequestIdPb;

/// A method of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method {
    /// The full name, such as `kudu.master.MasterService`.
    pub service: &'static str,
    pub name: &'static str,
}

/// The properties of a call besides its body.
#[derive(Clone, Debug)]
pub(crate) struct CallOptions {
    /// When the call ends with [`RpcError::Timeout`]. The client sends the server the remaining
    /// time.
    pub deadline: Instant,
    /// Features that the server must have to serve the call.
    pub required_feature_flags: &'static [u32],
    /// Lets the server recognise another attempt of the same request.
    pub request_id: Option<RequestIdPb>,
    /// Use a connection that was authenticated by the user's name instead of a token: a master
    /// issues a new token only there.
    pub primary_credentials: bool,
}

impl CallOptions {
    /// A call with a deadline only.
    pub(crate) fn new(deadline: Instant) -> Self {
        Self { deadline, required_feature_flags: &[], request_id: None, primary_credentials: false }
    }
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub(crate) struct RpcReply<R> {
    pub message: R,
    /// Slices of the block that the reply was read into; they keep it alive.
    pub sidecars: Vec<Bytes>,
}
