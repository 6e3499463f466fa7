//! Why a call has no reply.
//!
//! Invariants: an error is cheap to clone, because one lost connection fails every call on it. A
//! server's code stays a code. The layers above the RPC layer decide what to retry.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::frame::FrameError;
use crate::proto::rpc::{ErrorStatusPb, RpcErrorCodePb};
use crate::types::HostPort;

/// Why a call has no reply.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RpcError {
    /// The connection could not be opened, or was lost before the reply came.
    #[error("connection to {server}: {source}{}", InterruptedCalls(.interrupted))]
    Network {
        server: HostPort,
        source: Arc<io::Error>,
        /// The calls in flight, which the server may or may not have run. Empty when the connection
        /// was never open.
        interrupted: Arc<[InterruptedCall]>,
    },
    /// The deadline passed. The server may or may not run the call.
    #[error("{server} did not answer {method} in time")]
    Timeout { server: HostPort, method: &'static str },
    /// The server is reachable, but both sides do not agree on a way to talk.
    #[error("negotiation with {server}: {source}")]
    Negotiation { server: HostPort, source: NegotiationError },
    /// The server's RPC layer refused the call.
    #[error("{server} refused {method}: {message} ({code:?})")]
    Remote {
        server: HostPort,
        method: &'static str,
        code: RpcErrorCodePb,
        message: String,
        /// The flags that the call required and the server does not know.
        unsupported_flags: Vec<u32>,
    },
    /// The server's bytes violate the protocol.
    #[error("{server} sent a malformed frame: {source}")]
    Malformed { server: HostPort, source: FrameError },
    /// The call is larger than a server accepts. The client did not send it, and the connection
    /// stays usable.
    #[error("a message may have {bytes_max} bytes, this {method} has {bytes}")]
    TooLarge { method: &'static str, bytes: usize, bytes_max: usize },
}

impl RpcError {
    /// True when the server cannot have run the call.
    pub(crate) fn is_unsent(&self) -> bool {
        match self {
            Self::Network { interrupted, .. } => interrupted.is_empty(),
            Self::Timeout { .. } | Self::Malformed { .. } => false,
            Self::Negotiation { .. } | Self::Remote { .. } | Self::TooLarge { .. } => true,
        }
    }
}

/// A call that was sent and had no reply when its connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterruptedCall {
    pub call_id: i32,
    pub method: &'static str,
}

/// Shows the first interrupted calls and how many there are.
struct InterruptedCalls<'a>(&'a [InterruptedCall]);

impl fmt::Display for InterruptedCalls<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 4;
        if self.0.is_empty() {
            return Ok(());
        }
        write!(formatter, " ({} calls were in flight:", self.0.len())?;
        for call in self.0.iter().take(SHOWN_MAX) {
            write!(formatter, " {} #{}", call.method, call.call_id)?;
        }
        formatter.write_str(if self.0.len() > SHOWN_MAX { " ...)" } else { ")" })
    }
}

/// Why the negotiation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NegotiationError {
    #[error("the server refused: {message} ({code:?})")]
    Refused { code: RpcErrorCodePb, message: String },
    #[error("the server does not encrypt, but encryption is required")]
    NoTls,
    #[error("the server chose a way to authenticate that was not offered")]
    UnofferedAuthentication,
    #[error("the server does not offer the mechanism PLAIN")]
    NoPlain,
    #[error("the server sent step {0:?} where another was due")]
    UnexpectedStep(Option<i32>),
    #[error("the server sent a frame of call {0} during the negotiation")]
    UnexpectedCallId(i32),
    #[error("the server sent bytes after the end of the negotiation")]
    TrailingBytes,
    #[error("malformed frame: {0}")]
    Malformed(#[from] FrameError),
    #[error("TLS: {0}")]
    Tls(String),
}

/// Reads the body of an error reply; an unknown or missing code counts as the worst one.
pub(crate) fn decode_status(
    body: bytes::Bytes,
) -> Result<(RpcErrorCodePb, ErrorStatusPb), FrameError> {
    let status: ErrorStatusPb =
        prost::Message::decode(body).map_err(|_| FrameError::Undecodable("error"))?;
    let code = status.code.and_then(|code| RpcErrorCodePb::try_from(code).ok());
    Ok((code.unwrap_or(RpcErrorCodePb::FatalUnknown), status))
}

/// True when the server closes the connection after such an error.
pub(crate) fn is_fatal(code: RpcErrorCodePb) -> bool {
    use RpcErrorCodePb::{
        ErrorApplication, ErrorInvalidAuthorizationToken, ErrorInvalidRequest, ErrorNoSuchMethod,
        ErrorNoSuchService, ErrorRequestStale, ErrorServerTooBusy, ErrorUnavailable,
        FatalDeserializingRequest, FatalInvalidAuthenticationToken, FatalInvalidJwt,
        FatalInvalidRpcHeader, FatalServerShuttingDown, FatalUnauthorized, FatalUnknown,
        FatalVersionMismatch,
    };
    match code {
        ErrorApplication
        | ErrorNoSuchMethod
        | ErrorNoSuchService
        | ErrorServerTooBusy
        | ErrorInvalidRequest
        | ErrorRequestStale
        | ErrorUnavailable
        | ErrorInvalidAuthorizationToken => false,
        FatalUnknown
        | FatalServerShuttingDown
        | FatalInvalidRpcHeader
        | FatalDeserializingRequest
        | FatalVersionMismatch
        | FatalUnauthorized
        | FatalInvalidAuthenticationToken
        | FatalInvalidJwt => true,
    }
}
