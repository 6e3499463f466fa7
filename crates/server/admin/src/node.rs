//! Requests about the node itself: its certificate, and its ports with TLS.
//!
//! Caller: `routes`, which has checked the rights.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::StatusCode;
use serde_json::json;

use super::blocking::blocking;
use super::message::{HttpReply, error, json_reply, whole};
use super::state::AdminState;

/// `POST /node/controller/reloadCertificate`: makes new connections use the current content of the
/// certificate files.
pub(crate) async fn reload_certificate(state: &Arc<AdminState>) -> HttpReply {
    let Some(tls) = state.server.access.tls.as_ref().cloned() else {
        return error(StatusCode::BAD_REQUEST, "TLS is not set up");
    };
    match blocking(move || tls.reload()).await {
        Ok(Ok(())) => json_reply(&json!({ "status": "ok" })),
        Ok(Err(refused)) => error(StatusCode::BAD_REQUEST, &refused.to_string()),
        Err(reply) => *reply,
    }
}

/// `GET /pools/default/certificate`: the certificate that clients have to trust, in PEM. It is the
/// last one of the server's chain, which is the issuer's where the file has that.
pub(crate) fn certificate(state: &AdminState) -> HttpReply {
    let Some(tls) = state.server.access.tls.as_ref() else {
        return error(StatusCode::NOT_FOUND, "TLS is not set up");
    };
    match tls.current().chain.last() {
        Some(der) => whole(StatusCode::OK, "text/plain", pem(der)),
        None => error(StatusCode::NOT_FOUND, "TLS is not set up"),
    }
}

fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let encoded = BASE64.encode(der);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text + "-----END CERTIFICATE-----\n"
}

/// `GET /nodes/self/xdcrSSLPorts`: where a cluster that replicates into this one finds TLS. It asks
/// without credentials.
pub(crate) fn tls_ports(state: &AdminState) -> HttpReply {
    let mut ports = json!({});
    if let Some(tls) = state.server.cluster.config.tls_ports() {
        ports["httpsMgmt"] = json!(tls.mgmt);
    }
    if let Some(external) = &state.server.cluster.config.address().external {
        ports["alternateAddresses"] = json!({ "external": external });
    }
    json_reply(&ports)
}
