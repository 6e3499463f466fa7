//! The route table: the rights, the body and the handler of each method and path.
//!
//! Owns: the routes and their rights. Invariants, which tests hold over the whole table:
//! - without credentials only `/`, `/healthz`, `/readyz`, `/admin/ping`, `/pools`, the TLS ports,
//!   the console's files and the requests of a set-up are answered (`RouteAccess`);
//! - two routes that match the same request have the same rights, so their order changes no rights;
//! - a change needs the role `admin`, except that of one's own password and of documents; a browser
//!   cannot make one on behalf of another site (`same_site`).
//!
//! A route is a row; docs/tour.md lists what else it needs. Caller: `router`.

mod query_port;

use std::future::Future;

use hyper::Method;
use oribi_protocol::limits::VALUE_BYTES_MAX;
#[cfg(feature = "query")]
use serde_json::json;

use super::message::{BODY_BYTES_MAX, HttpRejection, HttpReply, path_not_found};
use super::request::RequestBody;
pub(crate) use query_port::find_query;

pub(crate) use super::route_rule::{AuditRule, Handler, RouteAccess};
use super::{
    buckets, changes, cluster, collections, config_stream, documents, figures, monitoring, node,
    node_list, pools, rebalance, setup, users,
};

/// One row of the table.
pub(crate) struct Route {
    /// `None` for any method.
    pub(crate) method: Option<Method>,
    /// Segments: text, a name in braces for any one segment, or a last `*` for any number of them.
    pub(crate) path: &'static str,
    pub(crate) access: RouteAccess,
    pub(crate) body: RequestBody,
    pub(crate) audit: AuditRule,
    /// Requests that a browser sends for another site's page are refused.
    pub(crate) same_site: bool,
    pub(crate) handler: Handler,
}

impl Route {
    /// The segments of the path's pattern.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter(|segment| !segment.is_empty())
    }

    /// True when this route serves such requests.
    pub(crate) fn matches(&self, method: &Method, path: &[String]) -> bool {
        self.method.as_ref().is_none_or(|own| own == method) && self.matches_path(path)
    }

    fn matches_path(&self, path: &[String]) -> bool {
        let mut rest = path.iter();
        for pattern in self.segments() {
            match rest.next() {
                _ if pattern == "*" => return true,
                Some(segment) if pattern.starts_with('{') || pattern == segment => {}
                _ => return false,
            }
        }
        rest.next().is_none()
    }

    const fn with_body(mut self, body: RequestBody) -> Route {
        self.body = body;
        self
    }

    const fn audited(mut self, audit: AuditRule) -> Route {
        self.audit = audit;
        self
    }

    const fn same_site(mut self) -> Route {
        self.same_site = true;
        self
    }
}

/// A route that reads.
const fn get(path: &'static str, access: RouteAccess, handler: Handler) -> Route {
    Route {
        method: Some(Method::GET),
        path,
        access,
        body: RequestBody::Empty,
        audit: AuditRule::Refusals,
        same_site: false,
        handler,
    }
}

/// A route that changes something by a form.
const fn change(
    method: Method,
    path: &'static str,
    access: RouteAccess,
    handler: Handler,
) -> Route {
    Route {
        method: Some(method),
        path,
        access,
        body: RequestBody::Form(BODY_BYTES_MAX),
        audit: AuditRule::Requests,
        same_site: true,
        handler,
    }
}

const fn post(path: &'static str, access: RouteAccess, handler: Handler) -> Route {
    change(Method::POST, path, access, handler)
}

const fn put(path: &'static str, access: RouteAccess, handler: Handler) -> Route {
    change(Method::PUT, path, access, handler)
}

const fn patch(path: &'static str, access: RouteAccess, handler: Handler) -> Route {
    change(Method::PATCH, path, access, handler)
}

const fn delete(path: &'static str, access: RouteAccess, handler: Handler) -> Route {
    change(Method::DELETE, path, access, handler)
}

/// Routes that change one document; any method, because all but two are refused by the handler,
/// which knows the collection.
const fn change_document(path: &'static str) -> Route {
    Route {
        method: None,
        path,
        access: RouteAccess::Collection,
        body: RequestBody::Stream(VALUE_BYTES_MAX),
        audit: AuditRule::Refusals,
        same_site: true,
        handler: Handler::Async(|r| Box::pin(documents::change(r))),
    }
}

const fn read_documents(path: &'static str) -> Route {
    get(path, RouteAccess::Collection, Handler::Async(|r| Box::pin(documents::read(r))))
}

#[cfg(feature = "query")]
const QUERY_SERVICE: Handler = Handler::Async(|r| Box::pin(super::query_service::run(r)));
#[cfg(not(feature = "query"))]
const QUERY_SERVICE: Handler = NOT_FOUND;

const BEGIN_REBALANCE: Handler = Handler::Async(|r| Box::pin(rebalance::begin(r)));
const STOP_REBALANCE: Handler = Handler::Async(|r| Box::pin(rebalance::stop(r)));

/// SDKs request it at each query port of the cluster map. The port may be that of the admin HTTP.
#[cfg(feature = "query")]
const PING: Handler = Handler::Sync(|_| super::message::json_reply(&json!({ "status": "OK" })));
#[cfg(not(feature = "query"))]
const PING: Handler = NOT_FOUND;

/// Bytes of a request with a statement of SQL++ and its arguments.
const QUERY_SERVICE_BYTES_MAX: usize = 4 << 20;

const NOT_FOUND: Handler = Handler::Sync(|_| path_not_found());

const NO_GROUPS: Handler = Handler::Sync(|_| users::no_groups());
const UNKNOWN_GROUP: Handler = Handler::Sync(|_| users::unknown_group());
const NO_EXTERNAL_USERS: Handler = Handler::Sync(|_| users::no_external_users());
const UNKNOWN_USER: Handler = Handler::Sync(|_| users::unknown());
const EMPTY_LIST: Handler = Handler::Sync(|_| users::empty_list());

const STREAM_CONFIG: Handler = Handler::Sync(|r| {
    let [bucket] = r.captures();
    config_stream::streaming(&r.state, bucket, r.user())
});

/// All routes. The first one that matches serves a request.
pub(crate) static ROUTES: &[Route] = &[
    // The server.
    get("/", RouteAccess::Guest, Handler::Sync(|_| pools::root())),
    get(
        "/healthz",
        RouteAccess::Anyone,
        Handler::Async(|r| Box::pin(r.state.health.answer(&r.state.server.buckets))),
    ),
    get(
        "/readyz",
        RouteAccess::Anyone,
        Handler::Async(|r| Box::pin(r.state.health.readiness(&r.state.server.buckets))),
    ),
    #[cfg(feature = "console")]
    get("/console/*", RouteAccess::Anyone, Handler::Sync(super::console::serve)),
    get("/whoami", RouteAccess::User, Handler::Sync(|r| pools::whoami(&r.user().identity))),
    get(
        "/metrics",
        RouteAccess::Statistics,
        Handler::Async(|r| Box::pin(pools::metrics(&r.state))),
    ),
    get(
        "/node/figures",
        RouteAccess::User,
        Handler::Async(|r| {
            Box::pin(figures::figures(&r.state, r.head.uri.query().unwrap_or_default(), r.user()))
        }),
    ),
    get(
        "/node/slowOperations",
        RouteAccess::User,
        Handler::Sync(|r| figures::slow_operations(&r.state, r.user())),
    ),
    get(
        "/nodes/self",
        RouteAccess::User,
        Handler::Async(|r| Box::pin(pools::own_node(&r.state, r.user()))),
    ),
    get(
        "/nodes/self/xdcrSSLPorts",
        RouteAccess::Guest,
        Handler::Sync(|r| node::tls_ports(&r.state)),
    ),
    get(
        "/pools",
        RouteAccess::GuestOrUser,
        Handler::Sync(|r| pools::pools(&r.state, r.known_user())),
    ),
    get(
        "/pools/nodes",
        RouteAccess::User,
        Handler::Async(|r| Box::pin(pools::node(&r.state, r.user()))),
    ),
    get(
        "/pools/default",
        RouteAccess::User,
        Handler::Async(|r| Box::pin(pools::node(&r.state, r.user()))),
    ),
    get(
        "/pools/default/nodeServices",
        RouteAccess::User,
        Handler::Sync(|r| pools::node_services(&r.state)),
    ),
    get("/pools/default/tasks", RouteAccess::User, Handler::Sync(rebalance::tasks)),
    get("/pools/default/rebalanceProgress", RouteAccess::User, Handler::Sync(rebalance::progress)),
    get("/nodeStatuses", RouteAccess::User, Handler::Sync(node_list::statuses)),
    get(
        "/pools/default/certificate",
        RouteAccess::User,
        Handler::Sync(|r| node::certificate(&r.state)),
    ),
    post(
        "/node/controller/reloadCertificate",
        RouteAccess::Admin,
        Handler::Async(|r| Box::pin(node::reload_certificate(&r.state))),
    ),
    // The set-up of a server.
    post(
        "/pools/default",
        RouteAccess::Setup,
        Handler::Async(|r| Box::pin(pools::change(&r.state, &r.form))),
    ),
    post(
        "/settings/web",
        RouteAccess::Setup,
        Handler::Async(|r| Box::pin(settled(setup::set_administrator(r)))),
    ),
    post(
        "/node/controller/rename",
        RouteAccess::Setup,
        Handler::Async(|r| Box::pin(settled(setup::rename(&r.state, &r.form)))),
    ),
    post(
        "/node/controller/setupServices",
        RouteAccess::Setup,
        Handler::Sync(|r| {
            setup::set_services(&r.state, &r.form).unwrap_or_else(|refusal| *refusal)
        }),
    ),
    post(
        "/settings/indexes",
        RouteAccess::Admin,
        Handler::Sync(|r| setup::set_indexes(&r.form).unwrap_or_else(|refusal| *refusal)),
    ),
    put(
        "/node/controller/setupAlternateAddresses/external",
        RouteAccess::Admin,
        Handler::Async(|r| Box::pin(settled(setup::set_external(&r.state, &r.form)))),
    ),
    delete(
        "/node/controller/setupAlternateAddresses/external",
        RouteAccess::Admin,
        Handler::Async(|r| Box::pin(settled(setup::drop_external(&r.state)))),
    ),
    // Statements.
    get("/admin/ping", RouteAccess::Anyone, PING),
    get("/query/service", RouteAccess::User, QUERY_SERVICE)
        .with_body(RequestBody::Stream(QUERY_SERVICE_BYTES_MAX))
        .audited(AuditRule::Nothing)
        .same_site(),
    post("/query/service", RouteAccess::User, QUERY_SERVICE)
        .with_body(RequestBody::Stream(QUERY_SERVICE_BYTES_MAX))
        .audited(AuditRule::Nothing),
    // The cluster.
    get(
        "/node/cluster",
        RouteAccess::Statistics,
        Handler::Async(|r| Box::pin(cluster::status(&r.state))),
    ),
    post(
        "/controller/failOver",
        RouteAccess::Admin,
        Handler::Async(|r| Box::pin(cluster::fail_over(&r.state, &r.form))),
    ),
    post("/controller/rebalance", RouteAccess::Admin, BEGIN_REBALANCE),
    post("/controller/stopRebalance", RouteAccess::Admin, STOP_REBALANCE),
    // Users.
    post(
        "/controller/changePassword",
        RouteAccess::User,
        Handler::Async(|r| Box::pin(users::change_password(r))),
    ),
    get("/settings/rbac/roles", RouteAccess::Security, Handler::Sync(|_| users::roles())),
    get(
        "/settings/rbac/backup",
        RouteAccess::Security,
        Handler::Async(|r| Box::pin(users::backup(&r.state))),
    )
    .audited(AuditRule::Requests),
    put(
        "/settings/rbac/backup",
        RouteAccess::Admin,
        Handler::Async(|r| Box::pin(users::restore(&r.state, &r.form))),
    )
    .with_body(RequestBody::Form(users::BACKUP_BYTES_MAX)),
    get(
        "/settings/rbac/users",
        RouteAccess::Security,
        Handler::Async(|r| Box::pin(users::list(&r.state, true))),
    ),
    get(
        "/settings/rbac/users/local",
        RouteAccess::Security,
        Handler::Async(|r| Box::pin(users::list(&r.state, false))),
    ),
    get(
        "/settings/rbac/users/local/{user}",
        RouteAccess::Security,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::get(&r.state, user))
        }),
    ),
    put(
        "/settings/rbac/users/local/{user}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::put(&r.state, user, &r.form, true))
        }),
    ),
    patch(
        "/settings/rbac/users/local/{user}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::put(&r.state, user, &r.form, false))
        }),
    ),
    delete(
        "/settings/rbac/users/local/{user}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::remove(&r.state, user))
        }),
    ),
    get("/settings/rbac/users/external", RouteAccess::Security, EMPTY_LIST),
    get("/settings/rbac/users/external/{user}", RouteAccess::Security, UNKNOWN_USER),
    put("/settings/rbac/users/external/{user}", RouteAccess::Admin, NO_EXTERNAL_USERS),
    patch("/settings/rbac/users/external/{user}", RouteAccess::Admin, NO_EXTERNAL_USERS),
    delete("/settings/rbac/users/external/{user}", RouteAccess::Admin, UNKNOWN_USER),
    get("/settings/rbac/groups", RouteAccess::Security, EMPTY_LIST),
    get("/settings/rbac/groups/{group}", RouteAccess::Security, UNKNOWN_GROUP),
    put("/settings/rbac/groups/{group}", RouteAccess::Admin, NO_GROUPS),
    delete("/settings/rbac/groups/{group}", RouteAccess::Admin, UNKNOWN_GROUP),
    // Buckets.
    get(
        "/pools/default/buckets",
        RouteAccess::User,
        Handler::Async(|r| {
            Box::pin(buckets::list(&r.state, r.head.uri.query().unwrap_or_default(), r.user()))
        }),
    ),
    post(
        "/pools/default/buckets",
        RouteAccess::Admin,
        Handler::Async(|r| Box::pin(buckets::create(&r.state, &r.form))),
    ),
    get(
        "/pools/default/buckets/{bucket}",
        RouteAccess::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::get(&r.state, bucket, (r.query(), r.headers()), r.user()))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::change::update(&r.state, bucket, &r.form))
        }),
    ),
    delete(
        "/pools/default/buckets/{bucket}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::delete(&r.state, bucket))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/controller/doFlush",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::change::flush(&r.state, bucket))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/controller/compactBucket",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::change::compact(&r.state, bucket))
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/stats",
        RouteAccess::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(monitoring::bucket_samples(&r.state, bucket, None, r.user()))
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/nodes",
        RouteAccess::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            monitoring::bucket_nodes(&r.state, bucket, r.user())
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/nodes/{node}/stats",
        RouteAccess::Bucket,
        Handler::Async(|r| {
            let [bucket, node] = r.captures();
            Box::pin(monitoring::bucket_samples(&r.state, bucket, Some(node), r.user()))
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/changes",
        RouteAccess::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            changes::stream(&r.state, bucket, (r.query(), r.headers()), r.user())
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/ddocs",
        RouteAccess::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            buckets::no_views(&r.state, bucket)
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/vbuckets",
        RouteAccess::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(figures::vbuckets(&r.state, bucket, r.user()))
        }),
    ),
    get(
        "/pools/default/b/{bucket}",
        RouteAccess::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            config_stream::terse(&r.state, bucket)
        }),
    ),
    get("/pools/default/bs/{bucket}", RouteAccess::Bucket, STREAM_CONFIG),
    get("/pools/default/bucketsStreaming/{bucket}", RouteAccess::Bucket, STREAM_CONFIG),
    // Scopes and collections.
    get(
        "/pools/default/buckets/{bucket}/scopes",
        RouteAccess::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(collections::manifest(&r.state, bucket, &r.user().identity))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/scopes",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(collections::create_scope(&r.state, bucket, &r.form))
        }),
    ),
    delete(
        "/pools/default/buckets/{bucket}/scopes/{scope}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket, scope] = r.captures();
            Box::pin(collections::drop_scope(&r.state, bucket, scope))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}",
        RouteAccess::Admin,
        Handler::Sync(|r| {
            let [bucket, uid] = r.captures();
            collections::ensure_manifest(&r.state, bucket, uid)
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket, scope] = r.captures();
            Box::pin(collections::create_collection(&r.state, bucket, scope, &r.form))
        }),
    ),
    patch(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket, scope, collection] = r.captures();
            Box::pin(collections::change_collection(&r.state, bucket, scope, collection, &r.form))
        }),
    ),
    delete(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        RouteAccess::Admin,
        Handler::Async(|r| {
            let [bucket, scope, collection] = r.captures();
            Box::pin(collections::drop_collection(&r.state, bucket, scope, collection))
        }),
    ),
    // Documents.
    read_documents("/pools/default/buckets/{bucket}/docs"),
    read_documents("/pools/default/buckets/{bucket}/docs/{key}"),
    read_documents("/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs"),
    read_documents(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs/{key}",
    ),
    change_document("/pools/default/buckets/{bucket}/docs"),
    change_document("/pools/default/buckets/{bucket}/docs/{key}"),
    change_document("/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs"),
    change_document(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs/{key}",
    ),
];

/// Rights that paths without a route need before they are not found, so that a user without rights
/// does not learn which exist. The first one that matches counts.
static NO_ROUTES: &[Route] = &[
    get("/settings/rbac/*", RouteAccess::Security, NOT_FOUND),
    get("/pools/default/{form}/{bucket}/*", RouteAccess::Bucket, NOT_FOUND),
    get("/*", RouteAccess::User, NOT_FOUND),
];

/// The same for methods other than GET.
static NO_CHANGE: Route = Route {
    method: None,
    path: "/*",
    access: RouteAccess::Admin,
    body: RequestBody::Form(BODY_BYTES_MAX),
    audit: AuditRule::Requests,
    same_site: true,
    handler: NOT_FOUND,
};

/// The route of a request.
pub(crate) fn find(method: &Method, path: &[String]) -> &'static Route {
    let routes = ROUTES.iter().chain(NO_ROUTES);
    routes.into_iter().find(|route| route.matches(method, path)).unwrap_or(&NO_CHANGE)
}

/// The answer of a handler that may refuse.
async fn settled(outcome: impl Future<Output = Result<HttpReply, HttpRejection>>) -> HttpReply {
    outcome.await.unwrap_or_else(|refusal| *refusal)
}
