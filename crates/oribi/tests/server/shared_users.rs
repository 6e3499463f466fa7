//! Users and roles of nodes that trust each other, which agree through a real etcd. Without etcd
//! these tests are skipped, and say so.

use oribi_protocol::feature::Feature;
use oribi_protocol::status::Status;
use oribi_testkit::http::{HttpClient, HttpResponse};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{RawConnection, Request};

use crate::copies::Cluster;
use crate::fixture::{add_user, run_oribi};

const FORM: &str = "application/x-www-form-urlencoded";

fn http(cluster: &Cluster, at: usize, user: &str, password: &str) -> HttpClient {
    HttpClient::new(cluster.nodes[at].admin_port()).with_credentials(user, password)
}

fn root(cluster: &Cluster, at: usize) -> HttpClient {
    http(cluster, at, "root", "root secret")
}

fn path_of(name: &str) -> String {
    format!("/settings/rbac/users/local/{name}")
}

fn put(http: &HttpClient, name: &str, form: &str) -> HttpResponse {
    http.request("PUT", &path_of(name), FORM, form.as_bytes()).unwrap()
}

/// True when a key-value client may log in.
fn logs_in(cluster: &Cluster, at: usize, user: &str, password: &str) -> bool {
    let mut connection = RawConnection::connect(cluster.nodes[at].port()).unwrap();
    connection.hello(&[Feature::SelectBucket]).unwrap();
    connection.sasl_plain(user, password).unwrap() == Status::Success
}

fn wait_for_login(cluster: &Cluster, user: &str, expected: bool) {
    for at in 0..cluster.nodes.len() {
        cluster.wait("a changed user is changed everywhere", || {
            (logs_in(cluster, at, user, &format!("{user} secret")) == expected).then_some(())
        });
    }
}

#[test]
fn users_of_one_node_are_users_of_all() {
    let Some(mut cluster) = Cluster::start() else { return };
    cluster.wait_for_nodes();
    let developer = http(&cluster, 1, DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let made = put(&developer, "root", "password=root%20secret&roles=admin");
    assert_eq!(made.status, 200, "{}", made.text());
    wait_for_login(&cluster, "root", true);
    for at in 0..3 {
        assert!(!logs_in(&cluster, at, DEVELOPMENT_USER, DEVELOPMENT_PASSWORD));
    }
    // What one node has answered, the next one shows.
    for number in 0..12 {
        let name = format!("user-{number}");
        let made =
            put(&root(&cluster, number % 3), &name, "password=secret1&roles=data_reader%5B%2A%5D");
        assert_eq!(made.status, 200, "{}", made.text());
        let shown = root(&cluster, (number + 1) % 3).get(&path_of(&name)).unwrap();
        assert_eq!(shown.status, 200, "{}", shown.text());
    }

    // Removing a user on one node closes its connections to another.
    let form = "password=shop%20secret&roles=admin";
    assert_eq!(put(&root(&cluster, 2), "shop", form).status, 200);
    wait_for_login(&cluster, "shop", true);
    let mut connection = RawConnection::connect(cluster.nodes[0].port()).unwrap();
    connection.hello(&[Feature::SelectBucket]).unwrap();
    assert_eq!(connection.sasl_plain("shop", "shop secret").unwrap(), Status::Success);
    let removed = root(&cluster, 1).delete(&path_of("shop")).unwrap();
    assert_eq!(removed.status, 200, "{}", removed.text());
    cluster.wait("the connection is closed", || {
        let noop = Request::new(oribi_protocol::opcode::Opcode::Noop);
        connection.call(&noop).is_err().then_some(())
    });
    wait_for_login(&cluster, "shop", false);

    // The command on a running node's directory, on a stopped one's, and against a server.
    add_user(cluster.nodes[0].data_dir(), "of-file", "of-file secret", &["read-only:*"]);
    wait_for_login(&cluster, "of-file", true);
    assert!(cluster.nodes[2].terminate().unwrap().success());
    add_user(cluster.nodes[2].data_dir(), "of-stopped", "of-stopped secret", &["read-only:*"]);
    let port = cluster.nodes[0].admin_port().to_string();
    let place = ["--admin-port", &port, "--user", "root"];
    let drop = [&["user", "drop", "of-file"][..], &place].concat();
    let directory = tempfile::tempdir().unwrap();
    let secret = [("ORIBI_PASSWORD", "root secret")];
    let (success, output) = run_oribi(&drop, &secret, directory.path());
    assert!(success, "{output}");
    cluster.nodes[2].restart().unwrap();
    wait_for_login(&cluster, "of-stopped", true);
    wait_for_login(&cluster, "of-file", false);
}

#[test]
fn nodes_that_join_take_the_users_of_the_cluster() {
    let Some(mut cluster) = Cluster::start_linked() else { return };
    add_user(&cluster.data_dir("one"), "root", "root secret", &["admin"]);
    cluster.add("one");
    cluster.wait("the cluster has its first users", || {
        let status = root(&cluster, 0).get("/node/cluster").ok()?.json().ok()?;
        (status["leader"] == "one").then_some(())
    });
    cluster.add("two");
    add_user(&cluster.data_dir("three"), "boss", "boss secret", &["admin"]);
    cluster.add("three");
    wait_for_login(&cluster, "root", true);
    wait_for_login(&cluster, "boss", false);
    assert!(!logs_in(&cluster, 1, DEVELOPMENT_USER, DEVELOPMENT_PASSWORD));
    let kept = cluster.data_dir("three").join("users.json.before-cluster");
    assert!(std::fs::read_to_string(kept).unwrap().contains("\"boss\""));
    let log = cluster.nodes[2].log();
    assert_eq!(log.matches("other users than the cluster").count(), 1, "{log}");

    // Without etcd, changes are rejected by name; logins continue, after a restart too.
    cluster.etcd_link.as_ref().unwrap().cut();
    let refused = put(&root(&cluster, 1), "late", "password=secret1&roles=admin");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("etcd"), "{}", refused.text());
    cluster.nodes[1].kill().unwrap();
    cluster.nodes[1].restart().unwrap();
    let refused = root(&cluster, 1).delete(&path_of("root")).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!((0..3).all(|at| logs_in(&cluster, at, "root", "root secret")));
    cluster.etcd_link.as_ref().unwrap().mend();
    cluster.wait("changes are accepted again", || {
        let made = put(&root(&cluster, 1), "late", "password=late%20secret&roles=admin");
        (made.status == 200).then_some(())
    });
    wait_for_login(&cluster, "late", true);
}
