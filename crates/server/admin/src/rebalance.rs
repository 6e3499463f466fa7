//! Rebalance over HTTP: begin, stop and progress.
//!
//! Owns: `POST /controller/rebalance` and `/controller/stopRebalance`, which wait for etcd and so
//! run on blocking threads, and the two answers about progress, which show what this node saw last.
//! Caller: `routes`.

use std::collections::BTreeSet;
use std::sync::Arc;

use hyper::StatusCode;
use oribi_cluster::RebalanceError;
use oribi_cluster::copies::moves::MoveCounts;
use oribi_cluster::nodes::{NodesStatus, RebalanceStatus};
use serde_json::{Map, Value, json};

use super::blocking::blocking;
use super::cluster::{named, no_cluster, otp_node, refused};
use super::message::{HttpReply, empty, field_error, json_reply, whole};
use super::request::AdminRequest;
use super::state::AdminState;

/// Seconds between two looks at a rebalance that runs.
const REFRESH_S: f64 = 0.25;

/// Spreads copies over `knownNodes`, which are all nodes, without `ejectedNodes`.
pub(crate) async fn begin(req: &AdminRequest) -> HttpReply {
    let form = &req.form;
    let Some(node) = req.state.server.cluster.node.clone() else { return no_cluster() };
    let names = |field: &str| -> BTreeSet<String> {
        let list = form.get(field).unwrap_or_default().split(',').map(str::trim);
        list.filter(|name| !name.is_empty()).map(|name| named(name).to_owned()).collect()
    };
    let (known, ejected) = (names("knownNodes"), names("ejectedNodes"));
    match blocking(move || node.rebalance(&known, &ejected)).await {
        Ok(Ok(id)) => {
            tracing::info!(id, "a rebalance begins");
            json_reply(&json!({ "rebalance_id": id }))
        }
        Ok(Err(error)) => rejection(&error),
        Err(reply) => *reply,
    }
}

pub(crate) async fn stop(req: &AdminRequest) -> HttpReply {
    let Some(node) = req.state.server.cluster.node.clone() else { return no_cluster() };
    match blocking(move || node.stop_rebalance()).await {
        Ok(Ok(())) => empty(StatusCode::OK),
        Ok(Err(error)) => rejection(&error),
        Err(reply) => *reply,
    }
}

fn rejection(error: &RebalanceError) -> HttpReply {
    let coded = |code: &str| {
        let body = json!({ code: 1, "message": error.to_string() });
        whole(StatusCode::BAD_REQUEST, "application/json", body.to_string())
    };
    match error {
        RebalanceError::NoKnownNodes => coded("empty_known_nodes"),
        RebalanceError::Mismatch { .. } => coded("mismatch"),
        RebalanceError::UnknownNode(_) | RebalanceError::NoNodeLeft => {
            field_error("ejectedNodes", &error.to_string())
        }
        RebalanceError::Agreement(_) | RebalanceError::Running | RebalanceError::Contended => {
            refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
    }
}

fn seen(state: &AdminState) -> Option<Arc<NodesStatus>> {
    state.server.cluster.node.as_ref().map(|node| node.nodes())
}

/// `"running"` or `"none"`, as `/pools/default` has it.
pub(crate) fn status_word(nodes: Option<&NodesStatus>) -> &'static str {
    match nodes.and_then(NodesStatus::running_rebalance) {
        Some(_) => "running",
        None => "none",
    }
}

/// `GET /pools/default/rebalanceProgress`: the progress of each node, between 0 and 1.
pub(crate) fn progress(req: &AdminRequest) -> HttpReply {
    let nodes = seen(&req.state);
    let mut reply = json!({ "status": status_word(nodes.as_deref()) });
    let running = nodes.as_deref().and_then(NodesStatus::running_rebalance);
    if let (Some(running), Some(reply)) = (running, reply.as_object_mut()) {
        reply.extend(per_node(running, MoveCounts::progress));
    }
    json_reply(&reply)
}

/// `GET /pools/default/tasks`: the rebalance is the only task with a progress.
pub(crate) fn tasks(req: &AdminRequest) -> HttpReply {
    let nodes = seen(&req.state);
    let Some(running) = nodes.as_deref().and_then(NodesStatus::running_rebalance) else {
        return json_reply(&json!([{
            "type": "rebalance",
            "status": "notRunning",
            "statusIsStale": false,
            "masterRequestTimedOut": false,
        }]));
    };
    let percent = |counts: MoveCounts| counts.progress() * 100.0;
    json_reply(&json!([{
        "type": "rebalance",
        "status": "running",
        "rebalanceId": running.id,
        "progress": percent(running.counts),
        "perNode": per_node(running, percent),
        "movesLeft": running.counts.left,
        "movesTotal": running.counts.total,
        "waitsFor": running.waits_for,
        "recommendedRefreshPeriod": REFRESH_S,
        "statusIsStale": false,
        "masterRequestTimedOut": false,
    }]))
}

fn per_node(running: &RebalanceStatus, progress: impl Fn(MoveCounts) -> f64) -> Map<String, Value> {
    let entry = |(name, counts): (&String, &MoveCounts)| {
        (otp_node(name), json!({ "progress": progress(*counts) }))
    };
    running.nodes.iter().map(entry).collect()
}
