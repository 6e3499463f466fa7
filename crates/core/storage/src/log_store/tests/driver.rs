//! Random operations on a log in simulated files, with trouble of every kind, against the model.
//!
//! Owns: what may be there after trouble: what was acknowledged, or that and the whole of one
//! operation that failed. After the next success it is what was acknowledged and nothing else. The
//! seed of a failing run is in the panic's text. Of several logs each fails and recovers by itself,
//! so all of this holds for each log's part of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use oribi_types::{CollectionId, Vbid};

use super::super::planted::Bug;
use super::super::sim_files::{SimDirectory, Trouble};
use super::super::{LogOptions, LogStore, Packing};
use crate::conformance::fixture::{OwnedFields, batch, get, scan_keys, scan_seqnos, state, states};
use crate::conformance::model::Model;
use crate::{
    CompactionStep, KvStore, SeededRandom, StoreError, StoreMaintenance, VbucketPhase, VbucketState,
};

/// Few vbuckets, collections and keys, so that operations meet each other.
const VBUCKETS: u16 = 3;
const COLLECTIONS: [u32; 2] = [0, 9];
const KEYS: u64 = 8;
const LOCALS: u64 = 2;

/// Small segments, so that they are sealed and compacted all the time.
pub(super) fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 4096,
        garbage_percent: 20,
        compacts_in_background: false,
        ..LogOptions::default()
    }
}

/// Packs the index so that keys are taken for each other all the time.
pub(super) const CROWDED: Packing =
    Packing { prefix_bits: 5, exact_keys: 8, exact_min: 2, recent_bytes: 2 * 4096 };

/// Every second seed packs the index.
fn options_of(seed: u64, logs: usize) -> LogOptions {
    LogOptions { logs, packing: seed.is_multiple_of(2).then_some(CROWDED), ..options() }
}

/// The parts of a model by log.
fn split(model: &Model, logs: usize) -> Vec<Model> {
    let mut parts = vec![Model::default(); logs];
    for (vbid, state) in &model.states {
        parts[usize::from(vbid.0) % logs].states.insert(*vbid, state.clone());
    }
    for (key, kept) in &model.records {
        parts[usize::from(key.0.0) % logs].records.insert(key.clone(), kept.clone());
    }
    parts[0].locals.clone_from(&model.locals);
    parts
}

fn joined(parts: &[Model]) -> Model {
    let mut joined = Model::default();
    for part in parts.iter().cloned() {
        joined.states.extend(part.states);
        joined.records.extend(part.records);
        joined.locals.extend(part.locals);
    }
    joined
}

/// A group of batches: records and states of some vbuckets.
type Group = BTreeMap<Vbid, (Vec<OwnedFields>, VbucketState)>;

pub(super) struct Driver {
    pub(super) files: SimDirectory,
    options: LogOptions,
    bug: Bug,
    seed: u64,
    random: SeededRandom,
    is_made: bool,
    store: Option<LogStore>,
    /// Acknowledged commits, by log.
    acknowledged: Vec<Model>,
    /// Alternative contents, by log, after operations that failed. Each was cut off before the
    /// next.
    possible: Vec<Vec<Model>>,
    /// Writes that were successes in a store in which one had failed.
    pub(super) recoveries: u64,
    has_failed: Vec<bool>,
    seqnos: BTreeMap<Vbid, u64>,
}

impl Driver {
    pub(super) fn new(seed: u64, options: LogOptions, bug: Bug) -> Driver {
        let logs = options.logs;
        Driver {
            files: SimDirectory::new(seed ^ 0xd15c),
            options,
            bug,
            seed,
            random: SeededRandom::new(seed),
            is_made: false,
            store: None,
            acknowledged: vec![Model::default(); logs],
            possible: vec![Vec::new(); logs],
            recoveries: 0,
            has_failed: vec![false; logs],
            seqnos: BTreeMap::new(),
        }
    }

    /// Opens the store; when that fails by plan, after a restart without any more trouble.
    pub(super) fn open(&mut self) {
        assert!(self.store.is_none(), "the store before this one is closed");
        let store = match self.try_open() {
            Ok(store) => store,
            Err(_) => {
                if self.files.is_off() {
                    self.files.restart();
                }
                self.files.heal();
                let again = self.try_open();
                again.unwrap_or_else(|error| panic!("seed {:#x}: {error}", self.seed))
            }
        };
        self.is_made = true;
        let found = split(&self.contents(&store), self.options.logs);
        for ((found, expected), possible) in
            found.iter().zip(&self.acknowledged).zip(&mut self.possible)
        {
            let is_possible = found == expected || possible.contains(found);
            let seed = self.seed;
            assert!(is_possible, "seed {seed:#x}: found {found:#?}, acknowledged {expected:#?}");
            possible.clear();
        }
        self.acknowledged = found;
        self.has_failed.fill(false);
        self.store = Some(store);
    }

    fn try_open(&self) -> Result<LogStore, StoreError> {
        LogStore::open_simulated(&self.files, self.is_made, &self.options, self.bug)
    }

    /// Closes the store in good order.
    pub(super) fn close(&mut self) {
        self.store = None;
    }

    /// The power goes and comes back.
    pub(super) fn crash(&mut self) {
        self.files.power_off();
        self.store = None;
        self.files.restart();
    }

    /// The process dies, and the system has everything that it wrote.
    fn die(&mut self) {
        self.files.power_off();
        self.store = None;
        self.files.resume();
    }

    /// Everything that the store shows. Each vbucket is read in both orders and key by key.
    fn contents(&self, store: &LogStore) -> Model {
        let mut found = Model { states: states(store).into_iter().collect(), ..Model::default() };
        for vbid in (0..VBUCKETS).map(Vbid) {
            let mut records = scan_keys(store, vbid);
            for kept in &records {
                let single = get(store, vbid, kept.doc_key());
                assert_eq!(single.as_ref(), Some(kept), "seed {:#x}: get", self.seed);
                let key = (vbid, kept.collection, kept.key.clone());
                found.records.insert(key, kept.clone());
            }
            records.sort_by_key(|kept| kept.seqno);
            let by_seqno = scan_seqnos(store, vbid, 0, u64::MAX);
            assert_eq!(by_seqno, records, "seed {:#x}: order of seqno", self.seed);
            let (from, to) = (records.len() / 3, records.len() - records.len() / 4);
            if let Some(part @ [first, .., last]) = records.get(from..to) {
                let found = scan_seqnos(store, vbid, first.seqno.0, last.seqno.0);
                assert_eq!(found, part, "seed {:#x}: a range of seqnos", self.seed);
            }
        }
        for number in 0..LOCALS {
            let name = format!("local-{number}");
            if let Some(value) = store.get_local(&name).expect("the store reads local documents") {
                found.locals.insert(name, value);
            }
        }
        found
    }

    /// One random operation, and what comes of it when there is trouble.
    pub(super) fn step(&mut self) {
        match self.random.below(100) {
            0..55 => self.commit(),
            55..60 => self.purge_collection(),
            60..68 => self.purge_tombstones(),
            68..72 => self.put_local(),
            72..74 => self.drop_vbucket(),
            74..94 => self.compact(),
            94..97 => {
                self.close();
                self.open();
            }
            _ => {
                self.crash();
                self.open();
            }
        }
    }

    fn vbid(&mut self) -> Vbid {
        Vbid(self.random.below(u64::from(VBUCKETS)) as u16)
    }

    fn collection(&mut self) -> CollectionId {
        CollectionId(COLLECTIONS[self.random.below(COLLECTIONS.len() as u64) as usize])
    }

    fn record(&mut self, seqno: u64) -> OwnedFields {
        let key = format!("key-{}", self.random.below(KEYS)).into_bytes();
        let collection = self.collection();
        let kept = match self.random.below(6) {
            0 => OwnedFields::tombstone(seqno, &key, self.random.below(100) as u32),
            1 => OwnedFields::expired(seqno, &key, self.random.below(100) as u32),
            _ => {
                let size = self.random.below(1200) as usize;
                OwnedFields::document(seqno, &key, &vec![seqno as u8; size])
            }
        };
        kept.in_collection(collection.0)
    }

    fn group(&mut self) -> Group {
        let mut group = Group::new();
        for _ in 0..=self.random.below(2) {
            let vbid = self.vbid();
            let mut records: BTreeMap<(CollectionId, Vec<u8>), OwnedFields> = BTreeMap::new();
            for _ in 0..self.random.below(5) {
                let seqno = self.seqnos.entry(vbid).or_insert(0);
                *seqno += 1;
                let seqno = *seqno;
                let kept = self.record(seqno);
                records.insert((kept.collection, kept.key.clone()), kept);
            }
            let mut records: Vec<OwnedFields> = records.into_values().collect();
            records.sort_by_key(|kept| kept.seqno);
            let high_seqno = self.seqnos.get(&vbid).copied().unwrap_or(0);
            group.insert(vbid, (records, state(high_seqno)));
        }
        group
    }

    /// Runs `operation` and, when it fails, checks that nothing of it is shown, and what is present
    /// after reopening or continuing.
    fn run(&mut self, after: Model, operation: impl FnOnce(&LogStore) -> Result<(), StoreError>) {
        self.run_in(1, after, operation);
    }

    /// As [`Driver::run`] for an operation in so many logs, of which the first can be successes
    /// although it fails.
    fn run_in(
        &mut self,
        logs: usize,
        after: Model,
        operation: impl FnOnce(&LogStore) -> Result<(), StoreError>,
    ) {
        let after = split(&after, self.options.logs);
        let store = self.store.as_ref().expect("the store is open between operations");
        if operation(store).is_ok() {
            for (log, after) in after.iter().enumerate() {
                // What changes nothing may not have written anything.
                if *after != self.acknowledged[log] {
                    self.recoveries += u64::from(std::mem::take(&mut self.has_failed[log]));
                    self.possible[log].clear();
                }
            }
            self.acknowledged = after;
            if self.files.is_off() {
                // In a step whose failure no caller sees, such as writing an index file.
                self.crash();
                self.open();
            }
            return;
        }
        for (possible, after) in self.possible.iter_mut().zip(&after) {
            possible.push(after.clone());
        }
        self.has_failed.fill(true);
        if !self.files.is_off() {
            self.check_after_failure((logs > 1).then_some(&after));
        }
        self.trouble();
    }

    /// Nothing is shown of what failed, except the parts in logs that came before the one that
    /// failed: these were successes.
    fn check_after_failure(&mut self, after: Option<&Vec<Model>>) {
        let store = self.store.as_ref().expect("the store is open");
        let shown = split(&self.contents(store), self.options.logs);
        for (log, shown) in shown.into_iter().enumerate() {
            let expected = &mut self.acknowledged[log];
            if shown != *expected && after.is_some_and(|after| after[log] == shown) {
                *expected = shown;
                self.possible[log].clear();
            } else {
                assert_eq!(shown, *expected, "seed {:#x}: shown after a failure", self.seed);
            }
        }
    }

    /// Something failed: reopens, with or without a loss of power, or continues.
    fn trouble(&mut self) {
        match self.random.below(4) {
            _ if self.files.is_off() => self.crash(),
            0 => self.crash(),
            1 => self.die(),
            // The trouble may continue.
            2 => return,
            _ => return self.recover(),
        }
        self.files.heal();
        self.open();
    }

    /// The trouble is over, so the next write is a success, without reopening.
    fn recover(&mut self) {
        self.files.heal();
        let store = self.store.as_ref().expect("the store is open");
        let value = self.seqnos.values().sum::<u64>().to_le_bytes().to_vec();
        let written = store.put_local("local-0", &value);
        assert!(written.is_ok(), "seed {:#x}: {written:?} after the trouble", self.seed);
        self.acknowledged[0].locals.insert("local-0".to_owned(), value);
        self.possible[0].clear();
        self.has_failed[0] = false;
        self.recoveries += 1;
        let shown = self.contents(store);
        let expected = joined(&self.acknowledged);
        assert_eq!(shown, expected, "seed {:#x}: shown after a recovery", self.seed);
    }

    fn commit(&mut self) {
        let group = self.group();
        let mut after = joined(&self.acknowledged);
        for (vbid, (kept, state)) in &group {
            after.commit(*vbid, kept, state.clone());
        }
        let logs = self.options.logs;
        let concerned: BTreeSet<usize> =
            group.keys().map(|vbid| usize::from(vbid.0) % logs).collect();
        self.run_in(concerned.len(), after, |store| {
            let batches =
                group.iter().map(|(vbid, (kept, state))| batch(*vbid, kept, state.clone()));
            store.commit(&batches.collect::<Vec<_>>())
        });
    }

    fn purge_collection(&mut self) {
        let (vbid, collection) = (self.vbid(), self.collection());
        let mut after = joined(&self.acknowledged);
        after.purge_collection(vbid, collection);
        self.run(after, |store| store.purge_collection(vbid, collection));
    }

    fn purge_tombstones(&mut self) {
        let (vbid, purge_before) = (self.vbid(), self.random.below(120) as u32);
        let mut after = joined(&self.acknowledged);
        let expected = after.compact(vbid, purge_before);
        let seed = self.seed;
        self.run(after, |store| {
            let purged = store.compact(vbid, purge_before)?;
            assert_eq!(purged, expected, "seed {seed:#x}: highest purged seqno");
            Ok(())
        });
    }

    fn put_local(&mut self) {
        let name = format!("local-{}", self.random.below(LOCALS));
        let value = vec![7; self.random.below(700) as usize];
        let mut after = joined(&self.acknowledged);
        after.locals.insert(name.clone(), value.clone());
        self.run(after, |store| store.put_local(&name, &value));
    }

    fn drop_vbucket(&mut self) {
        let vbid = self.vbid();
        let mut after = joined(&self.acknowledged);
        let next = VbucketState { phase: VbucketPhase::Replica, ..VbucketState::empty() };
        let next = Some(&next).filter(|_| self.random.below(2) == 0);
        after.drop_vbucket(vbid, next);
        self.run(after, |store| store.drop_vbucket(vbid, next));
    }

    /// A few steps of compaction, which no caller may notice.
    pub(super) fn compact(&mut self) {
        let steps = 1 + self.random.below(4);
        let after = joined(&self.acknowledged);
        self.run(after, |store| {
            for _ in 0..steps {
                if store.compaction_step()? == CompactionStep::Idle {
                    break;
                }
            }
            Ok(())
        });
        // Reading is where a mistake shows; the store may have been closed concurrently.
        let store = self.store.as_ref().expect("the store is open between operations");
        let shown = self.contents(store);
        let expected = joined(&self.acknowledged);
        assert_eq!(shown, expected, "seed {:#x}: shown after compaction", self.seed);
    }

    /// Trouble of a random kind at a random one of the next steps.
    pub(super) fn plan_trouble(&mut self) {
        let troubles = [Trouble::PowerLoss, Trouble::Failure, Trouble::NoSpace];
        let trouble = troubles[self.random.below(3) as usize];
        self.files.plan(1 + self.random.below(12), trouble);
    }

    /// Sizes of the open store.
    pub(super) fn sizes(&self) -> crate::LogSizes {
        self.store.as_ref().expect("the store is open").sizes()
    }
}

/// `operations` random ones, one in eight with trouble ahead, and a look at the end. How often the
/// store recovered without being reopened.
pub(super) fn run_random(seed: u64, operations: usize, logs: usize, bug: Bug) -> u64 {
    let mut driver = Driver::new(seed, options_of(seed, logs), bug);
    driver.open();
    for _ in 0..operations {
        if driver.random.below(8) == 0 {
            driver.plan_trouble();
        }
        driver.step();
    }
    driver.files.heal();
    driver.close();
    driver.open();
    driver.recoveries
}

/// The same operations again and again, each time with `trouble` one step later, until it is behind
/// the end. Returns how many steps there were.
pub(super) fn run_at_every_step(
    seed: u64,
    operations: usize,
    trouble: Trouble,
    logs: usize,
) -> u64 {
    for at in 1.. {
        let mut driver = Driver::new(seed, options_of(seed, logs), Bug::None);
        driver.files.plan(at, trouble);
        driver.open();
        for _ in 0..operations {
            driver.step();
        }
        let is_behind = driver.files.steps() < at;
        driver.files.heal();
        driver.crash();
        driver.open();
        if is_behind {
            return at;
        }
    }
    unreachable!("the loop has no other end")
}

/// True when `run` finds nothing wrong.
pub(super) fn passes<R>(run: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}
