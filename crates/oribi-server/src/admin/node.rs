//! Requests about the node itself: its certificate.
//!
//! Caller: `routes`, which has checked the rights.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;

use super::blocking::blocking;
use super::message::{Reply, error, json_reply};
use super::state::AdminState;

/// `POST /node/controller/reloadCertificate`: makes new connections use the current content of the
/// certificate files.
pub(crate) async fn reload_certificate(state: &Arc<AdminState>) -> Reply {
    let Some(tls) = state.server.tls().cloned() else {
        return error(StatusCode::BAD_REQUEST, "TLS is not set up");
    };
    match blocking(move || tls.reload()).await {
        Ok(Ok(())) => json_reply(&json!({ "status": "ok" })),
        Ok(Err(refused)) => error(StatusCode::BAD_REQUEST, &refused.to_string()),
        Err(reply) => *reply,
    }
}
