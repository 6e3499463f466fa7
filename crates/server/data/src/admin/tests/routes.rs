//! The table of routes: its rows, and the status of every route for every kind of user.
//!
//! `routes.txt` is a snapshot of the statuses. A line is a method and a path, then the status for a client without credentials, a user without
//! rights here, a user with all rights in the bucket `default`, and an administrator, with the first
//! words of the administrator's body when the request fails. Methods that a path does not have are
//! left out. To accept a change, replace the file by the text of the failed assertion.

use std::fmt::Write;

use hyper::Method;

use super::super::routes::{AuditRule, ROUTES, Route, RouteAccess};
use super::{Answer, Fixture, add_user};

const SNAPSHOT: &str = include_str!("routes.txt");

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Paths of all routes and of some that do not exist. Changes name a bucket that does not exist.
const PATHS: &[&str] = &[
    "/",
    "/console",
    "/console/about.json",
    "/console/none/none",
    "/nope",
    "/nope/nope",
    "/whoami",
    "/metrics",
    "/node",
    "/node/figures",
    "/node/slowOperations",
    "/node/controller/rename",
    "/node/controller/setupServices",
    "/node/controller/setupAlternateAddresses/external",
    "/node/controller/reloadCertificate",
    "/nodes/self",
    "/nodes/self/xdcrSSLPorts",
    "/controller/changePassword",
    "/query/service",
    "/query/sql",
    "/settings/indexes",
    "/settings/nope",
    "/settings/rbac/nope",
    "/settings/rbac/backup",
    "/settings/rbac/roles",
    "/settings/rbac/groups",
    "/settings/rbac/groups/g",
    "/settings/rbac/users",
    "/settings/rbac/users/local",
    "/settings/rbac/users/local/root",
    "/settings/rbac/users/external",
    "/settings/rbac/users/external/x",
    "/settings/web",
    "/pools",
    "/pools?uuid=0",
    "/pools/nope",
    "/pools/nope?uuid=0",
    "/pools/nodes",
    "/pools/default",
    "/pools/default?uuid=0",
    "/pools/default/nope",
    "/pools/default/nodeServices",
    "/pools/default/tasks",
    "/pools/default/certificate",
    "/pools/default/buckets",
    "/pools/default/nope/default",
    "/pools/default/nope/nope/nope",
    "/pools/default/b/default",
    "/pools/default/b/nope",
    "/pools/default/b/nope?uuid=0",
    "/pools/default/bs/nope",
    "/pools/default/bucketsStreaming/nope",
    "/pools/default/buckets/nope",
    "/pools/default/buckets/nope?bucket_uuid=0",
    "/pools/default/buckets/nope/stats",
    "/pools/default/buckets/nope/nodes",
    "/pools/default/buckets/nope/nodes/n/stats",
    "/pools/default/buckets/nope/changes",
    "/pools/default/buckets/nope/ddocs",
    "/pools/default/buckets/nope/scopes",
    "/pools/default/buckets/nope/vbuckets",
    "/pools/default/buckets/nope/nope",
    "/pools/default/buckets/nope/controller/doFlush",
    "/pools/default/buckets/nope/controller/compactBucket",
    "/pools/default/buckets/nope/scopes/@ensureManifest/1",
    "/pools/default/buckets/nope/scopes/@ensureManifest/collections",
    "/pools/default/buckets/nope/scopes/s",
    "/pools/default/buckets/nope/scopes/s/collections",
    "/pools/default/buckets/nope/scopes/s/collections/c",
    "/pools/default/buckets/nope/scopes/s/collections/c/docs",
    "/pools/default/buckets/nope/scopes/s/collections/c/docs/k",
    "/pools/default/buckets/nope/docs",
    "/pools/default/buckets/nope/docs/k",
    "/pools/default/buckets/default/ddocs",
    "/pools/default/buckets/default/ddocs?bucket_uuid=0",
    "/pools/default/buckets/default/nodes",
    "/pools/default/buckets/default/scopes",
    "/pools/default/buckets/default/vbuckets",
    "/pools/default/buckets/default/nope",
    "/pools/default/buckets/default/docs?bucket_uuid=0",
    "/pools/default/buckets/default/docs",
    "/pools/default/buckets/default/docs/k",
    "/pools/default/buckets/default/docs/k?bucket_uuid=0",
    "/pools/default/buckets/default/scopes/s/collections/c/docs",
    // The last one, because it deletes the bucket.
    "/pools/default/buckets/default?bucket_uuid=0",
];

/// The answers to a method other than GET that a path does not have.
const NO_ROUTE: &str = "401 403 403 404 Not found.";

/// The beginning of the body of a failed request.
fn words(answer: &Answer) -> String {
    match answer.status {
        0..400 => String::new(),
        _ => answer.body.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect(),
    }
}

#[test]
#[cfg(all(feature = "console", feature = "sql"))]
fn statuses_of_all_routes_are_as_before() {
    let prepare = |data_dir: &std::path::Path| {
        add_user(data_dir, "root", &["admin"]);
        add_user(data_dir, "idle", &["read-only:other"]);
        add_user(data_dir, "writer", &["read-write:default"]);
    };
    let fixture = Fixture::start(prepare, false);
    let mut text = String::new();
    for path in PATHS {
        for method in METHODS {
            let users = ["", "idle:secret1", "writer:secret1", "root:secret1"];
            let answers = users.map(|user| fixture.ask(method, path, user, ""));
            let [guest, idle, writer, root] = answers.each_ref().map(|answer| answer.status);
            let words = words(&answers[3]);
            let statuses = format!("{guest} {idle} {writer} {root} {words}");
            if method == "GET" || statuses != NO_ROUTE {
                writeln!(text, "{method} {path}: {}", statuses.trim_end()).unwrap();
            }
        }
    }
    assert!(text == SNAPSHOT, "{text}");
}

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
