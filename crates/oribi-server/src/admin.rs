//! The admin HTTP: what client libraries ask a node besides documents, and what operators ask.
//!
//! Owns: the thread, its runtime, and the limits on connections. The parts are `routes` (which path
//! goes where), `pools`, `health`, `buckets`, `collections` and `config_stream` (the answers), `login` (Basic),
//! `audit` (what of it is recorded), `message` and `body` (requests and responses as values). Invariants: nothing here runs on a worker
//! thread; calls that wait for the disk or derive keys run on blocking threads, so that one slow
//! request delays no other; every request has a bounded size and time. Caller: `Server::start`, which
//! binds the listener first, so that a taken port is a start error. It deliberately is not a general
//! HTTP server: no HTTP/2, no user interface. With TLS the same is served on a second port, where a client's
//! certificate may say who asks.

mod audit;
mod body;
mod buckets;
mod collections;
mod config_stream;
mod health;
mod login;
mod message;
mod node;
mod pools;
mod routes;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::metrics::MetricsRegistry;
use crate::server_context::ServerContext;
use crate::tls::Certified;
use audit::Client;

/// Connections at the same time. Each client library keeps a few per node, most of them idle.
const CONNECTIONS_MAX: usize = 256;

/// Time for a request's header to arrive, also the longest a connection stays idle.
const HEADER_DEADLINE: Duration = Duration::from_secs(30);

/// Bytes of a request's header.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Time for calls on blocking threads to end after `stop`.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Pause after a failed accept, which means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What every request handler can reach.
pub(crate) struct AdminState {
    pub(crate) server: Arc<ServerContext>,
    pub(crate) metrics: MetricsRegistry,
    pub(crate) logins: login::LoginGate,
    pub(crate) audit: audit::AdminAudit,
    pub(crate) health: health::Health,
    /// Becomes true when the server stops; ends streams.
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A running admin HTTP.
pub struct AdminHandle {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts serving on a bound listener, and on another one with TLS.
pub fn start(
    listener: std::net::TcpListener,
    tls_listener: Option<std::net::TcpListener>,
    server: Arc<ServerContext>,
) -> io::Result<AdminHandle> {
    let (stop, stopping) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(8)
        .thread_name("oribi-admin-io")
        .build()?;
    let (listener, tls_listener) = {
        let _entered = runtime.enter();
        (adopt(listener)?, tls_listener.map(adopt).transpose()?)
    };
    let state = Arc::new(AdminState {
        metrics: MetricsRegistry::new(Arc::clone(&server)),
        server,
        logins: login::LoginGate::new(),
        audit: audit::AdminAudit::default(),
        health: health::Health::default(),
        stopping,
    });
    let thread = std::thread::Builder::new().name("oribi-admin".to_owned()).spawn(move || {
        runtime.block_on(async {
            let tls_accepting = async {
                if let Some(listener) = tls_listener {
                    accept_until_stopped(listener, Arc::clone(&state), true).await;
                }
            };
            tokio::join!(accept_until_stopped(listener, Arc::clone(&state), false), tls_accepting);
        });
        runtime.shutdown_timeout(STOP_DEADLINE);
    })?;
    Ok(AdminHandle { stop, thread: Some(thread) })
}

impl AdminHandle {
    /// Stops accepting, lets calls that have begun to change something finish, and joins the thread.
    pub fn stop(mut self) {
        self.stop_and_join();
    }

    fn stop_and_join(&mut self) {
        self.stop.send_replace(true);
        let Some(thread) = self.thread.take() else { return };
        if thread.join().is_err() {
            tracing::error!("the admin thread panicked");
        }
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.stop_and_join();
    }
}

fn adopt(listener: std::net::TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

async fn accept_until_stopped(
    listener: tokio::net::TcpListener,
    state: Arc<AdminState>,
    with_tls: bool,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut stopping = state.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    let state = Arc::clone(&state);
                    tokio::spawn(async move {
                        match with_tls {
                            false => serve_connection(stream, state, Client::new(peer)).await,
                            true => serve_tls_connection(stream, peer, state).await,
                        }
                        drop(place);
                    });
                }
                Err(_) => {
                    tracing::info!(%peer, "closed an admin connection: there are too many");
                }
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_tls_connection(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    state: Arc<AdminState>,
) {
    let Some(tls) = state.server.tls().cloned() else { return };
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.current().config));
    let accepted = tokio::time::timeout(HEADER_DEADLINE, acceptor.accept(stream)).await;
    let stream = match accepted {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            if let Some(suppressed) = tls.may_log_failure() {
                tracing::info!(%peer, %error, suppressed, "TLS of an admin connection failed");
            }
            return;
        }
        Err(_) => return,
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain.first().map(AsRef::as_ref);
    match tls.certified(certificate, &state.server.users) {
        Certified::Nobody => serve_connection(stream, state, Client::new(peer)).await,
        Certified::User(identity) => {
            serve_connection(stream, state, Client::certified(peer, identity)).await;
        }
        Certified::Refused => {
            tracing::info!(%peer, "closed an admin connection: its certificate names no user");
        }
    }
}

/// Serves the requests of a client.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<AdminState>,
    client: Client,
) {
    let client = Arc::new(client);
    let service = service_fn(|request| {
        let (state, client) = (Arc::clone(&state), Arc::clone(&client));
        async move { Ok::<_, Infallible>(routes::answer(state, request, client).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an admin connection ended early");
    }
}
