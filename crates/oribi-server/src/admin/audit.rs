//! What of the admin HTTP stands in the audit log.
//!
//! Owns: who is at the other end of a connection, and the bound on what anybody can cause. Recorded are: the
//! first request on a connection that proves who asks, and each by somebody else; credentials that are wrong;
//! requests without any, or without the right, that were refused; each change that an administrator asked for,
//! whatever became of it. Invariant: paths and names come from the network and are cut. Called by `routes`, with
//! the answer in hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use hyper::{Method, StatusCode};
use parking_lot::Mutex;

use super::message::Reply;
use crate::audit::{Actor, AuditGate, AuditLog, Event};
use crate::auth::{Identity, NAME_BYTES_MAX};

/// Bytes of a path that are recorded.
const PATH_BYTES_MAX: usize = 256;

/// Who is at the other end of a connection.
pub(crate) struct Client {
    peer: SocketAddr,
    /// Who asks unless a request says otherwise.
    pub(crate) certified: Option<Arc<Identity>>,
    /// Who was recorded last.
    recorded: Mutex<Option<Arc<Identity>>>,
}

impl Client {
    /// A client that has said nothing of itself.
    pub(crate) fn new(peer: SocketAddr) -> Client {
        Client { peer, certified: None, recorded: Mutex::default() }
    }

    /// A client whose certificate names a user.
    pub(crate) fn certified(peer: SocketAddr, identity: Arc<Identity>) -> Client {
        Client { certified: Some(identity), ..Client::new(peer) }
    }

    fn actor(&self, user: &str) -> Actor {
        let user = cut(user, NAME_BYTES_MAX).to_owned();
        Actor { user, connection: None, peer: Some(self.peer) }
    }

    /// True when somebody else asked before, or nobody.
    fn is_news(&self, identity: &Arc<Identity>) -> bool {
        let mut recorded = self.recorded.lock();
        let is_known = recorded.as_ref().is_some_and(|known| known.name == identity.name);
        if !is_known {
            *recorded = Some(Arc::clone(identity));
        }
        !is_known
    }
}

/// The bound on what anybody can cause.
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
    /// Records that a request proved who asks.
    pub(crate) fn authenticated(&self, log: &AuditLog, client: &Client, identity: &Arc<Identity>) {
        if log.is_on() && client.is_news(identity) {
            log.record(client.actor(&identity.name), Event::Authenticated);
        }
    }

    /// Records credentials that are wrong.
    pub(crate) fn failed(&self, log: &AuditLog, client: &Client, user: &str) {
        if self.admits(log) {
            log.record(client.actor(user), Event::AuthenticationFailed);
        }
    }

    /// Records a request that was refused because of who asked.
    pub(crate) fn refused(
        &self,
        log: &AuditLog,
        client: &Client,
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

    /// Records a request of an administrator for a change, with what became of it.
    pub(crate) fn changed(
        &self,
        log: &AuditLog,
        client: &Client,
        identity: &Identity,
        request: (&Method, &[&str]),
        reply: &Reply,
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

/// Method and path.
fn described((method, parts): (&Method, &[&str])) -> String {
    let path = parts.join("/");
    format!("{method} /{}", cut(&path, PATH_BYTES_MAX))
}

/// The beginning of a text.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}
