//! The decision table of calls to tablets: a remedy for each way in which an attempt can fail.
//!
//! It is pure, and exhaustive over the codes, so every code has a deliberate entry. The table is
//! that of the C++ client, with one difference: an attempt that timed out moves to another replica
//! instead of failing the batch. Otherwise a paused server would cost the whole deadline; request
//! ids make the move safe for writes. `master.rs` checks the master's errors, because none of them
//! has a replica.

use crate::error::{RpcErrorCode, StatusCode, TabletServerErrorCode, refusal_code};
use crate::rpc::RpcError;

/// Action after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Wait a little and send to the same replica: it is overloaded.
    SameReplica,
    /// The server is unreachable: exclude it and send to another replica.
    OtherReplica,
    /// The replica does not lead, or cannot serve now: try the others.
    NotTheLeader,
    /// The server does not have the tablet: ask the master where it is.
    FindTablet,
    /// Get a new authentication token from the master, then send again.
    RenewAuthnToken,
    /// Get a new authorization token for the table from the master, then send again.
    RenewAuthzToken,
    /// Another attempt would get the same answer.
    GiveUp,
}

/// The remedy when the tablet did not answer.
pub(crate) fn remedy_for_rpc(error: &RpcError) -> Remedy {
    match error {
        RpcError::Network { .. } | RpcError::Timeout { .. } => Remedy::OtherReplica,
        RpcError::Negotiation { source, .. } => match refusal_code(source) {
            Some(RpcErrorCode::InvalidAuthenticationToken) => Remedy::RenewAuthnToken,
            _ => Remedy::OtherReplica,
        },
        RpcError::Remote { code, .. } => remedy_for_code((*code).into()),
        RpcError::Malformed { .. } | RpcError::TooLarge { .. } => Remedy::GiveUp,
    }
}

fn remedy_for_code(code: RpcErrorCode) -> Remedy {
    match code {
        RpcErrorCode::ServerTooBusy | RpcErrorCode::Unavailable => Remedy::SameReplica,
        RpcErrorCode::InvalidAuthenticationToken => Remedy::RenewAuthnToken,
        RpcErrorCode::InvalidAuthorizationToken => Remedy::RenewAuthzToken,
        // The server is shutting down and closes the connection.
        RpcErrorCode::ServerShuttingDown | RpcErrorCode::Unknown => Remedy::OtherReplica,
        RpcErrorCode::Application
        | RpcErrorCode::NoSuchMethod
        | RpcErrorCode::NoSuchService
        | RpcErrorCode::InvalidRequest
        | RpcErrorCode::RequestStale
        | RpcErrorCode::InvalidRpcHeader
        | RpcErrorCode::DeserializingRequest
        | RpcErrorCode::VersionMismatch
        | RpcErrorCode::Unauthorized
        | RpcErrorCode::InvalidJwt => Remedy::GiveUp,
    }
}

/// The remedy when the tablet server refused the request.
pub(crate) fn remedy_for_answer(code: TabletServerErrorCode, status: StatusCode) -> Remedy {
    match code {
        TabletServerErrorCode::TabletNotFound | TabletServerErrorCode::WrongServerUuid => {
            Remedy::FindTablet
        }
        TabletServerErrorCode::Throttled | TabletServerErrorCode::TxnLockedRetryOp => {
            Remedy::SameReplica
        }
        // Their status is ILLEGAL_STATE or ABORTED, but retrying is pointless.
        TabletServerErrorCode::TxnIllegalState | TabletServerErrorCode::TxnLockedAbort => {
            Remedy::GiveUp
        }
        TabletServerErrorCode::NotTheLeader
        | TabletServerErrorCode::TabletNotRunning
        | TabletServerErrorCode::TabletFailed => {
            if status == StatusCode::ServiceUnavailable {
                Remedy::SameReplica
            } else {
                Remedy::NotTheLeader
            }
        }
        TabletServerErrorCode::Unknown
        | TabletServerErrorCode::InvalidSchema
        | TabletServerErrorCode::InvalidRowBlock
        | TabletServerErrorCode::InvalidMutation
        | TabletServerErrorCode::MismatchedSchema
        | TabletServerErrorCode::ScannerExpired
        | TabletServerErrorCode::InvalidScanSpec
        | TabletServerErrorCode::InvalidConfig
        | TabletServerErrorCode::TabletAlreadyExists
        | TabletServerErrorCode::TabletHasANewerSchema
        | TabletServerErrorCode::InvalidSnapshot
        | TabletServerErrorCode::InvalidScanCallSeqId
        | TabletServerErrorCode::CasFailed
        | TabletServerErrorCode::AlreadyInProgress
        | TabletServerErrorCode::NotAuthorized
        | TabletServerErrorCode::TxnOpAlreadyApplied => remedy_for_status(status),
    }
}

fn remedy_for_status(status: StatusCode) -> Remedy {
    match status {
        StatusCode::ServiceUnavailable => Remedy::SameReplica,
        // Kudu uses these two for nearly everything that another replica might accept.
        StatusCode::IllegalState | StatusCode::Aborted => Remedy::NotTheLeader,
        _ => Remedy::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_server_gets_the_call_again() {
        for code in [RpcErrorCode::ServerTooBusy, RpcErrorCode::Unavailable] {
            assert_eq!(remedy_for_code(code), Remedy::SameReplica);
        }
        assert_eq!(
            remedy_for_answer(TabletServerErrorCode::Throttled, StatusCode::ServiceUnavailable),
            Remedy::SameReplica
        );
        assert_eq!(
            remedy_for_answer(TabletServerErrorCode::Unknown, StatusCode::ServiceUnavailable),
            Remedy::SameReplica
        );
        assert_eq!(
            remedy_for_answer(TabletServerErrorCode::TxnLockedRetryOp, StatusCode::Aborted),
            Remedy::SameReplica
        );
    }

    #[test]
    fn a_follower_or_stopped_replica_redirects_the_call() {
        for code in [
            TabletServerErrorCode::NotTheLeader,
            TabletServerErrorCode::TabletNotRunning,
            TabletServerErrorCode::Unknown,
        ] {
            for status in [StatusCode::IllegalState, StatusCode::Aborted] {
                assert_eq!(remedy_for_answer(code, status), Remedy::NotTheLeader);
            }
        }
    }

    #[test]
    fn missing_tablets_are_located_and_tokens_renewed() {
        assert_eq!(
            remedy_for_answer(TabletServerErrorCode::TabletNotFound, StatusCode::NotFound),
            Remedy::FindTablet
        );
        assert_eq!(
            remedy_for_code(RpcErrorCode::InvalidAuthenticationToken),
            Remedy::RenewAuthnToken
        );
        assert_eq!(
            remedy_for_code(RpcErrorCode::InvalidAuthorizationToken),
            Remedy::RenewAuthzToken
        );
    }

    #[test]
    fn request_errors_are_permanent() {
        for code in [
            TabletServerErrorCode::MismatchedSchema,
            TabletServerErrorCode::InvalidRowBlock,
            TabletServerErrorCode::Unknown,
        ] {
            for status in [
                StatusCode::InvalidArgument,
                StatusCode::NotFound,
                StatusCode::Corruption,
                StatusCode::NotAuthorized,
            ] {
                assert_eq!(remedy_for_answer(code, status), Remedy::GiveUp);
            }
        }
        for code in [TabletServerErrorCode::TxnIllegalState, TabletServerErrorCode::TxnLockedAbort]
        {
            assert_eq!(remedy_for_answer(code, StatusCode::IllegalState), Remedy::GiveUp);
        }
        assert_eq!(remedy_for_code(RpcErrorCode::RequestStale), Remedy::GiveUp);
    }
}
