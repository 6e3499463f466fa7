//! The admin HTTP, which serves management requests of client libraries and of operators.
//!
//! Owns: the thread, its runtime, and the deadlines of connections. The parts:
//! - `admission` bounds the number of connections, `origin` refuses requests for other sites,
//!   `login` is Basic, and with `scram` SCRAM;
//! - `router` takes a request through login, rights and body to its handler; `routes` maps paths to
//!   `pools`, `health`, `buckets`, `collections`, `users`, `setup`, `node`, `config_stream`,
//!   `changes`, `documents`, `figures` with its `figure_history`, `monitoring` and `query_service`,
//!   and the files of the `console`;
//! - `monitoring` gets its figures from `rates` and `machine`;
//! - `audit` records, `request`, `user_context` and `state` are the context of handlers, `message`
//!   and `body` are requests and responses, `operator_memory` is the memory for answers
//!   with the server's figures.
//!
//! Invariants: no worker thread runs any of this; calls that wait for the disk or derive keys run
//! on blocking threads, so one slow request delays no other; every request has a bounded size and
//! time. Caller: the server, which binds the listeners first, so a port in use fails the start.
//! [`start_server`] composes both.
//! A second port serves the same with TLS, where a client's certificate may identify the user. Two
//! more, with and without TLS, serve queries only; the connections of one do not count at another.
//! There is no HTTP/2.

#![forbid(unsafe_code)]

mod admission;
mod audit;
mod blocking;
mod body;
mod buckets;
mod changes;
mod cluster;
mod collections;
mod config_stream;
#[cfg(feature = "console")]
mod console;
mod document_gate;
mod documents;
mod figure_history;
mod figures;
mod guest_setup;
mod health;
#[cfg(feature = "query")]
mod index_tending;
mod limits;
mod login;
mod machine;
mod message;
mod metrics;
mod monitoring;
#[cfg(feature = "query")]
mod mutation_tokens;
mod node;
mod node_list;
mod operator_memory;
mod origin;
mod pools;
#[cfg(feature = "query")]
mod queries;
#[cfg(feature = "query")]
mod query_indexes;
#[cfg(feature = "query")]
mod query_service;
#[cfg(feature = "query")]
mod query_store;
mod rates;
mod rebalance;
mod request;
#[cfg(feature = "query")]
mod request_ids;
mod route_rule;
mod router;
mod routes;
mod scram;
mod senders;
mod setup;
mod state;
#[cfg(feature = "query")]
mod statement_answer;
#[cfg(feature = "query")]
mod statement_control;
#[cfg(feature = "query")]
mod statement_memory;
#[cfg(feature = "query")]
mod statement_places;
#[cfg(feature = "query")]
mod statement_threads;
#[cfg(test)]
mod tests;
mod user_context;
mod users;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::limits::{ADMIN_FIRST_REQUEST_DEADLINE, ADMIN_HEADER_DEADLINE};
use admission::{AdmissionControl, ConnectionSlot};
use audit::AdminClient;
use metrics::MetricsRegistry;
use oribi_config::Settings;
use oribi_server::admin_api::tls::CertificateUser;
use oribi_server::admin_api::{AdminService, AdminSockets, AdminStart};
use oribi_server::server_context::ServerContext;
use oribi_server::{Administrator, Server, StartError};
use state::AdminState;

/// Bytes of a request's header.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Time for calls on blocking threads to end after `stop`.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Time for streams to tell their clients that they end.
const STREAMS_DEADLINE: Duration = Duration::from_secs(1);

/// Pause after a failed accept, which means that file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running admin HTTP.
struct AdminHandle {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a server with this admin HTTP.
///
/// # Errors
/// As [`Server::start`].
pub fn start_server(
    settings: &Settings,
    administrator: Option<Administrator>,
) -> Result<Server, StartError> {
    let admin = AdminStart { start, has_queries: cfg!(feature = "query") };
    Server::start_with(settings, administrator, Some(admin))
}

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenerRole {
    with_tls: bool,
    /// Only queries, with separate places.
    for_queries: bool,
}

/// Starts serving on the bound listeners.
fn start(sockets: AdminSockets, server: Arc<ServerContext>) -> io::Result<Box<dyn AdminService>> {
    let (stop, stopping) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        // Each request for a document may wait for its durability on one.
        .max_blocking_threads(8 + document_gate::REQUESTS_MAX)
        .thread_name("oribi-admin-io")
        .build()?;
    let role = |with_tls, for_queries| ListenerRole { with_tls, for_queries };
    let bound = [
        (Some(sockets.plain), role(false, false)),
        (sockets.tls, role(true, false)),
        (sockets.query, role(false, true)),
        (sockets.query_tls, role(true, true)),
    ];
    let mut listeners = Vec::new();
    {
        let _entered = runtime.enter();
        for (socket, role) in bound {
            listeners.extend(socket.map(adopt).transpose()?.map(|listener| (listener, role)));
        }
    }
    let admission = Arc::new(AdmissionControl::default());
    let query_admission = Arc::new(AdmissionControl::of_queries());
    #[cfg(feature = "query")]
    let queries = queries::Queries::default();
    let state = Arc::new(AdminState {
        metrics: MetricsRegistry::new(
            Arc::clone(&server),
            [Arc::clone(&admission), Arc::clone(&query_admission)],
            #[cfg(feature = "query")]
            Arc::clone(&queries.indexes),
        ),
        admission,
        query_admission,
        server,
        logins: login::LoginGate::new(),
        audit: audit::AdminAudit::default(),
        health: health::Health::default(),
        documents: document_gate::DocumentGate::default(),
        figure_history: figure_history::FigureHistory::default(),
        operator_memory: operator_memory::OperatorMemory::new(),
        rates: rates::RateMeter::new(Instant::now()),
        senders: senders::Senders::default(),
        stopping,
        open_streams: watch::Sender::new(()),
        #[cfg(feature = "query")]
        queries,
        last_stream: AtomicU64::new(0),
    });
    let thread = oribi_supervisor::spawn("oribi-admin", move || {
        runtime.block_on(async {
            let accepting = listeners.into_iter().map(|(listener, role)| {
                tokio::spawn(accept_until_stopped(listener, Arc::clone(&state), role))
            });
            let accepting: Vec<_> = accepting.collect();
            #[cfg(feature = "query")]
            let tending = tokio::spawn(index_tending::tend_until_stopped(Arc::clone(&state)));
            figures::sample_until_stopped(Arc::clone(&state)).await;
            #[cfg(feature = "query")]
            let _ = tending.await;
            for ended in accepting {
                // A panic was logged where it happened.
                let _ = ended.await;
            }
            // Without a client that reads it waits for no longer.
            let _ = tokio::time::timeout(STREAMS_DEADLINE, state.open_streams.closed()).await;
        });
        runtime.shutdown_timeout(STOP_DEADLINE);
    })?;
    Ok(Box::new(AdminHandle { stop, thread: Some(thread) }))
}

impl AdminService for AdminHandle {
    fn stop(mut self: Box<Self>) {
        self.stop_and_join();
    }
}

impl AdminHandle {
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
    role: ListenerRole,
) {
    let mut stopping = state.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, peer)) => admit(stream, peer, &state, role),
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves a connection, if there is a place for it, until another connection needs the place.
fn admit(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    state: &Arc<AdminState>,
    role: ListenerRole,
) {
    let admission = match role.for_queries {
        true => &state.query_admission,
        false => &state.admission,
    };
    if !state.server.connections.limits.files.admits_admin(&stream) {
        if admission.may_log() {
            tracing::warn!(%peer, "admin connection refused: other files are the store's");
        }
        return;
    }
    let before = admission.turnover();
    let place = admission.enter(peer.ip());
    let turnover = admission.turnover();
    if turnover != before && admission.may_log() {
        let (evicted, refused) = (turnover.evicted, turnover.refused);
        tracing::info!(%peer, evicted, refused, "there are too many admin connections");
    }
    let Some(place) = place else { return };
    // A streamed answer has several parts; the second would wait for the acknowledgement of the
    // first.
    if let Err(error) = stream.set_nodelay(true) {
        return tracing::debug!(%peer, %error, "the client has gone already");
    }
    let state = Arc::clone(state);
    tokio::spawn(async move {
        let served = async {
            let client = AdminClient::new(peer, &place, role.for_queries);
            match role.with_tls {
                false => serve_connection(stream, state, client).await,
                true => serve_tls_connection(stream, client, state).await,
            }
        };
        tokio::select! {
            // First, so that an answer that is cut short does not get its regular end.
            biased;
            () = place.ended() => {}
            () = served => {}
            () = is_silent(&place) => tracing::debug!(%peer, "no request in time"),
        }
    });
}

/// Returns when the first request is overdue.
async fn is_silent(place: &ConnectionSlot) {
    tokio::time::sleep(ADMIN_FIRST_REQUEST_DEADLINE).await;
    if place.has_sent_request() {
        std::future::pending::<()>().await;
    }
}

async fn serve_tls_connection(
    stream: tokio::net::TcpStream,
    client: AdminClient,
    state: Arc<AdminState>,
) {
    let peer = client.peer();
    let Some(tls) = state.server.access.tls.as_ref().cloned() else { return };
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.current().config));
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            if let Some(suppressed) = tls.may_log_failure() {
                tracing::info!(%peer, %error, suppressed, "TLS of an admin connection failed");
            }
            return;
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain.first().map(AsRef::as_ref);
    match tls.certified(certificate, &state.server.access.users) {
        CertificateUser::Nobody => serve_connection(stream, state, client).await,
        CertificateUser::User(identity) => {
            serve_connection(stream, state, client.certified(identity)).await;
        }
        CertificateUser::Refused => {
            tracing::info!(%peer, "closed an admin connection: its certificate names no user");
        }
    }
}

/// Serves the requests of a client.
async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<AdminState>,
    client: AdminClient,
) {
    let client = Arc::new(client);
    let service = service_fn(|request| {
        let (state, client) = (Arc::clone(&state), Arc::clone(&client));
        async move {
            let answer = router::answer(state, request, client);
            let answered = oribi_supervisor::job_future("http", answer).await;
            Ok::<_, Infallible>(answered.unwrap_or_else(|_| message::panicked()))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ADMIN_HEADER_DEADLINE)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "an admin connection ended early");
    }
}
