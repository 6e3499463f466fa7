//! Requests to a server's admin HTTP. Backups, imports and the commands that administer a server
//! make them.
//!
//! The address comes from the cluster map, unless a port was named. One connection per request:
//! there are few. Answers are limited in size.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use oribi_client::protocol::opcode::Opcode;
use oribi_client::protocol::request::RequestParts;
use oribi_client::{Client, Connection};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::target::Target;

/// Error when the port cannot be found.
const WHERE: &str = "where the admin HTTP is (--admin-port says it)";

/// Largest answer; a bucket with very many collections has some megabytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Longest wait for an answer, and for a connection.
const PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The answer for a bucket that does not exist, in the words that clients look for.
const NO_BUCKET: &str = "Requested resource not found.";

/// Longest shown reason of a refusal.
const REASON_CHARS_MAX: usize = 300;

/// Where the admin HTTP is.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Port of the admin HTTP [default: the cluster map's].
    #[arg(long, value_name = "PORT", help_heading = "Server", env = "ORIBI_ADMIN_PORT")]
    pub admin_port: Option<u16>,
}

/// See the module text.
pub struct Admin {
    host: String,
    port: u16,
    tls: Option<Arc<oribi_tls::client::Config>>,
    credentials: String,
}

/// An answer other than success.
#[derive(Debug)]
struct AdminRefusal {
    status: StatusCode,
    text: String,
}

impl fmt::Display for AdminRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            StatusCode::UNAUTHORIZED => f.write_str(
                "wrong name or password; --user or ORIBI_USER names the user, ORIBI_PASSWORD has \
                 the password",
            ),
            StatusCode::FORBIDDEN => f.write_str("the user lacks the right to do this"),
            status if self.text.is_empty() => write!(f, "{status}"),
            _ => f.write_str(&self.text),
        }
    }
}

/// Error in a body: the messages in it if it is JSON, else its text.
fn reason_in(body: &[u8]) -> String {
    let text = match serde_json::from_slice::<Value>(body) {
        Ok(Value::Object(fields)) => {
            match (fields.get("errors"), fields.get("message").or_else(|| fields.get("_"))) {
                (Some(Value::Object(errors)), _) => {
                    let reasons = errors.iter().map(|(field, reason)| match reason.as_str() {
                        Some(reason) if field == "_" => reason.to_owned(),
                        Some(reason) => format!("{field}: {reason}"),
                        None => format!("{field}: {reason}"),
                    });
                    reasons.collect::<Vec<_>>().join("; ")
                }
                (_, Some(Value::String(message))) => message.clone(),
                _ => String::from_utf8_lossy(body).into_owned(),
            }
        }
        Ok(Value::String(text)) => text,
        _ => String::from_utf8_lossy(body).into_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(REASON_CHARS_MAX).collect()
}

/// An error of something that may not exist, with `what` it is in the words of a person.
pub fn unless_missing(error: anyhow::Error, what: &str) -> anyhow::Error {
    match error.downcast_ref::<AdminRefusal>() {
        Some(refusal) if refusal.status == StatusCode::NOT_FOUND => {
            anyhow::anyhow!("there is no {what}")
        }
        _ => error,
    }
}

/// An error about something in a bucket, which may be missing itself.
pub fn unless_no_bucket(error: anyhow::Error, bucket: &str) -> anyhow::Error {
    match error.downcast_ref::<AdminRefusal>() {
        Some(AdminRefusal { status: StatusCode::NOT_FOUND, text }) if text == NO_BUCKET => {
            anyhow::anyhow!("there is no bucket {bucket:?}")
        }
        _ => error,
    }
}

impl Error for AdminRefusal {}

impl Admin {
    /// The admin HTTP of the node that the client is connected to.
    pub async fn find(args: &AdminArgs, target: &Target, client: &Client) -> anyhow::Result<Admin> {
        let port = match args.admin_port {
            Some(port) => port,
            None => {
                let map = client.config();
                let node = map.this_node().or(map.nodes.first());
                let node = node.context("the cluster map has no node")?;
                let mut connection = client.open_connection(node).await?;
                port_of(&mut connection, target.with_tls()).await.context(WHERE)?
            }
        };
        Admin::at(port, target)
    }

    /// The admin HTTP of the node that is the target, whose bucket need not be there yet.
    pub async fn find_without_bucket(args: &AdminArgs, target: &Target) -> anyhow::Result<Admin> {
        let port = match args.admin_port {
            Some(port) => port,
            None => {
                let options = target.options()?.bucket(None).connect_timeout(CONNECT_PATIENCE);
                let mut connection = target.connection(&options).await?;
                port_of(&mut connection, target.with_tls()).await.context(WHERE)?
            }
        };
        Admin::at(port, target)
    }

    fn at(port: u16, target: &Target) -> anyhow::Result<Admin> {
        let tls = target.tls_config()?;
        let credentials = STANDARD.encode(format!("{}:{}", target.user(), target.password));
        Ok(Admin { host: target.host().to_owned(), port, tls, credentials })
    }

    /// The bucket's settings as the server shows them.
    pub async fn bucket(&self, name: &str) -> anyhow::Result<Value> {
        self.get(&path(&["pools", "default", "buckets", name])).await
    }

    /// Content of a path.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let body = self.ask(Method::GET, path, &[]).await?;
        serde_json::from_slice(&body).with_context(|| format!("the answer to {path}"))
    }

    /// Changes something; the answer's body says nothing that is needed.
    pub async fn change(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, String)],
    ) -> anyhow::Result<()> {
        let form: Vec<(&str, &str)> =
            form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.ask(method, path, &form).await.map(drop)
    }

    /// Changes something; returns what the server says about it.
    pub async fn put(&self, path: &str, form: &[(&str, String)]) -> anyhow::Result<Value> {
        self.told(Method::PUT, path, form).await
    }

    /// As [`Admin::put`].
    pub async fn post(&self, path: &str, form: &[(&str, String)]) -> anyhow::Result<Value> {
        self.told(Method::POST, path, form).await
    }

    async fn told(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, String)],
    ) -> anyhow::Result<Value> {
        let form: Vec<(&str, &str)> =
            form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let body = self.ask(method, path, &form).await?;
        serde_json::from_slice(&body).with_context(|| format!("the answer to {path}"))
    }

    /// Creates a scope; that there is one is no error.
    pub async fn create_scope(&self, bucket: &str, scope: &str) -> anyhow::Result<()> {
        let path = format!("/pools/default/buckets/{}/scopes", escape(bucket));
        unless_exists(self.ask(Method::POST, &path, &[("name", scope)]).await)
    }

    /// Creates a collection without a limit of time; that there is one is no error.
    pub async fn create_collection(
        &self,
        bucket: &str,
        scope: &str,
        collection: &str,
    ) -> anyhow::Result<()> {
        let (bucket, scope) = (escape(bucket), escape(scope));
        let path = format!("/pools/default/buckets/{bucket}/scopes/{scope}/collections");
        unless_exists(self.ask(Method::POST, &path, &[("name", collection)]).await)
    }

    /// Drops a collection; that there is none is no error.
    pub async fn drop_collection(
        &self,
        bucket: &str,
        scope: &str,
        collection: &str,
    ) -> anyhow::Result<()> {
        let (bucket, scope, collection) = (escape(bucket), escape(scope), escape(collection));
        let path =
            format!("/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}");
        done_or_missing(self.ask(Method::DELETE, &path, &[]).await)
    }

    /// Drops a scope; that there is none is no error.
    pub async fn drop_scope(&self, bucket: &str, scope: &str) -> anyhow::Result<()> {
        let path = format!("/pools/default/buckets/{}/scopes/{}", escape(bucket), escape(scope));
        done_or_missing(self.ask(Method::DELETE, &path, &[]).await)
    }

    /// Sets how long documents of a collection may live.
    pub async fn limit_collection(
        &self,
        bucket: &str,
        scope: &str,
        collection: &str,
        max_ttl_s: u32,
    ) -> anyhow::Result<()> {
        let (bucket, scope, collection) = (escape(bucket), escape(scope), escape(collection));
        let path =
            format!("/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}");
        self.ask(Method::PATCH, &path, &[("maxTTL", &max_ttl_s.to_string())]).await.map(drop)
    }

    /// Creates a bucket with these settings.
    pub async fn create_bucket(&self, settings: &[(&str, String)]) -> anyhow::Result<()> {
        let form: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.ask(Method::POST, "/pools/default/buckets", &form).await.map(drop)
    }

    /// Posts JSON to a path. The answer's body is read as it arrives.
    ///
    /// # Errors
    /// When there is no connection, or no answer in time.
    pub async fn post_json(&self, path: &str, body: Vec<u8>) -> anyhow::Result<Response<Incoming>> {
        let sent = self.send(Method::POST, path, ("application/json", body.into()));
        sent.await.with_context(|| self.describe())
    }

    /// The body of an answer, which is limited in size.
    pub async fn whole(answer: Response<Incoming>) -> anyhow::Result<Bytes> {
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes())
    }

    /// An answer other than success as an error.
    pub fn refusal(&self, status: StatusCode, body: &[u8]) -> anyhow::Error {
        let refusal = AdminRefusal { status, text: reason_in(body) };
        anyhow::Error::from(refusal).context(self.describe())
    }

    fn describe(&self) -> String {
        format!("admin HTTP at {}:{}", self.host, self.port)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, &str)],
    ) -> anyhow::Result<Bytes> {
        let pairs: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
            .collect();
        let body = ("application/x-www-form-urlencoded", Bytes::from(pairs.join("&")));
        let asked = async {
            let answer = self.send(method, path, body).await?;
            let status = answer.status();
            let body = Admin::whole(answer).await?;
            if status.is_success() {
                return Ok(body);
            }
            Err(anyhow::Error::from(AdminRefusal { status, text: reason_in(&body) }))
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer.with_context(|| self.describe()),
            Err(_) => bail!("the admin HTTP at {}:{} does not answer", self.host, self.port),
        }
    }

    /// Sends a request over a new connection.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: (&'static str, Bytes),
    ) -> anyhow::Result<Response<Incoming>> {
        let address = (self.host.as_str(), self.port);
        let stream = tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await;
        let stream = stream.context("no connection in time")?.context("connecting")?;
        match &self.tls {
            None => self.exchange(stream, method, path, body).await,
            Some(config) => {
                let name = oribi_tls::ServerName::try_from(self.host.clone())?;
                let stream = TlsConnector::from(config.clone()).connect(name, stream);
                let stream = tokio::time::timeout(CONNECT_PATIENCE, stream).await;
                let stream = stream.context("no TLS in time")?.context("TLS")?;
                self.exchange(stream, method, path, body).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: Method,
        path: &str,
        (content_type, body): (&'static str, Bytes),
    ) -> anyhow::Result<Response<Incoming>> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender and the answer; what goes wrong on it, the answer says.
        tokio::spawn(connection);
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, format!("{host}:{}", self.port))
            .header(AUTHORIZATION, format!("Basic {}", self.credentials))
            .header(CONTENT_TYPE, content_type)
            .body(Full::new(body))?;
        let answer = sender.send_request(request).await;
        answer.context("is this the port of the admin HTTP, usually 8091?")
    }
}

fn done_or_missing(answer: anyhow::Result<Bytes>) -> anyhow::Result<()> {
    let is_missing = |error: &anyhow::Error| {
        let refusal = error.downcast_ref::<AdminRefusal>();
        refusal.is_some_and(|refusal| refusal.status == StatusCode::NOT_FOUND)
    };
    match answer {
        Err(error) if is_missing(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

fn unless_exists(answer: anyhow::Result<Bytes>) -> anyhow::Result<()> {
    match answer {
        Err(error) if is_about_existing(&error) => Ok(()),
        answer => answer.map(drop),
    }
}

fn is_about_existing(error: &anyhow::Error) -> bool {
    let refusal = error.downcast_ref::<AdminRefusal>();
    refusal.is_some_and(|refusal| refusal.text.contains("already exists"))
}

/// The port in the map for the client's own connection.
async fn port_of(connection: &mut Connection, with_tls: bool) -> anyhow::Result<u16> {
    let parts = RequestParts::new(Opcode::GetClusterConfig);
    let response = connection.call(&parts, &Bytes::new()).await?;
    let map: Value = serde_json::from_slice(&response.value()).context("the cluster map")?;
    let nodes = map["nodesExt"].as_array().map(Vec::as_slice).unwrap_or_default();
    let this = nodes.iter().find(|node| node["thisNode"] == true).or(nodes.first());
    let port =
        this.and_then(|node| node["services"][if with_tls { "mgmtSSL" } else { "mgmt" }].as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok());
    port.context("the cluster map does not name its port")
}

/// A path of these segments, each escaped.
pub fn path(segments: &[&str]) -> String {
    segments.iter().map(|segment| format!("/{}", escape(segment))).collect()
}

/// Percent-escapes everything but unreserved characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    //! Refusals in words.

    use super::*;

    #[test]
    fn a_refusal_is_its_reason() {
        for (status, body, expected) in [
            (
                400,
                r#"{"errors":{"name":"It exists","_":"No"},"summaries":{}}"#,
                "No; name: It exists",
            ),
            (404, r#"{"message":"Not found"}"#, "Not found"),
            (400, r#"{"_":"Flush is disabled"}"#, "Flush is disabled"),
            (404, "\"Unknown user.\"", "Unknown user."),
            (400, "plain\n\n text\n", "plain text"),
            (
                401,
                "",
                "wrong name or password; --user or ORIBI_USER names the user, ORIBI_PASSWORD has \
                 the password",
            ),
            (403, r#"{"message":"Forbidden"}"#, "the user lacks the right to do this"),
            (500, "", "500 Internal Server Error"),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let refusal = AdminRefusal { status, text: reason_in(body.as_bytes()) };
            assert_eq!(refusal.to_string(), expected);
        }
        assert_eq!(path(&["a", "b c/d"]), "/a/b%20c%2Fd");
    }
}
