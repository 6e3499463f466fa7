//! Two servers with separate sockets and stores: one follows the other.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_config::Settings;
use oribi_engine::collections::ManifestChange;
use oribi_engine::{GetOutcome, MutationOutcome, StoreRequest};
use oribi_system::clock::wall_clock;
use oribi_types::{CollectionId, CopiesEpoch, CopyId, DocKey, Vbid};

use crate::buckets::{BucketHandle, BucketOptions};
use crate::buckets::{CopyLinks as _, ReplicaSource};
use crate::server::Server;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const VBUCKETS: u16 = 4;

/// A node with one bucket, which may be stopped and started.
struct Node {
    name: &'static str,
    settings: Settings,
    server: Option<Server>,
    _scratch: tempfile::TempDir,
}

impl Node {
    fn start(name: &'static str, buckets: &[&str], quota_mib: u64) -> Node {
        let scratch = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: scratch.path().join("data"),
            buckets: buckets.iter().map(|name| (*name).to_owned()).collect(),
            port: 0,
            admin_port: 0,
            workers: 2,
            vbuckets: VBUCKETS,
            memory_quota_mib: Some(quota_mib),
            ..Settings::default()
        };
        let mut node = Node { name, settings, server: None, _scratch: scratch };
        node.restart();
        node
    }

    /// Stops the server, if it runs, and starts it again.
    fn restart(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().unwrap();
        }
        let server = Server::start(&self.settings).unwrap();
        server.context().access.users.admit_nodes(SECRET);
        server.context().cluster.links.set_identity(self.name, SECRET);
        self.server = Some(server);
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn bucket(&self) -> Arc<BucketHandle> {
        let bucket = self.server().context().buckets.get("shop").unwrap();
        wait_for("the documents to be loaded", || {
            !bucket.bucket().vbuckets().iter().any(|vbucket| vbucket.stats().loading)
        });
        bucket
    }

    /// Connections that the server has accepted so far.
    fn attempts(&self) -> u64 {
        let counters = &self.server().context().diagnostics.counters;
        (0..2).map(|worker| counters.worker(worker).total_connections.get()).sum()
    }

    fn follow(&self, active: &Node, epoch: u64) {
        let bucket = self.bucket();
        for vbid in vbids() {
            let source = ReplicaSource {
                node: active.name.to_owned(),
                host: "localhost".to_owned(),
                port: active.server().addresses().kv.port(),
                epoch: CopiesEpoch(epoch),
                copy: CopyId { node: 2, copy: 1 },
            };
            self.server().context().cluster.links.follow(bucket.clone(), vbid, source);
        }
    }

    fn set(&self, vbid: u16, collection: u32, key: &[u8], value: &[u8]) {
        let bucket = self.bucket();
        let key = DocKey { collection: CollectionId(collection), key };
        let vbucket = bucket.bucket().vbucket(Vbid(vbid)).unwrap();
        wait_for("room for a document", || {
            let context = bucket.bucket().context(wall_clock());
            let outcome = vbucket.store(&context, key, &StoreRequest::set(value));
            matches!(outcome, MutationOutcome::Done(_))
        });
    }

    fn replica_value(&self, vbid: u16, collection: u32, key: &[u8]) -> Option<Vec<u8>> {
        let bucket = self.bucket();
        let key = DocKey { collection: CollectionId(collection), key };
        let vbucket = bucket.bucket().vbucket(Vbid(vbid)).unwrap();
        match vbucket.get_replica(&bucket.bucket().context(wall_clock()), key) {
            GetOutcome::Hit(item) => Some(item.value().to_vec()),
            _ => None,
        }
    }

    /// Waits until this node has what `active` has.
    fn catch_up(&self, active: &Node) {
        let (here, there) = (self.bucket(), active.bucket());
        let uuid = &here.bucket().config().uuid;
        wait_for("the replica to catch up", || {
            let status = self.server().context().cluster.links.status(uuid);
            assert_eq!(status.len(), usize::from(VBUCKETS));
            status.iter().all(|one| {
                let active = there.bucket().vbucket(one.vbid).unwrap().stats().high_seqno;
                one.complete_end == active
            })
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown().unwrap();
        }
    }
}

fn vbids() -> impl Iterator<Item = Vbid> {
    (0..VBUCKETS).map(Vbid)
}

fn wait_for(event: &str, mut has_come: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !has_come() {
        assert!(Instant::now() < deadline, "waited for {event}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two nodes; the second one has the first one's bucket, and follows it.
fn pair() -> (Node, Node) {
    let (active, replica) = (Node::start("one", &["shop"], 200), Node::start("two", &[], 200));
    let text = active.server().context().buckets.settings_text("shop").unwrap();
    let options = BucketOptions::from_settings(&replica.settings);
    replica.server().context().buckets.adopt("shop", &text, &options).unwrap();
    let (one, two) = (active.bucket(), replica.bucket());
    for vbid in vbids() {
        one.bucket().become_replica(vbid).unwrap();
        one.bucket().promote(vbid, CopiesEpoch(1)).unwrap();
        two.bucket().become_replica(vbid).unwrap();
    }
    replica.follow(&active, 1);
    (active, replica)
}

#[test]
fn a_replica_follows_over_restarts_of_both() {
    let (mut active, mut replica) = pair();
    let create = ManifestChange::CreateCollection {
        scope: "_default".to_owned(),
        name: "orders".to_owned(),
        max_ttl_s: None,
    };
    active.bucket().bucket().update_manifest(&create).unwrap();
    for number in 0..2_000_u32 {
        active.set((number % 4) as u16, 0, &number.to_be_bytes(), b"{\"n\":1}");
    }
    active.set(1, 8, b"order", b"in a collection");
    let large = vec![b'v'; 20 << 20];
    active.set(2, 0, b"large", &large);
    active.set(2, 0, b"after", b"small");
    replica.catch_up(&active);
    assert_eq!(replica.replica_value(1, 8, b"order").unwrap(), b"in a collection");
    assert!(replica.replica_value(2, 0, b"large").unwrap() == large);
    assert_eq!(replica.replica_value(2, 0, b"after").unwrap(), b"small");
    // The replica is away while the active changes.
    replica.server.take().unwrap().shutdown().unwrap();
    active.set(0, 0, b"meanwhile", b"1");
    replica.restart();
    assert!(replica.bucket().bucket().vbuckets().iter().all(|vbucket| vbucket.is_replica()));
    replica.follow(&active, 1);
    replica.catch_up(&active);
    assert_eq!(replica.replica_value(0, 0, b"meanwhile").unwrap(), b"1");
    // The active is away, and comes back on another port; its histories continue.
    active.restart();
    active.set(3, 0, b"again", b"2");
    replica.follow(&active, 1);
    replica.catch_up(&active);
    assert_eq!(replica.replica_value(3, 0, b"again").unwrap(), b"2");
    let figures = active.bucket().producers().list();
    let sent: u64 = figures.iter().map(|record| record.items_sent.get()).sum();
    assert_eq!(sent, 1, "the replica continued where it was");
}

#[test]
fn a_replica_without_memory_bounds_the_active() {
    let (active, replica) = pair();
    // The replica takes nothing more.
    replica.bucket().bucket().set_memory_quota(1);
    for number in 0..6_000_u32 {
        active.set((number % 4) as u16, 0, &number.to_be_bytes(), &[b'v'; 8 << 10]);
    }
    let stats = active.server().context().connections.memory.stats();
    assert!(stats.used_bytes < 24 << 20, "{stats:?}");
    let queued: usize =
        active.bucket().bucket().vbuckets().iter().map(|vb| vb.stats().queue_bytes).sum();
    let queued = queued as u64;
    let quota = active.bucket().bucket().checkpoint_quota_bytes();
    assert!(queued <= quota + (16 << 20), "{queued} of {quota} bytes are queued");
    let held = replica.server().context().connections.memory.stats();
    assert!(held.used_bytes < 8 << 20, "{held:?}");
    replica.bucket().bucket().set_memory_quota(200 << 20);
    replica.catch_up(&active);
}

#[test]
fn another_bucket_of_the_name_gets_no_stream() {
    let (active, replica) = (Node::start("one", &["shop"], 64), Node::start("two", &["shop"], 64));
    let bucket = replica.bucket();
    for vbid in vbids() {
        bucket.bucket().become_replica(vbid).unwrap();
        active.bucket().bucket().become_replica(vbid).unwrap();
        active.bucket().bucket().promote(vbid, CopiesEpoch(1)).unwrap();
    }
    active.set(0, 0, b"k", b"v");
    let connections = || active.attempts();
    let before = connections();
    replica.follow(&active, 1);
    // It has tried, more than once.
    wait_for("attempts", || connections() >= before + 3);
    assert_eq!(active.bucket().producers().list().len(), 0);
    assert_eq!(replica.replica_value(0, 0, b"k"), None);
}
