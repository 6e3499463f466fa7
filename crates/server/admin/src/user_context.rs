//! The user of a request: identity, the host name that the client used, and its place among the
//! connections.

use std::sync::Arc;

use oribi_auth::Identity;
use parking_lot::Mutex;

use super::admission::{ActiveRequest, StreamPlace};
use oribi_server::cluster_config::ClusterConfig;

pub(crate) struct UserContext {
    pub(crate) identity: Arc<Identity>,
    /// Host name under which the client knows this server.
    pub(crate) host: String,
    /// Keeps the connection while the request is served.
    busy: Mutex<Option<ActiveRequest>>,
}

impl UserContext {
    pub(crate) fn new(identity: Arc<Identity>, host: String, busy: ActiveRequest) -> UserContext {
        UserContext { identity, host, busy: Mutex::new(Some(busy)) }
    }

    /// The name of this node in lists of nodes, as the client can reach it.
    pub(crate) fn node_name(&self, cluster: &ClusterConfig) -> String {
        format!("{}:{}", self.host, cluster.ports().1)
    }

    /// Turns this request into a stream; `None` when the user has too many.
    pub(crate) fn begin_stream(&self) -> Option<StreamPlace> {
        self.busy.lock().take()?.into_stream(&self.identity)
    }
}
