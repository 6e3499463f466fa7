//! The route table: the rights, the body and the handler of each method and path.
//!
//! Owns: the routes and their rights. Invariants, which tests hold over the whole table:
//! - without credentials only `/`, `/healthz`, `/readyz`, `/pools`, the TLS ports, the console's
//!   files and the requests of a set-up are answered (`Access`);
//! - two routes that match the same request have the same rights, so their order gives nobody more;
//! - a change needs the role `admin`, except that of one's own password and of documents; a browser
//!   cannot make one on behalf of another site (`same_site`).
//!
//! To add a route, add a row. Caller: `router`.

use std::future::Future;
use std::pin::Pin;

use hyper::Method;
use oribi_protocol::limits::VALUE_BYTES_MAX;

use super::message::{BODY_BYTES_MAX, Refusal, Reply, path_not_found};
use super::request::AdminRequest;
use super::{
    buckets, changes, collections, config_stream, documents, figures, monitoring, node, pools,
    setup, users,
};

/// The rights that a route needs before its handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Any client; credentials are not looked at. For supervisors, balancers and the console.
    Anyone,
    /// Any client; wrong credentials are ignored.
    Guest,
    /// Clients without credentials and users; in development mode any client. Scripts that set up a
    /// server begin with this, and with the password that the server will have.
    GuestOrUser,
    /// Any user. The handler limits the answer to what the user may see.
    User,
    /// Users with some right in the bucket that the path names. The handler limits the answer.
    Bucket,
    /// As [`Access::Bucket`]; the handler needs rights in the collection that the path names.
    Collection,
    /// Users who see the statistics of all buckets.
    Statistics,
    /// Administrators, for reading about users.
    Security,
    /// Administrators; without credentials [`setup`] decides.
    Setup,
    /// Administrators.
    Admin,
}

/// What a request has besides its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestBody {
    /// Nothing that is read.
    Empty,
    /// A form of at most so many bytes, read before the handler runs.
    Form(usize),
    /// At most so many bytes, which the handler reads.
    Stream(usize),
}

/// Which requests of a user are audit events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuditRule {
    /// None.
    Nothing,
    /// Those refused for lack of rights.
    Refusals,
    /// All.
    Requests,
}

/// The future of an answer.
pub(crate) type ReplyFuture<'r> = Pin<Box<dyn Future<Output = Reply> + Send + 'r>>;

/// Answers a request.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    Sync(fn(&AdminRequest) -> Reply),
    Async(for<'r> fn(&'r mut AdminRequest) -> ReplyFuture<'r>),
}

/// One row of the table.
pub(crate) struct Route {
    /// `None` for any method.
    pub(crate) method: Option<Method>,
    /// Segments: text, a name in braces for any one segment, or a last `*` for any number of them.
    pub(crate) path: &'static str,
    pub(crate) access: Access,
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
const fn get(path: &'static str, access: Access, handler: Handler) -> Route {
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
const fn change(method: Method, path: &'static str, access: Access, handler: Handler) -> Route {
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

const fn post(path: &'static str, access: Access, handler: Handler) -> Route {
    change(Method::POST, path, access, handler)
}

const fn put(path: &'static str, access: Access, handler: Handler) -> Route {
    change(Method::PUT, path, access, handler)
}

const fn patch(path: &'static str, access: Access, handler: Handler) -> Route {
    change(Method::PATCH, path, access, handler)
}

const fn delete(path: &'static str, access: Access, handler: Handler) -> Route {
    change(Method::DELETE, path, access, handler)
}

/// Routes that change one document; any method, because all but two are refused by the handler,
/// which knows the collection.
const fn change_document(path: &'static str) -> Route {
    Route {
        method: None,
        path,
        access: Access::Collection,
        body: RequestBody::Stream(VALUE_BYTES_MAX),
        audit: AuditRule::Refusals,
        same_site: true,
        handler: Handler::Async(|r| Box::pin(documents::change(r))),
    }
}

const fn read_documents(path: &'static str) -> Route {
    get(path, Access::Collection, Handler::Async(|r| Box::pin(documents::read(r))))
}

/// Statements of SQL, which only read, but cost enough that other sites may not send them.
#[cfg(feature = "sql")]
const SQL: Handler = Handler::Async(|r| Box::pin(super::query::run(r)));
#[cfg(not(feature = "sql"))]
const SQL: Handler = NOT_FOUND;

/// Statements of SQL++.
#[cfg(feature = "sql")]
const QUERY_SERVICE: Handler = Handler::Async(|r| Box::pin(super::query_service::run(r)));
#[cfg(not(feature = "sql"))]
const QUERY_SERVICE: Handler = NOT_FOUND;

/// Bytes of a request with a statement of SQL: four times that of the longest statement, for
/// escapes of JSON and for parameters.
const SQL_BYTES_MAX: usize = 256 << 10;

/// Bytes of a request with a statement of SQL++ and its arguments.
const QUERY_SERVICE_BYTES_MAX: usize = 4 << 20;

#[cfg(feature = "sql")]
const _: () = assert!(SQL_BYTES_MAX == 4 * oribi_sql::database::STATEMENT_BYTES_MAX);

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
    get("/", Access::Guest, Handler::Sync(|_| pools::root())),
    get(
        "/healthz",
        Access::Anyone,
        Handler::Async(|r| Box::pin(r.state.health.answer(&r.state.server.buckets))),
    ),
    get(
        "/readyz",
        Access::Anyone,
        Handler::Async(|r| Box::pin(r.state.health.readiness(&r.state.server.buckets))),
    ),
    #[cfg(feature = "console")]
    get("/console/*", Access::Anyone, Handler::Sync(super::console::serve)),
    get("/whoami", Access::User, Handler::Sync(|r| pools::whoami(&r.user().identity))),
    get("/metrics", Access::Statistics, Handler::Async(|r| Box::pin(pools::metrics(&r.state)))),
    get(
        "/node/figures",
        Access::User,
        Handler::Async(|r| {
            Box::pin(figures::figures(&r.state, r.head.uri.query().unwrap_or_default(), r.user()))
        }),
    ),
    get(
        "/node/slowOperations",
        Access::User,
        Handler::Sync(|r| figures::slow_operations(&r.state, r.user())),
    ),
    get(
        "/nodes/self",
        Access::User,
        Handler::Async(|r| Box::pin(pools::own_node(&r.state, r.user()))),
    ),
    get("/nodes/self/xdcrSSLPorts", Access::Guest, Handler::Sync(|r| node::tls_ports(&r.state))),
    get("/pools", Access::GuestOrUser, Handler::Sync(|r| pools::pools(&r.state, r.known_user()))),
    get(
        "/pools/nodes",
        Access::User,
        Handler::Async(|r| Box::pin(pools::node(&r.state, r.user()))),
    ),
    get(
        "/pools/default",
        Access::User,
        Handler::Async(|r| Box::pin(pools::node(&r.state, r.user()))),
    ),
    get(
        "/pools/default/nodeServices",
        Access::User,
        Handler::Sync(|r| pools::node_services(&r.state)),
    ),
    get("/pools/default/tasks", Access::User, Handler::Sync(|_| monitoring::tasks())),
    get("/pools/default/certificate", Access::User, Handler::Sync(|r| node::certificate(&r.state))),
    post(
        "/node/controller/reloadCertificate",
        Access::Admin,
        Handler::Async(|r| Box::pin(node::reload_certificate(&r.state))),
    ),
    // The set-up of a server.
    post(
        "/pools/default",
        Access::Setup,
        Handler::Async(|r| Box::pin(pools::change(&r.state, &r.form))),
    ),
    post(
        "/settings/web",
        Access::Setup,
        Handler::Async(|r| Box::pin(settled(setup::set_administrator(r)))),
    ),
    post(
        "/node/controller/rename",
        Access::Setup,
        Handler::Async(|r| Box::pin(settled(setup::rename(&r.state, &r.form)))),
    ),
    post(
        "/node/controller/setupServices",
        Access::Setup,
        Handler::Sync(|r| setup::set_services(&r.form).unwrap_or_else(|refusal| *refusal)),
    ),
    post(
        "/settings/indexes",
        Access::Admin,
        Handler::Sync(|r| setup::set_indexes(&r.form).unwrap_or_else(|refusal| *refusal)),
    ),
    put(
        "/node/controller/setupAlternateAddresses/external",
        Access::Admin,
        Handler::Async(|r| Box::pin(settled(setup::set_external(&r.state, &r.form)))),
    ),
    delete(
        "/node/controller/setupAlternateAddresses/external",
        Access::Admin,
        Handler::Async(|r| Box::pin(settled(setup::drop_external(&r.state)))),
    ),
    // Statements.
    get("/query/service", Access::User, QUERY_SERVICE)
        .with_body(RequestBody::Stream(QUERY_SERVICE_BYTES_MAX))
        .audited(AuditRule::Nothing)
        .same_site(),
    post("/query/service", Access::User, QUERY_SERVICE)
        .with_body(RequestBody::Stream(QUERY_SERVICE_BYTES_MAX))
        .audited(AuditRule::Nothing),
    post("/query/sql", Access::User, SQL)
        .with_body(RequestBody::Stream(SQL_BYTES_MAX))
        .audited(AuditRule::Refusals),
    // Users.
    post(
        "/controller/changePassword",
        Access::User,
        Handler::Async(|r| Box::pin(users::change_password(r))),
    ),
    get("/settings/rbac/roles", Access::Security, Handler::Sync(|_| users::roles())),
    get(
        "/settings/rbac/backup",
        Access::Security,
        Handler::Async(|r| Box::pin(users::backup(&r.state))),
    )
    .audited(AuditRule::Requests),
    put(
        "/settings/rbac/backup",
        Access::Admin,
        Handler::Async(|r| Box::pin(users::restore(&r.state, &r.form))),
    )
    .with_body(RequestBody::Form(users::BACKUP_BYTES_MAX)),
    get(
        "/settings/rbac/users",
        Access::Security,
        Handler::Async(|r| Box::pin(users::list(&r.state, true))),
    ),
    get(
        "/settings/rbac/users/local",
        Access::Security,
        Handler::Async(|r| Box::pin(users::list(&r.state, false))),
    ),
    get(
        "/settings/rbac/users/local/{user}",
        Access::Security,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::get(&r.state, user))
        }),
    ),
    put(
        "/settings/rbac/users/local/{user}",
        Access::Admin,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::put(&r.state, user, &r.form, true))
        }),
    ),
    patch(
        "/settings/rbac/users/local/{user}",
        Access::Admin,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::put(&r.state, user, &r.form, false))
        }),
    ),
    delete(
        "/settings/rbac/users/local/{user}",
        Access::Admin,
        Handler::Async(|r| {
            let [user] = r.captures();
            Box::pin(users::remove(&r.state, user))
        }),
    ),
    get("/settings/rbac/users/external", Access::Security, EMPTY_LIST),
    get("/settings/rbac/users/external/{user}", Access::Security, UNKNOWN_USER),
    put("/settings/rbac/users/external/{user}", Access::Admin, NO_EXTERNAL_USERS),
    patch("/settings/rbac/users/external/{user}", Access::Admin, NO_EXTERNAL_USERS),
    delete("/settings/rbac/users/external/{user}", Access::Admin, UNKNOWN_USER),
    get("/settings/rbac/groups", Access::Security, EMPTY_LIST),
    get("/settings/rbac/groups/{group}", Access::Security, UNKNOWN_GROUP),
    put("/settings/rbac/groups/{group}", Access::Admin, NO_GROUPS),
    delete("/settings/rbac/groups/{group}", Access::Admin, UNKNOWN_GROUP),
    // Buckets.
    get(
        "/pools/default/buckets",
        Access::User,
        Handler::Async(|r| {
            Box::pin(buckets::list(&r.state, r.head.uri.query().unwrap_or_default(), r.user()))
        }),
    ),
    post(
        "/pools/default/buckets",
        Access::Admin,
        Handler::Async(|r| Box::pin(buckets::create(&r.state, &r.form))),
    ),
    get(
        "/pools/default/buckets/{bucket}",
        Access::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::get(&r.state, bucket, (r.query(), r.headers()), r.user()))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::change::update(&r.state, bucket, &r.form))
        }),
    ),
    delete(
        "/pools/default/buckets/{bucket}",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::delete(&r.state, bucket))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/controller/doFlush",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::change::flush(&r.state, bucket))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/controller/compactBucket",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(buckets::change::compact(&r.state, bucket))
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/stats",
        Access::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(monitoring::bucket_samples(&r.state, bucket, None, r.user()))
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/nodes",
        Access::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            monitoring::bucket_nodes(&r.state, bucket, r.user())
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/nodes/{node}/stats",
        Access::Bucket,
        Handler::Async(|r| {
            let [bucket, node] = r.captures();
            Box::pin(monitoring::bucket_samples(&r.state, bucket, Some(node), r.user()))
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/changes",
        Access::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            changes::stream(&r.state, bucket, (r.query(), r.headers()), r.user())
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/ddocs",
        Access::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            buckets::no_views(&r.state, bucket)
        }),
    ),
    get(
        "/pools/default/buckets/{bucket}/vbuckets",
        Access::Bucket,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(figures::vbuckets(&r.state, bucket, r.user()))
        }),
    ),
    get(
        "/pools/default/b/{bucket}",
        Access::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            config_stream::terse(&r.state, bucket)
        }),
    ),
    get("/pools/default/bs/{bucket}", Access::Bucket, STREAM_CONFIG),
    get("/pools/default/bucketsStreaming/{bucket}", Access::Bucket, STREAM_CONFIG),
    // Scopes and collections.
    get(
        "/pools/default/buckets/{bucket}/scopes",
        Access::Bucket,
        Handler::Sync(|r| {
            let [bucket] = r.captures();
            collections::manifest(&r.state, bucket, &r.user().identity)
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/scopes",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket] = r.captures();
            Box::pin(collections::create_scope(&r.state, bucket, &r.form))
        }),
    ),
    delete(
        "/pools/default/buckets/{bucket}/scopes/{scope}",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket, scope] = r.captures();
            Box::pin(collections::drop_scope(&r.state, bucket, scope))
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}",
        Access::Admin,
        Handler::Sync(|r| {
            let [bucket, uid] = r.captures();
            collections::ensure_manifest(&r.state, bucket, uid)
        }),
    ),
    post(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket, scope] = r.captures();
            Box::pin(collections::create_collection(&r.state, bucket, scope, &r.form))
        }),
    ),
    patch(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        Access::Admin,
        Handler::Async(|r| {
            let [bucket, scope, collection] = r.captures();
            Box::pin(collections::change_collection(&r.state, bucket, scope, collection, &r.form))
        }),
    ),
    delete(
        "/pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        Access::Admin,
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

/// What paths without a route need before they are not found, so that a user without rights does
/// not learn which exist. The first one that matches counts.
static NO_ROUTES: &[Route] = &[
    get("/settings/rbac/*", Access::Security, NOT_FOUND),
    get("/pools/default/{form}/{bucket}/*", Access::Bucket, NOT_FOUND),
    get("/*", Access::User, NOT_FOUND),
];

/// The same for methods other than GET.
static NO_CHANGE: Route = Route {
    method: None,
    path: "/*",
    access: Access::Admin,
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
async fn settled(outcome: impl Future<Output = Result<Reply, Refusal>>) -> Reply {
    outcome.await.unwrap_or_else(|refusal| *refusal)
}
