//! The requests by which scripts and Testcontainers' modules set up a Couchbase Server.
//!
//! Owns: their forms and answers. Oribi's services are always on, so most of a set-up changes
//! nothing: the handlers check it, and refuse by name a request for something that does not exist.
//! Caller: the table of routes; `guest_setup` serves clients without credentials.

use std::sync::Arc;

use hyper::StatusCode;
use oribi_auth::{Role, UserChange};
use serde_json::json;

use super::blocking::{blocking, failed};
use super::message::{FormFields, HttpRejection, HttpReply, empty, error, field_error, json_reply};
use super::request::AdminRequest;
use super::state::AdminState;
use super::users;
use oribi_server::cluster_config::QueryPorts;
use oribi_server::cluster_config::address::{ExternalAddress, ExternalPorts, is_host};

/// Names of ports in an external address that belong to services or protocols that are not here.
/// They are accepted, because clients send all ports that they have mapped.
const OTHER_PORTS: [&str; 13] = [
    "capi",
    "capiSSL",
    "fts",
    "ftsSSL",
    "ftsGRPC",
    "ftsGRPCSSL",
    "cbas",
    "cbasSSL",
    "eventingAdminPort",
    "eventingSSL",
    "eventingDebug",
    "backupAPI",
    "backupAPIHTTPS",
];

/// `POST /settings/web`: an administrator with a password.
pub(crate) async fn set_administrator(request: &AdminRequest) -> Result<HttpReply, HttpRejection> {
    let (state, form) = (&request.state, &request.form);
    form.only(&["username", "password", "port", "roles"])?;
    match form.get("port") {
        None | Some("SAME") => {}
        Some(port) if port.parse::<u16>().is_ok() => {}
        Some(_) => return Err(field_error("port", "Write a port or SAME").into()),
    }
    let [name, password] = ["username", "password"].map(|field| form.get(field));
    let name = name.ok_or_else(|| field_error("username", "The value must be supplied"))?;
    let password = password.ok_or_else(|| field_error("password", "The value must be supplied"))?;
    let present = state.server.access.users.verify_basic_cached(name, password.as_bytes());
    if !state.server.access.users.is_development()
        && present.is_some_and(|identity| identity.access.is_admin())
    {
        return Ok(web_reply(state, &request.host()));
    }
    let change = UserChange {
        name: name.to_owned(),
        password: Some(password.as_bytes().to_vec()),
        roles: Some(vec![Role::Admin]),
        is_initial: true,
        ..UserChange::default()
    };
    let reply = users::apply(state, change, true).await;
    match reply.status() {
        StatusCode::OK if users::ended_development(&reply) => {
            Ok(users::as_ending(web_reply(state, &request.host())))
        }
        StatusCode::OK => Ok(web_reply(state, &request.host())),
        _ => Err(reply.into()),
    }
}

pub(super) fn web_reply(state: &AdminState, host: &str) -> HttpReply {
    let (_, port) = state.server.cluster.config.ports();
    json_reply(&json!({ "newBaseUri": format!("http://{host}:{port}/") }))
}

/// The services of this node, in the words of set-ups and of lists of nodes.
pub(super) fn services_of(state: &AdminState) -> &'static [&'static str] {
    match state.server.cluster.config.query_ports() {
        QueryPorts { plain: None, tls: None } => &["kv"],
        _ => &["index", "kv", "n1ql"],
    }
}

/// `POST /node/controller/setupServices`: services are neither turned on nor off.
pub(crate) fn set_services(
    state: &AdminState,
    form: &FormFields,
) -> Result<HttpReply, HttpRejection> {
    form.only(&["services", "setDefaultMemQuotas"])?;
    let services = form.get("services").unwrap_or_default();
    let names = services.split(',').map(str::trim).filter(|name| !name.is_empty());
    let known = services_of(state);
    let unknown: Vec<&str> = names.filter(|name| !known.contains(name)).collect();
    if !unknown.is_empty() {
        let enums = if known.len() > 1 { "KV, QUERY, INDEX" } else { "KV" };
        let message = format!(
            "There is no service {} here, only {}: leave the others out (with Testcontainers: \
             withEnabledServices({enums}))",
            unknown.join(", "),
            known.join(", ")
        );
        return Err(field_error("services", &message).into());
    }
    if services.is_empty() {
        return Err(field_error("services", "The value must be supplied").into());
    }
    Ok(empty(StatusCode::OK))
}

/// `POST /settings/indexes`: indexes are in memory whatever the mode, so it has no effect.
pub(crate) fn set_indexes(form: &FormFields) -> Result<HttpReply, HttpRejection> {
    match form.get("storageMode") {
        None | Some("plasma" | "memory_optimized" | "forestdb") => {
            Ok(json_reply(&json!({ "storageMode": form.get("storageMode").unwrap_or_default() })))
        }
        Some(_) => Err(field_error("storageMode", "This is not a storage mode of indexes").into()),
    }
}

/// `POST /node/controller/rename`: the node's name in its own network.
pub(crate) async fn rename(
    state: &Arc<AdminState>,
    form: &FormFields,
) -> Result<HttpReply, HttpRejection> {
    form.only(&["hostname"])?;
    let host = checked_host(form)?;
    if is_own_host(state, &host) {
        return Ok(empty(StatusCode::OK));
    }
    change_address(state, move |server| {
        server.cluster.change_address(|address| address.host = Some(host))
    })
    .await
}

/// True for the name that this node has in its network.
pub(super) fn is_own_host(state: &AdminState, host: &str) -> bool {
    match &state.server.cluster.config.address().host {
        Some(named) => named == host,
        None => *host == state.server.cluster.own_ip.to_string(),
    }
}

/// `PUT /node/controller/setupAlternateAddresses/external`: where clients outside find the node.
pub(crate) async fn set_external(
    state: &Arc<AdminState>,
    form: &FormFields,
) -> Result<HttpReply, HttpRejection> {
    let known = ["hostname", "kv", "mgmt", "n1ql", "kvSSL", "mgmtSSL", "n1qlSSL"];
    form.only(&[&known[..], &OTHER_PORTS].concat())?;
    let hostname = checked_host(form)?;
    for name in OTHER_PORTS {
        port_in(form, name)?;
    }
    let ports = ExternalPorts {
        kv: port_in(form, "kv")?,
        mgmt: port_in(form, "mgmt")?,
        kv_ssl: port_in(form, "kvSSL")?,
        mgmt_ssl: port_in(form, "mgmtSSL")?,
        n1ql: port_in(form, "n1ql")?,
        n1ql_ssl: port_in(form, "n1qlSSL")?,
    };
    let external = ExternalAddress { hostname, ports };
    change_address(state, move |server| {
        let own_ip = server.cluster.own_ip;
        server.cluster.change_address(|address| {
            // Clients tell the two addresses apart by their hosts.
            address.host.get_or_insert_with(|| own_ip.to_string());
            address.external = Some(external);
        })
    })
    .await
}

pub(crate) async fn drop_external(state: &Arc<AdminState>) -> Result<HttpReply, HttpRejection> {
    change_address(state, |server| server.cluster.change_address(|address| address.external = None))
        .await
}

async fn change_address(
    state: &Arc<AdminState>,
    change: impl FnOnce(
        &oribi_server::server_context::ServerContext,
    ) -> Result<(), oribi_system::data_file::DataFileError>
    + Send
    + 'static,
) -> Result<HttpReply, HttpRejection> {
    if state.server.cluster.node.is_some() {
        let message = "A node of a cluster is named by the settings advertise_host and \
                       advertise_port";
        return Err(error(StatusCode::BAD_REQUEST, message).into());
    }
    let server = Arc::clone(&state.server);
    match blocking(move || change(&server)).await? {
        Ok(()) => {
            let address = state.server.cluster.config.address();
            tracing::info!(host = address.host, external = ?address.external, "changed the address of this node");
            Ok(empty(StatusCode::OK))
        }
        Err(failure) => Err(failed("keep the address of this node", &failure).into()),
    }
}

fn checked_host(form: &FormFields) -> Result<String, HttpRejection> {
    match form.get("hostname") {
        Some(host) if is_host(host) => Ok(host.to_owned()),
        Some(_) => {
            Err(field_error("hostname", "This is neither a host name nor an address").into())
        }
        None => Err(field_error("hostname", "The value must be supplied").into()),
    }
}

fn port_in(form: &FormFields, name: &str) -> Result<Option<u16>, HttpRejection> {
    let Some(number) = form.number(name)? else { return Ok(None) };
    match u16::try_from(number) {
        Ok(port) if port != 0 => Ok(Some(port)),
        _ => Err(field_error(name, "The value must be between 1 and 65535").into()),
    }
}
