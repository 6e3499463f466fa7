//! Scans compared with a model: whatever happens between two slices, what stays in the table is
//! visited.

use std::collections::BTreeSet;

use oribi_storage::SeededRandom;

use super::item;
use crate::hash_table::{HashSeed, HashTable, ScanCursor};

/// Steps of one run: some scans of a table that doubles several times.
const STEPS: u64 = 400;
const RUNS: std::ops::Range<u64> = 0x5ca_0000..0x5ca_0100;

/// A table, the keys that it has, and a scan that is under way.
struct ScanModel {
    table: HashTable,
    keys: BTreeSet<u16>,
    cursor: ScanCursor,
    /// Keys that were there when the scan began, are there still, and were not visited yet.
    unseen: BTreeSet<u16>,
    slices: usize,
    scans: usize,
    /// Scans that the table grew under.
    grown_under: usize,
    growths_at_begin: u64,
}

impl ScanModel {
    fn new(seed: u64) -> ScanModel {
        ScanModel {
            table: HashTable::new(HashSeed::new(seed)),
            keys: BTreeSet::new(),
            cursor: ScanCursor::default(),
            unseen: BTreeSet::new(),
            slices: 0,
            scans: 0,
            grown_under: 0,
            growths_at_begin: 0,
        }
    }

    fn insert(&mut self, key: u16) {
        let new = item(key, 1);
        self.table.insert(self.table.seed().hash(new.key()), new);
        self.keys.insert(key);
    }

    fn remove(&mut self, key: u16) {
        let probe = item(key, 0);
        self.table.remove(self.table.seed().hash(probe.key()), probe.key());
        self.keys.remove(&key);
        self.unseen.remove(&key);
    }

    /// One slice; the end of a scan is checked and begins the next. True at the end.
    fn slice(&mut self, groups: usize) -> bool {
        let unseen = &mut self.unseen;
        let is_complete = self.table.scan(&mut self.cursor, groups, |found| {
            let key = u16::from_be_bytes(found.key().key.try_into().expect("keys have two bytes"));
            unseen.remove(&key);
        });
        self.slices += 1;
        // Twice the groups at the end, and a slice that stops short at each end of a part.
        let bound = 2 * self.table.group_count() + 2 * self.table.resizes as usize + 2;
        assert!(self.slices <= bound, "a scan of {} slices", self.slices);
        if is_complete {
            assert!(self.unseen.is_empty(), "not visited: {:?}", self.unseen);
            self.scans += 1;
            self.grown_under += usize::from(self.table.resizes != self.growths_at_begin);
            (self.unseen, self.slices) = (self.keys.clone(), 0);
            self.growths_at_begin = self.table.resizes;
        }
        is_complete
    }
}

/// A run of random steps; scans that it completed, and those that the table grew under.
fn run(seed: u64) -> (usize, usize) {
    let mut random = SeededRandom::new(seed);
    let mut scanned = ScanModel::new(seed);
    for _ in 0..STEPS {
        let key = random.below(2000) as u16;
        match random.below(20) {
            0..6 => scanned.insert(key),
            6 => scanned.remove(key),
            // Several growths between two slices.
            7 if random.below(8) == 0 => (key..key + 100).for_each(|key| scanned.insert(key)),
            8 if random.below(8) == 0 => {
                let removed: Vec<u16> = scanned.keys.range(key..).copied().take(200).collect();
                removed.into_iter().for_each(|key| scanned.remove(key));
            }
            _ => _ = scanned.slice(1 + random.below(6) as usize),
        }
    }
    while !scanned.slice(3) {}
    (scanned.scans, scanned.grown_under)
}

/// Inserts up to `last`, taking one slice of one group after every `pace` inserts, and then to the
/// end.
fn scan_from(first: u16, pace: u16, last: u16) {
    let mut scanned = ScanModel::new(u64::from(first));
    (0..first).for_each(|key| scanned.insert(key));
    scanned.unseen = scanned.keys.clone();
    for key in first..last {
        scanned.insert(key);
        if key % pace == 0 && scanned.slice(1) {
            return;
        }
    }
    while !scanned.slice(1) {}
}

#[test]
fn a_scan_sees_all_lasting_items_between_slices() {
    let mut counts = (0, 0);
    for seed in RUNS {
        let (scans, grown_under) = run(seed);
        counts = (counts.0 + scans, counts.1 + grown_under);
    }
    assert!(counts.0 > 1000 && counts.1 > 300, "{counts:?}");
}

// Invariant: A scan of a hash table visits every item that stays during the scan, even while the
// table grows.
/// Items that moved behind the scan were missed, because it went over the current groups before the
/// old ones.
#[test]
fn a_scan_sees_all_lasting_items_during_growth() {
    for first in 0..120 {
        for pace in 1..12 {
            scan_from(first, pace, first + 150);
        }
    }
}

#[test]
fn random_places_cover_all_groups_with_items() {
    let mut table = HashTable::new(HashSeed::new(5));
    assert_eq!(table.cursor_at(1), None);
    for key in 0..200 {
        let new = item(key, 1);
        table.insert(table.seed().hash(new.key()), new);
        let moved = table.old.as_ref().map_or(0, |old| old.next);
        let mut visited = 0;
        for random in 0..(table.group_count() - moved) as u64 {
            let mut cursor = table.cursor_at(random).expect("it has groups");
            table.scan(&mut cursor, 1, |_| visited += 1);
        }
        assert_eq!(visited, table.len());
    }
}
