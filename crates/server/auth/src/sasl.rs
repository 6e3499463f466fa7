//! One SASL exchange of one connection.
//!
//! Owns: which message is expected next. Invariants: a connection has one exchange at a time, and a
//! new start drops the old one. After a failure or a success only a start is accepted. A message
//! longer than [`PAYLOAD_BYTES_MAX`] fails before it is parsed. Caller: the connection state
//! machine, which turns a [`SaslStep`] into a wire status and runs [`SaslStep::Slow`] away from its
//! worker thread.

use std::fmt;
use std::sync::Arc;

use super::role::Identity;
use super::scram::{ClientFirst, ScramExchange};
use super::user_file::NAME_BYTES_MAX;
use super::user_store::{User, UserStore};
use super::verifier::ScramHash;

/// Longest message that the server parses. SCRAM messages take about 200 bytes. Names and passwords
/// may be long, but not pages long.
const PAYLOAD_BYTES_MAX: usize = 4096;
const _: () = assert!(2 * NAME_BYTES_MAX < PAYLOAD_BYTES_MAX, "names fit into a message");

/// The next action after a message from the client.
pub enum SaslStep {
    /// Send this and wait for the next message (AuthContinue).
    Continue(Vec<u8>),
    /// The client is authenticated; send `payload` (SCRAM's server-final, empty for PLAIN).
    Success {
        identity: Arc<Identity>,
        /// Body of the answer.
        payload: Vec<u8>,
    },
    /// Wrong name, password or order. The client does not learn which.
    Failed,
    /// The first message does not have the form that its mechanism demands.
    Malformed,
    /// Milliseconds of key derivation: run it on a thread that serves no requests. It returns
    /// `Success` or `Failed`.
    Slow(Box<dyn FnOnce() -> SaslStep + Send>),
}

impl fmt::Debug for SaslStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SaslStep::Continue(_) => f.write_str("Continue"),
            SaslStep::Success { identity, .. } => write!(f, "Success({})", identity.name),
            SaslStep::Failed => f.write_str("Failed"),
            SaslStep::Malformed => f.write_str("Malformed"),
            SaslStep::Slow(_) => f.write_str("Slow"),
        }
    }
}

impl SaslStep {
    /// Runs slow work on this thread until there is a result.
    pub fn run(self) -> SaslStep {
        let mut step = self;
        while let SaslStep::Slow(work) = step {
            step = work();
        }
        step
    }
}

/// The server's side of a SASL exchange.
#[derive(Default)]
pub struct SaslServer {
    pending: Option<Pending>,
    /// The name that the client claims.
    claimed_name: String,
}

struct Pending {
    hash: ScramHash,
    exchange: ScramExchange,
    user: Arc<User>,
    users: Arc<UserStore>,
}

impl SaslServer {
    /// A server without an exchange in progress.
    pub fn new() -> SaslServer {
        SaslServer::default()
    }

    /// Handles SASL_AUTH: mechanism name and first message.
    pub fn start(&mut self, mechanism: &[u8], payload: &[u8], users: &Arc<UserStore>) -> SaslStep {
        self.pending = None;
        self.claimed_name = claimed_name(mechanism, payload);
        users.reload_if_changed();
        if payload.len() > PAYLOAD_BYTES_MAX {
            return refused(users, mechanism, "(message too long)");
        }
        if mechanism == b"PLAIN" {
            return start_plain(payload, users);
        }
        match ScramHash::from_mechanism(mechanism) {
            Some(hash) => self.start_scram(hash, payload, users),
            None => refused(users, mechanism, "(unknown mechanism)"),
        }
    }

    /// The name that the client claimed in its first message, cut to the longest possible user
    /// name. It is unverified, and is for the audit log.
    pub fn claimed_name(&self) -> &str {
        &self.claimed_name
    }

    /// Handles SASL_STEP: the same mechanism name and the next message.
    pub fn step(&mut self, mechanism: &[u8], payload: &[u8]) -> SaslStep {
        let Some(Pending { hash, exchange, user, users }) = self.pending.take() else {
            return SaslStep::Failed;
        };
        if payload.len() > PAYLOAD_BYTES_MAX || hash.mechanism().as_bytes() != mechanism {
            return refused(&users, mechanism, user.name());
        }
        let Some(proof) = exchange.client_final(payload) else {
            return refused(&users, mechanism, user.name());
        };
        let needs_derivation = user.needs_derivation(hash);
        let finish = move || match proof.check(user.verifier(hash)) {
            Some(server_final) if user.is_known() => {
                SaslStep::Success { identity: user.identity(), payload: server_final.into_bytes() }
            }
            _ => refused(&users, hash.mechanism().as_bytes(), user.name()),
        };
        if needs_derivation { SaslStep::Slow(Box::new(finish)) } else { finish() }
    }

    fn start_scram(&mut self, hash: ScramHash, payload: &[u8], users: &Arc<UserStore>) -> SaslStep {
        let Some(client_first) = ClientFirst::parse(payload) else {
            return malformed(users, hash.mechanism().as_bytes());
        };
        let user = users.find(&client_first.name);
        let (salt, iterations) = user.salt_and_iterations(hash);
        let exchange = ScramExchange::begin(client_first, &salt, iterations);
        let server_first = exchange.server_first().as_bytes().to_vec();
        self.pending = Some(Pending { hash, exchange, user, users: Arc::clone(users) });
        SaslStep::Continue(server_first)
    }
}

/// The name in a first message, valid or not. A malformed PLAIN message yields no name, because the
/// bytes in the name's position may be the password.
fn claimed_name(mechanism: &[u8], payload: &[u8]) -> String {
    let name = match mechanism {
        b"PLAIN" => plain_parts(payload).map(|[_, name, _]| name),
        _ => payload.split(|byte| *byte == b',').find_map(|part| part.strip_prefix(b"n=")),
    };
    let name = name.unwrap_or_default();
    String::from_utf8_lossy(&name[..name.len().min(NAME_BYTES_MAX)]).into_owned()
}

/// A PLAIN message (RFC 4616): `[authzid] NUL name NUL password`.
fn plain_parts(payload: &[u8]) -> Option<[&[u8]; 3]> {
    let mut parts = payload.split(|byte| *byte == 0);
    let message = [parts.next()?, parts.next()?, parts.next()?];
    parts.next().is_none().then_some(message)
}

fn start_plain(payload: &[u8], users: &Arc<UserStore>) -> SaslStep {
    let Some([authzid, name, password]) = plain_parts(payload) else {
        return malformed(users, b"PLAIN");
    };
    let Ok(name) = std::str::from_utf8(name) else {
        return malformed(users, b"PLAIN");
    };
    if !authzid.is_empty() && authzid != name.as_bytes() {
        return refused(users, b"PLAIN", name);
    }
    if let Some(identity) = users.check_cached(name, password) {
        return SaslStep::Success { identity, payload: Vec::new() };
    }
    let (users, name, password) = (Arc::clone(users), name.to_owned(), password.to_vec());
    SaslStep::Slow(Box::new(move || match users.check_password(&name, &password) {
        Some(identity) => SaslStep::Success { identity, payload: Vec::new() },
        None => refused(&users, b"PLAIN", &name),
    }))
}

fn malformed(users: &UserStore, mechanism: &[u8]) -> SaslStep {
    refused(users, mechanism, "(malformed message)");
    SaslStep::Malformed
}

fn refused(users: &UserStore, mechanism: &[u8], name: &str) -> SaslStep {
    users.record_failure(&String::from_utf8_lossy(mechanism), name);
    SaslStep::Failed
}
