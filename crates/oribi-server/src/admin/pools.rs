//! Answers about the node: who am I, which node, which services, which figures.
//!
//! Owns: the JSON of a node as client libraries read it. Caller: `routes`.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::AdminState;
use super::buckets::blocking;
use super::message::{Reply, json_reply, json_text, whole};
use super::routes::Asker;
use crate::auth::{Identity, Role};
use crate::cluster_config::TlsPorts;

/// Version that this node reports.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Which features of Couchbase Server a client may assume: 7.2, as major times 65536 plus minor.
const CLUSTER_COMPATIBILITY: u32 = 7 * 0x1_0000 + 2;

/// `/`, which pings ask for.
pub(crate) fn root() -> Reply {
    json_reply(&json!({ "name": "oribi", "version": VERSION }))
}

/// `/pools`.
pub(crate) fn pools(identity: Option<&Identity>) -> Reply {
    json_reply(&json!({
        "pools": [{ "name": "default", "uri": "/pools/default" }],
        "isAdminCreds": identity.is_some_and(|identity| identity.access.is_admin()),
        "isEnterprise": false,
        "implementationVersion": format!("{VERSION}-oribi"),
    }))
}

/// `/whoami`.
pub(crate) fn whoami(identity: &Identity) -> Reply {
    let roles: Vec<Value> = identity.access.roles().iter().map(role_json).collect();
    json_reply(&json!({ "id": identity.name, "domain": "local", "roles": roles }))
}

/// A role as Couchbase's managers describe one: its name and where it holds.
fn role_json(role: &Role) -> Value {
    let Role::Of(privileges, place) = role else { return json!({ "role": "admin" }) };
    let mut described = json!({ "role": privileges.to_words(), "bucket_name": place.bucket });
    let narrower = [("scope_name", &place.scope), ("collection_name", &place.collection)];
    for (field, name) in narrower {
        if let Some(name) = name {
            described[field] = json!(name);
        }
    }
    described
}

/// `/metrics`.
pub(crate) async fn metrics(state: &Arc<AdminState>) -> Reply {
    let state = Arc::clone(state);
    // The store's figures take a look at the disk.
    match blocking(move || state.metrics.scrape()).await {
        Ok(text) => whole(StatusCode::OK, crate::metrics::CONTENT_TYPE, text),
        Err(reply) => *reply,
    }
}

/// `/pools/default`.
pub(crate) fn node(state: &AdminState, asker: &Asker) -> Reply {
    let buckets: Vec<Value> = state
        .server
        .buckets
        .list()
        .iter()
        .filter(|handle| asker.identity.access.reaches(handle.name()))
        .map(|handle| json!({ "bucketName": handle.name(), "uuid": handle.bucket().config().uuid }))
        .collect();
    json_reply(&json!({
        "name": "default",
        "nodes": [node_entry(state, asker, "healthy")],
        "bucketNames": buckets,
        "buckets": { "uri": "/pools/default/buckets" },
        "balanced": true,
        "rebalanceStatus": "none",
    }))
}

/// `/pools/default/nodeServices`.
pub(crate) fn node_services(state: &AdminState) -> Reply {
    json_text(&state.server.cluster.global_document().json)
}

fn ports(kv_port: u16, tls: Option<TlsPorts>) -> Value {
    match tls {
        None => json!({ "direct": kv_port }),
        Some(tls) => json!({ "direct": kv_port, "httpsMgmt": tls.mgmt }),
    }
}

/// The node as lists of nodes hold it. `uptime` is text, because a Go client insists on it.
pub(crate) fn node_entry(state: &AdminState, asker: &Asker, status: &str) -> Value {
    let uptime_s = state.server.uptime_s();
    let host = &asker.host;
    let (kv_port, mgmt_port) = state.server.cluster.ports();
    json!({
        "hostname": format!("{host}:{mgmt_port}"),
        "otpNode": format!("oribi@{host}"),
        "thisNode": true,
        "status": status,
        "clusterMembership": "active",
        "clusterCompatibility": CLUSTER_COMPATIBILITY,
        "version": format!("{VERSION}-oribi"),
        "os": std::env::consts::OS,
        "services": ["kv"],
        "ports": ports(kv_port, state.server.cluster.tls_ports()),
        "uptime": uptime_s.to_string(),
    })
}
