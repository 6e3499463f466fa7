//! Audit events of the admin HTTP.
//!
//! Owns: the identity of each connection's client, and the bound on unauthenticated events. It
//! records the first request by each user of a connection, wrong credentials, refused requests
//! (without credentials or without the right), and every change and every copy of the users'
//! verifiers that an administrator requested, with its outcome. Invariant: paths and names come
//! from the network and are truncated. Called by `routes`, once the answer is known.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::{Method, StatusCode};
use oribi_auth::audit::{Actor, AuditGate, AuditLog, Event};
use oribi_auth::{DEVELOPMENT_NAME, DEVELOPMENT_PASSWORD, Identity, NAME_BYTES_MAX};
use parking_lot::Mutex;

use super::admission::ConnectionSlot;
use super::message::HttpReply;

/// Bytes of a path that are recorded.
const PATH_BYTES_MAX: usize = 256;

/// How long the connection that ended development mode keeps that login: enough for the rest of a
/// set-up. A proxy may lend the connection to other clients later.
const DEVELOPER_STAYS: Duration = Duration::from_secs(60);

/// The client of a connection.
pub(crate) struct AdminClient {
    peer: SocketAddr,
    /// Its place among all connections.
    pub(crate) place: Arc<ConnectionSlot>,
    /// It came to a port for queries, which serves nothing else.
    pub(crate) for_queries: bool,
    /// The user of requests without credentials.
    pub(crate) certified: Option<Arc<Identity>>,
    /// The last user recorded.
    recorded: Mutex<Option<Arc<Identity>>>,
    /// The user of development mode and when this client ended that mode: its login stays for
    /// [`DEVELOPER_STAYS`].
    developer: Mutex<Option<(Arc<Identity>, Instant)>>,
}

impl AdminClient {
    /// A client that has not identified itself.
    pub(crate) fn new(
        peer: SocketAddr,
        place: &Arc<ConnectionSlot>,
        for_queries: bool,
    ) -> AdminClient {
        AdminClient {
            peer,
            place: Arc::clone(place),
            for_queries,
            certified: None,
            recorded: Mutex::default(),
            developer: Mutex::default(),
        }
    }

    /// The same client, whose certificate names a user.
    pub(crate) fn certified(self, identity: Arc<Identity>) -> AdminClient {
        AdminClient { certified: Some(identity), ..self }
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Keeps the login of development mode for this connection, which ended that mode.
    pub(crate) fn keep_developer(&self, identity: &Arc<Identity>) {
        self.developer.lock().get_or_insert((Arc::clone(identity), Instant::now()));
    }

    /// The login kept, if these are its credentials.
    pub(crate) fn developer(&self, name: &str, password: &[u8]) -> Option<Arc<Identity>> {
        let is_public = name == DEVELOPMENT_NAME && password == DEVELOPMENT_PASSWORD.as_bytes();
        let mut developer = self.developer.lock();
        if developer.as_ref().is_some_and(|(_, since)| since.elapsed() > DEVELOPER_STAYS) {
            *developer = None;
        }
        developer.as_ref().filter(|_| is_public).map(|(identity, _)| Arc::clone(identity))
    }

    fn actor(&self, user: &str) -> Actor {
        let user = cut(user, NAME_BYTES_MAX).to_owned();
        Actor { user, connection: None, peer: Some(self.peer) }
    }

    /// True when the last request was by another user, or there was none.
    fn is_news(&self, identity: &Arc<Identity>) -> bool {
        let mut recorded = self.recorded.lock();
        let is_known = recorded.as_ref().is_some_and(|known| known.name == identity.name);
        if !is_known {
            *recorded = Some(Arc::clone(identity));
        }
        !is_known
    }
}

/// The bound on events that any client can cause.
pub(crate) struct AdminAudit {
    started: Instant,
    gate: Mutex<AuditGate>,
}

impl Default for AdminAudit {
    fn default() -> AdminAudit {
        AdminAudit { started: Instant::now(), gate: Mutex::default() }
    }
}

impl AdminAudit {
    /// Records that a request was authenticated.
    pub(crate) fn authenticated(
        &self,
        log: &AuditLog,
        client: &AdminClient,
        identity: &Arc<Identity>,
    ) {
        if log.is_on() && client.is_news(identity) {
            log.record(client.actor(&identity.name), Event::Authenticated);
        }
    }

    pub(crate) fn failed(&self, log: &AuditLog, client: &AdminClient, user: &str) {
        if self.admits(log) {
            log.record(client.actor(user), Event::AuthenticationFailed);
        }
    }

    /// Records a request refused for lack of rights.
    pub(crate) fn refused(
        &self,
        log: &AuditLog,
        client: &AdminClient,
        identity: Option<&Identity>,
        request: (&Method, &[&str]),
    ) {
        if self.admits(log) {
            let actor = client.actor(identity.map_or("", |identity| &identity.name));
            let context = match identity {
                Some(_) => "no right to that",
                None => "no credentials",
            };
            let (request, context) = (described(request), context.to_owned());
            log.record(actor, Event::Refused { request, context });
        }
    }

    /// Records an administrator's request for a change or for verifiers, with its outcome.
    pub(crate) fn requested(
        &self,
        log: &AuditLog,
        client: &AdminClient,
        identity: &Identity,
        request: (&Method, &[&str]),
        reply: &HttpReply,
    ) {
        if log.is_on() {
            let (request, status) = (described(request), StatusCode::as_u16(&reply.status()));
            log.record(client.actor(&identity.name), Event::Admin { request, status });
        }
    }

    fn admits(&self, log: &AuditLog) -> bool {
        let now_ms = self.started.elapsed().as_millis() as u64 + 1;
        self.gate.lock().admits(now_ms, log)
    }
}

fn described((method, parts): (&Method, &[&str])) -> String {
    let path = parts.join("/");
    format!("{method} /{}", cut(&path, PATH_BYTES_MAX))
}

/// The beginning of a text.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
