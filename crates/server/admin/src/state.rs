//! The state that every request handler can reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use super::admission::AdmissionControl;
use super::audit::AdminAudit;
use super::document_gate::DocumentGate;
use super::figure_history::FigureHistory;
use super::health::Health;
use super::login::LoginGate;
use super::operator_memory::OperatorMemory;
use super::rates::RateMeter;
use super::senders::Senders;
use crate::metrics::MetricsRegistry;
use oribi_server::server_context::ServerContext;

/// The state that every request handler can reach.
pub(crate) struct AdminState {
    pub(crate) server: Arc<ServerContext>,
    pub(crate) metrics: MetricsRegistry,
    pub(crate) admission: Arc<AdmissionControl>,
    /// Connections of the ports for queries.
    pub(crate) query_admission: Arc<AdmissionControl>,
    pub(crate) logins: LoginGate,
    pub(crate) audit: AdminAudit,
    pub(crate) health: Health,
    pub(crate) documents: DocumentGate,
    pub(crate) figure_history: FigureHistory,
    pub(crate) operator_memory: OperatorMemory,
    pub(super) rates: RateMeter,
    pub(super) senders: Senders,
    /// Becomes true when the server stops; ends streams.
    pub(crate) stopping: watch::Receiver<bool>,
    /// Has a receiver for each stream that sends its client an end reason.
    pub(crate) open_streams: watch::Sender<()>,
    /// SQL++: its statements that run, prepared ones, and index definitions.
    #[cfg(feature = "query")]
    pub(super) queries: super::queries::Queries,
    /// Number of the last stream of changes.
    pub(crate) last_stream: AtomicU64,
}

impl AdminState {
    /// A receiver to keep until the stream has sent its end reason.
    pub(crate) fn open_stream(&self) -> watch::Receiver<()> {
        self.open_streams.subscribe()
    }

    /// A number for a stream of changes.
    pub(crate) fn next_stream(&self) -> u64 {
        self.last_stream.fetch_add(1, Ordering::Relaxed) + 1
    }
}
