//! A node's part in its cluster.
//!
//! Owns: the parts that the server hands over when the node joins: its buckets and users, the
//! identity for a new cluster, the callback that shows the topology to clients, and the socket of
//! beacons.

use std::net::UdpSocket;
use std::sync::Arc;

use crate::buckets::ClusterBuckets;
use crate::identity::ClusterIdentity;
use crate::topology::Topology;
use crate::users_record::ClusterUsers;

/// Publishes the identity and the topology that the cluster has agreed on. Called after every look
/// at the agreement, also when nothing has changed.
pub type PublishTopology = Box<dyn Fn(&ClusterIdentity, Topology) + Send + Sync>;

/// See the module text.
pub struct ClusterHost {
    pub buckets: Arc<dyn ClusterBuckets>,
    /// The identity that a new cluster gets.
    pub identity: ClusterIdentity,
    pub publish: PublishTopology,
    /// The users, which nodes with a secret share.
    pub users: Option<Arc<dyn ClusterUsers>>,
    /// For beacons between nodes; a node without one serves no vbucket that others have copies of.
    pub beacons: Option<UdpSocket>,
}
