//! The routes that ports for queries serve.
//!
//! They are rows of the table of all routes, because the admin HTTP serves them as well.

use hyper::Method;

use super::{AuditRule, NOT_FOUND, ROUTES, RequestBody, Route, RouteAccess};

/// The paths that ports for queries serve.
const QUERY_PATHS: [&str; 2] = ["/query/service", "/admin/ping"];

/// Any other path at such a port.
static NO_QUERY: Route = Route {
    method: None,
    path: "/*",
    access: RouteAccess::User,
    body: RequestBody::Empty,
    audit: AuditRule::Refusals,
    same_site: true,
    handler: NOT_FOUND,
};

/// The route of a request to a port for queries.
pub(crate) fn find_query(method: &Method, path: &[String]) -> &'static Route {
    let serves = |route: &&Route| QUERY_PATHS.contains(&route.path) && route.matches(method, path);
    ROUTES.iter().find(serves).unwrap_or(&NO_QUERY)
}
