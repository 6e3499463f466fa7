//! Access to etcd: its endpoints, TLS, and the authentication of this node.
//!
//! Owns: connections, each for one request, and the token of a user that has logged in. Invariants:
//! with `https` the client sends nothing before it has verified the server's certificate; a
//! password goes to etcd only, and into no message; a token that etcd rejects is replaced once per
//! request. Called by the client in `etcd`.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use oribi_config::EtcdSettings;
use oribi_tls::ServerName;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::super::AgreementError;

/// Bytes of an answer that may contain a refusal.
const REFUSAL_BYTES_MAX: usize = 1 << 10;
/// Longest answer to a login.
const LOGIN_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Copy)]
pub(super) struct EtcdRequest<'a> {
    pub(super) path: &'static str,
    pub(super) body: &'a Value,
}

#[derive(Debug)]
struct EtcdEndpoint {
    authority: String,
    /// The expected name in the server's certificate; `None` without TLS.
    tls_name: Option<ServerName<'static>>,
}

/// See the module text.
pub(super) struct EtcdAccess {
    endpoints: Vec<EtcdEndpoint>,
    tls: Option<TlsConnector>,
    login: Option<EtcdLogin>,
}

struct EtcdLogin {
    user: String,
    password: String,
    token: Mutex<Option<String>>,
}

impl std::fmt::Debug for EtcdAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdAccess").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl EtcdAccess {
    pub(super) fn new(settings: &EtcdSettings) -> Result<EtcdAccess, AgreementError> {
        let endpoints: Option<Vec<EtcdEndpoint>> =
            settings.urls.iter().map(|u| endpoint(u)).collect();
        let endpoints = endpoints.filter(|endpoints| !endpoints.is_empty());
        let endpoints =
            endpoints.ok_or_else(|| AgreementError::Endpoint(settings.urls.join(",")))?;
        let tls = match endpoints.iter().any(|endpoint| endpoint.tls_name.is_some()) {
            true => {
                let config = settings.tls.load();
                let config = config
                    .map_err(|error| AgreementError::File(format!("certificates: {error}")))?;
                Some(TlsConnector::from(config))
            }
            false => None,
        };
        let login = settings.login.as_ref().map(|(user, file)| {
            let password = std::fs::read_to_string(file)
                .map_err(|error| AgreementError::File(format!("password in {file:?}: {error}")))?;
            let password = password.trim_end_matches(['\r', '\n']).to_owned();
            Ok(EtcdLogin { user: user.clone(), password, token: Mutex::default() })
        });
        Ok(EtcdAccess { endpoints, tls, login: login.transpose()? })
    }

    #[cfg(test)]
    pub(super) fn without_login(&self) -> EtcdAccess {
        let endpoints = self.endpoints.iter().map(|endpoint| EtcdEndpoint {
            authority: endpoint.authority.clone(),
            tls_name: endpoint.tls_name.clone(),
        });
        EtcdAccess { endpoints: endpoints.collect(), tls: self.tls.clone(), login: None }
    }

    #[cfg(test)]
    pub(super) fn forge_token(&self) {
        if let Some(login) = &self.login {
            *login.token.lock() = Some("forged.1".to_owned());
        }
    }

    fn at(&self, place: usize) -> &EtcdEndpoint {
        &self.endpoints[place % self.endpoints.len()]
    }

    /// Host and port of an endpoint.
    pub(super) fn name(&self, place: usize) -> &str {
        &self.at(place).authority
    }

    /// Sends a request to an endpoint, as the user if there is one; logs in if necessary.
    pub(super) async fn post(
        &self,
        place: usize,
        request: EtcdRequest<'_>,
    ) -> Result<Response<Incoming>, String> {
        let Some(login) = &self.login else { return self.send(place, request, None).await };
        let known = login.token.lock().clone();
        let token = match known {
            Some(token) => token,
            None => {
                let token = self.log_in(place, login).await?;
                *login.token.lock() = Some(token.clone());
                token
            }
        };
        self.send(place, request, Some(&token)).await
    }

    async fn log_in(&self, place: usize, login: &EtcdLogin) -> Result<String, String> {
        let body = json!({ "name": login.user, "password": login.password });
        let request = EtcdRequest { path: "/v3/auth/authenticate", body: &body };
        let answer = self.send(place, request, None).await?;
        let status = answer.status();
        let body = http_body_util::Limited::new(answer.into_body(), LOGIN_BYTES_MAX);
        let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let answered: Option<Value> = serde_json::from_slice(&body).ok();
        let token = answered.as_ref().and_then(|answered| answered.get("token")?.as_str());
        token.map(str::to_owned).ok_or_else(|| {
            let said = answered.as_ref().and_then(|answered| answered.get("message")?.as_str());
            format!("user {:?} cannot log in: {status} {}", login.user, said.unwrap_or_default())
        })
    }

    /// True when etcd rejected the token of a request; the next request gets a new one.
    pub(super) fn is_to_log_in_again(&self, status: StatusCode, body: &[u8]) -> bool {
        let Some(login) = &self.login else { return false };
        // A streaming call reports this in one of its messages.
        let says = |what: &str| {
            let mut windows = body[..body.len().min(REFUSAL_BYTES_MAX)].windows(what.len());
            windows.any(|text| text == what.as_bytes())
        };
        let is_stale = status == StatusCode::UNAUTHORIZED
            || says("etcdserver: invalid auth token")
            || says("etcdserver: revision of auth store is old");
        if is_stale {
            *login.token.lock() = None;
        }
        is_stale
    }

    /// Error text for a watch that was answered with this status.
    pub(super) fn refusal(&self, status: StatusCode) -> String {
        self.is_to_log_in_again(status, b"");
        format!("{status} instead of a watch")
    }

    async fn send(
        &self,
        place: usize,
        request: EtcdRequest<'_>,
        token: Option<&str>,
    ) -> Result<Response<Incoming>, String> {
        let EtcdEndpoint { authority, tls_name } = self.at(place);
        let stream = TcpStream::connect(authority).await.map_err(|error| error.to_string())?;
        match (tls_name, &self.tls) {
            (Some(name), Some(tls)) => {
                let stream = tls.connect(name.clone(), stream).await;
                let stream = stream.map_err(|error| format!("TLS: {error}"))?;
                exchange(stream, authority, request, token).await
            }
            _ => exchange(stream, authority, request, token).await,
        }
    }
}

async fn exchange<S>(
    stream: S,
    authority: &str,
    EtcdRequest { path, body }: EtcdRequest<'_>,
    token: Option<&str>,
) -> Result<Response<Incoming>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The task ends with the sender or the server; errors show in the answer.
    tokio::spawn(async move { drop(connection.await) });
    let mut request =
        Request::post(path).header("host", authority).header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    let request = request
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| error.to_string())?;
    sender.send_request(request).await.map_err(|error| error.to_string())
}

fn endpoint(url: &str) -> Option<EtcdEndpoint> {
    let (authority, is_tls) = match url.strip_prefix("https://") {
        Some(rest) => (rest, true),
        None => (url.strip_prefix("http://")?, false),
    };
    let authority = authority.trim_end_matches('/');
    let (host, port) = authority.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    if host.is_empty() || authority.contains('/') {
        return None;
    }
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let tls_name = match is_tls {
        true => Some(ServerName::try_from(name).ok()?),
        false => None,
    };
    Some(EtcdEndpoint { authority: authority.to_owned(), tls_name })
}

#[cfg(test)]
mod tests {
    use oribi_config::EtcdSettings;

    use super::{EtcdAccess, endpoint};
    use crate::agreement::AgreementError;

    #[test]
    fn endpoints_are_urls_with_a_port() {
        for (good, is_tls) in
            [("http://localhost:2379", false), ("http://[::1]:2379/", false), ("https://h:1", true)]
        {
            assert_eq!(endpoint(good).unwrap().tls_name.is_some(), is_tls, "{good}");
        }
        assert_eq!(endpoint("https://[::1]:1").unwrap().authority, "[::1]:1");
        for bad in [
            "",
            "localhost:2379",
            "ftp://h:1",
            "http://h",
            "http://:1",
            "http://h:x",
            "http://h:1/p",
            "https://a b:1",
        ] {
            let urls = vec![bad.to_owned()];
            let refused = EtcdAccess::new(&EtcdSettings { urls, ..EtcdSettings::default() });
            assert!(matches!(refused, Err(AgreementError::Endpoint(_))), "{bad}");
        }
        assert!(EtcdAccess::new(&EtcdSettings::default()).is_err());
    }

    #[test]
    fn files_that_are_not_there_are_reported_at_the_start() {
        let missing = std::path::PathBuf::from("/nonexistent/file");
        let mut settings =
            EtcdSettings { urls: vec!["https://h:1".to_owned()], ..EtcdSettings::default() };
        settings.tls.ca = Some(missing.clone());
        assert!(matches!(EtcdAccess::new(&settings), Err(AgreementError::File(_))));
        settings.urls = vec!["http://h:1".to_owned()];
        settings.login = Some(("u".to_owned(), missing));
        let error = EtcdAccess::new(&settings).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/file"), "{error}");
    }
}
