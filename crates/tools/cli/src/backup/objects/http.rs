//! HTTP for object stores, on the crates that are linked anyway: hyper, tokio and rustls.
//!
//! One connection per request: requests carry megabytes, and a connection that a proxy has dropped
//! is never used again. Every wait has a limit. Proxies in environment variables are not used.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::Stream;
use futures_util::stream::{self, BoxStream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use oribi_tls::client::Config;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::duration;

/// Longest wait for a connection and for an answer where the options name none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(120);

const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// Makes clients for `object_store`.
#[derive(Debug)]
pub struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let limit = |key, default| {
            let value = options.get_config_value(&key);
            // As in "1m 30s".
            let sum = |text: String| text.split(' ').map(duration::parse).sum::<Option<Duration>>();
            value.and_then(sum).unwrap_or(default)
        };
        Ok(HttpClient::new(Service {
            allow_http: options.get_config_value(&ClientConfigKey::AllowHttp).as_deref()
                == Some("true"),
            // A store without TLS needs no authorities, so their absence is no error yet.
            tls: oribi_tls::client::ClientOptions::default()
                .load()
                .map_err(|error| error.to_string()),
            connect_timeout: limit(ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT),
            timeout: limit(ClientConfigKey::Timeout, TIMEOUT),
        }))
    }
}

#[derive(Debug)]
struct Service {
    allow_http: bool,
    tls: Result<Arc<Config>, String>,
    connect_timeout: Duration,
    timeout: Duration,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().clone();
        let is_tls = uri.scheme_str() == Some("https");
        if !is_tls && !self.allow_http {
            return Err(failed(
                HttpErrorKind::Unknown,
                "the endpoint has no TLS, which has to be allowed, for S3 by AWS_ALLOW_HTTP=true",
            ));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { HTTPS_PORT } else { HTTP_PORT });
        let stream = TcpStream::connect((host.as_str(), port));
        let stream = limited(HttpErrorKind::Connect, self.connect_timeout, stream).await?;
        let request = in_origin_form(request, &uri)?;
        if !is_tls {
            return self.exchange(stream, request).await;
        }
        let tls = match &self.tls {
            Ok(tls) => tls.clone(),
            Err(reason) => return Err(failed(HttpErrorKind::Unknown, reason.as_str())),
        };
        let name = oribi_tls::ServerName::try_from(host)
            .map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let stream = TlsConnector::from(tls).connect(name, stream);
        let stream = limited(HttpErrorKind::Connect, self.connect_timeout, stream).await?;
        self.exchange(stream, request).await
    }
}

impl Service {
    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<HttpRequestBody>,
    ) -> Result<HttpResponse, HttpError> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) =
            limited(HttpErrorKind::Connect, self.connect_timeout, handshake).await?;
        // It ends with the request; what goes wrong on it, the answer says.
        tokio::spawn(connection);
        let answer = sender.send_request(request);
        let answer = limited(HttpErrorKind::Interrupted, self.timeout, answer).await?;
        let (head, body) = answer.into_parts();
        Ok(HttpResponse::from_parts(head, limited_body(body, self.timeout)))
    }
}

/// A body each of whose pieces comes within the limit.
fn limited_body(body: Incoming, limit: Duration) -> HttpResponseBody {
    let frames = stream::try_unfold(body, move |mut body| async move {
        let frame = match timeout(limit, body.frame()).await {
            Err(_) => return Err(failed(HttpErrorKind::Timeout, "the answer does not go on")),
            Ok(None) => return Ok(None),
            Ok(Some(frame)) => frame,
        };
        let frame = frame.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
        Ok(Some((frame, body)))
    });
    HttpResponseBody::new(StreamBody::new(SyncStream(Mutex::new(Box::pin(frames)))))
}

/// A stream that may be shared, because it is polled only by its owner.
struct SyncStream<T>(Mutex<BoxStream<'static, T>>);

impl<T> Stream for SyncStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let stream = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        stream.as_mut().poll_next(context)
    }
}

/// The request as a server that is no proxy wants it.
fn in_origin_form(request: HttpRequest, uri: &Uri) -> Result<Request<HttpRequestBody>, HttpError> {
    let invalid = |error| HttpError::new(HttpErrorKind::Unknown, error);
    let (mut head, body) = request.into_parts();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri = Uri::builder().path_and_query(path).build().map_err(invalid)?;
    if !head.headers.contains_key(HOST)
        && let Some(authority) = uri.authority()
    {
        let host = HeaderValue::from_str(authority.as_str());
        let host = host.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        head.headers.insert(HOST, host);
    }
    head.headers
        .insert(USER_AGENT, HeaderValue::from_static(concat!("oribi/", env!("CARGO_PKG_VERSION"))));
    Ok(Request::from_parts(head, body))
}

/// A step that ends within its limit; `kind` is what its failure counts as.
async fn limited<T, E: std::error::Error + Send + Sync + 'static>(
    kind: HttpErrorKind,
    limit: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, HttpError> {
    match timeout(limit, step).await {
        Ok(outcome) => outcome.map_err(|error| HttpError::new(kind, error)),
        Err(_) if kind == HttpErrorKind::Connect => Err(failed(kind, "no connection in time")),
        Err(_) => Err(failed(HttpErrorKind::Timeout, "no answer in time")),
    }
}

fn failed(kind: HttpErrorKind, reason: &str) -> HttpError {
    HttpError::new(kind, io::Error::other(reason.to_owned()))
}
