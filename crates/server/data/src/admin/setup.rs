//! The requests by which scripts and Testcontainers' modules set up a Couchbase Server.
//!
//! Owns: their forms and answers, and what of them is answered without credentials. There is one
//! service here, so much of this set-up changes nothing: it is checked, and a request for something
//! that does not exist is refused by name. Invariants:
//! - without credentials a server in development mode is set up, which listens on loopback only;
//!   any other server answers 200 when the request changes nothing, else 401 with the reason;
//! - `/settings/web` without credentials proves its password as a login does.
//!
//! Caller: `routes`, which has checked host names, and rights where there are credentials.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::WWW_AUTHENTICATE;
use hyper::{Method, Request, StatusCode};
use serde_json::json;

use super::audit::Client;
use super::blocking::{blocking, failed};
use super::login::TooManyLogins;
use super::message::{
    BODY_BYTES_MAX, Form, Refusal, Reply, busy, empty, error, field_error, forbidden, host_of,
    json_reply, unauthorized,
};
use super::state::AdminState;
use super::{origin, pools, users};
use crate::auth::{DEVELOPMENT_NAME, Role, UserChange};
use crate::cluster_config::address::{ExternalAddress, ExternalPorts, is_host};

const RENAME: [&str; 3] = ["node", "controller", "rename"];
const SERVICES: [&str; 3] = ["node", "controller", "setupServices"];
const POOL: [&str; 2] = ["pools", "default"];
const WEB: [&str; 2] = ["settings", "web"];
const INDEXES: [&str; 2] = ["settings", "indexes"];
const EXTERNAL: [&str; 4] = ["node", "controller", "setupAlternateAddresses", "external"];

/// Names of ports in an external address that belong to services or protocols that are not here.
/// They are accepted, because clients send all ports that they have mapped.
const OTHER_PORTS: [&str; 15] = [
    "capi",
    "capiSSL",
    "n1ql",
    "n1qlSSL",
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

/// True for a request that sets up a server and may come without credentials.
pub(crate) fn may_lack_credentials(method: &Method, parts: &[&str]) -> bool {
    *method == Method::POST && [&RENAME[..], &SERVICES, &POOL, &WEB].contains(&parts)
}

/// Serves such a request.
pub(crate) async fn without_credentials(
    state: &Arc<AdminState>,
    parts: &[&str],
    request: Request<Incoming>,
    client: &Client,
) -> Reply {
    if origin::is_from_elsewhere(request.headers()) {
        return forbidden("same origin");
    }
    let host = host_of(request.headers());
    let refused = unauthorized(request.headers());
    let form = match Form::read(request.into_body(), BODY_BYTES_MAX).await {
        Ok(form) => form,
        Err(reply) => return *reply,
    };
    if state.server.users.is_development() {
        let developer = state.server.users.current(DEVELOPMENT_NAME);
        let reply = match change(state, &Method::POST, parts, &form, &host).await {
            Some(reply) => reply,
            None => pools::change(state, &form).await,
        };
        if let Some(developer) = developer {
            let request = (&Method::POST, parts);
            state.audit.requested(&state.server.audit, client, &developer, request, &reply);
        }
        return reply;
    }
    let as_is = match parts {
        _ if *parts == WEB => knows_administrator(state, &form, client).await,
        _ if *parts == SERVICES => Ok(true),
        _ if *parts == POOL => Ok(form.text("clusterName").is_none()),
        _ => Ok(form.get("hostname").is_some_and(|host| is_own_host(state, host))),
    };
    match as_is {
        Err(TooManyLogins) => busy("too many passwords are being checked"),
        Ok(true) if *parts == POOL => pools::change(state, &form).await,
        Ok(true) if *parts == WEB => web_reply(state, &host),
        Ok(true) => change(state, &Method::POST, parts, &form, &host).await.unwrap_or(refused),
        Ok(false) => {
            state.audit.refused(&state.server.audit, client, None, (&Method::POST, parts));
            already_set_up(refused)
        }
    }
}

/// Requests that set up a server, from an administrator; `None` for any other path.
pub(crate) async fn change(
    state: &Arc<AdminState>,
    method: &Method,
    parts: &[&str],
    form: &Form,
    host: &str,
) -> Option<Reply> {
    let reply = match *method {
        Method::POST if *parts == WEB => set_administrator(state, form, host).await,
        Method::POST if *parts == SERVICES => set_services(form),
        Method::POST if *parts == RENAME => rename(state, form).await,
        Method::POST if *parts == INDEXES => set_indexes(form),
        Method::PUT if *parts == EXTERNAL => set_external(state, form).await,
        Method::DELETE if *parts == EXTERNAL => drop_external(state).await,
        _ => return None,
    };
    Some(reply.unwrap_or_else(|refusal| *refusal))
}

/// 401 with the reason, and the challenge that any 401 has.
fn already_set_up(mut unauthorized: Reply) -> Reply {
    let mut reply = error(
        StatusCode::UNAUTHORIZED,
        "This server has users already: send the credentials of an administrator. Without them \
         only a request that changes nothing succeeds",
    );
    let challenge = unauthorized.headers_mut().remove(WWW_AUTHENTICATE);
    reply.headers_mut().extend(challenge.map(|challenge| (WWW_AUTHENTICATE, challenge)));
    reply
}

/// True when the form has the name and the password of an administrator.
async fn knows_administrator(
    state: &Arc<AdminState>,
    form: &Form,
    client: &Client,
) -> Result<bool, TooManyLogins> {
    let (Some(name), Some(password)) = (form.get("username"), form.get("password")) else {
        return Ok(false);
    };
    let recorder = (&*state.server, &state.audit);
    let password = password.as_bytes().to_vec();
    let identity = state.logins.verify(name.to_owned(), password, recorder, client).await?;
    Ok(identity.is_some_and(|identity| identity.access.is_admin()))
}

/// `POST /settings/web`: an administrator with a password.
async fn set_administrator(
    state: &Arc<AdminState>,
    form: &Form,
    host: &str,
) -> Result<Reply, Refusal> {
    form.only(&["username", "password", "port", "roles"])?;
    match form.get("port") {
        None | Some("SAME") => {}
        Some(port) if port.parse::<u16>().is_ok() => {}
        Some(_) => return Err(field_error("port", "Write a port or SAME").into()),
    }
    let [name, password] = ["username", "password"].map(|field| form.get(field));
    let name = name.ok_or_else(|| field_error("username", "The value must be supplied"))?;
    let password = password.ok_or_else(|| field_error("password", "The value must be supplied"))?;
    let present = state.server.users.verify_basic_cached(name, password.as_bytes());
    if !state.server.users.is_development()
        && present.is_some_and(|identity| identity.access.is_admin())
    {
        return Ok(web_reply(state, host));
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
            Ok(users::as_ending(web_reply(state, host)))
        }
        StatusCode::OK => Ok(web_reply(state, host)),
        _ => Err(reply.into()),
    }
}

fn web_reply(state: &AdminState, host: &str) -> Reply {
    let (_, port) = state.server.cluster.ports();
    json_reply(&json!({ "newBaseUri": format!("http://{host}:{port}/") }))
}

/// `POST /node/controller/setupServices`: there is one service.
fn set_services(form: &Form) -> Result<Reply, Refusal> {
    form.only(&["services", "setDefaultMemQuotas"])?;
    let services = form.get("services").unwrap_or_default();
    let names = services.split(',').map(str::trim).filter(|name| !name.is_empty());
    let unknown: Vec<&str> = names.filter(|name| *name != "kv").collect();
    if !unknown.is_empty() {
        let message = format!(
            "There is no service {} here, only kv: leave the others out (with Testcontainers: \
             withEnabledServices(CouchbaseService.KV))",
            unknown.join(", ")
        );
        return Err(field_error("services", &message).into());
    }
    if services.is_empty() {
        return Err(field_error("services", "The value must be supplied").into());
    }
    Ok(empty(StatusCode::OK))
}

/// `POST /settings/indexes`: there are no indexes, so their settings have no effect.
fn set_indexes(form: &Form) -> Result<Reply, Refusal> {
    match form.get("storageMode") {
        None | Some("plasma" | "memory_optimized" | "forestdb") => {
            Ok(json_reply(&json!({ "storageMode": form.get("storageMode").unwrap_or_default() })))
        }
        Some(_) => Err(field_error("storageMode", "This is not a storage mode of indexes").into()),
    }
}

/// `POST /node/controller/rename`: the node's name in its own network.
async fn rename(state: &Arc<AdminState>, form: &Form) -> Result<Reply, Refusal> {
    form.only(&["hostname"])?;
    let host = checked_host(form)?;
    if is_own_host(state, &host) {
        return Ok(empty(StatusCode::OK));
    }
    change_address(state, move |server| server.change_address(|address| address.host = Some(host)))
        .await
}

/// True for the name that this node has in its network.
fn is_own_host(state: &AdminState, host: &str) -> bool {
    match &state.server.cluster.address().host {
        Some(named) => named == host,
        None => *host == state.server.own_ip.to_string(),
    }
}

/// `PUT /node/controller/setupAlternateAddresses/external`: where clients outside find the node.
async fn set_external(state: &Arc<AdminState>, form: &Form) -> Result<Reply, Refusal> {
    let known = ["hostname", "kv", "mgmt", "kvSSL", "mgmtSSL"];
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
    };
    let external = ExternalAddress { hostname, ports };
    change_address(state, move |server| {
        let own_ip = server.own_ip;
        server.change_address(|address| {
            // Clients tell the two addresses apart by their hosts.
            address.host.get_or_insert_with(|| own_ip.to_string());
            address.external = Some(external);
        })
    })
    .await
}

async fn drop_external(state: &Arc<AdminState>) -> Result<Reply, Refusal> {
    change_address(state, |server| server.change_address(|address| address.external = None)).await
}

async fn change_address(
    state: &Arc<AdminState>,
    change: impl FnOnce(
        &crate::server_context::ServerContext,
    ) -> Result<(), oribi_system::data_file::DataFileError>
    + Send
    + 'static,
) -> Result<Reply, Refusal> {
    if state.server.node.is_some() {
        let message = "A node of a cluster is named by the settings advertise_host and \
                       advertise_port";
        return Err(error(StatusCode::BAD_REQUEST, message).into());
    }
    let server = Arc::clone(&state.server);
    match blocking(move || change(&server)).await? {
        Ok(()) => {
            let address = state.server.cluster.address();
            tracing::info!(host = address.host, external = ?address.external, "changed the address of this node");
            Ok(empty(StatusCode::OK))
        }
        Err(failure) => Err(failed("keep the address of this node", &failure).into()),
    }
}

fn checked_host(form: &Form) -> Result<String, Refusal> {
    match form.get("hostname") {
        Some(host) if is_host(host) => Ok(host.to_owned()),
        Some(_) => {
            Err(field_error("hostname", "This is neither a host name nor an address").into())
        }
        None => Err(field_error("hostname", "The value must be supplied").into()),
    }
}

fn port_in(form: &Form, name: &str) -> Result<Option<u16>, Refusal> {
    let Some(number) = form.number(name)? else { return Ok(None) };
    match u16::try_from(number) {
        Ok(port) if port != 0 => Ok(Some(port)),
        _ => Err(field_error(name, "The value must be between 1 and 65535").into()),
    }
}
