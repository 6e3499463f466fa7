//! Calls to tablets, with retries until they have an outcome.
//!
//! It owns the one executor of sessions, scanners and lookups. The executor chooses a replica,
//! sends, and checks the result by the table in [`remedy`]. Then it does what the table says: it
//! waits, moves to another replica, looks the tablet up again, or renews a token. Invariants: an
//! attempt is bounded, so one silent server does not cost the whole deadline. A write keeps its
//! request id over all attempts, so the server applies it once. Each attempt lays out the request
//! again, because its token and timestamp change. The executor does not interpret requests.

pub(crate) mod remedy;
mod replica_picker;
mod response;
#[cfg(test)]
pub(crate) mod scripted_server;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use remedy::{Remedy, remedy_for_answer, remedy_for_rpc};
pub use replica_picker::ReplicaSelection;
use replica_picker::{Pick, ReplicaPicker};
pub(crate) use response::TabletResponse;

use crate::backoff::{Backoff, pause};
use crate::error::{Error, Operation, StatusCode, TabletServerErrorCode};
use crate::master::Authentication;
use crate::meta_cache::{ReplicaSet, Tablet};
use crate::proto::rpc::SignedTokenPb;
use crate::proto::tserver::TabletServerErrorPb;
use crate::request_tracker::TrackedRequest;
use crate::rpc::{CallOptions, Method, RpcError, RpcReply};
use crate::table::Table;
use crate::types::HostPort;

/// The timeout of the first attempt of a small request.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the executor doubles that timeout at most.
const DOUBLINGS_MAX: u32 = 3;
/// A shorter silence says nothing about the server: the caller had no time to wait.
const SILENCE_MIN: Duration = Duration::from_millis(500);
/// The least throughput to wait for: a slow network must have time to carry a large request.
const BYTES_PER_SECOND_MIN: usize = 4 << 20;

/// A call to one tablet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TabletCall<'a> {
    pub(crate) table: &'a Table,
    pub(crate) tablet: &'a Arc<Tablet>,
    pub(crate) operation: Operation,
    pub(crate) method: &'a Method,
    pub(crate) selection: ReplicaSelection,
    pub(crate) deadline: Instant,
    /// The server executes the call once, however often it arrives. Only for methods that support
    /// it.
    pub(crate) exactly_once: bool,
    /// Features that the server must have.
    pub(crate) features: &'static [u32],
    /// The approximate size of the request; it bounds the time of an attempt.
    pub(crate) body_bytes: usize,
}

impl TabletCall<'_> {
    fn picker(&self) -> ReplicaPicker {
        match self.operation {
            Operation::Write => ReplicaPicker::of_write(),
            _ => ReplicaPicker::of_read(self.selection),
        }
    }
}

/// The parts of a request that differ between attempts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    /// 32 hexadecimal digits.
    pub(crate) tablet_id: &'a str,
    /// The authorization token for the table, if the cluster controls access.
    pub(crate) authz_token: Option<&'a SignedTokenPb>,
    /// The newest hybrid time that this client has seen, if any.
    pub(crate) propagated_timestamp: Option<u64>,
}

/// The answer of a tablet.
#[derive(Debug)]
pub(crate) struct TabletReply<R> {
    pub(crate) message: R,
    pub(crate) sidecars: Vec<Bytes>,
    /// The server that answered; a scanner continues there.
    pub(crate) server: HostPort,
}

/// Sends the call until it has an outcome. `build` lays out the body of one attempt, in pieces to
/// send end to end.
pub(crate) async fn call_tablet<R>(
    call: TabletCall<'_>,
    mut build: impl FnMut(&Attempt<'_>) -> Vec<Bytes>,
) -> Result<TabletReply<R>, Error>
where
    R: TabletResponse,
{
    let shared = call.table.shared();
    let mut execution = Execution {
        call,
        picker: call.picker(),
        request: call.exactly_once.then(|| shared.requests().start()),
        attempt: 0,
        began: Instant::now(),
        silences: 0,
        last: None,
    };
    shared.masters().renew_if_due(call.deadline).await;
    loop {
        let (replicas, replica) = execution.next_replica().await?;
        let server = replicas.all()[replica].address.clone();
        let authz_token = call.table.authz_token();
        let attempt = Attempt {
            tablet_id: call.tablet.id(),
            authz_token: authz_token.as_deref(),
            propagated_timestamp: Some(shared.last_observed_timestamp())
                .filter(|timestamp| *timestamp != 0),
        };
        let pieces = build(&attempt);
        let options = execution.options();
        let outcome =
            shared.messenger().call_pieces::<R>(&server, call.method, pieces, &options).await;
        if let Some(timestamp) = outcome.as_ref().ok().and_then(|reply| reply.message.timestamp()) {
            shared.observe(timestamp);
        }
        match Failure::of(&outcome, &call, &server) {
            None => {
                let RpcReply { message, sidecars } = outcome?;
                execution.picker.accept(&replicas, replica);
                return Ok(TabletReply { message, sidecars, server });
            }
            Some(failure) => {
                execution.recover(failure, (&replicas, replica), authz_token).await?;
            }
        }
    }
}

/// Why an attempt failed, and what to do about it.
struct Failure {
    error: Error,
    remedy: Remedy,
}

impl Failure {
    fn of<R: TabletResponse>(
        outcome: &Result<RpcReply<R>, RpcError>,
        call: &TabletCall<'_>,
        server: &HostPort,
    ) -> Option<Failure> {
        match outcome {
            Err(error) => {
                Some(Failure { remedy: remedy_for_rpc(error), error: error.clone().into() })
            }
            Ok(reply) => {
                reply.message.error().map(|answer| Failure::of_answer(answer, call, server))
            }
        }
    }

    fn of_answer(
        answer: &TabletServerErrorPb,
        call: &TabletCall<'_>,
        server: &HostPort,
    ) -> Failure {
        let code = TabletServerErrorCode::from_wire(answer.code);
        let status = StatusCode::from_wire(answer.status.code);
        let error = Error::TabletServer {
            operation: call.operation,
            server: server.clone(),
            table: call.table.name().to_owned(),
            tablet_id: call.tablet.id().to_owned(),
            code,
            status,
            message: answer.status.message.clone().unwrap_or_default().into(),
        };
        Failure { error, remedy: remedy_for_answer(code, status) }
    }
}

/// The state of a call in progress.
struct Execution<'a> {
    call: TabletCall<'a>,
    picker: ReplicaPicker,
    request: Option<TrackedRequest>,
    /// Attempts so far.
    attempt: u32,
    /// When the last of them began.
    began: Instant,
    /// How many of them ended without an answer.
    silences: u32,
    /// The last failure, for the error at the deadline.
    last: Option<Error>,
}

impl Execution<'_> {
    /// The next replica to try, from the master if no replica is left.
    async fn next_replica(&mut self) -> Result<(Arc<ReplicaSet>, usize), Error> {
        let Execution { call, .. } = *self;
        loop {
            if Instant::now() >= call.deadline {
                return Err(self.out_of_time());
            }
            let generation = call.tablet.generation();
            let replicas = call.tablet.replicas();
            if !call.tablet.is_stale() {
                let leader = call.table.shared().masters().known_leader();
                let location = leader.as_ref().map_or("", |leader| &leader.client_location);
                if let Pick::Replica(index) = self.picker.pick(&replicas, location) {
                    return Ok((replicas, index));
                }
            }
            // The first question is free; later ones wait, so that a tablet without a leader causes
            // no tight loop.
            if self.attempt > 0 && !pause(Backoff::Linear.delay(self.attempt), call.deadline).await
            {
                return Err(self.out_of_time());
            }
            self.attempt += 1;
            call.table.refresh_tablet(call.tablet, generation, call.deadline).await?;
            self.picker.forget();
        }
    }

    /// The timeout and the request id of the next attempt.
    fn options(&mut self) -> CallOptions {
        self.began = Instant::now();
        let bounded = self.began + attempt_timeout(self.call.body_bytes, self.silences);
        let mut options = CallOptions::new(self.call.deadline.min(bounded));
        options.required_feature_flags = self.call.features;
        options.request_id = self.request.as_mut().map(TrackedRequest::next_attempt);
        options
    }

    /// Applies the remedy for the last failure, or returns the error if there is none.
    async fn recover(
        &mut self,
        failure: Failure,
        (replicas, replica): (&ReplicaSet, usize),
        used_token: Option<Arc<SignedTokenPb>>,
    ) -> Result<(), Error> {
        let Execution { call, .. } = *self;
        self.attempt += 1;
        self.silences += u32::from(matches!(failure.error, Error::NoAnswer { .. }));
        tracing::debug!(tablet = call.tablet.id(), attempt = self.attempt, error = %failure.error, remedy = ?failure.remedy, "a call to a tablet failed");
        match failure.remedy {
            Remedy::GiveUp => return Err(failure.error),
            Remedy::OtherReplica if self.was_cut_short(&failure.error) => {}
            Remedy::OtherReplica => replicas.mark_failed(replica),
            Remedy::NotTheLeader => self.picker.refuse(replicas, replica),
            Remedy::FindTablet => call.tablet.mark_stale(),
            Remedy::SameReplica => {}
            Remedy::RenewAuthnToken => {
                let masters = call.table.shared().masters();
                let leader = masters.known_leader().map(|leader| leader.generation);
                masters.leader(leader, Authentication::Primary, call.deadline).await?;
            }
            Remedy::RenewAuthzToken => {
                call.table.renew_authz_token(used_token, call.deadline).await?
            }
        }
        self.remember(failure.error);
        // The first new token is used at once; if it is refused too, there is no hurry.
        let waits = match failure.remedy {
            Remedy::SameReplica => true,
            Remedy::RenewAuthnToken | Remedy::RenewAuthzToken => self.attempt > 1,
            _ => false,
        };
        if waits && !pause(Backoff::Linear.delay(self.attempt), call.deadline).await {
            return Err(self.out_of_time());
        }
        Ok(())
    }

    /// Whether the failure only means that the caller's deadline cut the attempt short.
    fn was_cut_short(&self, error: &Error) -> bool {
        matches!(error, Error::NoAnswer { .. }) && self.began.elapsed() < SILENCE_MIN
    }

    /// Keeps the failure, unless the deadline cut the attempt short: then the previous failure says
    /// more.
    fn remember(&mut self, error: Error) {
        if self.last.is_none() || !self.was_cut_short(&error) {
            self.last = Some(error);
        }
    }

    fn out_of_time(&mut self) -> Error {
        let subject =
            format!("tablet {} of table {:?}", self.call.tablet.id(), self.call.table.name());
        Error::timeout(self.call.operation, &subject, self.last.take())
    }
}

/// The timeout of an attempt. It doubles after each silence: a server that is only slow must not
/// get the same large request every few seconds.
fn attempt_timeout(body_bytes: usize, silences: u32) -> Duration {
    let carried = Duration::from_secs((body_bytes / BYTES_PER_SECOND_MIN) as u64);
    (ATTEMPT_TIMEOUT + carried) * (1 << silences.min(DOUBLINGS_MAX))
}
