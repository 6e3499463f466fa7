//! The route table: the handler of each path, and the rights it needs.
//!
//! Owns: the routes and their rights. Invariants:
//! - without credentials only `/`, `/healthz`, `/readyz`, `/pools`, the TLS port, the console's
//!   files and what `setup` says are answered;
//! - a change needs the role `admin`, except that of one's own password; that of a document needs
//!   rights in its collection; a browser cannot make one on behalf of another site;
//! - a statement of SQL reads what its user may read (`query`), one of SQL++ also changes what its
//!   user may change (`query_service`);
//! - reading about users needs the role `admin`;
//! - reading about a bucket needs some right in it, and shows only scopes and collections in which
//!   the user has one;
//! - figures of all buckets need a right in all of them;
//! - what an answer holds in memory is counted.
//!
//! The tables are `match`es: one arm, one call. Caller: `admin`.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HeaderName};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde_json::json;

use super::asker::Asker;
use super::audit::Client;
use super::login::{Login, TooManyLogins};
use super::message::{
    BODY_BYTES_MAX, Form, Reply, bucket_not_found, busy, challenged, counted, forbidden, host_of,
    no_memory, path_not_found, segments, unauthorized, whole,
};
use super::operator_memory::for_operators;
use super::state::AdminState;
use super::{
    buckets, changes, collections, config_stream, documents, figures, monitoring, node, origin,
    pools, setup, users,
};
use crate::auth::{Identity, Privilege};

/// All users with their verifiers.
const USERS_BACKUP: &[&str] = &["settings", "rbac", "backup"];

/// The header by which a server proves itself to a client of SCRAM.
const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");

/// Answers any request.
pub(crate) async fn answer(
    state: Arc<AdminState>,
    request: Request<Incoming>,
    client: Arc<Client>,
) -> Reply {
    let method = request.method().clone();
    let path = segments(request.uri().path());
    let parts: Vec<&str> = path.iter().flatten().map(String::as_str).collect();
    client.place.note_request();
    let reply = match path {
        None => path_not_found(),
        Some(_) if !origin::is_welcome(&state, &request) => origin::misdirected(),
        Some(_) => route(&state, &method, &parts, request, &client).await,
    };
    let reply = counted(reply, &state.server.connection_memory, &state.operator_memory);
    tracing::debug!(%method, path = ?parts, status = reply.status().as_u16(), "admin request");
    reply
}

async fn route(
    state: &Arc<AdminState>,
    method: &Method,
    parts: &[&str],
    request: Request<Incoming>,
    client: &Client,
) -> Reply {
    // Supervisors and balancers ask every few seconds, without credentials.
    match (method, parts) {
        (&Method::GET, ["healthz"]) => return state.health.answer(&state.server.buckets).await,
        (&Method::GET, ["readyz"]) => return state.health.readiness(&state.server.buckets).await,
        _ => {}
    }
    let headers = request.headers();
    #[cfg(feature = "console")]
    if *method == Method::GET {
        match parts {
            ["console", name @ ..] => return super::console::serve(state, name, headers),
            [] => {
                if let Some(reply) = super::console::welcome(headers) {
                    return reply;
                }
            }
            _ => {}
        }
    }
    let recorder = (&*state.server, &state.audit);
    let (identity, proof) = match headers.contains_key(AUTHORIZATION) {
        true => match state.logins.identify(headers, recorder, client).await {
            Ok(Login::User(identity, proof)) => (Some(identity), proof),
            Ok(Login::Wrong) => (None, None),
            Ok(Login::Challenge(challenge)) => return challenged(challenge),
            Err(TooManyLogins) => return busy("too many passwords are being checked"),
        },
        false => (client.certified.clone(), None),
    };
    let mut reply = serve(state, (method, parts), request, identity, client).await;
    reply.headers_mut().extend(proof.map(|proof| (AUTHENTICATION_INFO, proof)));
    reply
}

/// Serves a request whose client is known, or known to be unknown.
async fn serve(
    state: &Arc<AdminState>,
    (method, parts): (&Method, &[&str]),
    request: Request<Incoming>,
    identity: Option<Arc<Identity>>,
    client: &Client,
) -> Reply {
    let headers = request.headers();
    let has_credentials = headers.contains_key(AUTHORIZATION);
    let log = &state.server.audit;
    if let Some(identity) = &identity {
        state.audit.authenticated(log, client, identity);
    }
    let working = match &identity {
        None => None,
        Some(identity) => match client.place.begin_request(identity) {
            Some(working) => Some(working),
            None => return busy("this user has too many connections"),
        },
    };
    match (method, parts, identity) {
        (&Method::GET, [], _) => pools::root(),
        (&Method::GET, ["nodes", "self", "xdcrSSLPorts"], _) => node::tls_ports(state),
        // Scripts that set up a server begin with this, and with the password that it will have.
        (&Method::GET, ["pools"], identity)
            if identity.is_some() || !has_credentials || state.server.users.is_development() =>
        {
            pools::pools(state, identity.as_deref())
        }
        (_, _, None) if !has_credentials && setup::may_lack_credentials(method, parts) => {
            setup::without_credentials(state, parts, request, client).await
        }
        (_, _, None) => {
            if !has_credentials {
                state.audit.refused(log, client, None, (method, parts));
            }
            unauthorized(headers)
        }
        (&Method::GET | &Method::POST, ["query", "service"], Some(identity)) => {
            let asker = Asker::new(identity, host_of(headers), working);
            query_service(state, request, &asker).await
        }
        (&Method::GET, _, Some(identity)) => {
            let asker = Asker::new(identity, host_of(headers), working);
            let details = (request.uri().query().unwrap_or_default(), headers);
            let reply = read(state, parts, details, &asker).await;
            if reply.status() == StatusCode::FORBIDDEN {
                state.audit.refused(log, client, Some(&asker.identity), (method, parts));
            } else if parts == USERS_BACKUP {
                // Passwords can be guessed at with what it tells.
                state.audit.requested(log, client, &asker.identity, (method, parts), &reply);
            }
            reply
        }
        (&Method::POST, ["query", "sql"], Some(identity)) => {
            let asker = Asker::new(identity, host_of(headers), working);
            let reply = statement(state, request, &asker).await;
            if reply.status() == StatusCode::FORBIDDEN {
                state.audit.refused(log, client, Some(&asker.identity), (method, parts));
            }
            reply
        }
        (_, _, Some(identity)) if documents::address(parts).is_some() => {
            if origin::is_from_elsewhere(headers) {
                return forbidden("same origin");
            }
            let asker = Asker::new(identity, host_of(headers), working);
            let reply = change_document(state, method, (parts, request), &asker).await;
            if reply.status() == StatusCode::FORBIDDEN {
                state.audit.refused(log, client, Some(&asker.identity), (method, parts));
            }
            reply
        }
        (_, _, Some(identity)) if !identity.access.is_admin() && !is_own(method, parts) => {
            state.audit.refused(log, client, Some(&identity), (method, parts));
            forbidden("cluster.admin!write")
        }
        (_, _, Some(identity)) => {
            let reply = match origin::is_from_elsewhere(headers) {
                true => forbidden("same origin"),
                false => change(state, method, parts, request, &identity).await,
            };
            if users::ended_development(&reply) {
                client.keep_developer(&identity);
            }
            state.audit.requested(log, client, &identity, (method, parts), &reply);
            reply
        }
    }
}

/// Routes that change a document, which need rights in its collection only.
async fn change_document(
    state: &Arc<AdminState>,
    method: &Method,
    (parts, request): (&[&str], Request<Incoming>),
    asker: &Asker,
) -> Reply {
    match documents::address(parts) {
        Some(address) => documents::change(state, method, (address, request), asker).await,
        None => path_not_found(),
    }
}

/// Statements of SQL, which only read, but cost enough that other sites may not ask for them.
async fn statement(state: &Arc<AdminState>, request: Request<Incoming>, asker: &Asker) -> Reply {
    if origin::is_from_elsewhere(request.headers()) {
        return forbidden("same origin");
    }
    #[cfg(feature = "sql")]
    {
        let (head, body) = request.into_parts();
        super::query::run(state, &head.headers, body, asker).await
    }
    #[cfg(not(feature = "sql"))]
    {
        let _ = (state, asker);
        path_not_found()
    }
}

/// A statement of SQL++.
async fn query_service(
    state: &Arc<AdminState>,
    request: Request<Incoming>,
    asker: &Asker,
) -> Reply {
    if origin::is_from_elsewhere(request.headers()) {
        return forbidden("same origin");
    }
    #[cfg(feature = "sql")]
    {
        super::query_service::run(state, request, asker).await
    }
    #[cfg(not(feature = "sql"))]
    {
        let _ = (state, asker);
        path_not_found()
    }
}

/// Routes that change nothing.
async fn read(
    state: &Arc<AdminState>,
    parts: &[&str],
    details: (&str, &HeaderMap),
    asker: &Asker,
) -> Reply {
    // Figures of all buckets need a right in all of them.
    let scrapes = asker.identity.access.everywhere("*").holds(Privilege::SimpleStats.into());
    match parts {
        ["whoami"] => pools::whoami(&asker.identity),
        ["settings", "rbac", ..] if !asker.identity.access.is_admin() => {
            forbidden("cluster.admin.security!read")
        }
        ["settings", "rbac", rest @ ..] => users::read(state, rest).await,
        ["metrics"] if !scrapes => forbidden("cluster.stats!read"),
        ["metrics"] => for_operators(pools::metrics(state).await),
        ["node", "figures"] if scrapes => {
            for_operators(figures::figures(state, details.0, asker).await)
        }
        ["node", "figures"] => figures::figures(state, details.0, asker).await,
        ["node", "slowOperations"] => figures::slow_operations(state, asker),
        ["nodes", "self"] => pools::own_node(state, asker).await,
        ["pools", ..] if is_of_other_cluster(state, details.0) => not_this("Cluster"),
        ["pools", "default" | "nodes"] => pools::node(state, asker).await,
        ["pools", "default", "nodeServices"] => pools::node_services(state),
        ["pools", "default", "tasks"] => monitoring::tasks(),
        ["pools", "default", "certificate"] => node::certificate(state),
        ["pools", "default", "buckets"] => buckets::list(state, details.0, asker).await,
        ["pools", "default", form, bucket, rest @ ..] => {
            read_bucket(state, (form, bucket, rest), details, asker).await
        }
        _ => path_not_found(),
    }
}

/// Information about one bucket, in each of the forms that paths name. All of it needs some right
/// in the bucket.
async fn read_bucket(
    state: &Arc<AdminState>,
    (form, bucket, rest): (&str, &str, &[&str]),
    details: (&str, &HeaderMap),
    asker: &Asker,
) -> Reply {
    if !asker.identity.access.reaches(bucket) {
        return forbidden(&format!("cluster.bucket[{bucket}].settings!read"));
    }
    if let Some(address) = documents::address(&[&["pools", "default", form, bucket], rest].concat())
    {
        return documents::read(state, address, details.0, asker).await;
    }
    if is_of_other_bucket(state, bucket, details.0) {
        return not_this("Bucket");
    }
    match (form, rest) {
        ("buckets", []) => buckets::get(state, bucket, details, asker).await,
        ("buckets", ["stats"]) => monitoring::bucket_samples(state, bucket, None, asker).await,
        ("buckets", ["nodes"]) => monitoring::bucket_nodes(state, bucket, asker),
        ("buckets", ["nodes", node, "stats"]) => {
            monitoring::bucket_samples(state, bucket, Some(node), asker).await
        }
        ("buckets", ["changes"]) => changes::stream(state, bucket, details, asker),
        ("buckets", ["ddocs"]) => no_views(state, bucket),
        ("buckets", ["scopes"]) => collections::manifest(state, bucket, &asker.identity),
        ("buckets", ["vbuckets"]) => figures::vbuckets(state, bucket, asker).await,
        ("b", []) => config_stream::terse(state, bucket),
        ("bs" | "bucketsStreaming", []) => config_stream::streaming(state, bucket, asker),
        _ => path_not_found(),
    }
}

/// True when a query names another cluster, or one that was here before.
fn is_of_other_cluster(state: &AdminState, query: &str) -> bool {
    let named = Form::parse(query).and_then(|form| form.get("uuid").map(str::to_owned));
    named.is_some_and(|uuid| uuid != state.server.cluster.identity().uuid)
}

/// True when a query names another bucket, or one that had this name before.
fn is_of_other_bucket(state: &AdminState, bucket: &str, query: &str) -> bool {
    let named = Form::parse(query).and_then(|form| form.get("bucket_uuid").map(str::to_owned));
    let Some(handle) = state.server.buckets.get(bucket) else { return false };
    named.is_some_and(|uuid| uuid != handle.bucket().config().uuid)
}

/// 400 in the words by which client libraries recognise a server without views. With a 404 they
/// would report that there is no bucket.
fn no_views(state: &AdminState, bucket: &str) -> Reply {
    if state.server.buckets.get(bucket).is_none() {
        return bucket_not_found();
    }
    let text = json!({ "error": "no_ddocs_service" }).to_string();
    whole(StatusCode::BAD_REQUEST, "application/json", text)
}

/// 404 for something that is not what a client knew by its uuid.
fn not_this(what: &str) -> Reply {
    let text = format!("{what} uuid does not match the requested.\r\n");
    whole(StatusCode::NOT_FOUND, "text/plain", text)
}

/// True for a change that a user without the role `admin` may make.
fn is_own(method: &Method, parts: &[&str]) -> bool {
    (method, parts) == (&Method::POST, ["controller", "changePassword"].as_slice())
}

/// Routes that change something. The client has the admin role, unless the change is its own.
async fn change(
    state: &Arc<AdminState>,
    method: &Method,
    parts: &[&str],
    request: Request<Incoming>,
    identity: &Identity,
) -> Reply {
    let host = host_of(request.headers());
    let (bytes_max, held) = match parts {
        USERS_BACKUP => {
            let memory = users::memory_of_backup(request.body());
            (users::BACKUP_BYTES_MAX, state.server.connection_memory.hold(memory).map(Some))
        }
        _ => (BODY_BYTES_MAX, Some(None)),
    };
    let Some(_held) = held else { return no_memory(&state.server.connection_memory) };
    let form = match Form::read(request.into_body(), bytes_max).await {
        Ok(form) => form,
        Err(reply) => return *reply,
    };
    if let Some(reply) = setup::change(state, method, parts, &form, &host).await {
        return reply;
    }
    if (method, parts) == (&Method::POST, ["node", "controller", "reloadCertificate"].as_slice()) {
        return node::reload_certificate(state).await;
    }
    if (method, parts) == (&Method::POST, ["pools", "default"].as_slice()) {
        return pools::change(state, &form).await;
    }
    if is_own(method, parts) {
        return users::change_password(state, identity, &form).await;
    }
    if let ["settings", "rbac", rest @ ..] = parts {
        return users::change(state, method, rest, &form).await;
    }
    let ["pools", "default", "buckets", rest @ ..] = parts else {
        return path_not_found();
    };
    match (method, rest) {
        (&Method::POST, []) => buckets::create(state, &form).await,
        (&Method::POST, [bucket]) => buckets::change::update(state, bucket, &form).await,
        (&Method::DELETE, [bucket]) => buckets::delete(state, bucket).await,
        (&Method::POST, [bucket, "controller", "doFlush"]) => {
            buckets::change::flush(state, bucket).await
        }
        (&Method::POST, [bucket, "controller", "compactBucket"]) => {
            buckets::change::compact(state, bucket).await
        }
        (&Method::POST, [bucket, "scopes"]) => {
            collections::create_scope(state, bucket, &form).await
        }
        (&Method::DELETE, [bucket, "scopes", scope]) => {
            collections::drop_scope(state, bucket, scope).await
        }
        (&Method::POST, [bucket, "scopes", "@ensureManifest", uid]) => {
            collections::ensure_manifest(state, bucket, uid)
        }
        (&Method::POST, [bucket, "scopes", scope, "collections"]) => {
            collections::create_collection(state, bucket, scope, &form).await
        }
        (&Method::PATCH, [bucket, "scopes", scope, "collections", collection]) => {
            collections::change_collection(state, bucket, scope, collection, &form).await
        }
        (&Method::DELETE, [bucket, "scopes", scope, "collections", collection]) => {
            collections::drop_collection(state, bucket, scope, collection).await
        }
        _ => path_not_found(),
    }
}
