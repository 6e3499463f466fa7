//! The status of every route for every kind of user, as a snapshot in `route_statuses.txt`.
//!
//! A line is a method and a path, then the statuses for a client without credentials, a user
//! without rights here, a user with all rights in the bucket `default`, and an administrator, with
//! the first words of the administrator's body when the request fails. Methods that a path does not
//! have are left out. To accept a change, replace the file by the text of the failed assertion.

use std::fmt::Write;

use super::{Answer, Fixture, add_user};

const SNAPSHOT: &str = include_str!("route_statuses.txt");

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
    "/admin/ping",
    "/query/service",
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
