//! Which master leads.
//!
//! Every configured master is asked at the same time, because a follower does not know better than the
//! leader itself; the first that says it leads wins, and the others are not waited for. A master that names
//! further masters makes them be asked as well, so that one address is enough to find a cluster. Invariants:
//! one search runs at a time, and whoever waited for it uses its result; a leader that disappointed is
//! named by its generation, so that many calls that failed together cause one search. The leader's reply
//! also carries the credentials, which go to the messenger here and nowhere else.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::credentials::Credentials;
use super::response::MasterResponse;
use crate::error::{Error, MasterErrorCode, RpcErrorCode, StatusCode};
use crate::proto::master::{
    ConnectToMasterRequestPb, ConnectToMasterResponsePb, RaftRolePb, SERVICE_NAME,
};
use crate::retry::backoff::{Backoff, pause, until};
use crate::rpc::{CallOptions, Messenger, Method};
use crate::types::HostPort;

static CONNECT_TO_MASTER: Method = Method { service: SERVICE_NAME, name: "ConnectToMaster" };

/// How long one master may take to answer who leads. A search that found no leader starts again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A master that said that it leads.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    /// Where it listens.
    pub(crate) address: HostPort,
    /// Which search found it.
    pub(crate) generation: u64,
    /// Id of the cluster, 32 hexadecimal digits; empty before Kudu 1.12.
    pub(crate) cluster_id: String,
    /// The place that the cluster assigns to this client, such as `/rack1`; empty when there are none.
    pub(crate) client_location: String,
}

/// With what a connection to a master is to be authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// With whatever is at hand.
    Any,
    /// Not with a token, because only then does the master give a new one.
    Primary,
}

/// The masters of the cluster.
#[derive(Debug)]
pub(crate) struct Masters {
    messenger: Messenger,
    configured: Vec<HostPort>,
    leader: RwLock<Option<Arc<Leader>>>,
    credentials: Mutex<Credentials>,
    /// Held during a search.
    search: tokio::sync::Mutex<()>,
}

impl Masters {
    /// The masters at these addresses; nothing is sent yet.
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

    /// The leader, found by asking if need be. One of the generation `disappointed` does not count.
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

    /// Gets a new token if the old one is about to expire. A failure is left to the calls that need one.
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

    /// Asks until somebody leads or the deadline passes.
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

    /// Asks every master once, and those that they name.
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
                    // One failure that passes is reason enough to ask again, so it is the one to keep.
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
                Some(error) => Err(super::refusal(
                    error,
                    crate::Operation::ConnectToMaster,
                    &master.to_string(),
                )),
            },
        };
        (master, answer)
    }

    /// Makes this master the leader and hands its credentials on.
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

/// Whether the masters refused the client's token, which is then too old to ask for a new one with.
fn is_about_token(error: &Error) -> bool {
    let Error::NoLeaderMaster { last: Some(last), .. } = error else { return false };
    matches!(
        **last,
        Error::Negotiation { code: Some(RpcErrorCode::InvalidAuthenticationToken), .. }
            | Error::Rpc { code: RpcErrorCode::InvalidAuthenticationToken, .. }
    )
}

/// Whether a master's refusal means that another one has to be found.
pub(crate) fn has_lost_leadership(code: MasterErrorCode) -> bool {
    matches!(code, MasterErrorCode::NotTheLeader | MasterErrorCode::CatalogManagerNotInitialized)
}

/// Whether a master's refusal goes away by itself.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    status == StatusCode::ServiceUnavailable
}
