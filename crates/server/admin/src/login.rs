//! Authentication of a request: HTTP Basic, and SCRAM (`scram`).
//!
//! Owns: the format of Basic's header, and the gate that bounds concurrent key derivations.
//! Invariants: a password that was verified before costs no derivation; any other costs one, on a
//! blocking thread. At most [`DERIVATIONS_MAX`] run at a time, so that guessing cannot take the
//! processors from the workers. `admission` decides how many may wait. Caller: `routes`.

use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue};
use oribi_auth::{Identity, SaslStep, UserStore};
use tokio::sync::Semaphore;

use super::audit::{AdminAudit, AdminClient};
use super::scram::{ScramExchanges, ScramMessage, ScramStep, authentication_info};
use oribi_server::server_context::ServerContext;

/// Keys derived at the same time for HTTP.
const DERIVATIONS_MAX: usize = 1;
const _: () = assert!(DERIVATIONS_MAX > 0, "somebody can log in");

/// Too many password checks are in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyLogins;

pub(crate) struct LoginGate {
    places: Semaphore,
    exchanges: ScramExchanges,
}

/// Result of checking a request's credentials.
pub(crate) enum LoginOutcome {
    /// A user, and a header with which the server proves itself to the client.
    User(Arc<Identity>, Option<HeaderValue>),
    /// Nothing: they are wrong.
    Wrong,
    /// Nothing yet: the client has to answer this `WWW-Authenticate`.
    Challenge(HeaderValue),
}

impl LoginGate {
    pub(crate) fn new() -> LoginGate {
        LoginGate { places: Semaphore::new(DERIVATIONS_MAX), exchanges: ScramExchanges::default() }
    }

    /// Result of checking the request's header.
    ///
    /// # Errors
    /// [`TooManyLogins`] when it was not checked.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        (server, audit): (&ServerContext, &AdminAudit),
        client: &AdminClient,
    ) -> Result<LoginOutcome, TooManyLogins> {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(message) = header.and_then(ScramMessage::parse) {
            return self.prove(message, (server, audit), client).await;
        }
        let Some((name, password)) = header.and_then(basic) else {
            audit.failed(&server.access.audit, client, "");
            return Ok(LoginOutcome::Wrong);
        };
        if let Some(developer) = client.developer(&name, &password) {
            return Ok(LoginOutcome::User(developer, None));
        }
        let identity = self.verify(name, password, (server, audit), client).await?;
        Ok(identity.map_or(LoginOutcome::Wrong, |identity| LoginOutcome::User(identity, None)))
    }

    /// Result of a message of SCRAM.
    async fn prove(
        &self,
        message: ScramMessage,
        (server, audit): (&ServerContext, &AdminAudit),
        client: &AdminClient,
    ) -> Result<LoginOutcome, TooManyLogins> {
        let at = (client.peer().ip(), Instant::now());
        let (sid, name, step) = match self.exchanges.step(message, &server.access.users, at) {
            ScramStep::Challenge(header) => return Ok(LoginOutcome::Challenge(header)),
            ScramStep::Outcome { sid, name, step } => (sid, name, step),
        };
        let step = match step {
            SaslStep::Slow(_) => {
                let _busy = client.place.begin_login().ok_or(TooManyLogins)?;
                let _place = self.places.acquire().await.map_err(|_| TooManyLogins)?;
                let ran = tokio::task::spawn_blocking(move || step.run()).await;
                ran.unwrap_or(SaslStep::Failed)
            }
            step => step,
        };
        if let SaslStep::Success { identity, payload } = step {
            return Ok(LoginOutcome::User(identity, Some(authentication_info(&sid, &payload))));
        }
        audit.failed(&server.access.audit, client, &name);
        Ok(LoginOutcome::Wrong)
    }

    /// The identity that a name and password prove.
    ///
    /// # Errors
    /// [`TooManyLogins`] when the password was not checked.
    pub(crate) async fn verify(
        &self,
        name: String,
        password: Vec<u8>,
        (server, audit): (&ServerContext, &AdminAudit),
        client: &AdminClient,
    ) -> Result<Option<Arc<Identity>>, TooManyLogins> {
        if let Some(identity) = server.access.users.verify_basic_cached(&name, &password) {
            return Ok(Some(identity));
        }
        let _busy = client.place.begin_login().ok_or(TooManyLogins)?;
        let identity = self.check(&name, password, &server.access.users).await;
        if identity.is_none() {
            audit.failed(&server.access.audit, client, &name);
        }
        Ok(identity)
    }

    async fn check(
        &self,
        name: &str,
        password: Vec<u8>,
        users: &Arc<UserStore>,
    ) -> Option<Arc<Identity>> {
        let _place = self.places.acquire().await.ok()?;
        let (users, name) = (Arc::clone(users), name.to_owned());
        tokio::task::spawn_blocking(move || users.verify_basic(&name, &password)).await.ok()?
    }
}

/// Name and password of a header of Basic.
fn basic(header: &str) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = BASE64.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((name, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_headers_name_a_user() {
        let good = BASE64.encode("alice:pass:word");
        let expected = Some(("alice".to_owned(), b"pass:word".to_vec()));
        assert_eq!(basic(&format!("Basic {good}")), expected);
        assert_eq!(basic(&format!("basic {good}")), expected);
        for bad in ["Basic", "Basic !", "Bearer x", &format!("Basic {}", BASE64.encode("alice"))] {
            assert_eq!(basic(bad), None, "{bad:?}");
        }
    }
}
