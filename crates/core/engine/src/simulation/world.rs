//! One simulated bucket on one simulated disk: opened, used, crashed, opened again, compared.
//!
//! Owns: the bucket under test, its oracle, and what may happen in between. Everything is decided
//! by one seed. Operations of clients are whole; steps of background work are interrupted in the
//! store by operations and other steps (`interrupts.rs`), which is where threads of a real server
//! meet.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use oribi_storage::testing::{Bug as StoreBug, SimDirectory};
use oribi_storage::{KvStore, LogOptions, LogStore, Packing, SeededRandom, StoreError};
use oribi_types::policy::{EvictionPolicy, MemoryTier};
use oribi_types::{Cas, CollectionId, DocKey, Seqno, Timestamp, Vbid};
use parking_lot::Mutex;

use super::interrupts::{self, InterruptedStore};
use super::model::{ModelDocument, ModelKey, ModelValue, ModelVersion, VbucketModel};
use super::operation::ModelOperation;
use super::streams::Readers;
use crate::background_fetch::{FetchOutcome, FetchSink};
use crate::bucket::Bucket;
use crate::collections::ManifestChange;
use crate::config::{BucketConfig, Upkeep};
use crate::error::BucketOpenError;
use crate::persistence::{PersistOutcome, PersistenceSink};
use crate::system_event::ManifestEvent;

/// Few of everything, so that operations meet each other.
pub(super) const VBUCKETS: u16 = 2;
/// A tombstone of this age may be purged.
pub(super) const TOMBSTONE_PURGE_AGE_S: u32 = 40;
const NAMES: u64 = 7;

/// Packs the log store's index so that keys are taken for each other all the time.
const CROWDED: Packing =
    Packing { prefix_bits: 3, exact_keys: 4, exact_min: 2, recent_bytes: 8192 };

#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) eviction: EvictionPolicy,
    /// Extent of one flush step: everything, or one vbucket only.
    pub(super) flush_bytes_max: usize,
    /// Logs of the store, each with a flusher.
    pub(super) logs: usize,
    /// No trouble but what the test plans, and no crashes.
    pub(super) is_calm: bool,
    /// Cold values become dense.
    pub(super) is_dense: bool,
    pub(super) store_bug: StoreBug,
}

impl Setup {
    /// A sound bucket; the seed also chooses its eviction policy, the size of its flushes, how many
    /// flushers it has, and its memory tier.
    pub(super) fn of(seed: u64) -> Setup {
        let policies = [EvictionPolicy::Value, EvictionPolicy::Full, EvictionPolicy::None];
        Setup {
            seed,
            eviction: policies[(seed % 3) as usize],
            flush_bytes_max: [Upkeep::default().flush_bytes_max, 1][(seed / 3 % 2) as usize],
            logs: [1, 2][(seed / 6 % 2) as usize],
            is_calm: false,
            is_dense: seed / 12 % 2 == 1,
            store_bug: StoreBug::None,
        }
    }
}

/// Waiters and their outcomes: reported by the engine, checked between operations.
#[derive(Default)]
pub(super) struct Sink {
    pub(super) persisted: Mutex<Vec<(u64, PersistOutcome)>>,
    pub(super) fetched: Mutex<Vec<(u64, FetchOutcome)>>,
}

impl PersistenceSink for Sink {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.persisted.lock().push((token, outcome));
    }
}

impl FetchSink for Sink {
    fn fetched(&self, token: u64, outcome: FetchOutcome) {
        self.fetched.lock().push((token, outcome));
    }
}

/// An operation that waits for a fetch.
pub(super) struct PendingFetch {
    pub(super) key: ModelKey,
    pub(super) operation: ModelOperation,
    /// Its version becomes visible when the store has it.
    pub(super) is_durable: bool,
    pub(super) tries: u32,
}

/// A lock that was given out.
#[derive(Clone, Copy)]
pub(super) struct HeldLock {
    /// Of the version that it locks.
    pub(super) seqno: Seqno,
    pub(super) cas: Cas,
    pub(super) until_s: u32,
}

/// State between two crashes.
pub(super) struct Life {
    pub(super) bucket: Arc<Bucket>,
    pub(super) store: Arc<LogStore>,
    pub(super) sink: Arc<Sink>,
}

/// Counts of a run, to show that it reached its cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct RunCounts {
    pub(super) answers: u64,
    pub(super) mutations: u64,
    pub(super) refusals: u64,
    pub(super) fetches: u64,
    pub(super) commits: u64,
    pub(super) failed_commits: u64,
    pub(super) unfinished_passes: u64,
    pub(super) overlapping_flushes: u64,
    pub(super) nested: u64,
    pub(super) evicted: u64,
    pub(super) crashes: u64,
    pub(super) clean_stops: u64,
    pub(super) promises: u64,
    pub(super) locked: u64,
    pub(super) durable: u64,
    pub(super) blocked: u64,
    pub(super) committed_by_reads: u64,
    pub(super) expired: u64,
    pub(super) purged: u64,
    pub(super) lost: u64,
    pub(super) recoveries: u64,
    pub(super) streams: u64,
    pub(super) rollbacks: u64,
    pub(super) heard: u64,
    pub(super) runs: u64,
    pub(super) backfills: u64,
    pub(super) cursors_dropped: u64,
    pub(super) trained: u64,
    pub(super) densified: u64,
    pub(super) inflated: u64,
    pub(super) recoded: u64,
    pub(super) faults: u64,
    pub(super) loaded_dense: u64,
}

impl RunCounts {
    pub(super) fn add(&mut self, other: &RunCounts) {
        self.answers += other.answers;
        self.mutations += other.mutations;
        self.refusals += other.refusals;
        self.fetches += other.fetches;
        self.commits += other.commits;
        self.failed_commits += other.failed_commits;
        self.unfinished_passes += other.unfinished_passes;
        self.overlapping_flushes += other.overlapping_flushes;
        self.nested += other.nested;
        self.evicted += other.evicted;
        self.crashes += other.crashes;
        self.clean_stops += other.clean_stops;
        self.promises += other.promises;
        self.locked += other.locked;
        self.durable += other.durable;
        self.blocked += other.blocked;
        self.committed_by_reads += other.committed_by_reads;
        self.expired += other.expired;
        self.purged += other.purged;
        self.lost += other.lost;
        self.recoveries += other.recoveries;
        self.streams += other.streams;
        self.rollbacks += other.rollbacks;
        self.heard += other.heard;
        self.runs += other.runs;
        self.backfills += other.backfills;
        self.cursors_dropped += other.cursors_dropped;
        self.trained += other.trained;
        self.densified += other.densified;
        self.inflated += other.inflated;
        self.recoded += other.recoded;
        self.faults += other.faults;
        self.loaded_dense += other.loaded_dense;
    }

    /// True when every kind of thing that is to be tested happened.
    pub(super) fn is_worth_something(&self) -> bool {
        let all = [
            self.answers,
            self.mutations,
            self.fetches,
            self.commits,
            self.failed_commits,
            self.unfinished_passes,
            self.overlapping_flushes,
            self.nested,
            self.evicted,
            self.crashes,
            self.clean_stops,
            self.promises,
            self.locked,
            self.durable,
            self.blocked,
            self.expired,
            self.purged,
            self.lost,
            self.recoveries,
            self.streams,
            self.rollbacks,
            self.heard,
            self.runs,
            self.backfills,
            self.cursors_dropped,
            self.trained,
            self.densified,
            self.inflated,
            self.recoded,
            self.faults,
            self.loaded_dense,
        ];
        all.iter().all(|count| *count > 0)
    }
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) files: SimDirectory,
    is_made: Cell<bool>,
    pub(super) life: RefCell<Option<Rc<Life>>>,
    random: RefCell<SeededRandom>,
    pub(super) vbuckets: RefCell<BTreeMap<Vbid, VbucketModel>>,
    pub(super) collection: Cell<CollectionId>,
    pub(super) readers: RefCell<Readers>,
    /// Flushes that may still come in the middle of the scan under way.
    pub(super) scan_flushes: Cell<u32>,
    pub(super) now: Cell<Timestamp>,
    /// Waits for persistence by token: vbucket and seqno.
    pub(super) waits: RefCell<BTreeMap<u64, (Vbid, Seqno)>>,
    pub(super) waiting: RefCell<BTreeMap<u64, PendingFetch>>,
    /// By document; of one that has another version by now the lock has ended.
    pub(super) locks: RefCell<BTreeMap<ModelKey, HeldLock>>,
    next_token: Cell<u64>,
    /// How deep operations are nested.
    pub(super) depth: Cell<u32>,
    /// How often a document that is being read was written and evicted concurrently.
    pub(super) churns: Cell<u32>,
    /// Some I/O was made to fail in this life, so that it may be refused from now on.
    pub(super) is_troubled: Cell<bool>,
    /// Dictionaries have a fault.
    pub(super) is_broken: Cell<bool>,
    pub(super) counts: RefCell<RunCounts>,
}

impl World {
    /// An empty bucket with two collections.
    pub(super) fn new(setup: Setup) -> Rc<World> {
        let world = Rc::new(World {
            setup,
            files: SimDirectory::new(setup.seed ^ 0xd15c),
            is_made: Cell::new(false),
            life: RefCell::new(None),
            random: RefCell::new(SeededRandom::new(setup.seed)),
            vbuckets: RefCell::new(
                (0..VBUCKETS).map(|id| (Vbid(id), Default::default())).collect(),
            ),
            collection: Cell::new(CollectionId::DEFAULT),
            readers: RefCell::default(),
            scan_flushes: Cell::new(0),
            now: Cell::new(Timestamp::from_unix_s(1_700_000_000)),
            waits: RefCell::default(),
            waiting: RefCell::default(),
            locks: RefCell::default(),
            next_token: Cell::new(0),
            depth: Cell::new(0),
            churns: Cell::new(0),
            is_troubled: Cell::new(false),
            is_broken: Cell::new(false),
            counts: RefCell::default(),
        });
        let weak = Rc::downgrade(&world);
        interrupts::set_hook(Some(Rc::new(move |point| match weak.upgrade() {
            Some(world) => world.interrupted(point),
            None => interrupts::Fate::GoesOn,
        })));
        world.open(false);
        let bucket = world.bucket();
        for change in [
            ManifestChange::CreateScope { name: "s".to_owned() },
            ManifestChange::CreateCollection {
                scope: "s".to_owned(),
                name: "c".to_owned(),
                max_ttl_s: None,
            },
        ] {
            let manifest = bucket.update_manifest(&change).expect("the disk is sound");
            world.take_in_events();
            let collections = manifest.scopes().iter().flat_map(|scope| &scope.collections);
            world.collection.set(collections.map(|collection| collection.id).max().expect("one"));
        }
        world
    }

    pub(super) fn below(&self, limit: u64) -> u64 {
        self.random.borrow_mut().below(limit)
    }

    pub(super) fn with_random<R>(&self, take: impl FnOnce(&mut SeededRandom) -> R) -> R {
        take(&mut self.random.borrow_mut())
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut RunCounts)) {
        count(&mut self.counts.borrow_mut());
    }

    pub(super) fn token(&self) -> u64 {
        self.next_token.set(self.next_token.get() + 1);
        self.next_token.get()
    }

    pub(super) fn life(&self) -> Rc<Life> {
        Rc::clone(self.life.borrow().as_ref().expect("the bucket is open"))
    }

    pub(super) fn bucket(&self) -> Arc<Bucket> {
        Arc::clone(&self.life().bucket)
    }

    pub(super) fn random_key(&self) -> ModelKey {
        let vbid = Vbid(self.below(u64::from(VBUCKETS)) as u16);
        let collection = match self.below(3) {
            0 => self.collection.get(),
            _ => CollectionId::DEFAULT,
        };
        ModelKey { vbid, collection, name: format!("k{}", self.below(NAMES)).into_bytes() }
    }

    /// Every document that there may be.
    pub(super) fn all_keys(&self) -> Vec<ModelKey> {
        let collections = [CollectionId::DEFAULT, self.collection.get()];
        let mut keys = Vec::new();
        for vbid in (0..VBUCKETS).map(Vbid) {
            for collection in collections {
                keys.extend((0..NAMES).map(|name| ModelKey {
                    vbid,
                    collection,
                    name: format!("k{name}").into_bytes(),
                }));
            }
        }
        keys
    }

    /// Opens the bucket, after a loss of power in the middle of that once more, and compares.
    pub(super) fn open(&self, is_clean: bool) {
        let (life, is_clean) = match self.try_open(is_clean) {
            Ok(life) => (life, is_clean),
            Err(error) => {
                let planned = self.files.is_off() || self.is_troubled.get();
                assert!(planned, "cannot open: {error}");
                self.restart_files();
                let again = self.try_open(false);
                (again.unwrap_or_else(|error| panic!("cannot open a sound disk: {error}")), false)
            }
        };
        self.is_made.set(true);
        self.files.heal();
        self.is_troubled.set(false);
        for vbucket in life.bucket.vbuckets() {
            // Without the events that the opening added.
            let high = vbucket.persisted_seqno();
            let mut models = self.vbuckets.borrow_mut();
            let model = models.get_mut(&vbucket.id()).expect("every vbucket has a model");
            self.count(|counts| counts.lost += model.high.0.saturating_sub(high.0));
            model.recovered(high, &vbucket.failover_table(), is_clean);
        }
        self.check_store(&life.store);
        *self.life.borrow_mut() = Some(Rc::new(life));
        self.take_in_events();
    }

    /// Takes in the events that make each history say what the manifest says: the engine has added
    /// exactly these.
    pub(super) fn take_in_events(&self) {
        let bucket = self.bucket();
        let manifest = bucket.manifest();
        for vbucket in bucket.vbuckets() {
            let mut models = self.vbuckets.borrow_mut();
            let model = models.get_mut(&vbucket.id()).expect("every vbucket has a model");
            let mut wanted = Vec::new();
            for scope in manifest.scopes() {
                wanted.push(format!("s{:08x}", scope.id.0));
                wanted.extend(scope.collections.iter().map(|one| format!("c{:08x}", one.id.0)));
            }
            wanted.retain(|name| !name.ends_with("00000000"));
            wanted.sort_by_key(|name| name.starts_with('c'));
            let is_there = |version: &ModelVersion| version.document.is_some();
            let known = model.current.iter().filter(|(key, version)| {
                key.collection == CollectionId::SYSTEM && is_there(version)
            });
            let known: Vec<Vec<u8>> = known.map(|(key, _)| key.name.clone()).collect();
            let new = wanted.iter().filter(|name| !known.iter().any(|old| old == name.as_bytes()));
            let gone =
                known.iter().filter(|old| !wanted.iter().any(|name| name.as_bytes() == *old));
            let begun = new.map(|name| (name.clone().into_bytes(), true));
            let ended = gone.map(|name| (name.clone(), false));
            for (name, is_begin) in begun.chain(ended).collect::<Vec<_>>() {
                let document = is_begin.then(|| ModelDocument {
                    value: ModelValue(Vec::new()),
                    flags: 0,
                    expiry: 0,
                });
                let seqno = Seqno(model.high.0 + 1);
                let key = ModelKey { vbid: vbucket.id(), collection: CollectionId::SYSTEM, name };
                model.write(&key, ModelVersion { seqno, cas: None, document });
            }
            assert_eq!(vbucket.stats().high_seqno, model.high, "one seqno for each event");
            model.max_cas = vbucket.stats().max_cas;
        }
    }

    fn restart_files(&self) {
        if self.files.is_off() {
            self.files.restart();
        }
        self.files.heal();
    }

    fn try_open(&self, is_clean: bool) -> Result<Life, BucketOpenError> {
        let options = LogOptions {
            logs: self.setup.logs,
            segment_bytes: 8192,
            garbage_percent: 20,
            compacts_in_background: false,
            packing: (self.setup.eviction == EvictionPolicy::Full).then_some(CROWDED),
            ..LogOptions::default()
        };
        let is_made = self.is_made.get();
        let bug = self.setup.store_bug;
        let store = LogStore::open_simulated(&self.files, is_made, &options, bug)?;
        let store = Arc::new(store);
        let mut entropy = SeededRandom::new(self.with_random(SeededRandom::number));
        let bucket = Bucket::open(
            self.config(),
            Arc::new(InterruptedStore(Arc::clone(&store))),
            Box::new(move || entropy.number()),
            is_clean,
        )?;
        if self.setup.is_dense {
            bucket.set_memory_tier(MemoryTier::Dense);
        }
        Ok(Life { bucket, store, sink: Arc::default() })
    }

    fn config(&self) -> BucketConfig {
        BucketConfig {
            name: "simulated".to_owned(),
            vbuckets: VBUCKETS,
            memory_quota_bytes: 1 << 20,
            flush_enabled: true,
            value_bytes_max: 1 << 20,
            eviction: self.setup.eviction,
            upkeep: Upkeep {
                expiry_pager_interval_s: 20,
                tombstone_purge_age_s: TOMBSTONE_PURGE_AGE_S,
                flush_bytes_max: self.setup.flush_bytes_max,
                ..Upkeep::default()
            },
            ..BucketConfig::default()
        }
    }

    /// The power goes, and everything that is only in memory is gone.
    pub(super) fn crash(&self) {
        self.files.power_off();
        self.end_life();
        self.files.restart();
        self.files.heal();
        self.count(|counts| counts.crashes += 1);
        self.open(false);
    }

    /// The process dies, and the disk does not.
    pub(super) fn die(&self) {
        self.files.power_off();
        self.end_life();
        self.files.resume();
        self.count(|counts| counts.crashes += 1);
        self.open(false);
    }

    pub(super) fn end_life(&self) {
        // Operations in flight get no answer.
        self.waits.borrow_mut().clear();
        self.waiting.borrow_mut().clear();
        // Locks are in memory only.
        self.locks.borrow_mut().clear();
        self.readers.borrow_mut().disconnect();
        self.count_inflations();
        self.life.borrow_mut().take();
    }

    /// Everything in the store is what the model says of it.
    fn check_store(&self, store: &LogStore) {
        let models = self.vbuckets.borrow();
        for (vbid, model) in models.iter() {
            let mut found: Vec<ModelKey> = Vec::new();
            let scanned = store.scan_keys(*vbid, &mut |record| {
                let DocKey { collection, key: name } = record.key;
                let key = ModelKey { vbid: *vbid, collection, name: name.to_vec() };
                let version = model.current.get(&key);
                let Some(version) = version else {
                    panic!("{key:?} is in the store and was never written: {record:?}");
                };
                assert_eq!(record.seqno, version.seqno, "{key:?} in the store: {record:?}");
                assert!(version.cas.is_none_or(|cas| cas == record.cas), "{key:?}: {record:?}");
                assert_eq!(record.deleted, version.document.is_none(), "{key:?}: {record:?}");
                if collection == CollectionId::SYSTEM {
                    let event = ManifestEvent::decode(record.seqno, record.value);
                    let event = event.unwrap_or_else(|| panic!("{record:?} is no event"));
                    assert_eq!(event.kind.is_end(), record.deleted, "{event:?}");
                    assert_eq!(event.key(), name, "{event:?}");
                } else if let Some(document) = &version.document {
                    let stored = (record.value, record.flags, record.expiry);
                    let wanted = (&document.value.0[..], document.flags, document.expiry);
                    assert_eq!(stored, wanted, "{key:?} in the store");
                }
                found.push(key);
                std::ops::ControlFlow::Continue(())
            });
            scanned.expect("the disk is sound");
            for (key, version) in &model.current {
                let may_be_purged = version.document.is_none() && version.seqno <= model.purged;
                assert!(
                    may_be_purged || found.contains(key),
                    "{key:?} is not in the store: {version:?}"
                );
            }
        }
    }

    /// An error of the store, which has to have a reason.
    pub(super) fn failed(&self, what: &str, error: &StoreError) {
        let is_planned = self.files.is_off() || self.is_troubled.get();
        assert!(is_planned, "{what} failed without reason: {error}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        interrupts::set_hook(None);
    }
}
