//! Two nodes with one vbucket, and random lives of both: the active takes operations, its stream
//! feeds the copy, connections are cut inside of snapshots, processes are killed, and roles change.
//! After each step a copy that is complete equals what the active had at that seqno.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::dcp::{
    SnapshotSource, StreamChange, StreamFilter, StreamMarker, StreamOpenError, StreamOptions,
    StreamRequest, StreamSink, StreamStep, VbucketDcpStream,
};
use oribi_engine::{
    ApplyError, Bucket, GetOutcome, ReplicatedDocument, ReplicatedVersion, SnapshotChanges,
};
use oribi_storage::{FailoverEntry, MemoryMedium, MemoryStore, SeededRandom};
use oribi_types::{
    Cas, CollectionId, CopiesEpoch, Datatype, DocKey, RevSeqno, Seqno, Timestamp, VbUuid,
};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, open, set};

const KEYS: u64 = 12;
const COLLECTIONS_MAX: usize = 4;

pub(crate) struct NoSink;

impl StreamSink for NoSink {
    fn ready(&self, _token: u64) {}
}

/// CAS, seqno, revision, flags, expiry and value of each document.
type Content = BTreeMap<(u32, String), (u64, u64, u64, u32, u32, Vec<u8>)>;

fn name_of(number: u64) -> String {
    format!("k{number}")
}

pub(super) fn get_replica(bucket: &Bucket, key: DocKey<'_>, now: Timestamp) -> GetOutcome {
    bucket.vbucket(VB).expect("it exists").get_replica(&bucket.context(now), key)
}

/// A node's copy of the vbucket, in any role.
fn content(bucket: &Bucket) -> Content {
    let is_replica = bucket.vbucket(VB).expect("it exists").is_replica();
    let manifest = bucket.manifest();
    let all = manifest.scopes().iter().flat_map(|scope| &scope.collections);
    let collections: Vec<CollectionId> = all.map(|collection| collection.id).collect();
    let mut content = Content::new();
    for collection in collections {
        let names = (0..KEYS).map(name_of).chain(["a", "b", "c"].map(String::from));
        for name in names {
            let key = DocKey { collection, key: name.as_bytes() };
            let found = match is_replica {
                true => get_replica(bucket, key, NOW),
                false => bucket.get(VB, key, NOW),
            };
            if let GetOutcome::Hit(item) = found {
                let version = (item.cas().0, item.seqno().0, item.rev_seqno().0);
                let (flags, expiry) = (item.flags(), item.expiry());
                let entry = (version.0, version.1, version.2, flags, expiry, item.value().to_vec());
                content.insert((collection.0, name.clone()), entry);
            } else {
                assert!(matches!(found, GetOutcome::Miss), "{found:?}");
            }
        }
    }
    content
}

pub(super) fn assert_same(active: &Bucket, replica: &Bucket) {
    assert_eq!(content(active), content(replica));
}

/// A version that no active made.
pub(super) fn document(name: &str, seqno: u64) -> ReplicatedDocument<'_> {
    ReplicatedDocument {
        key: DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() },
        version: ReplicatedVersion {
            seqno: Seqno(seqno),
            cas: Cas(seqno << 20),
            rev_seqno: RevSeqno(1),
        },
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        deleted: false,
        expired: false,
        value: b"value",
    }
}

/// Where a copy asks to continue.
pub(super) fn replica_request(replica: &Bucket) -> StreamRequest {
    let position = replica.vbucket(VB).and_then(|vbucket| vbucket.replica_position());
    let (start, snapshot, uuid) = position.map_or((Seqno(0), Seqno(0), VbUuid(0)), |position| {
        let newest = position.failover_table.first();
        let uuid =
            newest.filter(|_| position.high_seqno > Seqno(0)).map_or(VbUuid(0), |it| it.uuid);
        (position.high_seqno, position.snapshot_end, uuid)
    });
    let complete = replica.vbucket(VB).and_then(|vbucket| vbucket.replica_position());
    let complete_end = complete.map_or(Seqno(0), |position| position.complete_end);
    StreamRequest {
        vbid: VB,
        start,
        end: Seqno(u64::MAX),
        uuid,
        snapshot: (complete_end, snapshot),
        client_purge_seqno: None,
        flags: StreamOptions::default(),
        filter: StreamFilter::All,
    }
}

/// The stream from an active to a copy, and what of it is not applied yet.
pub(super) struct Link {
    stream: VbucketDcpStream,
    replica: Arc<Bucket>,
    marker: Option<StreamMarker>,
    changes: SnapshotChanges,
    /// The snapshot's end has come.
    is_complete: bool,
}

impl Link {
    pub(super) fn open(
        active: &Arc<Bucket>,
        replica: &Arc<Bucket>,
    ) -> Result<Link, StreamOpenError> {
        let request = StreamRequest { filter: StreamFilter::Replica, ..replica_request(replica) };
        let stream = active.open_stream(&request, Arc::new(NoSink), 1)?;
        let vbucket = replica.vbucket(VB).expect("it exists");
        vbucket.adopt_failover_table(stream.failover_table());
        let replica = Arc::clone(replica);
        let changes = SnapshotChanges::default();
        Ok(Link { stream, replica, marker: None, changes, is_complete: false })
    }

    /// Receives up to `steps` steps, and no more than one snapshot. False when nothing came.
    pub(super) fn receive(&mut self, steps: usize) -> bool {
        let vbucket = self.replica.vbucket(VB).expect("it exists");
        for step in 0..steps {
            if self.is_complete {
                return true;
            }
            let end = self.marker.map(|marker| marker.end);
            match self.stream.next() {
                StreamStep::Idle => return step > 0,
                StreamStep::End(reason) => panic!("the stream ended: {reason:?}"),
                StreamStep::Snapshot(marker) => self.marker = Some(marker),
                StreamStep::SeqnoAdvanced(seqno) => self.is_complete = Some(seqno) == end,
                StreamStep::Change(StreamChange::Event(event)) => {
                    let seqno = event.seqno;
                    self.replica.follow_event(&event).expect("the event fits");
                    vbucket.add_replicated_event(&mut self.changes, &event, Cas(seqno.0 << 16));
                    self.is_complete = Some(seqno) == end;
                }
                StreamStep::Change(StreamChange::Document(found)) => {
                    let record = &found.record;
                    let version = ReplicatedVersion {
                        seqno: record.seqno,
                        cas: record.cas,
                        rev_seqno: record.rev_seqno,
                    };
                    let document = ReplicatedDocument {
                        key: record.key,
                        version,
                        flags: record.flags,
                        expiry: record.expiry,
                        datatype: record.datatype,
                        deleted: record.deleted,
                        expired: record.expired,
                        value: record.value,
                    };
                    match record.key.collection {
                        CollectionId::PREPARES => {
                            assert!(vbucket.add_prepare(&mut self.changes, &document));
                        }
                        _ => vbucket.add_replicated(&mut self.changes, &document),
                    }
                    self.is_complete = Some(record.seqno) == end;
                }
            }
        }
        true
    }

    /// Applies what has come, if it may be applied now.
    pub(super) fn apply(&mut self, replica: &Bucket) -> Result<(), ApplyError> {
        let Some(marker) = self.marker else { return Ok(()) };
        if marker.source == SnapshotSource::Memory && !self.is_complete {
            return Ok(());
        }
        let snapshot = (marker.end, self.is_complete);
        let vbucket = replica.vbucket(VB).expect("it exists");
        vbucket.apply_snapshot(&replica.context(NOW), &mut self.changes, snapshot)?;
        if std::mem::take(&mut self.is_complete) {
            self.marker = None;
        }
        Ok(())
    }

    /// Changes that have come and are not applied.
    pub(super) fn change_count(&self) -> usize {
        self.changes.len()
    }

    /// Applies what has come as a part of its snapshot, like one of a backfill.
    pub(super) fn apply_part(&mut self, replica: &Bucket) {
        let marker = self.marker.expect("a snapshot has begun");
        let vbucket = replica.vbucket(VB).expect("it exists");
        let snapshot = (marker.end, self.is_complete);
        vbucket.apply_snapshot(&replica.context(NOW), &mut self.changes, snapshot).expect("a part");
    }

    /// Brings the copy up to date.
    pub(super) fn run(&mut self, active: &Bucket, replica: &Bucket) {
        let clock = || NOW;
        loop {
            active.backfill_step(&|_| false, &clock).expect("the store is sound");
            let has_more = self.receive(usize::MAX);
            self.apply(replica).expect("it is applied");
            if !has_more {
                return;
            }
        }
    }
}

fn newest_uuid(table: &[FailoverEntry]) -> Option<VbUuid> {
    table.first().map(|newest| newest.uuid)
}

struct Node {
    disk: Arc<MemoryMedium>,
    bucket: Arc<Bucket>,
}

impl Node {
    fn new() -> Node {
        let disk = Arc::new(MemoryMedium::default());
        let bucket = open(Arc::new(MemoryStore::on(Arc::clone(&disk))));
        Node { disk, bucket }
    }

    fn kill(&mut self) {
        self.bucket = open(Arc::new(MemoryStore::on(Arc::clone(&self.disk))));
    }

    fn high(&self) -> Seqno {
        self.bucket.vbucket(VB).expect("it exists").stats().high_seqno
    }
}

/// The cluster, and what its active had.
pub(super) struct World {
    seed: u64,
    random: SeededRandom,
    /// The node with the active comes first.
    nodes: [Node; 2],
    link: Option<Link>,
    /// The active's version at each seqno of its history.
    states: BTreeMap<Seqno, Content>,
    names: u64,
    compared: u64,
    epoch: u64,
    /// The active may lack what the copy has, since the last stream was accepted.
    may_roll_back: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        let nodes = [Node::new(), Node::new()];
        nodes[1].bucket.drop_copy(VB).expect("it is dropped");
        nodes[1].bucket.become_replica(VB).expect("it is a copy now");
        let mut world = World {
            seed,
            random: SeededRandom::new(seed),
            nodes,
            link: None,
            states: BTreeMap::new(),
            names: 0,
            compared: 0,
            epoch: 1,
            may_roll_back: false,
        };
        let scope = ManifestChange::CreateScope { name: "s".into() };
        world.nodes[0].bucket.update_manifest(&scope).expect("a new scope");
        world.note();
        world
    }

    pub(super) fn run(mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            self.compare();
        }
        // Healed, the copy becomes equal. Its stream may be that of an epoch that has ended.
        self.link = None;
        let newest = |node: &Node| {
            let vbucket = node.bucket.vbucket(VB).expect("it exists");
            (vbucket.failover_table().first().copied(), node.high())
        };
        while newest(&self.nodes[1]) != newest(&self.nodes[0]) {
            self.connect();
            if let Some(link) = &mut self.link {
                link.run(&self.nodes[0].bucket, &self.nodes[1].bucket);
            }
        }
        self.compare();
        assert_same(&self.nodes[0].bucket, &self.nodes[1].bucket);
        assert!(self.compared > 0, "seed {}: no copy was ever complete", self.seed);
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=44 => self.operate(),
            45..=69 => self.receive(),
            70..=79 => self.flush(),
            80..=84 => self.backfill(),
            85..=88 => self.link = None,
            89..=91 => self.kill(1),
            92..=93 => self.kill(0),
            94..=95 => self.change_collections(),
            96..=97 => self.continue_in_next_epoch(),
            _ => self.promote(),
        }
    }

    fn operate(&mut self) {
        let bucket = Arc::clone(&self.nodes[0].bucket);
        let manifest = bucket.manifest();
        let all: Vec<CollectionId> = manifest
            .scopes()
            .iter()
            .flat_map(|scope| scope.collections.iter().map(|collection| collection.id))
            .collect();
        let collection = all[self.random.below(all.len() as u64) as usize];
        let name = name_of(self.random.below(KEYS));
        let key = DocKey { collection, key: name.as_bytes() };
        self.names += 1;
        match self.random.below(4) {
            0 => _ = bucket.delete(VB, key, Cas(0), NOW),
            _ => _ = done(bucket.store(VB, key, &set(&format!("v{}", self.names)), NOW)),
        }
        self.note();
    }

    fn change_collections(&mut self) {
        let bucket = &self.nodes[0].bucket;
        let manifest = bucket.manifest();
        let scope = manifest.scopes().iter().find(|scope| scope.name == "s");
        let names = scope.map_or(Vec::new(), |scope| {
            scope.collections.iter().map(|collection| collection.name.clone()).collect()
        });
        self.names += 1;
        let change = match names.first() {
            Some(first) if names.len() >= COLLECTIONS_MAX || self.random.below(2) == 0 => {
                ManifestChange::DropCollection { scope: "s".into(), name: first.clone() }
            }
            _ => ManifestChange::CreateCollection {
                scope: "s".into(),
                name: format!("c{}", self.names),
                max_ttl_s: None,
            },
        };
        // The event of the scope may have been lost with its node.
        if scope.is_some() {
            bucket.update_manifest(&change).expect("the change fits");
            self.note();
        }
    }

    /// The active has what it has.
    fn note(&mut self) {
        let high = self.nodes[0].high();
        self.states.insert(high, content(&self.nodes[0].bucket));
    }

    fn connect(&mut self) {
        if self.link.is_some() {
            return;
        }
        self.share_manifest();
        let [active, replica] = &self.nodes;
        self.link = match Link::open(&active.bucket, &replica.bucket) {
            Ok(link) => {
                self.may_roll_back = false;
                Some(link)
            }
            Err(StreamOpenError::Rollback(_) | StreamOpenError::Range) => {
                assert!(self.may_roll_back, "seed {}: nothing was lost", self.seed);
                replica.bucket.empty_replica(VB).expect("it is emptied");
                None
            }
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        };
    }

    /// The cluster shares manifests, so no change of one is lost with an active.
    fn share_manifest(&self) {
        let manifest = self.nodes[0].bucket.manifest().to_stored_json();
        self.nodes[1].bucket.install_manifest(&manifest).expect("it is a manifest");
        // Durable before documents of its collections are.
        self.nodes[1].bucket.store_manifest().expect("the store is sound");
    }

    fn receive(&mut self) {
        self.connect();
        let steps = 1 + self.random.below(12) as usize;
        if let Some(link) = &mut self.link {
            link.receive(steps);
            link.apply(&self.nodes[1].bucket).expect("it is applied");
        }
    }

    fn backfill(&mut self) {
        let clock = || NOW;
        self.nodes[0].bucket.backfill_step(&|_| false, &clock).expect("the store is sound");
    }

    fn flush(&mut self) {
        let at = self.random.below(2) as usize;
        self.nodes[at].bucket.flush_step().expect("the store is sound");
    }

    /// Kills a process. An active comes back with what is durable, and a new history.
    fn kill(&mut self, at: usize) {
        self.link = None;
        self.nodes[at].kill();
        if at == 0 {
            self.may_roll_back = true;
            // Events that were lost are added again, as other seqnos of the new history.
            let table = self.nodes[0].bucket.vbucket(VB).map(|it| it.failover_table());
            let begun = table.and_then(|it| it.first().copied()).expect("an active has a history");
            self.states.split_off(&Seqno(begun.seqno.0 + 1));
            self.note();
        }
    }

    /// The active continues; the copy follows by the stream that it has.
    fn continue_in_next_epoch(&mut self) {
        self.epoch += 1;
        let epoch = CopiesEpoch(self.epoch);
        self.nodes[0].bucket.continue_in_epoch(VB, epoch).expect("it is active");
    }

    /// The copy becomes active, and the active its copy.
    fn promote(&mut self) {
        self.link = None;
        (self.epoch, self.may_roll_back) = (self.epoch + 1, true);
        let position = self.nodes[1].bucket.vbucket(VB).and_then(|it| it.replica_position());
        let position = position.expect("it is a copy");
        // What a copy has of another history is not what the active had.
        let histories = self.nodes[0].bucket.vbucket(VB).map(|it| it.failover_table());
        if histories.is_some_and(|it| newest_uuid(&it) != newest_uuid(&position.failover_table)) {
            self.states.clear();
        }
        self.nodes[0].bucket.become_replica(VB).expect("it is a copy now");
        self.share_manifest();
        self.nodes.swap(0, 1);
        self.nodes[0].bucket.promote(VB, CopiesEpoch(self.epoch)).expect("it is promoted");
        self.states.split_off(&Seqno(position.complete_end.0 + 1));
        self.note();
    }

    /// A copy that is complete equals the active at that seqno, if both are of one history.
    fn compare(&mut self) {
        let [active, replica] = &self.nodes;
        let vbucket = replica.bucket.vbucket(VB).expect("it exists");
        let position = vbucket.replica_position().expect("it is a copy");
        let histories = active.bucket.vbucket(VB).expect("it exists").failover_table();
        let is_same = newest_uuid(&position.failover_table) == newest_uuid(&histories);
        if !is_same || position.complete_end != position.high_seqno {
            return;
        }
        let Some(expected) = self.states.get(&position.high_seqno) else { return };
        // Documents of collections that were dropped since are gone on both, or on one already.
        let manifests = [active.bucket.manifest(), replica.bucket.manifest()];
        let is_kept = |collection: u32| {
            manifests.iter().all(|manifest| manifest.contains(CollectionId(collection)))
        };
        let kept = |content: &Content| -> Content {
            let all = content.iter().filter(|((collection, _), _)| is_kept(*collection));
            all.map(|(key, version)| (key.clone(), version.clone())).collect()
        };
        let found = content(&replica.bucket);
        assert_eq!(kept(&found), kept(expected), "seed {} at {:?}", self.seed, position);
        self.compared += u64::from(!expected.is_empty());
    }
}
