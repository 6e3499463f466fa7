//! Calls to the master that leads.
//!
//! Owns: finding the leader, the retry of calls that failed for a reason that passes, and the translation of
//! a master's refusals. Called by the table operations and the meta cache. Invariant: a call is repeated only
//! while the failure may pass: another leader, a busy master, a lost connection, an expired token. Whether
//! a lost attempt may have been executed is told to the caller, because tables are created and deleted
//! without request ids. It deliberately knows nothing of what the requests mean.

mod credentials;
mod leader;
mod response;

use std::time::Duration;

use tokio::time::Instant;

pub(crate) use leader::{Authentication, Masters};
pub(crate) use response::MasterResponse;

use crate::client::ClientShared;
use crate::error::{Error, MasterErrorCode, Operation, RpcErrorCode, StatusCode, refusal_code};
use crate::proto::master::{MasterErrorPb, SERVICE_NAME};
use crate::retry::backoff::{Backoff, pause};
use crate::rpc::{CallOptions, Method, RpcError};
use crate::types::HostPort;

/// How long one question may take; a paused master must not cost the whole deadline.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one attempt at a change may take. It is longer, because a change that is sent twice may be refused
/// as done already, and a table with thousands of tablets takes the master seconds to create.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// The method of the master service with this name.
pub(crate) const fn method(name: &'static str) -> Method {
    Method { service: SERVICE_NAME, name }
}

/// What a call is about, for errors, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MasterCall<'a> {
    pub(crate) operation: Operation,
    /// Name of the table, or empty.
    pub(crate) subject: &'a str,
    pub(crate) deadline: Instant,
    /// What the master has to know; see [`crate::proto::master::feature`].
    pub(crate) features: &'static [u32],
}

/// How a call ended.
pub(crate) struct MasterOutcome<R> {
    pub(crate) result: Result<R, Error>,
    /// An earlier attempt was lost after it may have been executed.
    pub(crate) may_have_run_before: bool,
}

/// What to do after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// Wait and send again.
    Again,
    /// Find the leader, then send again.
    FindLeader,
    /// Get a new authentication token by finding the leader without one, then send again.
    RenewAuthnToken,
    GiveUp,
}

/// Why an attempt failed.
struct Failure {
    error: Error,
    remedy: Remedy,
    /// The master cannot have executed the request, or has said that it did not.
    is_unsent: bool,
}

impl ClientShared {
    /// Sends a request to the leader until it is decided.
    pub(crate) async fn call_master<Q, R>(
        &self,
        method: &Method,
        request: &Q,
        call: MasterCall<'_>,
    ) -> Result<R, Error>
    where
        Q: prost::Message,
        R: MasterResponse,
    {
        self.call_master_for_outcome(method, request, call).await.result
    }

    /// Like [`ClientShared::call_master`], and tells whether an attempt was lost.
    pub(crate) async fn call_master_for_outcome<Q, R>(
        &self,
        method: &Method,
        request: &Q,
        call: MasterCall<'_>,
    ) -> MasterOutcome<R>
    where
        Q: prost::Message,
        R: MasterResponse,
    {
        let masters = self.masters();
        let mut may_have_run_before = false;
        let mut disappointed = None;
        let mut authentication = Authentication::Any;
        masters.renew_if_due(call.deadline).await;
        for attempt in 1.. {
            let leader = match masters.leader(disappointed, authentication, call.deadline).await {
                Ok(leader) => leader,
                Err(error) => return MasterOutcome { result: Err(error), may_have_run_before },
            };
            authentication = Authentication::Any;
            let Failure { error, remedy, is_unsent } = match self
                .attempt(&leader.address, method, request, &call)
                .await
            {
                Ok(response) => return MasterOutcome { result: Ok(response), may_have_run_before },
                Err(failure) => failure,
            };
            may_have_run_before |= !is_unsent;
            match remedy {
                Remedy::Again => {}
                Remedy::FindLeader => disappointed = Some(leader.generation),
                Remedy::RenewAuthnToken => {
                    disappointed = Some(leader.generation);
                    authentication = Authentication::Primary;
                }
                Remedy::GiveUp => return MasterOutcome { result: Err(error), may_have_run_before },
            }
            tracing::debug!(master = %leader.address, attempt, %error, "a call to the master is tried again");
            if !pause(Backoff::Exponential.delay(attempt), call.deadline).await {
                let result = Err(Error::timeout(call.operation, call.subject, Some(error)));
                return MasterOutcome { result, may_have_run_before };
            }
        }
        unreachable!("a range without an end does not end")
    }

    async fn attempt<Q, R>(
        &self,
        leader: &HostPort,
        method: &Method,
        request: &Q,
        call: &MasterCall<'_>,
    ) -> Result<R, Failure>
    where
        Q: prost::Message,
        R: MasterResponse,
    {
        let mut options =
            CallOptions::new(call.deadline.min(Instant::now() + attempt_timeout(call.operation)));
        options.required_feature_flags = call.features;
        match self.messenger().call::<Q, R>(leader, method, request, &options).await {
            Err(error) => {
                let remedy = remedy_for_rpc(&error);
                Err(Failure { is_unsent: error.is_unsent(), remedy, error: error.into() })
            }
            Ok(reply) => match reply.message.error() {
                None => Ok(reply.message),
                Some(answer) => Err(Failure {
                    error: refusal(answer, call.operation, call.subject),
                    remedy: remedy_for_answer(answer),
                    is_unsent: true,
                }),
            },
        }
    }
}

fn attempt_timeout(operation: Operation) -> Duration {
    match operation {
        Operation::CreateTable
        | Operation::AlterTable
        | Operation::DeleteTable
        | Operation::RecallTable => CHANGE_TIMEOUT,
        _ => QUESTION_TIMEOUT,
    }
}

fn remedy_for_rpc(error: &RpcError) -> Remedy {
    match error {
        RpcError::Network { .. } | RpcError::Timeout { .. } => Remedy::FindLeader,
        RpcError::Negotiation { source, .. } => match refusal_code(source) {
            Some(RpcErrorCode::InvalidAuthenticationToken) => Remedy::RenewAuthnToken,
            // The server refused what this client is; trying again does not change it.
            Some(_) => Remedy::GiveUp,
            None => Remedy::FindLeader,
        },
        RpcError::Remote { code, .. } => match RpcErrorCode::from(*code) {
            RpcErrorCode::ServerTooBusy => Remedy::Again,
            RpcErrorCode::Unavailable | RpcErrorCode::ServerShuttingDown => Remedy::FindLeader,
            RpcErrorCode::InvalidAuthenticationToken => Remedy::RenewAuthnToken,
            _ => Remedy::GiveUp,
        },
        RpcError::Malformed { .. } | RpcError::TooLarge { .. } => Remedy::GiveUp,
    }
}

fn remedy_for_answer(error: &MasterErrorPb) -> Remedy {
    if leader::has_lost_leadership(MasterErrorCode::from_wire(error.code)) {
        Remedy::FindLeader
    } else if leader::is_transient(StatusCode::from_wire(error.status.code)) {
        Remedy::Again
    } else {
        Remedy::GiveUp
    }
}

/// A master's refusal as the caller sees it.
fn refusal(error: &MasterErrorPb, operation: Operation, subject: &str) -> Error {
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

#[cfg(test)]
mod tests;
