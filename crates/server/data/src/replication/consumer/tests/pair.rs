//! An active bucket behind an in-memory server, and a replica that follows it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use oribi_auth::UserStore;
use oribi_engine::BucketConfig;
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::status::Status;
use oribi_storage::{KvStore as _, MemoryStore};
use oribi_types::{CollectionId, CopiesEpoch, CopyId, Timestamp, Vbid};

use crate::buckets::ReplicaSource;
use crate::buckets::dcp_registry::DcpProducerFigures;
use crate::buckets::{BucketHandle, Buckets};
use crate::harness::login::log_in;
use crate::harness::{ConnectionHarness, HARNESS_START_S, HARNESS_VBUCKETS};
use crate::replication::consumer::{LinkIdentity, ReplicaConsumer};
use crate::replication::failure::LinkFailure;
use crate::replication::followed_copy::FollowedCopy;
use crate::replication::work::LinkWork;

pub(super) const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// Features of the client: seqnos, attributes, errors, buckets, Snappy, JSON, collections.
const FEATURES: [u16; 7] = [4, 6, 7, 8, 0x0a, 0x0b, 0x12];

/// Everything that copies have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredVersion {
    seqno: u64,
    cas: u64,
    rev_seqno: u64,
    flags: u32,
    expiry: u32,
    datatype: u8,
    deleted: bool,
    expired: bool,
    value: Vec<u8>,
}

pub(super) type StoredBucket = BTreeMap<(u16, u32, Vec<u8>), StoredVersion>;

pub(super) fn vbids() -> impl Iterator<Item = Vbid> {
    (0..HARNESS_VBUCKETS).map(Vbid)
}

/// A node: its bucket, and what survives its process.
pub(super) struct Node {
    pub(super) bucket: Arc<BucketHandle>,
    store: Arc<MemoryStore>,
}

impl Node {
    pub(super) fn flush(&self) {
        let bucket = self.bucket.bucket();
        while bucket.vbuckets().iter().any(|vb| vb.persisted_seqno() < vb.stats().high_seqno) {
            bucket.flush_step().unwrap();
        }
    }

    /// The durable documents and tombstones. Events count by their place alone: their time is that
    /// of the node.
    pub(super) fn stored(&self) -> StoredBucket {
        self.flush();
        let mut all = StoredBucket::new();
        for vbid in vbids() {
            let visit = &mut |record: oribi_storage::Record<'_>| {
                let is_event = record.key.collection == CollectionId::SYSTEM;
                let version = StoredVersion {
                    seqno: record.seqno.0,
                    cas: if is_event { 0 } else { record.cas.0 },
                    rev_seqno: record.rev_seqno.0,
                    flags: record.flags,
                    expiry: if is_event { 0 } else { record.expiry },
                    datatype: record.datatype.0,
                    deleted: record.deleted,
                    expired: record.expired,
                    value: if is_event { Vec::new() } else { record.value.to_vec() },
                };
                let key = (vbid.0, record.key.collection.0, record.key.key.to_vec());
                all.insert(key, version);
                ControlFlow::Continue(())
            };
            self.store.scan_keys(vbid, visit).unwrap();
        }
        all
    }
}

/// A pair of nodes, and the link between them.
pub(super) struct Pair {
    users: Arc<UserStore>,
    pub(super) active: Node,
    pub(super) replica: Node,
    pub(super) client: ConnectionHarness,
    pub(super) copies: Vec<Arc<FollowedCopy>>,
    pub(super) now_ms: u64,
    /// Work on copies does not end while this is true.
    pub(super) holds_work: bool,
    /// Copies that began afresh.
    pub(super) emptied: usize,
    link: Option<PairLink>,
}

struct PairLink {
    server: ConnectionHarness,
    consumer: ReplicaConsumer,
    to_server: Vec<u8>,
    to_consumer: Vec<u8>,
}

impl Pair {
    pub(super) fn new() -> Pair {
        let users = Arc::new(UserStore::development());
        users.admit_nodes(SECRET);
        let store = Arc::new(MemoryStore::new());
        let mut client = ConnectionHarness::over(Arc::clone(&users), Arc::clone(&store) as _);
        log_in(&mut client, |feature| FEATURES.contains(&feature.code()));
        let active = Node { bucket: Arc::clone(client.bucket()), store };
        let replica = open_replica(&active, Arc::new(MemoryStore::new()), true);
        for vbid in vbids() {
            active.bucket.bucket().become_replica(vbid).unwrap();
            active.bucket.bucket().promote(vbid, CopiesEpoch(1)).unwrap();
            replica.bucket.bucket().become_replica(vbid).unwrap();
        }
        let (copies, link) = (Vec::new(), None);
        let mut pair = Pair {
            users,
            active,
            replica,
            client,
            copies,
            now_ms: 1,
            holds_work: false,
            emptied: 0,
            link,
        };
        pair.follow(1);
        pair
    }

    /// Follows in this epoch from now on, by a new connection.
    pub(super) fn follow(&mut self, epoch: u64) {
        self.replace_copies(epoch);
        self.link = None;
    }

    /// The same by the connection that exists.
    pub(super) fn follow_on_the_link(&mut self, epoch: u64) {
        self.replace_copies(epoch);
        let link = self.link.as_mut().unwrap();
        for copy in &self.copies {
            link.consumer.follow(Arc::clone(copy), &mut link.to_server);
        }
    }

    fn replace_copies(&mut self, epoch: u64) {
        self.copies.iter().for_each(|copy| copy.stop());
        let source = ReplicaSource {
            node: "one".to_owned(),
            host: String::new(),
            port: 0,
            epoch: CopiesEpoch(epoch),
            copy: CopyId { node: 2, copy: 1 },
        };
        let copy =
            |vbid| Arc::new(FollowedCopy::new(self.replica.bucket.clone(), vbid, source.clone()));
        self.copies = vbids().map(copy).collect();
    }

    /// The replica's process ends, and another begins with what the disk has.
    pub(super) fn restart_replica(&mut self, epoch: u64, was_clean: bool) {
        if was_clean {
            self.replica.flush();
        }
        self.copies.iter().for_each(|copy| copy.stop());
        self.replica = open_replica(&self.active, Arc::clone(&self.replica.store), was_clean);
        self.follow(epoch);
    }

    /// The active's process is killed, and another begins its vbuckets in a new epoch.
    pub(super) fn crash_active(&mut self, epoch: u64) {
        let store = Arc::clone(&self.active.store);
        let over = Arc::clone(&store) as _;
        self.client = ConnectionHarness::after_a_crash(Arc::clone(&self.users), over);
        log_in(&mut self.client, |feature| FEATURES.contains(&feature.code()));
        self.client.advance_ms(self.now_ms);
        self.active = Node { bucket: Arc::clone(self.client.bucket()), store };
        for vbid in vbids() {
            self.active.bucket.bucket().become_replica(vbid).unwrap();
            self.active.bucket.bucket().promote(vbid, CopiesEpoch(epoch)).unwrap();
        }
        self.follow(epoch);
    }

    /// The time at both nodes.
    pub(super) fn now(&self) -> Timestamp {
        let mut now = Timestamp::from_unix_s(HARNESS_START_S);
        now.unix_ns += self.now_ms * 1_000_000;
        now
    }

    /// Sends a request of a client, and returns its status.
    pub(super) fn ask(&mut self, parts: &RequestParts<'_>) -> Status {
        let mut request = Vec::new();
        encode_request(&mut request, parts);
        let answer = self.client.feed(&request);
        let Ok(DecodedFrame::Complete { frame, .. }) = decode(&answer) else {
            panic!("no answer to {parts:?}")
        };
        Status::from_u16(frame.header.vbucket_or_status).unwrap()
    }

    pub(super) fn set(&mut self, vbid: u16, key: &[u8], value: &[u8]) {
        let key = [b"\0", key].concat();
        let (extras, vbid) = ([0; 8], Vbid(vbid));
        let parts = RequestParts { vbid, key: &key, value, extras: &extras, ..set() };
        assert_eq!(self.ask(&parts), Status::Success);
    }

    /// Cuts the connection: what is under way is lost.
    pub(super) fn cut(&mut self) {
        self.link = None;
    }

    /// Moves at most so many bytes from the active to the replica. True when there was something.
    pub(super) fn step(&mut self, bytes_max: usize) -> Result<bool, LinkFailure> {
        if self.link.is_none() {
            let identity = LinkIdentity {
                own: "two".to_owned(),
                source: "one".to_owned(),
                bucket: self.replica.bucket.clone(),
                secret: SECRET.into(),
            };
            let mut to_server = Vec::new();
            let mut consumer = ReplicaConsumer::begin(identity, &mut to_server);
            for copy in &self.copies {
                consumer.follow(Arc::clone(copy), &mut to_server);
            }
            let (server, to_consumer) = (self.client.beside(), Vec::new());
            self.link = Some(PairLink { server, consumer, to_server, to_consumer });
        }
        let (now, now_ms) = (self.now(), self.now_ms);
        let link = self.link.as_mut().unwrap();
        let request = std::mem::take(&mut link.to_server);
        let mut answer = link.server.feed(&request);
        let backfill = self.active.bucket.bucket().backfill_step(&|_| false, &Timestamp::default);
        backfill.unwrap();
        answer.extend(link.server.feed(&[]));
        assert_eq!(link.server.close_reason(), None);
        link.to_consumer.extend_from_slice(&answer);
        let mut moved = !request.is_empty() || !answer.is_empty();
        let mut taken = 0;
        while taken < bytes_max {
            let Ok(DecodedFrame::Complete { frame, consumed }) = decode(&link.to_consumer[taken..])
            else {
                break;
            };
            link.consumer.take(&frame, None, now, &mut link.to_server)?;
            taken += consumed;
        }
        link.to_consumer.drain(..taken);
        moved |= taken > 0;
        link.consumer.turn(now, now_ms, &mut link.to_server)?;
        self.emptied += link.consumer.take_emptied().len();
        while let Some(work) = link.consumer.take_work() {
            if self.holds_work && matches!(work, LinkWork::Copy { .. }) {
                continue;
            }
            let result = work.run();
            link.consumer.work_done(result, &mut link.to_server)?;
            moved = true;
        }
        Ok(moved || link.consumer.due_ms().is_some_and(|due_ms| due_ms <= now_ms))
    }

    /// Lets the replica catch up.
    pub(super) fn settle(&mut self) {
        // A copy that waits before it asks again does so within this time.
        for _ in 0..4 {
            while self.step(usize::MAX).unwrap() {}
            self.now_ms += 200;
        }
    }

    /// Figures of the active's connection.
    pub(super) fn published(&mut self) -> DcpProducerFigures {
        let link = self.link.as_mut().unwrap();
        let told = link.server.advance_ms(1);
        link.to_consumer.extend_from_slice(&told);
        self.active.bucket.producers().list()[0].published()
    }

    /// The replica has what the active has, everything of it complete.
    pub(super) fn assert_equal(&self) {
        let (active, replica) = (self.active.stored(), self.replica.stored());
        assert_eq!(active.len(), replica.len());
        for (one, other) in active.iter().zip(&replica) {
            assert_eq!(one, other);
        }
        for vbid in vbids() {
            let of = |node: &Node| node.bucket.bucket().vbucket(vbid).unwrap().stats().high_seqno;
            let copy = self.replica.bucket.bucket().vbucket(vbid).unwrap();
            let position = copy.replica_position().unwrap();
            assert_eq!(of(&self.active), position.complete_end, "{vbid:?}");
            let active = self.active.bucket.bucket().vbucket(vbid).unwrap();
            assert_eq!(active.failover_table(), position.failover_table);
            let standing = copy.copy_standing();
            let epoch = position.failover_table[0].epoch;
            assert_eq!((standing.recorded, standing.is_intact), (epoch, true));
        }
    }
}

/// Opens the bucket of a replica, with the active's configuration.
fn open_replica(active: &Node, store: Arc<MemoryStore>, was_clean: bool) -> Node {
    let config = BucketConfig { ..active.bucket.bucket().config().clone() };
    let over = Arc::clone(&store) as Arc<dyn oribi_storage::KvStore>;
    let bucket = Buckets::in_memory().open_over(config, over, was_clean, false).unwrap();
    while !matches!(bucket.bucket().warmup_step(), oribi_engine::WarmupStep::Done) {}
    Node { bucket, store }
}

pub(super) fn set() -> RequestParts<'static> {
    RequestParts::new(Opcode::Set)
}
