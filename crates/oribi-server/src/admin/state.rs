//! The state that every request handler can reach.

use std::sync::Arc;

use tokio::sync::watch;

use super::admission::Admission;
use super::audit::AdminAudit;
use super::health::Health;
use super::login::LoginGate;
use crate::metrics::MetricsRegistry;
use crate::server_context::ServerContext;

/// The state that every request handler can reach.
pub(crate) struct AdminState {
    pub(crate) server: Arc<ServerContext>,
    pub(crate) metrics: MetricsRegistry,
    pub(crate) admission: Arc<Admission>,
    pub(crate) logins: LoginGate,
    pub(crate) audit: AdminAudit,
    pub(crate) health: Health,
    /// Becomes true when the server stops; ends streams.
    pub(crate) stopping: watch::Receiver<bool>,
}
