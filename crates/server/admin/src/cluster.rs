//! The cluster over HTTP: its state, and failover.
//!
//! Owns: `GET /node/cluster`, the JSON that `oribi cluster status` shows, and
//! `POST /controller/failOver`. Both wait for etcd, so they run on blocking threads. Also the names
//! of nodes in forms and answers. Callers: `routes`, `rebalance`, `pools`.

use std::sync::Arc;

use hyper::StatusCode;
use oribi_cluster::FailoverError;
use serde_json::json;

use super::blocking::blocking;
use super::message::{FormFields, HttpReply, empty, field_error, json_reply, whole};
use super::state::AdminState;

/// How clients of Couchbase name a node begins with this.
const OTP_PREFIX: [&str; 2] = ["oribi@", "ns_1@"];

/// How clients of Couchbase name a node.
pub(crate) fn otp_node(name: &str) -> String {
    format!("{}{name}", OTP_PREFIX[0])
}

/// The name in such a name.
pub(crate) fn named(otp_node: &str) -> &str {
    OTP_PREFIX.iter().find_map(|prefix| otp_node.strip_prefix(prefix)).unwrap_or(otp_node)
}

pub(crate) fn refused(status: StatusCode, text: &str) -> HttpReply {
    whole(status, "application/json", json!({ "errors": { "_": text } }).to_string())
}

pub(crate) fn no_cluster() -> HttpReply {
    refused(StatusCode::BAD_REQUEST, "this node is in no cluster: cluster_etcd is not set")
}

/// Nodes, copies that are missing, and what is under way.
pub(crate) async fn status(state: &Arc<AdminState>) -> HttpReply {
    let Some(node) = state.server.cluster.node.clone() else { return no_cluster() };
    match blocking(move || node.status()).await {
        Ok(Ok(status)) => json_reply(&json!(status)),
        Ok(Err(error)) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(reply) => *reply,
    }
}

/// Promotes other copies of a node's vbuckets. Answers when that is done.
pub(crate) async fn fail_over(state: &Arc<AdminState>, form: &FormFields) -> HttpReply {
    let Some(node) = state.server.cluster.node.clone() else { return no_cluster() };
    let Some(asked) = form.get("otpNode") else {
        return field_error("otpNode", "The name of the node is missing");
    };
    let allow_data_loss = match form.flag("allowUnsafe") {
        Ok(flag) => flag.unwrap_or(false),
        Err(reply) => return *reply,
    };
    let name = named(asked).to_owned();
    match blocking(move || node.fail_over(&name, allow_data_loss)).await {
        Ok(Ok(())) => empty(StatusCode::OK),
        Ok(Err(error @ FailoverError::UnknownNode { .. })) => {
            field_error("otpNode", &error.to_string())
        }
        Ok(Err(error @ FailoverError::Agreement(_))) => {
            refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
        Ok(Err(error)) => refused(StatusCode::CONFLICT, &error.to_string()),
        Err(reply) => *reply,
    }
}
