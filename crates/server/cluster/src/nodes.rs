//! The nodes of the cluster and the last rebalance, as one node saw them.
//!
//! Plain data: `status` makes it of the records, and the admin HTTP shows it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::copies::moves::{MoveCounts, RebalanceState};

/// The nodes and the last rebalance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodesStatus {
    pub nodes: Vec<NodeStatus>,
    pub rebalance: Option<RebalanceStatus>,
    /// Every node has its share of copies, and of active ones.
    pub balanced: bool,
    /// Copies that no node has, or whose node is gone, by name of the bucket.
    #[serde(skip)]
    pub missing_copies: BTreeMap<String, usize>,
    /// Failovers that were done while this node led.
    #[serde(skip)]
    pub failovers: u64,
}

/// A node that lives, or has copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    pub name: String,
    /// Host and port for key-value clients; empty when the node is gone.
    pub address: String,
    pub state: NodeState,
    pub membership: NodeMembership,
    pub active: usize,
    pub replicas: usize,
    /// Where the node is, while it lives.
    #[serde(skip)]
    pub place: Option<NodePlace>,
}

/// The address at which clients reach a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    pub host: String,
    pub kv: u16,
    pub mgmt: u16,
    pub mgmt_tls: Option<u16>,
    pub has_queries: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    Healthy,
    /// It has not reported all of its copies yet.
    Warmup,
    Leaving,
    Gone,
}

/// A node's part in the cluster, in the words of Couchbase's REST interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeMembership {
    Active,
    /// It lives and gets no copies before a rebalance takes it in.
    InactiveAdded,
    /// It is gone, and other nodes have its active copies.
    InactiveFailed,
}

/// The last rebalance that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RebalanceStatus {
    pub id: String,
    pub state: RebalanceState,
    /// Nodes that get no copies.
    pub ejected: BTreeSet<String>,
    #[serde(flatten)]
    pub counts: MoveCounts,
    /// Its part of the moves, by name of the node.
    pub nodes: BTreeMap<String, MoveCounts>,
    /// What keeps moves from beginning.
    pub waits_for: Option<String>,
}

impl NodesStatus {
    /// The rebalance, while it runs.
    pub fn running_rebalance(&self) -> Option<&RebalanceStatus> {
        self.rebalance.as_ref().filter(|it| it.state == RebalanceState::Running)
    }
}
