//! The feed against a model: after it has caught up, an index has exactly the entries of the
//! documents, whatever happened before. Every step is driven by hand and decided by a seed.

mod obstacles;

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use oribi_engine::collections::ManifestChange;
use oribi_engine::{BackfillPause, Bucket, BucketConfig, StoreRequest, Upkeep, WarmupStep};
use oribi_protocol::hash::vbucket_of;
use oribi_query::{
    DocumentIndex, EntryRange, IndexDefinition, Keyspace, KeyspaceIndex, KeyspaceName,
};
use oribi_storage::{SharedMedium, SharedMemoryStore};
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use super::super::fed_index::FedIndex;
use super::super::feed_progress::FeedProgress;
use super::super::index_reservation::IndexReservation;
use super::super::large_documents::LargeDocuments;
use super::super::sweep_reader::SweptCollection;
use super::{FeedTurn, IndexFeed};

const VBUCKETS: u16 = 4;
const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
const KEYS: u64 = 40;

/// Numbers of a linear congruential generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Memory for large documents that a test can take away.
#[derive(Default)]
struct Documents {
    is_short: AtomicBool,
}

impl LargeDocuments for Documents {
    fn reserve(&self, _: usize) -> Option<Box<dyn Any>> {
        (!self.is_short.load(Ordering::Relaxed)).then(|| Box::new(()) as Box<dyn Any>)
    }
}

fn node(medium: &Arc<SharedMedium>, quota_bytes: u64, seed: u64) -> Arc<Bucket> {
    let config = BucketConfig {
        vbuckets: VBUCKETS,
        flush_enabled: true,
        memory_quota_bytes: quota_bytes,
        upkeep: Upkeep { checkpoint_quota_percent: 5, ..Upkeep::default() },
        ..BucketConfig::default()
    };
    let mut numbers = Numbers(seed);
    let entropy = move || numbers.below(u64::MAX);
    let store = Arc::new(SharedMemoryStore::on(Arc::clone(medium)));
    Bucket::open(config, store, Box::new(entropy), false).unwrap()
}

fn all_vbuckets() -> Vec<Vbid> {
    (0..VBUCKETS).map(Vbid).collect()
}

struct World {
    numbers: Numbers,
    /// The node whose indexes are tested, and another one.
    own: Arc<Bucket>,
    other: Arc<Bucket>,
    feed: IndexFeed,
    progress: Arc<FeedProgress>,
    documents: Arc<Documents>,
    indexes: Vec<Arc<FedIndex>>,
    now: Instant,
}

impl World {
    fn new(seed: u64, quota_bytes: u64) -> World {
        let medium = Arc::default();
        let (own, other) = (node(&medium, quota_bytes, seed), node(&medium, quota_bytes, !seed));
        own.take_over(&all_vbuckets()).unwrap();
        let progress = Arc::new(FeedProgress::new(Arc::clone(&own)));
        let documents = Arc::new(Documents::default());
        let bucket = Arc::clone(&own);
        let reader = move |collection| {
            let bucket = Arc::clone(&bucket);
            Box::new(SweptCollection { bucket, collection }) as Box<dyn Keyspace>
        };
        let feed = IndexFeed::new(
            Arc::clone(&own),
            Arc::clone(&progress),
            Arc::clone(&documents) as _,
            Box::new(reader),
        );
        let (numbers, indexes, now) = (Numbers(seed), Vec::new(), Instant::now());
        World { numbers, own, other, feed, progress, documents, indexes, now }
    }

    fn add_index(&mut self, keys: &[&str], condition: Option<&str>) -> Arc<FedIndex> {
        let definition = IndexDefinition {
            name: format!("i{}", self.numbers.0),
            keyspace: KeyspaceName { bucket: "default".to_owned(), collection: None },
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            condition: condition.map(str::to_owned),
            ..IndexDefinition::default()
        };
        let memory = Arc::new(IndexReservation::new(&self.own, &definition).unwrap());
        let entries = DocumentIndex::new(definition, memory).unwrap();
        let progress = Arc::clone(&self.progress);
        let index = Arc::new(FedIndex::new(CollectionId::DEFAULT, entries, progress));
        self.feed.add(Arc::clone(&index));
        self.indexes.push(Arc::clone(&index));
        index
    }

    fn turn(&mut self) -> FeedTurn {
        self.now += Duration::from_millis(30);
        self.feed.turn(self.now)
    }

    /// Serves a backfill, whose scan waits for the feed.
    fn backfill(&mut self) {
        let own = Arc::clone(&self.own);
        let world = RefCell::new(self);
        let pace = |pause: BackfillPause| {
            world.borrow_mut().turn();
            pause.idle < 20
        };
        own.backfill_step(&pace, &|| NOW).unwrap();
    }

    fn write(&self, bucket: &Bucket, name: &str, value: &str) {
        let vbid = vbucket_of(name.as_bytes(), VBUCKETS);
        let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
        // A vbucket that is loaded or full refuses.
        let request = StoreRequest::set(value.as_bytes());
        let _ = bucket.vbucket(vbid).unwrap().store(&bucket.context(NOW), key, &request);
    }

    fn change(&mut self, bucket: &Arc<Bucket>) {
        let name = format!("k{}", self.numbers.below(KEYS));
        if self.numbers.below(4) == 0 {
            let vbid = vbucket_of(name.as_bytes(), VBUCKETS);
            let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
            let _ = bucket.vbucket(vbid).unwrap().delete(&bucket.context(NOW), key, Cas(0));
            return;
        }
        let tags: Vec<String> =
            (0..self.numbers.below(4)).map(|_| self.numbers.below(6).to_string()).collect();
        let value = format!(
            "{{\"a\":{},\"tags\":[{}],\"open\":{}}}",
            self.numbers.below(5),
            tags.join(","),
            self.numbers.below(2) == 0
        );
        self.write(bucket, &name, &value);
    }

    /// Moves a vbucket to the other node, which changes it, and back. With `is_lossy` what was not
    /// flushed is lost.
    fn move_vbucket(&mut self, is_lossy: bool) {
        let vbid = Vbid(self.numbers.below(u64::from(VBUCKETS)) as u16);
        self.own.stop_serving(vbid);
        if !is_lossy {
            while !self.own.vbucket(vbid).unwrap().is_flushed() {
                self.own.flush_step().unwrap();
            }
        }
        self.own.deactivate(vbid);
        if self.numbers.below(2) == 0 {
            self.turn();
        }
        let other = Arc::clone(&self.other);
        other.take_over(&[vbid]).unwrap();
        load(&other);
        for _ in 0..self.numbers.below(10) {
            self.change(&other);
        }
        while !other.vbucket(vbid).unwrap().is_flushed() {
            other.flush_step().unwrap();
        }
        other.deactivate(vbid);
        self.own.take_over(&[vbid]).unwrap();
        if self.numbers.below(2) == 0 {
            self.turn();
        }
        load(&self.own);
    }

    fn step(&mut self) {
        let own = Arc::clone(&self.own);
        match self.numbers.below(40) {
            0..16 => self.change(&own),
            16..22 => drop(self.turn()),
            22..26 => drop(own.flush_step().unwrap()),
            26..29 => self.backfill(),
            29..31 => drop(own.recover_checkpoints_step()),
            31 => {
                let key = format!("k{}", self.numbers.below(KEYS));
                let vbid = vbucket_of(key.as_bytes(), VBUCKETS);
                let key = DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
                own.evict(vbid, key);
            }
            32 => self.move_vbucket(true),
            33 => self.move_vbucket(false),
            34 => {
                if self.numbers.below(4) == 0 {
                    own.flush_all().unwrap();
                }
            }
            35 if self.indexes.len() > 2 => {
                let index = self.indexes.swap_remove(0);
                index.end("a test drops it");
                self.feed.remove(&index);
                assert_eq!(index.entries.entry_count(), 0);
            }
            35 | 36 => {
                if self.indexes.len() < 5 {
                    self.add_index(&["`a`", "`open` DESC"], None);
                }
            }
            37 => self.documents.is_short.store(self.numbers.below(2) == 0, Ordering::Relaxed),
            38 => {
                // Long enough to need memory of large documents.
                let text = "x".repeat(300 << 10);
                let name = format!("k{}", self.numbers.below(KEYS));
                let a = self.numbers.below(5);
                self.write(&own, &name, &format!("{{\"a\":{a},\"text\":\"{text}\"}}"));
            }
            _ => {
                let name = format!("c{}", self.numbers.below(1 << 20));
                let scope = "_default".to_owned();
                let create = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
                let _ = own.update_manifest(&create);
            }
        }
    }

    fn catch_up(&mut self) {
        self.documents.is_short.store(false, Ordering::Relaxed);
        for _ in 0..3_000 {
            self.turn();
            self.own.flush_step().unwrap();
            self.backfill();
            let is_reached = |vbid: &Vbid| {
                self.progress.seqno(*vbid) >= self.own.vbucket(*vbid).unwrap().high_seqno()
            };
            if self.progress.is_complete()
                && all_vbuckets().iter().all(is_reached)
                && self.indexes.iter().all(|index| index.is_usable())
            {
                return;
            }
        }
        let states: Vec<_> = self.indexes.iter().map(|index| index.shown_state()).collect();
        let seqnos: Vec<_> = all_vbuckets()
            .iter()
            .map(|vbid| {
                let high = self.own.vbucket(*vbid).unwrap().high_seqno();
                (self.progress.seqno(*vbid), self.feed.online.seqno(*vbid), high)
            })
            .collect();
        let online = (self.feed.online.complete_at(), self.own.ownership_changes());
        panic!(
            "the feed does not catch up: {states:?}, {seqnos:?}, {online:?}, {:?}, {:?}\n{}",
            self.own.backfill_stats(),
            self.own.stats().memory,
            self.feed.online.describe()
        );
    }

    /// Compares with the entries of the documents as they are.
    fn check(&self) {
        for index in &self.indexes {
            let reader =
                SweptCollection { bucket: Arc::clone(&self.own), collection: index.collection };
            let documents = (0..KEYS).filter_map(|key| self.document(&format!("k{key}")));
            let mut expected = BTreeSet::new();
            for document in documents {
                for encoded in index.entries.entries_of(&document) {
                    expected.insert((encoded, document.key.to_vec()));
                }
            }
            let found: BTreeSet<_> = index.entries.all_entries().into_iter().collect();
            let missing: Vec<_> = expected.difference(&found).collect();
            assert!(missing.is_empty(), "entries are missing: {missing:?}");
            index.entries.sweep(&reader, &|| false);
            let found: BTreeSet<_> = index.entries.all_entries().into_iter().collect();
            // A sweep reads no large documents, so their stale entries stay.
            let is_small = |key: &[u8]| {
                self.document(&String::from_utf8_lossy(key)).is_none_or(|d| d.value.len() < 1000)
            };
            let stale: Vec<_> =
                found.difference(&expected).filter(|(_, key)| is_small(key)).collect();
            assert!(stale.is_empty(), "stale entries stay: {stale:?}");
        }
    }

    fn document(&self, name: &str) -> Option<oribi_query::QueryDocument> {
        let vbid = vbucket_of(name.as_bytes(), VBUCKETS);
        let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
        let of = |record: &oribi_storage::Record<'_>| {
            oribi_query::QueryDocument::of_body(record.key.key, record.datatype, record.value)
        };
        match self.own.vbucket(vbid).unwrap().get(&self.own.context(NOW), key) {
            oribi_engine::GetOutcome::Hit(item) | oribi_engine::GetOutcome::HitLocked(item) => {
                Some(of(&oribi_engine::record_of(&item)))
            }
            oribi_engine::GetOutcome::Miss => None,
            oribi_engine::GetOutcome::Refused(_) => {
                let mut found = None;
                let mut all = |_: usize| std::ops::ControlFlow::Continue(());
                self.own
                    .read_persisted_reserving(vbid, key, &mut all, &mut |record| {
                        found = (!record.deleted).then(|| of(&record));
                    })
                    .unwrap();
                found
            }
        }
    }
}

fn load(bucket: &Bucket) {
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
}

#[test]
fn indexes_equal_the_model_after_any_history() {
    for seed in 0..60 {
        let mut world = World::new(seed, 64 << 20);
        world.add_index(&["`a`"], None);
        world.add_index(&["(distinct (`tags`))", "`a`"], Some("(`open` = true)"));
        for round in 0..6 {
            for _ in 0..80 {
                world.step();
            }
            world.catch_up();
            world.check();
            assert!(!world.feed.is_empty(), "seed {seed}, round {round}");
        }
    }
}

#[test]
fn a_vbucket_that_comes_back_is_not_complete() {
    let mut world = World::new(1, 64 << 20);
    let index = world.add_index(&["`a`"], None);
    for _ in 0..100 {
        let own = Arc::clone(&world.own);
        world.change(&own);
    }
    world.catch_up();
    assert!(index.snapshot(vec![EntryRange::default()]).is_ok());
    while !all_vbuckets().iter().all(|vbid| world.own.vbucket(*vbid).unwrap().is_flushed()) {
        world.own.flush_step().unwrap();
    }
    let vbid = Vbid(2);
    world.own.deactivate(vbid);
    assert!(!index.is_usable(), "before the feed has noticed it");
    let refused = index.snapshot(vec![EntryRange::default()]).err().unwrap();
    assert!(refused.retry, "{refused:?}");
    assert_eq!(index.shown_state().0, "building");
    world.own.take_over(&[vbid]).unwrap();
    load(&world.own);
    world.turn();
    assert!(!index.is_usable(), "the vbucket is not read");
    world.catch_up();
    world.check();
}

#[test]
fn an_index_without_memory_goes_offline() {
    let mut world = World::new(2, 4 << 20);
    let (small, index) = (world.add_index(&["`open`"], None), world.add_index(&["`a`"], None));
    let own = Arc::clone(&world.own);
    let text = "x".repeat(1_000);
    let mut most = 0;
    for round in 0..4_000 {
        // The pager evicts values, and keys stay: so entries of long values outgrow the quota.
        let value = format!("{{\"a\":\"{round:08}{text}\"}}");
        world.write(&own, &format!("d{round}"), &value);
        if round % 20 == 0 {
            own.flush_step().unwrap();
            own.page_items_step(&|| NOW);
            world.turn();
            world.backfill();
            most = most.max(own.stats().memory.indexes_bytes);
        }
        if index.is_offline() {
            break;
        }
    }
    for _ in 0..400 {
        own.page_items_step(&|| NOW);
        world.turn();
        world.backfill();
    }
    let (state, reason) = index.shown_state();
    assert_eq!(state, "offline");
    assert!(reason.unwrap().contains("BUILD INDEX"));
    assert!(most > 0 && most <= own.indexes_bytes_max(), "{most} bytes");
    assert_eq!(index.entries.entry_count(), 0);
    assert!(!small.is_offline(), "the other index needs little");
    drop(small);
    let names: Vec<_> = world.indexes.drain(..).collect();
    names.iter().for_each(|index| world.feed.remove(index));
    drop((names, index, world));
    assert_eq!(own.stats().memory.indexes_bytes, 0, "all of it is returned");
}

#[test]
fn a_bucket_without_indexes_has_no_cursor() {
    let mut world = World::new(3, 64 << 20);
    let own = Arc::clone(&world.own);
    let cursors = |own: &Bucket| -> usize {
        all_vbuckets()
            .iter()
            .map(|vbid| own.vbucket(*vbid).unwrap().checkpoint_stats().cursors.len())
            .sum()
    };
    let before = cursors(&own);
    let index = world.add_index(&["`a`"], None);
    world.catch_up();
    assert_eq!(cursors(&own), before + usize::from(VBUCKETS));
    let second = world.add_index(&["`open`"], None);
    world.catch_up();
    assert_eq!(cursors(&own), before + usize::from(VBUCKETS), "one for all indexes");
    world.feed.remove(&index);
    world.feed.remove(&second);
    assert!(world.feed.is_empty());
    assert_eq!(cursors(&own), before);
}
