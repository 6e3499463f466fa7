//! The search for the leading master.
//!
//! The search queries all configured masters at the same time, because a follower knows no more
//! than the leader itself. The first master that claims to lead wins, and the search does not wait
//! for the others. It also queries further masters that a reply names, so one address is enough to
//! find a cluster. Invariants: one search runs at a time, and waiting calls share its result. A
//! caller names a stale leader by its generation, so many calls that fail together cause one
//! search. The leader's reply also carries the credentials, which reach the messenger only from
//! here.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::credentials::Credentials;
use super::refusal::refusal;
use super::response::MasterResponse;
use crate::backoff::{Backoff, pause, until};
use crate::error::{Error, Operation, RpcErrorCode};
use crate::proto::master::{
    ConnectToMasterRequestPb, ConnectToMasterResponsePb, RaftRolePb, SERVICE_NAME,
};
use crate::rpc::{CallOptions, Messenger, Method};
use crate::types::HostPort;

static CONNECT_TO_MASTER: Method = Method { service: SERVICE_NAME, name: "ConnectToMaster" };

/// How long one master may take to answer. A search that found no leader starts again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A master that claims to lead.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    /// Where it listens.
    pub(crate) address: HostPort,
    /// Which search found it.
    pub(crate) generation: u64,
    /// Id of the cluster, 32 hexadecimal digits; empty before Kudu 1.12.
    pub(crate) cluster_id: String,
    /// The location that the cluster assigns to this client, such as `/rack1`; empty when it
    /// assigns none.
    pub(crate) client_location: String,
}

/// How to authenticate a connection to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// With any available credential.
    Any,
    /// Without a token, because only then the master issues a new one.
    Primary,
}

/// The masters of the cluster.
#[derive(Debug)]
pub(crate) struct Masters {
    pub(super) messenger: Messenger,
    configured: Vec<HostPort>,
    leader: RwLock<Option<Arc<Leader>>>,
    credentials: Mutex<Credentials>,
    /// Held during a search.
    search: tokio::sync::Mutex<()>,
}

impl Masters {
    /// The masters at these addresses; it sends nothing yet.
    pub(crate) fn new(messenger: Messenger, configured: Vec<HostPort>) -> Masters {
        Masters {
            messenger,
            configured,
            leader: RwLock::default(),
            credentials: Mutex::default(),
            search: tokio::sync::Mutex::default(),
        }
    }

    /// The leader as last found.
    pub(crate) fn known_leader(&self) -> Option<Arc<Leader>> {
        self.leader.read().clone()
    }

    /// The leader, from the cache or by a search. A leader of the generation `disappointed` does
    /// not count.
    pub(crate) async fn leader(
        &self,
        disappointed: Option<u64>,
        authentication: Authentication,
        deadline: Instant,
    ) -> Result<Arc<Leader>, Error> {
        let is_good = |leader: &Arc<Leader>| disappointed.is_none_or(|bad| leader.generation > bad);
        if let Some(leader) = self.known_leader().filter(is_good) {
            return Ok(leader);
        }
        let Some(_one_at_a_time) = until(deadline, self.search.lock()).await else {
            return Err(Error::NoLeaderMaster { masters: self.configured.clone(), last: None });
        };
        if let Some(leader) = self.known_leader().filter(is_good) {
            return Ok(leader);
        }
        self.search(authentication, deadline).await
    }

    /// Gets a new token if the old one is about to expire. A failure surfaces in the calls that
    /// need a token.
    pub(crate) async fn renew_if_due(&self, deadline: Instant) {
        if !self.credentials.lock().take_due_renewal(Instant::now()) {
            return;
        }
        let Ok(_one_at_a_time) = self.search.try_lock() else { return };
        let deadline = deadline.min(Instant::now() + ANSWER_TIMEOUT);
        if let Err(error) = self.ask_all(Authentication::Primary, deadline).await {
            tracing::warn!(%error, "the authentication token could not be renewed");
        }
    }

    /// Queries masters until one leads or the deadline passes.
    async fn search(
        &self,
        mut authentication: Authentication,
        deadline: Instant,
    ) -> Result<Arc<Leader>, Error> {
        for attempt in 1.. {
            let error = match self.ask_all(authentication, deadline).await {
                Ok(leader) => return Ok(leader),
                Err(error) => error,
            };
            if authentication == Authentication::Any && is_about_token(&error) {
                authentication = Authentication::Primary;
                continue;
            }
            if !error.is_retryable() || !pause(Backoff::Exponential.delay(attempt), deadline).await
            {
                return Err(error);
            }
        }
        unreachable!("a range without an end does not end")
    }

    /// Queries every master once, and the masters that they name.
    async fn ask_all(
        &self,
        authentication: Authentication,
        deadline: Instant,
    ) -> Result<Arc<Leader>, Error> {
        let mut asked: Vec<HostPort> = self.configured.clone();
        let mut last = None;
        let mut answers: FuturesUnordered<_> = asked
            .iter()
            .cloned()
            .map(|master| self.ask(master, authentication, deadline))
            .collect();
        while let Some((master, answer)) = answers.next().await {
            let response = match answer {
                Ok(response) => response,
                Err(error) => {
                    // One transient failure is reason enough to ask again, so keep that one.
                    if last.as_deref().is_none_or(|last: &Error| !last.is_retryable()) {
                        last = Some(Box::new(error));
                    }
                    continue;
                }
            };
            if response.role == Some(RaftRolePb::Leader as i32) {
                return Ok(self.accept(master, response));
            }
            for named in response.master_addrs {
                let Ok(port) = u16::try_from(named.port) else { continue };
                let named = HostPort::new(named.host, port);
                if !asked.contains(&named) {
                    asked.push(named.clone());
                    answers.push(self.ask(named, authentication, deadline));
                }
            }
        }
        Err(Error::NoLeaderMaster { masters: asked, last })
    }

    async fn ask(
        &self,
        master: HostPort,
        authentication: Authentication,
        deadline: Instant,
    ) -> (HostPort, Result<ConnectToMasterResponsePb, Error>) {
        let mut options = CallOptions::new(deadline.min(Instant::now() + ANSWER_TIMEOUT));
        options.primary_credentials = authentication == Authentication::Primary;
        let reply = self
            .messenger
            .call::<_, ConnectToMasterResponsePb>(
                &master,
                &CONNECT_TO_MASTER,
                &ConnectToMasterRequestPb {},
                &options,
            )
            .await;
        let answer = match reply {
            Err(error) => Err(error.into()),
            Ok(reply) => match reply.message.error() {
                None => Ok(reply.message),
                Some(error) => Err(refusal(error, Operation::ConnectToMaster, &master.to_string())),
            },
        };
        (master, answer)
    }

    /// Makes this master the leader and passes its credentials on.
    fn accept(&self, address: HostPort, response: ConnectToMasterResponsePb) -> Arc<Leader> {
        {
            let mut credentials = self.credentials.lock();
            credentials.update(
                response.ca_cert_der,
                response.authn_token,
                Instant::now(),
                SystemTime::now(),
            );
            self.messenger.set_credentials(
                credentials.ca_certs_der().to_vec(),
                credentials.authn_token().cloned(),
            );
        }
        let mut known = self.leader.write();
        let leader = Arc::new(Leader {
            address,
            generation: known.as_ref().map_or(0, |leader| leader.generation) + 1,
            cluster_id: response.cluster_id.unwrap_or_default(),
            client_location: response.client_location.unwrap_or_default(),
        });
        *known = Some(leader.clone());
        leader
    }
}

/// Whether the masters refused the client's token, which is then too old to request a new one.
fn is_about_token(error: &Error) -> bool {
    let Error::NoLeaderMaster { last: Some(last), .. } = error else { return false };
    matches!(
        **last,
        Error::Negotiation { code: Some(RpcErrorCode::InvalidAuthenticationToken), .. }
            | Error::Rpc { code: RpcErrorCode::InvalidAuthenticationToken, .. }
    )
}
