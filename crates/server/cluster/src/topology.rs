//! The nodes and the vbucket owners that the cluster has agreed on.
//!
//! Plain data: the cluster's agent builds it from etcd, and the cluster configuration shows it.

use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyNode {
    /// Its name in the cluster.
    pub name: String,
    /// Host that clients connect to.
    pub host: String,
    /// Port for key-value clients.
    pub kv: u16,
    /// Port of the admin HTTP.
    pub mgmt: u16,
    /// Port for key-value clients with TLS, if enabled.
    pub kv_tls: Option<u16>,
    /// Port of the admin HTTP with TLS, if enabled.
    pub mgmt_tls: Option<u16>,
    /// Port for queries, if the node has any.
    pub query: Option<u16>,
    /// Port for queries with TLS, if the node has any.
    pub query_tls: Option<u16>,
}

/// The owners of one bucket's vbuckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Position in the list of nodes, for each vbucket.
    pub owners: Vec<Option<usize>>,
    /// Positions of the nodes with the replicas of each vbucket; empty without replicas.
    pub replicas: Vec<Vec<Option<usize>>>,
    /// Replicas that a vbucket is to have.
    pub replica_count: usize,
    /// Revision of the newest change that the bucket's document shows.
    pub rev: u64,
}

/// The topology that the cluster has agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Generation of the revisions: the creation time of the cluster, in UNIX seconds.
    pub epoch: i64,
    /// Revision of the list of nodes.
    pub rev: u64,
    pub nodes: Vec<TopologyNode>,
    /// Name of this node.
    pub this: String,
    /// Shared buckets by name.
    pub buckets: HashMap<String, Placement>,
}
