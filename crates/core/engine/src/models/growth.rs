//! The hash table's growth under its lock, seen by others between two holds of it.
//!
//! Table and items are the real ones; the lock is the checker's, in the place of the vbucket's.
//! Every order in which the threads can get the lock is run, so a look-up falls into every state of
//! a migration that a writer leaves unfinished, and an item that was found is read after the table
//! has released it.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;
use oribi_types::{CollectionId, DocKey};

use crate::grace_period::ReadSection;
use crate::hash_table::{GroupView, HashSeed, HashTable, KeyHash, ScanCursor, TableLookup};
use crate::item::{ItemFields, ItemRef, NewItem};

/// Items of a table of one group that is about to double.
const BEFORE: u8 = 5;
/// Inserts that double it, and double it again while the first migration may be under way.
const INSERTED: u8 = 7;

fn key(name: &[u8; 1]) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name }
}

fn item(number: u8, version: u8) -> ItemRef {
    NewItem::new(key(&[number]), ItemFields::default(), &[&[number, version]]).publish()
}

struct SharedTable {
    table: Mutex<HashTable>,
    /// The state that a lock holder publishes to readers without the lock.
    view: GroupView,
    seed: HashSeed,
}

impl SharedTable {
    fn with_items() -> Arc<SharedTable> {
        let seed = HashSeed::new(7);
        let mut table = HashTable::new(seed.clone());
        let view = GroupView::default();
        for number in 0..BEFORE {
            let replaced = table.put(seed.hash(key(&[number])), None, item(number, 0));
            assert!(replaced.is_none());
            table.show_to(&view);
        }
        Arc::new(SharedTable { table: Mutex::new(table), view, seed })
    }

    fn locked<R>(&self, run: impl FnOnce(&mut HashTable) -> R) -> R {
        let mut table = self.table.lock().expect("no assertion fails");
        let result = run(&mut table);
        table.show_to(&self.view);
        let outgrown = table.take_retired();
        drop(table);
        drop(outgrown);
        result
    }

    fn hash(&self, number: u8) -> KeyHash {
        self.seed.hash(key(&[number]))
    }

    /// A GET: the reference is cloned under the lock and read after it.
    fn get(&self, number: u8) -> Option<ItemRef> {
        let hash = self.hash(number);
        self.locked(|table| table.get(hash, key(&[number])).cloned())
    }

    /// A look-up without the lock: what it finds is the item under the key, wherever it is.
    fn look_ahead(&self, number: u8) {
        let hash = self.hash(number);
        let section = ReadSection::open();
        let found = self.view.find(&section, hash, key(&[number]));
        // Others continue between the look-up and the reading.
        thread::yield_now();
        if let TableLookup::Found(found) = found {
            assert_eq!((found.key().key, found.value()[0]), (&[number][..], number));
        }
        if let Some(address) = self.view.item_address(&section, hash) {
            assert!(!address.is_null());
        }
    }

    fn put(&self, number: u8, new: ItemRef) -> Option<ItemRef> {
        let hash = self.hash(number);
        self.locked(|table| {
            let place = table.locate(hash, new.key());
            table.put(hash, place, new)
        })
    }

    fn insert(&self, number: u8) {
        let replaced = self.put(number, item(number, 0));
        assert!(replaced.is_none(), "no other thread inserts this key");
    }
}

fn growth() {
    let shared = SharedTable::with_items();
    let ahead = Arc::clone(&shared);
    let ahead = thread::spawn(move || {
        for number in [0, BEFORE] {
            ahead.look_ahead(number);
            let found = ahead.get(number);
            assert!(found.is_some() || number == BEFORE, "a key that was always there is missing");
        }
    });
    for number in BEFORE..BEFORE + INSERTED {
        shared.insert(number);
    }
    ahead.join().expect("no assertion fails");
    for number in 0..BEFORE + INSERTED {
        assert_eq!(shared.get(number).expect("all are there").value(), [number, 0]);
    }
    assert_eq!(shared.locked(|table| table.len()), usize::from(BEFORE + INSERTED));
}

fn replaced_and_removed_while_read() {
    let shared = SharedTable::with_items();
    let reading = Arc::clone(&shared);
    let reading = thread::spawn(move || {
        let replaced = reading.get(0).expect("it is replaced, not removed");
        let removed = reading.get(1);
        reading.look_ahead(1);
        assert_eq!(replaced.value()[0], 0);
        assert!(removed.is_none_or(|item| item.value() == [1, 0]));
    });
    let growing = Arc::clone(&shared);
    let growing = thread::spawn(move || {
        growing.insert(BEFORE);
        growing.insert(BEFORE + 1);
    });
    let before = shared.put(0, item(0, 1)).expect("there was a version before");
    assert_eq!(before.value(), [0, 0]);
    drop(before);
    let hash = shared.hash(1);
    let removed = shared.locked(|table| table.remove(hash, key(&[1])));
    drop(removed.expect("it was there"));
    reading.join().expect("no assertion fails");
    growing.join().expect("no assertion fails");
    assert_eq!(shared.get(0).expect("all but one are there").value(), [0, 1]);
    assert!(shared.get(1).is_none());
    assert_eq!(shared.locked(|table| table.len()), usize::from(BEFORE) + 1);
}

/// A sweep of one group a hold sees every item that is there from its beginning.
fn scanned_while_it_grows() {
    let shared = SharedTable::with_items();
    let scanning = Arc::clone(&shared);
    let scanning = thread::spawn(move || {
        let mut cursor = ScanCursor::default();
        let mut seen = std::collections::BTreeSet::new();
        let mut visit = |item: &ItemRef| _ = seen.insert(item.value()[0]);
        while !scanning.locked(|table| table.scan(&mut cursor, 1, &mut visit)) {}
        assert!((0..BEFORE).all(|number| seen.contains(&number)), "{seen:?}");
    });
    for number in BEFORE..BEFORE + INSERTED {
        shared.insert(number);
    }
    scanning.join().expect("no assertion fails");
}

// Invariant: A scan of a hash table visits every item that stays during the scan, even while the
// table grows.
#[test]
fn a_scan_while_the_table_grows() {
    loom::model(scanned_while_it_grows);
}

#[test]
fn look_ups_and_prefetches_while_the_table_grows() {
    loom::model(growth);
}

#[test]
fn items_are_replaced_and_removed_during_growth() {
    loom::model(replaced_and_removed_while_read);
}

/// The checker gets to every order: a reader that sees the table before, during and after its
/// growth.
#[test]
fn every_state_of_a_growth_is_seen() {
    let seen = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let all = Arc::clone(&seen);
    loom::model(move || {
        let shared = SharedTable::with_items();
        let looking = Arc::clone(&shared);
        let all = Arc::clone(&all);
        let looking = thread::spawn(move || {
            let state = looking.locked(|table| (table.len(), table.group_count()));
            all.lock().expect("no assertion fails").insert(state);
        });
        for number in BEFORE..BEFORE + INSERTED {
            shared.insert(number);
        }
        looking.join().expect("no assertion fails");
    });
    let seen = seen.lock().expect("no assertion fails");
    let lengths: Vec<_> = seen.iter().map(|(len, _)| *len).collect();
    assert_eq!(lengths, (5..=12).collect::<Vec<_>>());
    assert!(
        seen.iter().map(|(_, groups)| groups).collect::<std::collections::BTreeSet<_>>().len() > 2
    );
}
