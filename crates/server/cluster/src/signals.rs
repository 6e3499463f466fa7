//! Signals to the agent: wake-up, stop, and the request to renew its lease.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::beacon_peers::PeersCell;
use crate::nodes::NodesStatus;
use crate::renewal::RenewalTarget;

/// The nodes as the agent saw them last.
pub(crate) type NodesCell = Arc<Mutex<Arc<NodesStatus>>>;

/// Progress of a stopping node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum LeaveStage {
    /// The node is not stopping.
    Serving,
    /// Other nodes are to take over its vbuckets.
    Leaving,
    /// Nothing is left to hand over, or no other node can take it.
    Left,
    /// The node is about to revoke its lease.
    Ending,
}

/// The channels that wake and stop the agent, have its lease renewed, and show what it saw.
pub(crate) struct Signals {
    pub(crate) wake: Arc<Notify>,
    pub(crate) stage: watch::Sender<LeaveStage>,
    pub(crate) renewals: watch::Sender<Option<RenewalTarget>>,
    pub(crate) nodes: NodesCell,
    pub(crate) peers: PeersCell,
}
