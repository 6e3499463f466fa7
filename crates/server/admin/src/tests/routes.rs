//! The rows of the table of routes; `route_statuses` has the status of each route.

use hyper::Method;

use super::super::routes::{AuditRule, ROUTES, Route, RouteAccess};
use super::{Fixture, add_user};

/// A request that a route matches, with `nope` for each name.
fn example(route: &Route) -> (String, String) {
    let segment = |pattern: &'static str| if pattern.starts_with('{') { "nope" } else { pattern };
    let path: Vec<&str> = route.segments().map(segment).collect();
    let method = route.method.as_ref().map_or("DELETE", Method::as_str);
    (method.to_owned(), format!("/{}", path.join("/")))
}

/// The statuses of a client without credentials and of a user without rights, as the row says.
/// `None` where the handler decides.
fn expected(route: &Route) -> (Option<u16>, Option<u16>) {
    match route.access {
        RouteAccess::Anyone | RouteAccess::Guest | RouteAccess::GuestOrUser => (None, None),
        RouteAccess::Setup => (None, Some(403)),
        RouteAccess::User => (Some(401), None),
        RouteAccess::Bucket | RouteAccess::Collection => (Some(401), Some(403)),
        RouteAccess::Statistics | RouteAccess::Security | RouteAccess::Admin => {
            (Some(401), Some(403))
        }
    }
}

#[test]
fn each_route_refuses_whom_its_row_says() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "idle", &["read-only:other"]);
    };
    let fixture = Fixture::start(prepare, false);
    for route in ROUTES {
        let (method, path) = example(route);
        let (guest, idle) = expected(route);
        for (user, expected) in [("", guest), ("idle:secret1", idle)] {
            let status = fixture.ask(&method, &path, user, "").status;
            let is_refused = matches!(status, 401 | 403);
            match expected {
                Some(expected) => assert_eq!(status, expected, "{method} {path} {user:?}"),
                None if user.is_empty() => {}
                None => assert!(!is_refused || path == "/node/slowOperations", "{method} {path}"),
            }
        }
    }
}

#[test]
fn routes_of_one_request_have_the_same_rights() {
    for (index, route) in ROUTES.iter().enumerate() {
        for later in &ROUTES[index + 1..] {
            let (method, path) = example(later);
            let path: Vec<String> = path.split('/').skip(1).map(str::to_owned).collect();
            if route.matches(&method.parse().unwrap(), &path) {
                let rights = |route: &Route| (route.access, route.audit, route.same_site);
                assert_eq!(rights(route), rights(later), "{} and {}", route.path, later.path);
            }
        }
    }
}

#[test]
fn changes_are_audited_and_refused_for_other_sites() {
    for route in ROUTES.iter().filter(|route| route.method != Some(Method::GET)) {
        assert!(route.same_site, "{}", route.path);
        let is_audited = route.audit != AuditRule::Nothing;
        assert!(is_audited || route.path == "/query/service", "{}", route.path);
    }
}
