//! Several nodes in one process over one store in memory, agreeing through a real etcd or one in
//! memory.

pub(crate) mod registry;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_config::EtcdSettings;
use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    AppliedMutation, BucketConfig, EvictionPolicy, GetOutcome, MutationOutcome, OperationRejection,
    Storage, StoreCondition, StoreRequest, Upkeep, VBucket,
};
use oribi_storage::{SharedMedium, SharedMemoryStore};
use oribi_system::clock::wall_clock;
use oribi_testkit::{EtcdServer, PATIENCE, TcpProxy, poll_until};
use oribi_tls::client::ClientOptions;
use oribi_tls::testing::{Authority, Owner};
use oribi_types::{Cas, CollectionId, DocKey, Vbid};
use parking_lot::Mutex;

use crate::agreement::memory::MemoryAgreement;
use crate::agreement::{Agreement, AgreementRecord, Etcd, RecordChange, Sessions};
use crate::buckets::{ClusterBuckets, SharedBucket};
use crate::host::ClusterHost;
use crate::identity::ClusterIdentity;
use crate::member::{CHANGE_LIMIT, ClusterMember};
use crate::secret::ClusterSecret;
use crate::settings::ClusterSettings;
use crate::topology::{Topology, TopologyNode};
use registry::{MemoryBucket, MemoryBuckets};

const VBUCKETS: u16 = 16;
const LEASE_S: u64 = 2;

struct Node {
    buckets: Arc<MemoryBuckets>,
    published: Arc<Mutex<Published>>,
    cluster: Arc<ClusterMember>,
}

/// What the server would show to clients.
#[derive(Default)]
struct Published {
    identity: ClusterIdentity,
    topology: Option<Topology>,
}

fn bucket_config() -> BucketConfig {
    BucketConfig {
        name: "default".to_owned(),
        uuid: "0".repeat(32),
        vbuckets: VBUCKETS,
        memory_quota_bytes: 64 << 20,
        flush_enabled: false,
        value_bytes_max: 1 << 20,
        flush_interval_ms: 1,
        storage: Storage::Persistent,
        eviction: EvictionPolicy::Value,
        high_watermark_percent: 85,
        low_watermark_percent: 75,
        upkeep: Upkeep::default(),
    }
}

impl Node {
    fn start(name: &str, etcd_port: u16, medium: &Arc<SharedMedium>) -> Node {
        let store = Arc::new(SharedMemoryStore::on(Arc::clone(medium)));
        Node::start_over(name, etcd_port, (bucket_config(), store))
    }

    fn start_over(
        name: &str,
        etcd_port: u16,
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        let urls = vec![format!("http://127.0.0.1:{etcd_port}")];
        Node::start_on(name, EtcdSettings { urls, ..EtcdSettings::default() }, bucket)
    }

    fn start_on(
        name: &str,
        etcd: EtcdSettings,
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        let agreement = Arc::new(Etcd::new(&etcd).unwrap());
        Node::start_by(agreement, name, bucket)
    }

    fn start_by(
        agreement: Arc<dyn Sessions>,
        name: &str,
        bucket: (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        Node::start_with_secret(agreement, (name, None), bucket)
    }

    fn start_with_secret(
        agreement: Arc<dyn Sessions>,
        (name, secret): (&str, Option<ClusterSecret>),
        (bucket, store): (BucketConfig, Arc<SharedMemoryStore>),
    ) -> Node {
        let buckets = Arc::new(MemoryBuckets::default());
        buckets.open_over(bucket, store);
        let node = TopologyNode {
            name: name.to_owned(),
            host: "127.0.0.1".to_owned(),
            kv: 1,
            mgmt: 2,
            kv_tls: None,
            mgmt_tls: None,
            query: None,
            query_tls: None,
        };
        let etcd = EtcdSettings::default();
        let settings = ClusterSettings {
            etcd,
            name: "test".to_owned(),
            secret,
            disk: format!("disk of {name}"),
            lease_s: LEASE_S,
            node,
        };
        let published: Arc<Mutex<Published>> = Arc::default();
        let shown = Arc::clone(&published);
        let host = ClusterHost {
            buckets: Arc::clone(&buckets) as Arc<dyn ClusterBuckets>,
            identity: ClusterIdentity::random(),
            publish: Box::new(move |identity, topology| {
                let identity = identity.clone();
                *shown.lock() = Published { identity, topology: Some(topology) };
            }),
        };
        let cluster = ClusterMember::start_with(agreement, settings, host).unwrap();
        Node { buckets, published, cluster }
    }

    fn bucket(&self) -> Arc<MemoryBucket> {
        self.buckets.get("default").unwrap()
    }

    fn identity(&self) -> ClusterIdentity {
        self.published.lock().identity.clone()
    }

    fn topology(&self) -> Option<Topology> {
        self.published.lock().topology.clone()
    }

    /// The node's answer for a document; `None` when it does not own the vbucket.
    fn read(&self, vbid: Vbid, name: &str) -> Option<Option<String>> {
        let (handle, now) = (self.bucket(), wall_clock());
        let vbucket = handle.bucket().vbucket(vbid).unwrap();
        let read = || vbucket.get(&handle.bucket().context(now), key(name));
        let outcome = poll_until(PATIENCE, || match read() {
            // It is being loaded.
            GetOutcome::Refused(
                OperationRejection::NeedsFetch | OperationRejection::TemporaryFailure,
            ) => None,
            outcome => Some(outcome),
        });
        match outcome.expect("it is loaded") {
            GetOutcome::Hit(item) => Some(Some(String::from_utf8_lossy(item.value()).into_owned())),
            GetOutcome::Miss => Some(None),
            GetOutcome::Refused(OperationRejection::NotMyVbucket) => None,
            other => panic!("{other:?}"),
        }
    }

    fn write(&self, vbid: Vbid, name: &str, value: &str) -> Option<AppliedMutation> {
        let request = StoreRequest {
            mode: StoreCondition::Set,
            value: value.as_bytes(),
            flags: 0,
            expiry: 0,
            cas: Cas(0),
            preserve_expiry: false,
            is_compressed: false,
        };
        let (handle, now) = (self.bucket(), wall_clock());
        let vbucket = handle.bucket().vbucket(vbid).unwrap();
        let write = || vbucket.store(&handle.bucket().context(now), key(name), &request);
        let outcome = poll_until(PATIENCE, || match write() {
            MutationOutcome::Refused(OperationRejection::NeedsFetch) => None,
            outcome => Some(outcome),
        });
        match outcome.expect("it is loaded") {
            MutationOutcome::Done(mutation) => Some(mutation),
            MutationOutcome::Refused(OperationRejection::NotMyVbucket) => None,
            other => panic!("{other:?}"),
        }
    }

    fn serves(&self, vbid: Vbid) -> bool {
        self.bucket().bucket().serving_vbucket(vbid).is_ok()
    }

    fn served(&self) -> usize {
        vbuckets().filter(|vbid| self.serves(*vbid)).count()
    }

    /// The content of etcd, by key without the cluster's name.
    fn in_etcd(&self) -> HashMap<String, AgreementRecord> {
        let ClusterMember { runtime, agreement, keys, .. } = &*self.cluster;
        let list = runtime.block_on(agreement.list(keys.all(), CHANGE_LIMIT)).unwrap();
        let short = |entry: AgreementRecord| (entry.key[keys.all().len()..].to_owned(), entry);
        list.records.into_iter().map(short).collect()
    }

    fn change_etcd(&self, changes: &[RecordChange]) {
        let ClusterMember { runtime, agreement, .. } = &*self.cluster;
        runtime.block_on(agreement.transact(&[], changes, CHANGE_LIMIT)).unwrap();
    }

    fn flushed(&self) {
        let bucket = self.bucket();
        let is_flushed =
            || bucket.bucket().vbuckets().iter().all(VBucket::is_flushed).then_some(());
        poll_until(PATIENCE, is_flushed).expect("everything is flushed");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.cluster.stop();
    }
}

fn vbuckets() -> impl Iterator<Item = Vbid> {
    (0..VBUCKETS).map(Vbid)
}

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

#[track_caller]
fn wait_for_shares(nodes: &[(&Node, usize)]) {
    let is_shared = || nodes.iter().all(|(node, share)| node.served() == *share).then_some(());
    if poll_until(PATIENCE, is_shared).is_none() {
        let served: Vec<usize> = nodes.iter().map(|(node, _)| node.served()).collect();
        panic!("the shares stay at {served:?}");
    }
}

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
fn nodes_share_vbuckets_and_hand_over_in_order() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let one = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&one, 16)]);
    for vbid in vbuckets() {
        one.write(vbid, "k", "1").unwrap();
    }
    let two = Node::start("two", etcd.port(), &medium);
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    for vbid in vbuckets() {
        let (here, there) = if one.serves(vbid) { (&one, &two) } else { (&two, &one) };
        // The writes did not ask for durability; an orderly hand-over keeps them all the same.
        assert_eq!(here.read(vbid, "k"), Some(Some("1".to_owned())), "{vbid}");
        assert_eq!(there.read(vbid, "k"), None, "{vbid}");
        here.write(vbid, "k", "2").unwrap();
    }
    let (map_of_one, map_of_two) = (one.topology(), two.topology());
    let (map_of_one, map_of_two) = (map_of_one.unwrap(), map_of_two.unwrap());
    assert_eq!((map_of_one.epoch, map_of_one.rev), (map_of_two.epoch, map_of_two.rev));
    assert_eq!(map_of_one.buckets, map_of_two.buckets);
    assert_eq!(map_of_one.nodes.len(), 2);

    one.cluster.leave();
    assert_eq!(one.served(), 0);
    wait_for_shares(&[(&two, 16)]);
    for vbid in vbuckets() {
        assert_eq!(two.read(vbid, "k"), Some(Some("2".to_owned())), "{vbid}");
    }
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
fn a_failover_names_a_node_that_has_copies() {
    let agreement = MemoryAgreement::new(Box::new(|| Duration::ZERO));
    let store = Arc::new(SharedMemoryStore::on(Arc::default()));
    let secret = Some(ClusterSecret::of_test());
    let node =
        Node::start_with_secret(agreement.clone(), ("one", secret), (bucket_config(), store));
    let is_known = || node.in_etcd().contains_key("c/roster").then_some(());
    poll_until(PATIENCE, is_known).expect("the node has a number");
    let error = node.cluster.fail_over("two", false).unwrap_err().to_string();
    assert!(error.contains("\"two\"") && error.contains("there are one"), "{error}");
    // The node has no vbucket with copies, so there is nothing to do.
    node.cluster.fail_over("one", false).unwrap();
    assert!(!node.in_etcd().contains_key("c/failover"));
}

#[test]
fn a_node_cut_from_etcd_stops_before_the_takeover() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let proxy = TcpProxy::start(etcd.port()).unwrap();
    let cut_off = Node::start("cut-off", proxy.port(), &medium);
    let other = Node::start("other", etcd.port(), &medium);
    wait_for_shares(&[(&cut_off, 8), (&other, 8)]);
    let lost: Vec<Vbid> = vbuckets().filter(|vbid| cut_off.serves(*vbid)).collect();
    for vbid in &lost {
        cut_off.write(*vbid, "k", "persisted").unwrap();
    }
    cut_off.flushed();
    proxy.cut();
    let taken_over = poll_until(PATIENCE, || {
        for vbid in &lost {
            // The order matters: ownership moves one way only.
            let (new, old) = (other.serves(*vbid), cut_off.serves(*vbid));
            assert!(!(new && old), "{vbid} is served twice");
        }
        (other.served() == 16).then_some(())
    });
    assert!(taken_over.is_some(), "no node takes over");
    assert_eq!(cut_off.served(), 0);
    for vbid in &lost {
        assert_eq!(other.read(*vbid, "k"), Some(Some("persisted".to_owned())));
        other.write(*vbid, "k", "newer").unwrap();
    }
    proxy.mend();
    wait_for_shares(&[(&cut_off, 8), (&other, 8)]);
    for vbid in &lost {
        let here = if cut_off.serves(*vbid) { &cut_off } else { &other };
        assert_eq!(here.read(*vbid, "k"), Some(Some("newer".to_owned())));
    }
}

#[test]
fn every_node_has_the_same_collections_and_deletions() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let (one, two) =
        (Node::start("one", etcd.port(), &medium), Node::start("two", etcd.port(), &medium));
    wait_for_shares(&[(&one, 8), (&two, 8)]);
    let before = two.topology().unwrap().buckets["default"].rev;
    let create = |name: &str| ManifestChange::CreateCollection {
        scope: "_default".to_owned(),
        name: name.to_owned(),
        max_ttl_s: None,
    };
    one.cluster.update_manifest(&*one.bucket(), &create("a")).unwrap();
    two.cluster.update_manifest(&*two.bucket(), &create("b")).unwrap();
    for node in [&one, &two] {
        let has_both = || {
            let manifest = node.bucket().bucket().manifest();
            let has = |name| manifest.collection_id("_default", name).is_ok();
            (has("a") && has("b")).then_some(())
        };
        poll_until(PATIENCE, has_both).expect("both collections are everywhere");
        assert_eq!(node.bucket().bucket().manifest().uid().0, 2);
    }
    let is_newer = || (two.topology()?.buckets["default"].rev > before).then_some(());
    poll_until(PATIENCE, is_newer).expect("clients are shown a newer configuration");

    one.cluster.delete_bucket(&*one.bucket()).unwrap();
    for node in [&one, &two] {
        let is_gone = || node.buckets.get("default").is_none().then_some(());
        poll_until(PATIENCE, is_gone).expect("every node closes the bucket");
    }
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

// Invariant: A node deletes the key of a vbucket that it neither serves nor takes over.
#[test]
fn a_node_releases_keys_that_it_does_not_serve() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let node = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&node, 16)]);
    let before = node.in_etcd();
    let held = |name: &str| name.starts_with("held/");
    assert_eq!(before.keys().filter(|name| held(name)).count(), 16);
    // As if it had given the vbucket up without reaching etcd.
    let (_, own) = before.iter().find(|(name, _)| held(name)).unwrap();
    let leftover = format!("/oribi/test/held/default/{}/0003", "1".repeat(32));
    let session = own.session.unwrap();
    node.change_etcd(&[RecordChange::put_in(session, leftover.clone(), own.value.clone())]);
    let is_gone = || (!node.in_etcd().values().any(|entry| entry.key == leftover)).then_some(());
    poll_until(PATIENCE, is_gone).expect("no other node could ever take it over");
    assert_eq!(node.served(), 16);
    // The same when a bucket is removed while it is served.
    node.cluster.withdraw(&*node.bucket()).unwrap();
    let is_free = || (!node.in_etcd().keys().any(|name| held(name))).then_some(());
    poll_until(PATIENCE, is_free).expect("nothing of a deleted bucket is held");
}

#[test]
fn an_unexpectedly_lost_vbucket_is_taken_over_again() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let node = Node::start("one", etcd.port(), &Arc::default());
    wait_for_shares(&[(&node, 16)]);
    // As the flusher does when the store reports another owner.
    node.bucket().bucket().deactivate(Vbid(3));
    wait_for_shares(&[(&node, 16)]);
    assert!(node.in_etcd().keys().any(|name| name.ends_with("/0003")));
}

// Invariant: A separate thread renews the lease, so that other work cannot delay it.
#[test]
fn a_node_without_store_gets_no_vbuckets() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
    let way = store.cut_off();
    let leader = Node::start_over("one", etcd.port(), (bucket_config(), Arc::clone(&store)));
    let is_leading = || leader.in_etcd().contains_key("c/map").then_some(());
    poll_until(PATIENCE, is_leading).expect("it leads");
    // It makes a map for the joining node, keeps its lease, and releases what it cannot take over.
    let other = Node::start("two", etcd.port(), &medium);
    wait_for_shares(&[(&leader, 0), (&other, 16)]);
    for vbid in vbuckets() {
        other.write(vbid, "k", "1").unwrap();
    }
    let sessions = leader.cluster.lease.session();
    assert!(leader.cluster.lease.is_held());
    drop(way);
    wait_for_shares(&[(&leader, 8), (&other, 8)]);
    assert_eq!(leader.cluster.lease.session(), sessions);
    for vbid in vbuckets().filter(|vbid| leader.serves(*vbid)) {
        assert_eq!(leader.read(vbid, "k"), Some(Some("1".to_owned())), "{vbid}");
    }
}

#[test]
fn a_node_waiting_for_its_store_leaves_on_request() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let one = Node::start("one", etcd.port(), &medium);
    wait_for_shares(&[(&one, 16)]);
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
    let _way = store.cut_off();
    let two = Node::start_over("two", etcd.port(), (bucket_config(), Arc::clone(&store)));
    wait_for_shares(&[(&one, 8)]);
    let begun = Instant::now();
    two.cluster.leave();
    assert!(begun.elapsed() < Duration::from_secs(30), "it waits for the store");
    wait_for_shares(&[(&one, 16)]);
    two.cluster.stop();
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

#[test]
fn unflushed_items_are_flushed_when_the_lease_ends() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let medium = Arc::default();
    let proxy = TcpProxy::start(etcd.port()).unwrap();
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(&medium)));
    let node = Node::start_over("one", proxy.port(), (bucket_config(), Arc::clone(&store)));
    wait_for_shares(&[(&node, 16)]);
    node.flushed();
    // One write blocks the flusher, so that the others are still queued when the lease ends.
    let way = store.cut_off();
    node.write(Vbid(0), "first", "1").unwrap();
    let is_held_up = || (store.waiting() > 0).then_some(());
    poll_until(PATIENCE, is_held_up).expect("the flusher waits for the store");
    for vbid in vbuckets() {
        node.write(vbid, "k", "only in memory").unwrap();
    }
    proxy.cut();
    wait_for_shares(&[(&node, 0)]);
    drop(way);
    node.flushed();
    proxy.mend();
    wait_for_shares(&[(&node, 16)]);
    for vbid in vbuckets() {
        assert_eq!(node.read(vbid, "k"), Some(Some("only in memory".to_owned())), "{vbid}");
    }
}

#[test]
fn the_leader_removes_data_of_a_deleted_bucket() {
    let Some(etcd) = EtcdServer::start_for_test() else { return };
    let node = Node::start("one", etcd.port(), &Arc::default());
    wait_for_shares(&[(&node, 16)]);
    // As if the node that deleted it had died before removing it. This kind of storage has no
    // remains.
    let key = "c/deleted/other";
    let remains = br#"{"bucket":"b","storage":"log","id":"t"}"#.to_vec();
    node.change_etcd(&[RecordChange::put(format!("/oribi/test/{key}"), remains)]);
    let is_done = || node.in_etcd()[key].value.is_empty().then_some(());
    poll_until(PATIENCE, is_done).expect("the leader notes that the data is removed");
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
