//! Figures per collection against a model: random operations, flushes, failed flushes, restarts and
//! dropped collections; after each the figures equal a recount over every key.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    Bucket, CollectionStats, ConcatMode, ConcatRequest, CounterRequest, MetaOutcome,
    StoreCondition, StoreRequest,
};
use oribi_storage::{FaultPlan, FaultStore, MemoryMedium, MemoryStore, SeededRandom, StoreFault};
use oribi_types::{Cas, CollectionId, DocKey, Seqno, Timestamp};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, done, open, set};

const KEYS: u64 = 12;
const COLLECTIONS_MAX: usize = 5;

/// Newest seqno written and newest made durable.
#[derive(Clone, Copy, Default)]
struct Seqnos {
    high: Seqno,
    persisted: Seqno,
}

struct World {
    random: SeededRandom,
    disk: Arc<MemoryMedium>,
    plan: Arc<FaultPlan>,
    bucket: Arc<Bucket>,
    /// Ids in the manifest, the default one first.
    collections: Vec<CollectionId>,
    /// Every collection that ever had a version and was not dropped.
    seqnos: BTreeMap<CollectionId, Seqnos>,
    names: u64,
    now_s: u32,
}

fn open_on(disk: &Arc<MemoryMedium>, plan: &Arc<FaultPlan>) -> Arc<Bucket> {
    open(Arc::new(FaultStore::new(MemoryStore::on(Arc::clone(disk)), Arc::clone(plan))))
}

fn count_up(expiry: u32) -> CounterRequest {
    CounterRequest { delta: 1, decrement: false, initial: Some(99), expiry, cas: Cas(0) }
}

impl World {
    fn new(seed: u64) -> World {
        let (disk, plan) = (Arc::default(), FaultPlan::none());
        let bucket = open_on(&disk, &plan);
        bucket
            .update_manifest(&ManifestChange::CreateScope { name: "s".to_owned() })
            .expect("a new scope");
        World {
            random: SeededRandom::new(seed),
            disk,
            plan,
            bucket,
            collections: vec![CollectionId::DEFAULT],
            seqnos: BTreeMap::new(),
            names: 0,
            now_s: NOW.unix_s(),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..3 => self.create_collection(),
            3..5 => self.drop_collection(),
            5..13 => self.flush(),
            13..15 => self.fail_a_flush(),
            15..17 => self.restart(),
            17 => self.flush_all(),
            _ => self.operate(),
        }
        self.now_s += self.random.below(3) as u32;
    }

    /// One operation of a client on a random key, most of them on the collection used last.
    fn operate(&mut self) {
        let at = self.random.below(self.collections.len() as u64) as usize;
        let collection = self.collections[at];
        for _ in 0..=self.random.below(4) {
            let name = format!("key-{}", self.random.below(KEYS));
            let key = DocKey { collection, key: name.as_bytes() };
            self.operate_on(key);
            self.note(key);
        }
    }

    fn operate_on(&mut self, key: DocKey<'_>) {
        let now = Timestamp::from_unix_s(self.now_s);
        let value = "7".repeat(self.random.below(40) as usize);
        let expiry = if self.random.below(3) == 0 { 1 + self.random.below(8) as u32 } else { 0 };
        let modes = [StoreCondition::Set, StoreCondition::Add, StoreCondition::Replace];
        let mode = modes[self.random.below(3) as usize];
        let bucket = &self.bucket;
        // Outcomes do not matter: what the table then holds is looked at.
        match self.random.below(9) {
            0..3 => _ = bucket.store(VB, key, &StoreRequest { mode, expiry, ..set(&value) }, now),
            3 => _ = bucket.delete(VB, key, Cas(0), now),
            4 => {
                let value = value.as_bytes();
                let request = ConcatRequest { mode: ConcatMode::Append, value, cas: Cas(0) };
                _ = bucket.concat(VB, key, &request, now);
            }
            5 => _ = bucket.counter(VB, key, &count_up(expiry), now),
            6 => _ = bucket.touch(VB, key, expiry, now),
            7 => _ = bucket.get_and_touch(VB, key, expiry, now),
            _ => _ = bucket.get(VB, key, now),
        }
    }

    /// Takes the newest seqno from what memory has under `key` now.
    fn note(&mut self, key: DocKey<'_>) {
        let Some(stats) = self
            .bucket
            .vbucket(VB)
            .expect("it is there")
            .key_stats(&self.bucket.context(NOW), key)
            .expect("a known collection")
        else {
            return;
        };
        let seqnos = self.seqnos.entry(key.collection).or_default();
        seqnos.high = seqnos.high.max(stats.seqno);
    }

    fn create_collection(&mut self) {
        if self.collections.len() == COLLECTIONS_MAX {
            return;
        }
        self.names += 1;
        let (scope, name) = ("s".to_owned(), format!("c{}", self.names));
        let create = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        let manifest = self.bucket.update_manifest(&create).expect("a new collection");
        let id = manifest.collection_id("s", &format!("c{}", self.names)).expect("it was created");
        self.collections.push(id);
    }

    /// Drops a collection and has it purged.
    fn drop_collection(&mut self) {
        if self.collections.len() == 1 {
            return;
        }
        let at = 1 + self.random.below(self.collections.len() as u64 - 1) as usize;
        let id = self.collections.remove(at);
        let name = self.bucket.manifest().collection(id).expect("it exists").name.clone();
        let dropping = ManifestChange::DropCollection { scope: "s".to_owned(), name };
        self.bucket.update_manifest(&dropping).expect("it exists");
        self.seqnos.remove(&id);
        self.flush();
    }

    fn flush(&mut self) {
        while self.bucket.flush_step().expect("the store works").more {}
        for seqnos in self.seqnos.values_mut() {
            seqnos.persisted = seqnos.high;
        }
    }

    fn fail_a_flush(&mut self) {
        self.plan.fail_from(self.plan.commits() + 1, StoreFault::BeforeCommit);
        // Succeeds only when there is nothing to commit.
        let _ = self.bucket.flush_step();
        self.plan.heal();
        while self.bucket.flush_step().expect("the store works").more {}
        self.flush();
        self.bucket.review_pressure();
    }

    /// Half of the restarts lose what was not flushed.
    fn restart(&mut self) {
        if self.random.below(2) == 0 {
            self.flush();
        }
        self.bucket = open_on(&self.disk, &self.plan);
        for seqnos in self.seqnos.values_mut() {
            seqnos.high = seqnos.persisted;
        }
        self.seqnos.retain(|_, seqnos| seqnos.high > Seqno(0));
    }

    fn flush_all(&mut self) {
        self.bucket.flush_all().expect("the store works");
        self.seqnos.clear();
    }

    /// Counts all keys that there can be, tombstones too.
    fn recount(&self) -> Vec<(CollectionId, CollectionStats)> {
        let mut all: BTreeMap<CollectionId, CollectionStats> = BTreeMap::new();
        all.insert(CollectionId::DEFAULT, CollectionStats::default());
        for (id, seqnos) in &self.seqnos {
            let figures = all.entry(*id).or_default();
            (figures.high_seqno, figures.persisted_high_seqno) = (seqnos.high, seqnos.persisted);
        }
        for collection in &self.collections {
            for number in 0..KEYS {
                let name = format!("key-{number}");
                let key = DocKey { collection: *collection, key: name.as_bytes() };
                // Nothing has expired at time 0, so looking changes nothing.
                if let MetaOutcome::Found(item, _) =
                    self.bucket.get_meta(VB, key, Timestamp::default())
                {
                    let figures = all.get_mut(collection).expect("it has a version");
                    figures.item_bytes += item.block_bytes() as u64;
                    if !item.is_deleted() {
                        figures.items += 1;
                        figures.disk_bytes += (name.len() + item.value().len()) as u64;
                    }
                }
            }
        }
        all.into_iter().collect()
    }

    fn counted(&self) -> Vec<(CollectionId, CollectionStats)> {
        let mut counted = Vec::new();
        self.bucket.vbucket(VB).expect("it is there").collection_stats(&mut counted);
        counted
    }
}

#[test]
fn figures_per_collection_equal_a_recount() {
    for seed in 0..24 {
        let mut world = World::new(seed);
        for step in 0..400 {
            world.step();
            assert_eq!(world.counted(), world.recount(), "seed {seed}, step {step}");
        }
        let sum: u64 = world.counted().iter().map(|(_, figures)| figures.item_bytes).sum();
        let stats = world.bucket.vbucket(VB).unwrap().stats();
        assert_eq!(sum, stats.item_bytes as u64, "seed {seed}");
    }
}

/// The model must be able to fail: a bucket that wrote something else than the model knows.
#[test]
fn the_recount_notices_an_unreported_write() {
    let mut world = World::new(1);
    (0..100).for_each(|_| world.step());
    let hidden = DocKey { collection: CollectionId::DEFAULT, key: b"hidden" };
    done(world.bucket.store(VB, hidden, &set("1"), NOW));
    assert_ne!(world.counted(), world.recount());
}

#[test]
fn a_write_during_a_commit_is_not_yet_persisted() {
    let plan = FaultPlan::none();
    let bucket = open_on(&Arc::default(), &plan);
    let key = |name: &'static [u8]| DocKey { collection: CollectionId::DEFAULT, key: name };
    let before = done(bucket.store(VB, key(b"before"), &set("1"), NOW));
    let writer = Arc::downgrade(&bucket);
    plan.before_commits(move |_| {
        let bucket = writer.upgrade().expect("the test holds the bucket");
        done(bucket.store(VB, key(b"during"), &set("2"), NOW));
    });
    bucket.flush_step().unwrap();
    plan.heal();
    let mut counted = Vec::new();
    bucket.vbucket(VB).unwrap().collection_stats(&mut counted);
    let [(CollectionId::DEFAULT, figures)] = counted[..] else { panic!("{counted:?}") };
    assert_eq!(figures.persisted_high_seqno, before.seqno);
    assert_eq!(figures.high_seqno, Seqno(before.seqno.0 + 1));
}
