//! The nodes of the cluster, as client libraries and tools of Couchbase read them.
//!
//! Owns: the list in `/pools/default`, the entry of this node, and `/nodeStatuses`. This node has
//! its own figures; of the others it knows what the cluster's records said last. Without a lease it
//! knows nothing new of them, and calls them unhealthy. Callers: `pools`, `buckets`, `routes`.

use oribi_cluster::ClusterMember;
use oribi_cluster::nodes::{NodeMembership, NodeState, NodeStatus};
use serde_json::{Map, Value, json};

use super::cluster::otp_node;
use super::message::{HttpReply, json_reply};
use super::monitoring::NodeFigures;
use super::request::AdminRequest;
use super::setup::services_of;
use super::state::AdminState;
use super::user_context::UserContext;
use oribi_server::cluster_config::SERVER_GROUP;

/// Version that this node reports.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The features of Couchbase Server that a client may assume: those of 7.2, as major times 65536
/// plus minor.
const CLUSTER_COMPATIBILITY: u32 = 7 * 0x1_0000 + 2;

/// The name by which clients of Couchbase refer to this node.
pub(crate) fn own_otp_node(state: &AdminState, user: &UserContext) -> String {
    let member = state.server.cluster.node.as_ref();
    otp_node(member.map_or(user.host.as_str(), |node| node.name()))
}

/// All nodes, this one first.
pub(crate) fn entries(
    state: &AdminState,
    user: &UserContext,
    figures: Option<&NodeFigures>,
) -> Vec<Value> {
    let Some(member) = &state.server.cluster.node else {
        return vec![node_entry(state, user, "healthy", figures)];
    };
    let nodes = member.nodes();
    let mut entries = Vec::new();
    let own = nodes.nodes.iter().find(|node| node.name == member.name());
    let mut entry =
        node_entry(state, user, own.map_or("healthy", |own| word(member, own)), figures);
    if let Some(own) = own {
        entry["clusterMembership"] = json!(membership(own));
    }
    entries.push(entry);
    let others = nodes.nodes.iter().filter(|node| node.name != member.name());
    entries.extend(others.map(|node| other_entry(member, node)));
    entries
}

/// Of a node that is gone only its name is known.
fn other_entry(member: &ClusterMember, node: &NodeStatus) -> Value {
    let mut entry = json!({
        "hostname": node.name,
        "serverGroup": SERVER_GROUP,
        "otpNode": otp_node(&node.name),
        "thisNode": false,
        "status": word(member, node),
        "clusterMembership": membership(node),
        "recoveryType": "none",
        "clusterCompatibility": CLUSTER_COMPATIBILITY,
        "services": ["kv"],
    });
    if let Some(place) = &node.place {
        let hostname = format!("{}:{}", place.host, place.mgmt);
        entry["hostname"] = json!(hostname);
        entry["configuredHostname"] = json!(hostname);
        entry["ports"] = ports(place.kv, place.mgmt_tls);
        if place.has_queries {
            entry["services"] = json!(["index", "kv", "n1ql"]);
        }
    }
    entry
}

/// `healthy`, `unhealthy` or `warmup`.
fn word(member: &ClusterMember, node: &NodeStatus) -> &'static str {
    let is_known = node.name == member.name() || member.has_lease();
    match node.state {
        _ if !is_known => "unhealthy",
        NodeState::Healthy => "healthy",
        NodeState::Warmup => "warmup",
        NodeState::Leaving | NodeState::Gone => "unhealthy",
    }
}

fn membership(node: &NodeStatus) -> &'static str {
    match node.membership {
        NodeMembership::Active => "active",
        NodeMembership::InactiveAdded => "inactiveAdded",
        NodeMembership::InactiveFailed => "inactiveFailed",
    }
}

/// `GET /nodeStatuses`: the status of each node by its address.
pub(crate) fn statuses(req: &AdminRequest) -> HttpReply {
    let entry = |node: &Value| {
        let hostname = node["hostname"].as_str()?.to_owned();
        let status = json!({
            "status": node["status"],
            "otpNode": node["otpNode"],
            "dataless": false,
        });
        Some((hostname, status))
    };
    let all: Map<String, Value> =
        entries(&req.state, req.user(), None).iter().filter_map(entry).collect();
    json_reply(&Value::Object(all))
}

fn ports(kv_port: u16, mgmt_tls: Option<u16>) -> Value {
    match mgmt_tls {
        None => json!({ "direct": kv_port }),
        Some(mgmt) => json!({ "direct": kv_port, "httpsMgmt": mgmt }),
    }
}

/// The configured host of this node; without one the loopback address, as for an unnamed node.
fn configured_host(state: &AdminState) -> String {
    match state.server.cluster.config.advertised_host() {
        Some(host) => host,
        None => "127.0.0.1".to_owned(),
    }
}

/// The node's entry in lists of nodes. `uptime` is text, because a Go client insists on it.
pub(crate) fn node_entry(
    state: &AdminState,
    user: &UserContext,
    status: &str,
    figures: Option<&NodeFigures>,
) -> Value {
    let uptime_s = state.server.diagnostics.uptime_s();
    let (kv_port, mgmt_port) = state.server.cluster.config.ports();
    let mut entry = json!({
        "hostname": user.node_name(&state.server.cluster.config),
        "configuredHostname": format!("{}:{mgmt_port}", configured_host(state)),
        "serverGroup": SERVER_GROUP,
        "otpNode": own_otp_node(state, user),
        "thisNode": true,
        "status": status,
        "clusterMembership": "active",
        "recoveryType": "none",
        "clusterCompatibility": CLUSTER_COMPATIBILITY,
        "version": format!("{VERSION}-oribi"),
        "os": std::env::consts::OS,
        "services": services_of(state),
        "ports": ports(kv_port, state.server.cluster.config.tls_ports().map(|tls| tls.mgmt)),
        "uptime": uptime_s.to_string(),
    });
    if let Some(external) = &state.server.cluster.config.address().external {
        entry["alternateAddresses"] = json!({ "external": external });
    }
    if let Some(figures) = figures {
        figures.add_to_entry(&mut entry);
    }
    entry
}
