//! Calls to the master that leads.
//!
//! It owns the search for the leader, the retry of transient failures and the mapping of a master's
//! refusals to errors. The table operations and the meta cache call it. Invariant: it repeats a
//! call only while the failure may pass: another leader, a busy master, a lost connection, an
//! expired token. It reports to the caller whether a lost attempt may have run, because Kudu
//! creates and deletes tables without request ids. It deliberately does not interpret the requests.

mod credentials;
mod leader;
mod refusal;
mod response;

use std::time::Duration;

use tokio::time::Instant;

pub(crate) use leader::{Authentication, Masters};
pub(crate) use response::MasterResponse;

use crate::backoff::{Backoff, pause};
use crate::error::{Error, Operation};
use crate::proto::master::SERVICE_NAME;
use crate::rpc::{CallOptions, Method};
use crate::types::HostPort;
use refusal::{MasterRemedy, refusal, remedy_for_answer, remedy_for_rpc};

/// The timeout of one question; a paused master must not cost the whole deadline.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of one attempt at a change. It is longer for two reasons: a master may refuse a
/// repeated change as already done, and it needs seconds to create a table with thousands of
/// tablets.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// The method of the master service with this name.
pub(crate) const fn method(name: &'static str) -> Method {
    Method { service: SERVICE_NAME, name }
}

/// The subject of a call, for errors, and its deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MasterCall<'a> {
    pub(crate) operation: Operation,
    /// Name of the table, or empty.
    pub(crate) subject: &'a str,
    pub(crate) deadline: Instant,
    /// Features that the master must have; see [`crate::proto::master::feature`].
    pub(crate) features: &'static [u32],
}

/// How a call ended.
pub(crate) struct MasterOutcome<R> {
    pub(crate) result: Result<R, Error>,
    /// An earlier attempt was lost, and the master may have executed it.
    pub(crate) may_have_run_before: bool,
}

/// Why an attempt failed.
struct Failure {
    error: Error,
    remedy: MasterRemedy,
    /// The master cannot have executed the request, or has said that it did not.
    is_unsent: bool,
}

impl Masters {
    /// Sends a request to the leader and retries until it has an outcome.
    pub(crate) async fn call<Q, R>(
        &self,
        method: &Method,
        request: &Q,
        call: MasterCall<'_>,
    ) -> Result<R, Error>
    where
        Q: prost::Message,
        R: MasterResponse,
    {
        self.call_for_outcome(method, request, call).await.result
    }

    /// Like [`Masters::call`], and reports whether an attempt was lost.
    pub(crate) async fn call_for_outcome<Q, R>(
        &self,
        method: &Method,
        request: &Q,
        call: MasterCall<'_>,
    ) -> MasterOutcome<R>
    where
        Q: prost::Message,
        R: MasterResponse,
    {
        let mut may_have_run_before = false;
        let mut disappointed = None;
        let mut authentication = Authentication::Any;
        self.renew_if_due(call.deadline).await;
        for attempt in 1.. {
            let leader = match self.leader(disappointed, authentication, call.deadline).await {
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
                MasterRemedy::Again => {}
                MasterRemedy::FindLeader => disappointed = Some(leader.generation),
                MasterRemedy::RenewAuthnToken => {
                    disappointed = Some(leader.generation);
                    authentication = Authentication::Primary;
                }
                MasterRemedy::GiveUp => {
                    return MasterOutcome { result: Err(error), may_have_run_before };
                }
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
        match self.messenger.call::<Q, R>(leader, method, request, &options).await {
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

#[cfg(test)]
mod tests;
