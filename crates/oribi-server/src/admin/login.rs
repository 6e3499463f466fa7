//! HTTP Basic: authentication of a request.
//!
//! Owns: the header's format, and the gate that bounds concurrent key derivations. Invariants: a
//! password that was verified before costs no derivation; any other costs one, on a blocking
//! thread. At most [`DERIVATIONS_MAX`] run at a time, so that guessing cannot take the processors
//! from the workers. `admission` decides how many may wait. Caller: `routes`.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use tokio::sync::Semaphore;

use super::audit::{AdminAudit, Client};
use crate::auth::{Identity, UserStore};
use crate::server_context::ServerContext;

/// Keys derived at the same time for HTTP.
const DERIVATIONS_MAX: usize = 1;

/// Too many password checks are in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyLogins;

/// Checks credentials.
pub(crate) struct LoginGate {
    places: Semaphore,
}

impl LoginGate {
    pub(crate) fn new() -> LoginGate {
        LoginGate { places: Semaphore::new(DERIVATIONS_MAX) }
    }

    /// The identity that the request's header proves; `None` without or with wrong credentials.
    ///
    /// # Errors
    /// [`TooManyLogins`] when the password was not checked.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        (server, audit): (&ServerContext, &AdminAudit),
        client: &Client,
    ) -> Result<Option<Arc<Identity>>, TooManyLogins> {
        let Some((name, password)) = credentials(headers) else {
            audit.failed(&server.audit, client, "");
            return Ok(None);
        };
        self.verify(name, password, (server, audit), client).await
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
        client: &Client,
    ) -> Result<Option<Arc<Identity>>, TooManyLogins> {
        if let Some(identity) = server.users.verify_basic_cached(&name, &password) {
            return Ok(Some(identity));
        }
        let _busy = client.place.begin_login().ok_or(TooManyLogins)?;
        let identity = self.check(&name, password, &server.users).await;
        if identity.is_none() {
            audit.failed(&server.audit, client, &name);
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

fn credentials(headers: &HeaderMap) -> Option<(String, Vec<u8>)> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
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
    use hyper::header::HeaderValue;

    fn parse(value: &str) -> Option<(String, Vec<u8>)> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        credentials(&headers)
    }

    #[test]
    fn only_well_formed_headers_name_a_user() {
        let good = BASE64.encode("alice:pass:word");
        let expected = Some(("alice".to_owned(), b"pass:word".to_vec()));
        assert_eq!(parse(&format!("Basic {good}")), expected);
        assert_eq!(parse(&format!("basic {good}")), expected);
        for bad in ["Basic", "Basic !", "Bearer x", &format!("Basic {}", BASE64.encode("alice"))] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(credentials(&HeaderMap::new()), None);
    }
}
