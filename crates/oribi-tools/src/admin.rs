//! Requests to a server's admin HTTP: settings of a bucket, creating scopes and collections.
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
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use oribi_client::protocol::opcode::Opcode;
use oribi_client::protocol::request::RequestParts;
use oribi_client::{Client, Connection};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::target::Target;

/// What failed when the port cannot be found.
const WHERE: &str = "where the admin HTTP is (--admin-port says it)";

/// Largest answer; a bucket with very many collections has some megabytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the admin HTTP is.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Port of the admin HTTP [default: the cluster map's].
    #[arg(long, value_name = "PORT", help_heading = "Server")]
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
    method: Method,
    path: String,
    status: StatusCode,
    text: String,
}

impl fmt::Display for AdminRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdminRefusal { method, path, status, text } = self;
        write!(f, "{method} {path}: {status}{text}")
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
                let mut connection = target.connection(&target.options()?.bucket(None)).await?;
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
        let path = format!("/pools/default/buckets/{}", escape(name));
        serde_json::from_slice(&self.ask(Method::GET, &path, &[]).await?).context(path)
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

    async fn ask(
        &self,
        method: Method,
        path: &str,
        form: &[(&str, &str)],
    ) -> anyhow::Result<Bytes> {
        let asked = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
            let stream =
                stream.with_context(|| format!("connecting to {}:{}", self.host, self.port))?;
            match &self.tls {
                None => self.exchange(stream, method, path, form).await,
                Some(config) => {
                    let name = oribi_tls::ServerName::try_from(self.host.clone())?;
                    let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
                    self.exchange(stream.context("TLS")?, method, path, form).await
                }
            }
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => {
                answer.with_context(|| format!("admin HTTP at {}:{}", self.host, self.port))
            }
            Err(_) => bail!("the admin HTTP at {}:{} does not answer", self.host, self.port),
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        method: Method,
        path: &str,
        form: &[(&str, &str)],
    ) -> anyhow::Result<Bytes> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender; what goes wrong on it, the request's answer says.
        tokio::spawn(connection);
        let pairs: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
            .collect();
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let request = Request::builder()
            .method(method.clone())
            .uri(path)
            .header(HOST, format!("{host}:{}", self.port))
            .header(AUTHORIZATION, format!("Basic {}", self.credentials))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::new(Bytes::from(pairs.join("&"))))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let text: String = String::from_utf8_lossy(&body).chars().take(300).collect();
        let text = if text.is_empty() { text } else { format!(": {text}") };
        Err(AdminRefusal { method, path: path.to_owned(), status, text }.into())
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

/// The port in the map that the client's own connection is told.
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
