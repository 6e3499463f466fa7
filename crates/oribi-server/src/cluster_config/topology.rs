//! Which nodes there are and who owns which vbuckets, as the cluster has agreed on it.
//!
//! Plain data: made by the cluster's agent from what is in etcd, shown by the cluster configuration.

use std::collections::HashMap;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyNode {
    /// Its name in the cluster.
    pub name: String,
    /// Where clients reach it.
    pub host: String,
    /// Port of the memcached binary protocol.
    pub kv: u16,
    /// Port of the admin HTTP.
    pub mgmt: u16,
    /// The same with TLS, where it is spoken.
    pub kv_tls: Option<u16>,
    /// The same with TLS, where it is spoken.
    pub mgmt_tls: Option<u16>,
}

/// Where the vbuckets of one bucket are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Position in the list of nodes, for each vbucket.
    pub owners: Vec<Option<usize>>,
    /// Revision of the newest thing that the bucket's document shows.
    pub rev: u64,
}

/// What the cluster has agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Generation of the revisions: the time at which the cluster was made, in UNIX seconds.
    pub epoch: i64,
    /// Revision of the list of nodes.
    pub rev: u64,
    /// All nodes.
    pub nodes: Vec<TopologyNode>,
    /// Name of this one.
    pub this: String,
    /// Shared buckets by name.
    pub buckets: HashMap<String, Placement>,
}
