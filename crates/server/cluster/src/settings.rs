//! The cluster settings of a node.

use oribi_config::EtcdSettings;

use crate::secret::ClusterSecret;
use crate::topology::TopologyNode;

/// The settings that a node needs to join a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    pub etcd: EtcdSettings,
    /// Name of the cluster; clusters of different names can share an etcd.
    pub name: String,
    /// Secret of the cluster; without one the node has no links to others.
    pub secret: Option<ClusterSecret>,
    /// Id of this node's data directory.
    pub disk: String,
    /// Seconds that a node's lease lasts.
    pub lease_s: u64,
    /// Milliseconds without a beacon of a node before copies of its vbuckets are promoted.
    pub failover_after_ms: u64,
    /// This node, as clients and other nodes know it.
    pub node: TopologyNode,
}
