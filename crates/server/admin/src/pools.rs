//! Answers about the node: identity of the user, nodes, services, figures.
//!
//! Owns: the JSON of a node as client libraries read it. Caller: `routes`.

use std::sync::Arc;

use hyper::StatusCode;
use oribi_auth::{Identity, Role};
use oribi_cluster::identity::is_cluster_name;
use serde_json::{Value, json};

use super::blocking::{blocking, failed};
use super::message::{
    FormFields, HttpRejection, HttpReply, empty, field_error, json_reply, json_text, whole,
};
use super::monitoring::{Observation, observe, sees_node};
use super::node_list::{self, VERSION, node_entry};
use super::operator_memory::for_operators;
use super::rebalance;
use super::state::AdminState;
use super::user_context::UserContext;
use super::users::role_json;

/// `/`, which pings ask for.
pub(crate) fn root() -> HttpReply {
    json_reply(&json!({ "name": "oribi", "version": VERSION }))
}

pub(crate) fn pools(state: &AdminState, user: Option<&UserContext>) -> HttpReply {
    json_reply(&json!({
        "pools": [{ "name": "default", "uri": "/pools/default" }],
        "isAdminCreds": user.is_some_and(|user| user.identity.access.is_admin()),
        "isEnterprise": false,
        "uuid": state.server.cluster.config.identity().uuid,
        "implementationVersion": format!("{VERSION}-oribi"),
    }))
}

/// `/whoami`. `privileges` lists the privileges of each role, by Oribi's names.
pub(crate) fn whoami(identity: &Identity) -> HttpReply {
    let described = |role: &Role| {
        let mut value = role_json(role);
        if let Role::Of(privileges, _) = role {
            value["privileges"] = json!(privileges.to_words());
        }
        value
    };
    let roles: Vec<Value> = identity.access.roles().iter().map(described).collect();
    json_reply(&json!({ "id": identity.name, "domain": "local", "roles": roles }))
}

pub(crate) async fn metrics(state: &Arc<AdminState>) -> HttpReply {
    let state = Arc::clone(state);
    // The store's figures need a look at the disk.
    match blocking(move || state.metrics.scrape()).await {
        Ok(text) => for_operators(whole(StatusCode::OK, crate::metrics::CONTENT_TYPE, text)),
        Err(reply) => *reply,
    }
}

/// The figures of the node, for users who see them.
async fn observe_if_visible(
    state: &Arc<AdminState>,
    user: &UserContext,
) -> Result<Option<Observation>, HttpRejection> {
    match sees_node(user) {
        true => observe(state).await.map(Some),
        false => Ok(None),
    }
}

pub(crate) async fn node(state: &Arc<AdminState>, user: &UserContext) -> HttpReply {
    let observation = match observe_if_visible(state, user).await {
        Ok(observation) => observation,
        Err(reply) => return *reply,
    };
    let figures = observation.as_ref().map(|observation| &observation.node);
    let handles = state.server.buckets.list();
    let buckets: Vec<Value> = handles
        .iter()
        .filter(|handle| user.identity.access.reaches(handle.name()))
        .map(|handle| json!({ "bucketName": handle.name(), "uuid": handle.bucket().config().uuid }))
        .collect();
    let identity = state.server.cluster.config.identity();
    let nodes = state.server.cluster.node.as_ref().map(|node| node.nodes());
    let of_cluster = format!("uuid={}", identity.uuid);
    let mut pool = json!({
        "name": "default",
        "clusterName": identity.name,
        "nodes": node_list::entries(state, user, figures),
        "bucketNames": buckets,
        "buckets": {
            "uri": format!("/pools/default/buckets?{of_cluster}"),
            "terseBucketsBase": "/pools/default/b/",
            "terseStreamingBucketsBase": "/pools/default/bs/",
        },
        "tasks": { "uri": format!("/pools/default/tasks?{of_cluster}") },
        "rebalanceProgressUri": "/pools/default/rebalanceProgress",
        "balanced": nodes.as_deref().is_none_or(|nodes| nodes.balanced),
        "rebalanceStatus": rebalance::status_word(nodes.as_deref()),
    });
    if let Some(figures) = figures {
        pool["storageTotals"] = figures.storage_totals();
        pool["memoryQuota"] = json!(figures.memory_quota_mib());
    }
    json_reply(&pool)
}

pub(crate) async fn own_node(state: &Arc<AdminState>, user: &UserContext) -> HttpReply {
    let observation = match observe_if_visible(state, user).await {
        Ok(observation) => observation,
        Err(reply) => return *reply,
    };
    let figures = observation.as_ref().map(|observation| &observation.node);
    let mut entry = node_entry(state, user, "healthy", figures);
    if let Some(figures) = figures {
        entry["storageTotals"] = figures.storage_totals();
        entry["memoryQuota"] = json!(figures.memory_quota_mib());
    }
    json_reply(&entry)
}

/// Quotas of services. They are checked and have no effect: memory is divided among buckets, and
/// there are no other services.
const QUOTAS: [&str; 6] = [
    "memoryQuota",
    "indexMemoryQuota",
    "ftsMemoryQuota",
    "cbasMemoryQuota",
    "eventingMemoryQuota",
    "queryMemoryQuota",
];

/// `POST /pools/default`: names the cluster.
pub(crate) async fn change(state: &Arc<AdminState>, form: &FormFields) -> HttpReply {
    if let Err(reply) = form.only(&[&["clusterName"][..], &QUOTAS].concat()) {
        return *reply;
    }
    if let Some(Err(reply)) = QUOTAS.iter().map(|name| form.number(name)).find(Result::is_err) {
        return *reply;
    }
    let Some(name) = form.text("clusterName").map(str::to_owned) else {
        return empty(StatusCode::OK);
    };
    if !is_cluster_name(&name) {
        return field_error(
            "clusterName",
            "The name has at most 256 characters, none of them a control character",
        );
    }
    let (server, named) = (Arc::clone(&state.server), name.clone());
    match blocking(move || server.cluster.set_name(&named)).await {
        Ok(Ok(())) => {
            tracing::info!(name, "named the cluster");
            empty(StatusCode::OK)
        }
        Ok(Err(failure)) => failed("name the cluster", &failure),
        Err(reply) => *reply,
    }
}

pub(crate) fn node_services(state: &AdminState) -> HttpReply {
    json_text(&state.server.cluster.config.global_document().json)
}
