//! The check of a table notices what is wrong with it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::item;
use crate::hash_table::{GroupPosition, HashSeed, HashTable, MIGRATE_GROUPS};

/// A table in the middle of growing.
fn growing() -> HashTable {
    let mut table = HashTable::new(HashSeed::new(11));
    for key in 0.. {
        let new = item(key, 1);
        table.insert(table.seed().hash(new.key()), new);
        if table.old.as_ref().is_some_and(|old| old.groups.len() > 8 * MIGRATE_GROUPS) {
            return table;
        }
    }
    unreachable!("a table grows")
}

#[test]
fn the_check_finds_what_is_wrong() {
    type Damage = fn(&mut HashTable);
    let damages: [(&str, Damage); 5] = [
        ("a wrong count", |table| table.len += 1),
        ("wrong bytes", |table| table.bytes += 64),
        ("a lost item", |table| {
            let groups = 0..table.current.len();
            let taken = groups
                .into_iter()
                .find_map(|group| table.current.take(GroupPosition { group, slot: 0 }));
            assert!(taken.is_some(), "some group has an item");
        }),
        ("a key in both tables", |table| {
            let old = table.old.as_ref().expect("it grows");
            let mut items = (old.next..old.groups.len()).flat_map(|at| old.groups.items(at));
            let twin = items.next().expect("not all have moved").clone();
            drop(items);
            let hash = table.seed.hash(twin.key());
            table.current.insert_new(hash, twin);
            table.len += 1;
        }),
        ("groups that were skipped", |table| {
            let old = table.old.as_mut().expect("it grows");
            old.next = old.groups.len() - 1;
        }),
    ];
    growing().check_invariants();
    for (name, damage) in damages {
        let mut table = growing();
        damage(&mut table);
        let found = catch_unwind(AssertUnwindSafe(|| table.check_invariants())).is_err();
        assert!(found, "the check does not notice {name}");
    }
}
