//! The way of a request to its handler: login, rights, body, audit.
//!
//! Owns: the order of these steps. Invariants: `routes` alone says which rights a route needs; a
//! client without credentials gets the answers of open routes only; what an answer holds
//! in memory is counted. Caller: `admin`.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HeaderName;
use hyper::{Method, Request, StatusCode};
use oribi_auth::{Identity, Privilege};

use super::audit::AdminClient;
use super::login::{LoginOutcome, TooManyLogins};
use super::message::{
    FormFields, HttpReply, busy, challenged, counted, forbidden, path_not_found, segments,
    unauthorized, whole,
};
use super::request::AdminRequest;
use super::routes::{self, AuditRule, Route, RouteAccess};
use super::state::AdminState;
use super::user_context::UserContext;
use super::{guest_setup, origin, users};

/// The header by which a server proves itself to a client of SCRAM.
const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");

pub(crate) async fn answer(
    state: Arc<AdminState>,
    request: Request<Incoming>,
    client: Arc<AdminClient>,
) -> HttpReply {
    client.place.note_request();
    let (head, body) = request.into_parts();
    let method = head.method.clone();
    let path = segments(head.uri.path());
    let logged = path.clone().unwrap_or_default();
    let reply = match path {
        None => path_not_found(),
        Some(_) if !origin::is_welcome(&state, &head) => origin::misdirected(),
        Some(path) => {
            let route = match client.for_queries {
                true => routes::find_query(&method, &path),
                false => routes::find(&method, &path),
            };
            let pattern = (route.path, route.body);
            let request = AdminRequest::new(Arc::clone(&state), pattern, (head, body), path);
            serve(route, request, &client).await
        }
    };
    let reply = counted(reply, &state.server.connections.memory, &state.operator_memory);
    tracing::debug!(%method, path = ?logged, status = reply.status().as_u16(), "admin request");
    reply
}

/// Logs the client in, unless the route is open.
async fn serve(route: &Route, mut request: AdminRequest, client: &AdminClient) -> HttpReply {
    if route.access == RouteAccess::Anyone {
        return route.handler.run(&mut request).await;
    }
    #[cfg(feature = "console")]
    if request.path.is_empty()
        && *request.method() == Method::GET
        && let Some(reply) = super::console::welcome(request.headers())
    {
        return reply;
    }
    let state = Arc::clone(&request.state);
    let (identity, proof) = match request.has_credentials() {
        true => {
            let recorder = (&*state.server, &state.audit);
            match state.logins.identify(request.headers(), recorder, client).await {
                Ok(LoginOutcome::User(identity, proof)) => (Some(identity), proof),
                Ok(LoginOutcome::Wrong) => (None, None),
                Ok(LoginOutcome::Challenge(challenge)) => return challenged(challenge),
                Err(TooManyLogins) => return busy("too many passwords are being checked"),
            }
        }
        false => (client.certified.clone(), None),
    };
    let mut reply = match identity {
        Some(identity) => serve_user(route, request, identity, client).await,
        None => serve_guest(route, request, client).await,
    };
    reply.headers_mut().extend(proof.map(|proof| (AUTHENTICATION_INFO, proof)));
    reply
}

/// Serves a client that has not proved to be a user.
async fn serve_guest(route: &Route, mut request: AdminRequest, client: &AdminClient) -> HttpReply {
    debug_assert!(request.known_user().is_none(), "a guest is no user");
    let has_credentials = request.has_credentials();
    let state = Arc::clone(&request.state);
    match route.access {
        RouteAccess::Guest => route.handler.run(&mut request).await,
        RouteAccess::GuestOrUser
            if !has_credentials || state.server.access.users.is_development() =>
        {
            route.handler.run(&mut request).await
        }
        RouteAccess::Setup if !has_credentials => guest_setup::serve(route, request, client).await,
        _ => {
            if !has_credentials {
                let described = (request.method(), &*request.segments());
                state.audit.refused(&state.server.access.audit, client, None, described);
            }
            unauthorized(request.headers())
        }
    }
}

/// Serves a user who may have the rights that the route needs.
async fn serve_user(
    route: &Route,
    mut request: AdminRequest,
    identity: Arc<Identity>,
    client: &AdminClient,
) -> HttpReply {
    assert_ne!(route.access, RouteAccess::Anyone, "open routes are served before the login");
    let state = Arc::clone(&request.state);
    let log = &state.server.access.audit;
    state.audit.authenticated(log, client, &identity);
    let Some(busy_place) = client.place.begin_request(&identity) else {
        return busy("this user has too many connections");
    };
    request.set_user(UserContext::new(Arc::clone(&identity), request.host(), busy_place));
    let checked = check(route, &request, &identity);
    let is_checked = checked.is_ok();
    let reply = match checked {
        Err(reply) => *reply,
        Ok(()) if route.same_site && origin::is_from_elsewhere(request.headers()) => {
            forbidden("same origin")
        }
        Ok(()) => match request.read_form().await {
            Ok(()) => route.handler.run(&mut request).await,
            Err(reply) => *reply,
        },
    };
    if users::ended_development(&reply) {
        client.keep_developer(&identity);
    }
    let is_forbidden = reply.status() == StatusCode::FORBIDDEN;
    let described = (request.method(), &*request.segments());
    match route.audit {
        AuditRule::Requests if is_checked => {
            state.audit.requested(log, client, &identity, described, &reply);
        }
        AuditRule::Requests | AuditRule::Refusals if is_forbidden => {
            state.audit.refused(log, client, Some(&identity), described);
        }
        AuditRule::Nothing | AuditRule::Refusals | AuditRule::Requests => {}
    }
    reply
}

/// Refuses a user who lacks the rights that the route needs, and requests whose cluster or bucket
/// uuid is not the current one.
fn check(route: &Route, request: &AdminRequest, identity: &Identity) -> Result<(), Box<HttpReply>> {
    let access = &identity.access;
    let is_read = *request.method() == Method::GET;
    let bucket = request.path.get(3).map(String::as_str).unwrap_or_default();
    if is_read && request.path.len() > 1 && request.path[0] == "pools" {
        check_cluster(request)?;
    }
    match route.access {
        RouteAccess::Anyone | RouteAccess::Guest | RouteAccess::GuestOrUser | RouteAccess::User => {
            Ok(())
        }
        RouteAccess::Bucket | RouteAccess::Collection if is_read && !access.reaches(bucket) => {
            Err(forbidden(&format!("cluster.bucket[{bucket}].settings!read")).into())
        }
        RouteAccess::Bucket => check_bucket(request, bucket),
        RouteAccess::Collection => Ok(()),
        RouteAccess::Statistics if !sees_statistics(identity) => {
            Err(forbidden("cluster.stats!read").into())
        }
        RouteAccess::Security if !access.is_admin() => {
            Err(forbidden("cluster.admin.security!read").into())
        }
        RouteAccess::Setup | RouteAccess::Admin if !access.is_admin() => {
            Err(forbidden("cluster.admin!write").into())
        }
        RouteAccess::Statistics
        | RouteAccess::Security
        | RouteAccess::Setup
        | RouteAccess::Admin => Ok(()),
    }
}

/// True for users who see the statistics of all buckets.
pub(super) fn sees_statistics(identity: &Identity) -> bool {
    identity.access.everywhere("*").holds(Privilege::SimpleStats.into())
}

/// Refuses a query that names another cluster, or one that was here before.
fn check_cluster(request: &AdminRequest) -> Result<(), Box<HttpReply>> {
    match queried(request, "uuid") {
        Some(uuid) if uuid != request.state.server.cluster.config.identity().uuid => {
            Err(uuid_mismatch("Cluster").into())
        }
        _ => Ok(()),
    }
}

/// Refuses a query that names another bucket, or one that had this name before.
fn check_bucket(request: &AdminRequest, bucket: &str) -> Result<(), Box<HttpReply>> {
    let handle = request.state.server.buckets.get(bucket);
    match (queried(request, "bucket_uuid"), handle) {
        (Some(uuid), Some(handle)) if uuid != handle.bucket().config().uuid => {
            Err(uuid_mismatch("Bucket").into())
        }
        _ => Ok(()),
    }
}

fn queried(request: &AdminRequest, name: &str) -> Option<String> {
    FormFields::parse(request.query())?.get(name).map(str::to_owned)
}

/// 404 for a request whose uuid is not the current one.
fn uuid_mismatch(what: &str) -> HttpReply {
    let text = format!("{what} uuid does not match the requested.\r\n");
    whole(StatusCode::NOT_FOUND, "text/plain", text)
}
