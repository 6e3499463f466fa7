//! Maps failures of the RPC layer to the public error.
//!
//! The RPC layer's own type serves the retry logic; the public one has what a caller can use.

use super::{Error, RpcErrorCode};
use crate::proto::rpc::RpcErrorCodePb;
use crate::rpc::{NegotiationError, RpcError};

impl From<RpcErrorCodePb> for RpcErrorCode {
    fn from(code: RpcErrorCodePb) -> RpcErrorCode {
        RpcErrorCode::from_wire(code as i32)
    }
}

impl From<RpcError> for Error {
    fn from(error: RpcError) -> Error {
        match error {
            RpcError::Network { server, source, .. } => Error::Network { server, source },
            RpcError::Timeout { server, method } => Error::NoAnswer { server, method },
            RpcError::Negotiation { server, source } => Error::Negotiation {
                server,
                code: refusal_code(&source),
                reason: source.to_string(),
            },
            RpcError::Remote { server, code, message, unsupported_flags, .. } => {
                Error::Rpc { server, code: code.into(), message, unsupported_flags }
            }
            RpcError::Malformed { server, source } => {
                Error::Malformed { server, reason: source.to_string() }
            }
            RpcError::TooLarge { bytes, bytes_max, .. } => {
                Error::RequestTooLarge { bytes, bytes_max }
            }
        }
    }
}

/// The code with which the server refused to negotiate, if it did.
pub(crate) fn refusal_code(error: &NegotiationError) -> Option<RpcErrorCode> {
    match error {
        NegotiationError::Refused { code, .. } => Some((*code).into()),
        _ => None,
    }
}
