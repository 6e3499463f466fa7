//! Random operations on a store and on the model, with restarts in between.

use std::collections::BTreeMap;

use oribi_types::{CollectionId, DocKey, Seqno, Vbid};

use super::Medium;
use super::fixture::{OwnedFields, batch, get, open, scan_seqnos, state};
use super::model::Model;
use crate::seeded_random::SeededRandom;
use crate::{KvStore, VbucketPhase, VbucketState};

/// Few vbuckets, collections and keys, so that operations meet each other.
const VBUCKETS: u64 = 4;
const COLLECTIONS: [u32; 3] = [0, 8, 9];
const KEYS: u64 = 12;

/// Runs `operations` random operations with restarts and compares with the model after each
/// restart and at the end.
///
/// # Panics
/// When the store differs from the model; the message has the seed.
pub fn run_random(medium: &dyn Medium, seed: u64, operations: usize) {
    let random = SeededRandom::new(seed);
    let mut run = Run { seed, random, model: Model::default(), seqnos: BTreeMap::new() };
    let mut store = open(medium);
    for number in 0..operations {
        if run.random.below(20) == 0 {
            drop(store);
            store = open(medium);
            run.compare(&*store, number);
        }
        run.step(&*store);
    }
    run.compare(&*store, operations);
    drop(store);
    run.compare(&*open(medium), operations);
}

struct Run {
    seed: u64,
    random: SeededRandom,
    model: Model,
    seqnos: BTreeMap<Vbid, u64>,
}

impl Run {
    fn compare(&self, store: &dyn KvStore, number: usize) {
        eprintln!("comparing after {number} operations of seed {:#x}", self.seed);
        self.model.assert_matches(store, (0..VBUCKETS).map(|vbid| Vbid(vbid as u16)));
    }

    fn step(&mut self, store: &dyn KvStore) {
        let vbid = self.vbid();
        match self.random.below(100) {
            0..60 => self.commit(store),
            60..75 => self.read_key(store, vbid),
            75..85 => self.read_range(store, vbid),
            85..90 => self.purge_collection(store, vbid),
            90..95 => self.compact(store, vbid),
            95..98 => self.put_local(store),
            _ => self.drop_vbucket(store, vbid),
        }
    }

    fn vbid(&mut self) -> Vbid {
        Vbid(self.random.below(VBUCKETS) as u16)
    }

    fn collection(&mut self) -> CollectionId {
        CollectionId(COLLECTIONS[self.random.below(COLLECTIONS.len() as u64) as usize])
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.below(KEYS);
        format!("key-{}", "x".repeat(number as usize)).into_bytes()
    }

    fn record(&mut self, seqno: u64) -> OwnedFields {
        let key = self.key();
        let collection = self.collection();
        let kept = match self.random.below(8) {
            0 => OwnedFields::tombstone(seqno, &key, self.random.below(100) as u32),
            1 => OwnedFields::expired(seqno, &key, self.random.below(100) as u32),
            _ => {
                let size = self.random.below(600) as usize;
                OwnedFields::document(seqno, &key, &vec![seqno as u8; size])
            }
        };
        kept.in_collection(collection.0)
    }

    /// A group of one to three vbuckets with a few records each, one per key as the trait demands.
    fn commit(&mut self, store: &dyn KvStore) {
        let mut group: BTreeMap<Vbid, (Vec<OwnedFields>, VbucketState)> = BTreeMap::new();
        for _ in 0..=self.random.below(3) {
            let vbid = self.vbid();
            if group.contains_key(&vbid) {
                continue;
            }
            let mut records: BTreeMap<(CollectionId, Vec<u8>), OwnedFields> = BTreeMap::new();
            for _ in 0..self.random.below(8) {
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
        let batches = group.iter().map(|(vbid, (kept, state))| batch(*vbid, kept, state.clone()));
        store.commit(&batches.collect::<Vec<_>>()).expect("the store commits");
        for (vbid, (kept, state)) in group {
            self.model.commit(vbid, &kept, state);
        }
    }

    fn read_key(&mut self, store: &dyn KvStore, vbid: Vbid) {
        let (collection, key) = (self.collection(), self.key());
        let seen = get(store, vbid, DocKey { collection, key: &key });
        assert_eq!(seen.as_ref(), self.model.records.get(&(vbid, collection, key)));
    }

    fn read_range(&mut self, store: &dyn KvStore, vbid: Vbid) {
        let high_seqno = self.seqnos.get(&vbid).copied().unwrap_or(0);
        let (from, to) = (self.random.below(high_seqno + 2), self.random.below(high_seqno + 2));
        let mut expected = self.model.records_of(vbid);
        expected.retain(|kept| Seqno(from) <= kept.seqno && kept.seqno <= Seqno(to));
        expected.sort_by_key(|kept| kept.seqno);
        assert_eq!(scan_seqnos(store, vbid, from, to), expected, "{vbid} {from}..={to}");
    }

    fn purge_collection(&mut self, store: &dyn KvStore, vbid: Vbid) {
        let collection = self.collection();
        store.purge_collection(vbid, collection).expect("the store purges");
        self.model.purge_collection(vbid, collection);
    }

    fn compact(&mut self, store: &dyn KvStore, vbid: Vbid) {
        let purge_before = self.random.below(100) as u32;
        let purged = store.compact(vbid, purge_before).expect("the store compacts");
        assert_eq!(purged, self.model.compact(vbid, purge_before), "highest purged seqno");
    }

    fn put_local(&mut self, store: &dyn KvStore) {
        let name = format!("local-{}", self.random.below(3));
        let value = vec![7; self.random.below(50) as usize];
        store.put_local(&name, &value).expect("the store writes local documents");
        self.model.locals.insert(name, value);
    }

    fn drop_vbucket(&mut self, store: &dyn KvStore, vbid: Vbid) {
        let phase = VbucketPhase::Replica;
        let next = VbucketState { phase, ..VbucketState::empty() };
        let next = Some(&next).filter(|_| self.random.below(2) == 0);
        store.drop_vbucket(vbid, next).expect("the store drops vbuckets");
        self.model.drop_vbucket(vbid, next);
    }
}
