//! Maps a master's refusal, or its silence, to the caller's error and to the next step.

use crate::error::{Error, MasterErrorCode, Operation, RpcErrorCode, StatusCode, refusal_code};
use crate::proto::master::MasterErrorPb;
use crate::rpc::RpcError;

/// Action after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MasterRemedy {
    /// Wait and send again.
    Again,
    /// Find the leader, then send again.
    FindLeader,
    /// Get a new authentication token by finding the leader without one, then send again.
    RenewAuthnToken,
    GiveUp,
}

/// Action when the master did not answer.
pub(super) fn remedy_for_rpc(error: &RpcError) -> MasterRemedy {
    match error {
        RpcError::Network { .. } | RpcError::Timeout { .. } => MasterRemedy::FindLeader,
        RpcError::Negotiation { source, .. } => match refusal_code(source) {
            Some(RpcErrorCode::InvalidAuthenticationToken) => MasterRemedy::RenewAuthnToken,
            // The server refused this client as such; another attempt does not change that.
            Some(_) => MasterRemedy::GiveUp,
            None => MasterRemedy::FindLeader,
        },
        RpcError::Remote { code, .. } => match RpcErrorCode::from(*code) {
            RpcErrorCode::ServerTooBusy => MasterRemedy::Again,
            RpcErrorCode::Unavailable | RpcErrorCode::ServerShuttingDown => {
                MasterRemedy::FindLeader
            }
            RpcErrorCode::InvalidAuthenticationToken => MasterRemedy::RenewAuthnToken,
            _ => MasterRemedy::GiveUp,
        },
        RpcError::Malformed { .. } | RpcError::TooLarge { .. } => MasterRemedy::GiveUp,
    }
}

/// Action when the master refused the request.
pub(super) fn remedy_for_answer(error: &MasterErrorPb) -> MasterRemedy {
    if has_lost_leadership(MasterErrorCode::from_wire(error.code)) {
        MasterRemedy::FindLeader
    } else if is_transient(StatusCode::from_wire(error.status.code)) {
        MasterRemedy::Again
    } else {
        MasterRemedy::GiveUp
    }
}

/// The caller's error for a master's refusal.
pub(super) fn refusal(error: &MasterErrorPb, operation: Operation, subject: &str) -> Error {
    let code = MasterErrorCode::from_wire(error.code);
    let table = subject.to_owned();
    match code {
        MasterErrorCode::TableNotFound => Error::TableNotFound { operation, table },
        MasterErrorCode::TableAlreadyPresent => Error::TableAlreadyPresent { operation, table },
        _ => Error::Master {
            operation,
            subject: table,
            code,
            status: StatusCode::from_wire(error.status.code),
            message: error.status.message.clone().unwrap_or_default(),
        },
    }
}

/// Whether a refusal means that the client has to find another master.
fn has_lost_leadership(code: MasterErrorCode) -> bool {
    matches!(code, MasterErrorCode::NotTheLeader | MasterErrorCode::CatalogManagerNotInitialized)
}

/// Whether a refusal is transient.
fn is_transient(status: StatusCode) -> bool {
    status == StatusCode::ServiceUnavailable
}
