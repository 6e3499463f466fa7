//! What the records say of the cluster, for operators.
//!
//! Owns: nodes, and how many copies of vbuckets exist, are missing and are served, as the records
//! have them at one moment. Called by the admin HTTP.

use oribi_types::Vbid;
use serde::Serialize;

use crate::agent::{ClusterView, understood};
use crate::leading::BucketOutline;
use crate::records::VbucketPlace;

/// See the module text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// The node that makes the map.
    pub leader: Option<String>,
    pub nodes: Vec<NodeStatus>,
    pub buckets: Vec<BucketCopiesStatus>,
    /// The node that is being failed over.
    pub failover: Option<String>,
}

/// A node that lives, or has copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    pub name: String,
    /// Host and port for key-value clients; empty when the node is gone.
    pub address: String,
    pub state: NodeState,
    pub active: usize,
    pub replicas: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    Healthy,
    Leaving,
    Gone,
}

/// The copies of a bucket's vbuckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BucketCopiesStatus {
    pub name: String,
    pub vbuckets: usize,
    pub replicas: u8,
    /// Vbuckets that a node serves.
    pub served: usize,
    /// Copies that no node has, or whose node is gone.
    pub missing: usize,
    /// Copies that do not have the beginning of the present epoch yet, or not everything again
    /// after their node ended in disorder.
    pub behind: usize,
}

impl ClusterStatus {
    pub(crate) fn of(view: &ClusterView) -> ClusterStatus {
        let leader = view.leader.as_ref().and_then(|leader| {
            let text = String::from_utf8_lossy(&leader.value).into_owned();
            text.rsplit_once(' ').map(|(name, _)| name.to_owned())
        });
        let names = view.roster.names().chain(view.nodes.keys().map(String::as_str));
        let names: std::collections::BTreeSet<&str> = names.collect();
        ClusterStatus {
            leader,
            nodes: names.into_iter().map(|name| node_status(view, name)).collect(),
            buckets: view.buckets.keys().filter_map(|name| bucket_status(view, name)).collect(),
            failover: view.running_failover().map(|request| request.node.clone()),
        }
    }
}

fn node_status(view: &ClusterView, name: &str) -> NodeStatus {
    let (mut active, mut replicas) = (0, 0);
    for entry in view.copies.values() {
        for copy in entry.record.all() {
            let is_here = view.roster.name(copy.node) == Some(name);
            active += usize::from(is_here && copy == entry.record.active);
            replicas += usize::from(is_here && copy != entry.record.active);
        }
    }
    let record = view.nodes.get(name);
    let state = match record {
        None => NodeState::Gone,
        Some(record) if record.leaving => NodeState::Leaving,
        Some(_) => NodeState::Healthy,
    };
    let address = record.map_or_else(String::new, |node| format!("{}:{}", node.host, node.kv));
    NodeStatus { name: name.to_owned(), address, state, active, replicas }
}

fn bucket_status(view: &ClusterView, name: &str) -> Option<BucketCopiesStatus> {
    let outline = understood::<BucketOutline>(view.buckets.get(name)?)?;
    let replicas = outline.replicas?;
    let mut status = BucketCopiesStatus {
        name: name.to_owned(),
        vbuckets: usize::from(outline.vbuckets),
        replicas,
        served: 0,
        missing: 0,
        behind: 0,
    };
    for vbid in (0..outline.vbuckets).map(Vbid) {
        let place = VbucketPlace { uuid: outline.uuid.clone(), vbid };
        let wanted = usize::from(replicas) + 1;
        let Some(entry) = view.copies.get(&place) else {
            status.missing += wanted;
            continue;
        };
        status.served += usize::from(view.held.contains_key(&place));
        let here = entry.record.members.iter().filter(|copy| view.is_live(copy.node));
        let (mut live, mut behind) = (0, 0);
        for copy in here {
            let local = view.local_copy(&place, *copy);
            live += 1;
            let is_complete = local.is_some_and(|local| {
                local.report.recorded == entry.record.epoch && local.report.is_intact
            });
            behind += usize::from(!is_complete);
        }
        status.missing += wanted.saturating_sub(live);
        status.behind += behind;
    }
    Some(status)
}
