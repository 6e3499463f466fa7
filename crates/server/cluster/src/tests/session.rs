//! A node joins, leaves and rejoins the cluster; etcd fails, requires a password or loses its data.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use oribi_config::EtcdSettings;
use oribi_storage::SharedMemoryStore;
use oribi_testkit::{EtcdServer, PATIENCE, TcpProxy, poll_until};
use oribi_tls::client::ClientOptions;
use oribi_tls::testing::{Authority, Owner};
use oribi_types::Vbid;

use super::{Node, bucket_config, wait_for_shares};
use crate::agreement::memory::MemoryAgreement;
use crate::agreement::{Agreement, Etcd, RecordChange};
use crate::identity::ClusterIdentity;
use crate::limits::CHANGE_LIMIT;
use crate::secret::ClusterSecret;

#[test]
fn nodes_agree_on_cluster_uuid_and_name() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let one = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&one, 16)]);
    let uuid = one.identity().uuid;
    let two = Node::start("two", etcd.port(), &medium);
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    assert_eq!(two.identity().uuid, uuid, "the first node's is the cluster's");
    let before = one.topology().unwrap().rev;
    two.cluster.set_name("blue").unwrap();
    let expected = ClusterIdentity { uuid, name: "blue".to_owned() };
    for node in [&one, &two] {
        let agrees = || (node.identity() == expected).then_some(());
        assert!(poll_until(PATIENCE, agrees).is_some(), "{:?}", node.identity());
    }
    assert!(one.topology().unwrap().rev > before, "clients would not look");
}

#[test]
fn a_node_with_another_secret_stays_out() {
    let agreement = MemoryAgreement::new(Box::new(|| Duration::ZERO));
    let medium = Arc::default();
    let scratch = tempfile::tempdir().unwrap();
    let secret = |text: &str| {
        let path = scratch.path().join(text);
        std::fs::write(&path, text.repeat(32)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        Some(ClusterSecret::read(&path).unwrap())
    };
    let start = |name, secret| {
        let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
        Node::start_with_secret(agreement.clone(), (name, secret), (bucket_config(), store))
    };
    let one = start("one", secret("a"));
    wait_for_shares(&[(&one, 16)]);
    let foreign = start("foreign", secret("b"));
    let two = start("two", secret("a"));
    // Nodes without links need no secret.
    let three = start("three", None);
    wait_for_shares(&[(&one, 6), (&two, 5), (&three, 5), (&foreign, 0)]);
    assert!(!one.in_etcd().contains_key("c/nodes/foreign"));
    assert!(one.in_etcd().contains_key("c/secret"));
}

#[test]
fn an_etcd_may_want_tls_and_a_password() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let authority = Authority::new("etcd's authority");
    authority.write(&at("ca"));
    authority.issue(&Owner::server("localhost")).write(&at("certificate"), &at("key"));
    let certified = EtcdServer::start_for_test_with(Some((&at("certificate"), &at("key"))));
    let Some(server) = certified else { return };
    let settings = |ca: &str, login: Option<&str>| EtcdSettings {
        urls: vec![format!("https://127.0.0.1:{}", server.port())],
        tls: ClientOptions { ca: Some(at(ca)), ..ClientOptions::default() },
        login: login.map(|file| ("root".to_owned(), at(file))),
    };
    std::fs::write(at("password"), "right\n").unwrap();
    std::fs::write(at("wrong"), "wrong").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let get = |settings: &EtcdSettings| {
        let etcd = Etcd::new(settings).unwrap();
        runtime.block_on(etcd.get("/key", CHANGE_LIMIT))
    };
    let answers = || get(&settings("ca", None)).ok();
    poll_until(PATIENCE, answers).expect("it is reached over TLS");
    Authority::new("another").write(&at("other"));
    let refused = get(&settings("other", None)).unwrap_err().to_string();
    assert!(refused.contains("TLS"), "{refused}");

    // One client that connected before etcd required passwords, and one whose token etcd forgets.
    let etcd = Etcd::new(&settings("ca", Some("password"))).unwrap();
    runtime.block_on(etcd.enable_passwords("right")).unwrap();
    assert!(get(&settings("ca", None)).is_err(), "it answers without a password");
    assert_eq!(get(&settings("ca", Some("password"))).unwrap(), None);
    let refused = get(&settings("ca", Some("wrong"))).unwrap_err().to_string();
    assert!(refused.contains("cannot log in") && !refused.contains("wrong"), "{refused}");
    let put = [RecordChange::put("/key", "1")];
    runtime.block_on(etcd.transact(&[], &put, CHANGE_LIMIT)).unwrap().unwrap();
    etcd.forge_token();
    let found = runtime.block_on(etcd.get("/key", CHANGE_LIMIT)).unwrap().unwrap();
    assert_eq!(found.value, b"1");

    let store = Arc::new(SharedMemoryStore::on(Arc::default()));
    let protected = settings("ca", Some("password"));
    let node = Node::start_on("one", protected, (bucket_config(), store));
    wait_for_shares(&[(&node, 16)]);
}

#[test]
fn a_node_waits_for_etcd_and_a_name_for_its_lease() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let proxy = TcpProxy::start(etcd.port()).unwrap();
    proxy.cut();
    let early = Node::start("same", proxy.port(), &medium);
    assert_eq!(early.served(), 0);
    proxy.mend();
    wait_for_shares(&[(&early, 16)]);
    proxy.cut();
    // As after a crash: the same name again, while the previous lease is not over.
    let again = Node::start("same", etcd.port(), &medium);
    wait_for_shares(&[(&early, 0), (&again, 16)]);
}

#[test]
fn an_etcd_without_data_gets_the_records_again() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let node = Node::start("one", etcd.port(), &Arc::default());
    wait_for_shares(&[(&node, 16)]);
    node.write(Vbid(1), "k", "1").unwrap();
    let before = node.bucket();
    let known = node.in_etcd();
    let gone: Vec<RecordChange> =
        known.values().map(|entry| RecordChange::delete(&entry.key)).collect();
    node.change_etcd(&gone);
    let is_known = || {
        let now = node.in_etcd();
        let is_new = |name: &str| {
            now.get(name)?.create_revision.gt(&known[name].create_revision).then_some(())
        };
        is_new("c/buckets/default").and(is_new("c/map"))
    };
    poll_until(PATIENCE, is_known).expect("etcd knows the bucket again");
    wait_for_shares(&[(&node, 16)]);
    assert!(Arc::ptr_eq(&before, &node.bucket()), "the bucket was closed");
    assert_eq!(node.read(Vbid(1), "k"), Some(Some("1".to_owned())));
}

// Regression: after a restart of etcd a node waited for its own keys to expire, because it had
// forgotten the session that it could not end. A restarted etcd begins the time of leases again.
#[test]
fn a_session_is_ended_after_an_outage_of_etcd() {
    // The clock stands, so no session ends by its time.
    let agreement = MemoryAgreement::new(Box::new(|| Duration::ZERO));
    let store = Arc::new(SharedMemoryStore::on(Arc::default()));
    let node = Node::start_by(Arc::clone(&agreement) as _, "one", (bucket_config(), store));
    wait_for_shares(&[(&node, 16)]);
    let first = agreement.sessions();
    agreement.set_away(true);
    wait_for_shares(&[(&node, 0)]);
    agreement.restart();
    agreement.set_away(false);
    wait_for_shares(&[(&node, 16)]);
    let second = agreement.sessions();
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
}
