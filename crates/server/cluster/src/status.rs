//! What the records say of the cluster, for operators.
//!
//! Owns: nodes, the rebalance, and how many copies of vbuckets exist, are missing and are served,
//! as the records have them at one moment. Called by the admin HTTP.

mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use oribi_types::Vbid;
use serde::Serialize;

use crate::agent::{Agent, ClusterView, understood};
use crate::agreement::AgreementError;
use crate::bucket_settings::{SettingsTrouble, settings_troubles};
use crate::leading::BucketOutline;
use crate::limits::CHANGE_LIMIT;
use crate::member::ClusterMember;
use crate::nodes::{
    NodeMembership, NodePlace, NodeState, NodeStatus, NodesStatus, RebalanceStatus,
};
use crate::records::VbucketPlace;
pub use waiting::CopyTrouble;

/// See the module text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// The node that makes the map.
    pub leader: Option<String>,
    #[serde(flatten)]
    pub nodes: NodesStatus,
    pub buckets: Vec<BucketCopiesStatus>,
    /// Settings of buckets that nodes do not have in force.
    pub settings: Vec<SettingsTrouble>,
    /// The node that is being failed over.
    pub failover: Option<String>,
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
    /// Why vbuckets are not served, and copies cannot be used.
    pub troubles: Vec<CopyTrouble>,
}

impl ClusterMember {
    /// What the records say of nodes and copies now. Blocks.
    ///
    /// # Errors
    /// The agreement's.
    pub fn status(&self) -> Result<ClusterStatus, AgreementError> {
        let list = self.runtime.block_on(self.agreement.list(self.keys.all(), CHANGE_LIMIT))?;
        Ok(ClusterStatus::of(&ClusterView::read(&self.keys, "", list.records)))
    }
}

impl ClusterStatus {
    pub(crate) fn of(view: &ClusterView) -> ClusterStatus {
        let leader = view.leader.as_ref().and_then(|leader| {
            let text = String::from_utf8_lossy(&leader.value).into_owned();
            text.rsplit_once(' ').map(|(name, _)| name.to_owned())
        });
        ClusterStatus {
            leader,
            nodes: nodes_status(view),
            buckets: view.buckets.keys().filter_map(|name| bucket_status(view, name)).collect(),
            settings: settings_troubles(view),
            failover: view.running_failover().map(|request| request.node.clone()),
        }
    }
}

impl Agent {
    /// Shows the nodes to the admin HTTP.
    pub(crate) fn show_nodes(&self, view: &ClusterView) {
        let failovers = self.copies.failovers;
        *self.nodes.lock() = Arc::new(NodesStatus { failovers, ..nodes_status(view) });
    }
}

fn nodes_status(view: &ClusterView) -> NodesStatus {
    let shares = Shares::of(view);
    let rebalance = view.rebalance.as_ref().map(|(record, _)| RebalanceStatus {
        id: record.id.clone(),
        state: record.state,
        ejected: record.ejected.clone(),
        counts: record.counts,
        nodes: record.nodes.clone(),
        waits_for: record.waits_for.clone(),
    });
    let nodes = shown_nodes(view).into_iter();
    NodesStatus {
        nodes: nodes.map(|name| node_status(view, &shares, name)).collect(),
        rebalance,
        balanced: shares.are_even(view),
        missing_copies: missing_copies(view),
        failovers: 0,
    }
}

/// Names of the nodes that live or had copies, without those that were removed and are gone.
pub(crate) fn shown_nodes(view: &ClusterView) -> BTreeSet<String> {
    let had_copies = view.roster.names().filter(|name| !view.is_ejected(name));
    had_copies.chain(view.nodes.keys().map(String::as_str)).map(str::to_owned).collect()
}

/// Active copies and replicas, by uuid of the bucket and number of the node.
struct Shares<'v>(BTreeMap<(&'v str, u16), (usize, usize)>);

impl Shares<'_> {
    fn of(view: &ClusterView) -> Shares<'_> {
        let mut shares = BTreeMap::new();
        for (place, entry) in &view.copies {
            for copy in entry.record.all() {
                let share: &mut (usize, usize) =
                    shares.entry((place.uuid.as_str(), copy.node)).or_default();
                match copy == entry.record.active {
                    true => share.0 += 1,
                    false => share.1 += 1,
                }
            }
        }
        Shares(shares)
    }

    fn of_node(&self, view: &ClusterView, name: &str) -> (usize, usize) {
        let own = self.0.iter().filter(|((_, node), _)| view.roster.name(*node) == Some(name));
        own.fold((0, 0), |sum, (_, share)| (sum.0 + share.0, sum.1 + share.1))
    }

    fn are_even(&self, view: &ClusterView) -> bool {
        let numbers: Vec<u16> = view.receiving().map(|(number, _)| number).collect();
        let uuids: BTreeSet<&str> = self.0.keys().map(|(uuid, _)| *uuid).collect();
        let is_even = |uuid: &str| {
            let share = |node: &u16| self.0.get(&(uuid, *node)).copied().unwrap_or_default();
            let spread = |of: fn((usize, usize)) -> usize| {
                let counts = numbers.iter().map(|node| of(share(node)));
                counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
            };
            spread(|(active, _)| active) <= 1 && spread(|(active, replicas)| active + replicas) <= 1
        };
        let has_left = |node: u16| !view.is_ejected_number(node);
        self.0.keys().all(|(_, node)| has_left(*node)) && uuids.into_iter().all(is_even)
    }
}

fn missing_copies(view: &ClusterView) -> BTreeMap<String, usize> {
    let live: BTreeSet<u16> = view.live_numbers().collect();
    let missing = |(name, entry): (&String, _)| {
        let outline = understood::<BucketOutline>(entry)?;
        let wanted = usize::from(outline.replicas?) + 1;
        let of_vbucket = |vbid: u16| {
            let place = VbucketPlace { uuid: outline.uuid.clone(), vbid: Vbid(vbid) };
            let members = view.copies.get(&place).map(|entry| &entry.record.members);
            let here = members.into_iter().flatten().filter(|copy| live.contains(&copy.node));
            wanted.saturating_sub(here.count())
        };
        Some((name.clone(), (0..outline.vbuckets).map(of_vbucket).sum()))
    };
    view.buckets.iter().filter_map(missing).collect()
}

fn node_status(view: &ClusterView, shares: &Shares<'_>, name: String) -> NodeStatus {
    let (active, replicas) = shares.of_node(view, &name);
    let record = view.nodes.get(&name);
    let state = match record {
        None => NodeState::Gone,
        Some(record) if record.leaving => NodeState::Leaving,
        Some(_) if is_warming_up(view, shares, &name) => NodeState::Warmup,
        Some(_) => NodeState::Healthy,
    };
    let membership = match record {
        Some(_) if view.is_ejected(&name) => NodeMembership::InactiveAdded,
        None if active == 0 => NodeMembership::InactiveFailed,
        _ => NodeMembership::Active,
    };
    let place = record.map(|node| NodePlace {
        host: node.host.clone(),
        kv: node.kv,
        mgmt: node.mgmt,
        mgmt_tls: node.mgmt_tls,
        has_queries: node.query.is_some(),
    });
    let address = place.as_ref().map(|place| format!("{}:{}", place.host, place.kv));
    let address = address.unwrap_or_default();
    NodeStatus { name, address, state, membership, active, replicas, place }
}

/// True while a node has copies of a bucket that it has not reported since its start.
fn is_warming_up(view: &ClusterView, shares: &Shares<'_>, name: &str) -> bool {
    let of_node = |number: u16| view.is_live(number) && view.roster.name(number) == Some(name);
    shares.0.keys().any(|(uuid, number)| {
        of_node(*number) && !view.reports.contains_key(&((*uuid).to_owned(), *number))
    })
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
        troubles: waiting::troubles(view, &outline),
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
