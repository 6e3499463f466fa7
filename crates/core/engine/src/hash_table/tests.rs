//! The hash table against `BTreeMap`, through growth, with hashes that collide on purpose.

use std::collections::BTreeMap;

use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno};
use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof, proptest};

use super::group::GroupArray;
use super::{HashSeed, HashTable, KeyHash, PROBE_LENGTHS, ScanCursor};
use crate::item::{ItemFields, ItemRef, NewItem};

mod invariants;
mod scans;

fn item(key: u16, version: u64) -> ItemRef {
    let name = key.to_be_bytes();
    let doc_key = DocKey { collection: CollectionId(u32::from(key & 1) * 8), key: &name };
    let mut new = NewItem::new(doc_key, ItemFields::default(), &[b"v"]);
    new.set_version(Cas(version), Seqno(version), RevSeqno(1));
    new.publish()
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16),
    Remove(u16),
    Get(u16),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0u16..600;
    let op = prop_oneof![
        3 => key.clone().prop_map(Op::Insert),
        1 => key.clone().prop_map(Op::Remove),
        1 => key.prop_map(Op::Get),
    ];
    proptest::collection::vec(op, 0..3000)
}

fn check(ops: &[Op], hash_of: impl Fn(&HashTable, &ItemRef) -> KeyHash) {
    let mut table = HashTable::new(HashSeed::new(7));
    let mut model: BTreeMap<u16, u64> = BTreeMap::new();
    for (step, op) in ops.iter().enumerate() {
        let version = step as u64 + 1;
        match *op {
            Op::Insert(key) => {
                let new = item(key, version);
                let old = table.insert(hash_of(&table, &new), new);
                assert_eq!(old.map(|old| old.cas().0), model.insert(key, version));
            }
            Op::Remove(key) => {
                let probe = item(key, 0);
                let old = table.remove(hash_of(&table, &probe), probe.key());
                assert_eq!(old.map(|old| old.cas().0), model.remove(&key));
            }
            Op::Get(key) => {
                let probe = item(key, 0);
                let found = table.get(hash_of(&table, &probe), probe.key());
                assert_eq!(found.map(|found| found.cas().0), model.get(&key).copied());
            }
        }
        assert_eq!(table.len(), model.len());
        // It visits every item.
        if step % 16 == 0 {
            table.check_invariants();
        }
    }
    let mut seen = BTreeMap::new();
    let is_complete = table.scan(&mut ScanCursor::default(), usize::MAX, |found| {
        let key = u16::from_be_bytes(found.key().key.try_into().unwrap());
        assert_eq!(seen.insert(key, found.cas().0), None, "visited twice");
    });
    assert!(is_complete);
    assert_eq!(seen, model);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn behaves_like_a_map(ops in ops()) {
        check(&ops, |table, item| table.seed().hash(item.key()));
    }

    #[test]
    fn inserts_and_removes_in_turn_match_a_map(keys in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let ops: Vec<Op> = keys.iter().map(|key| if key & 0x80 == 0 { Op::Insert(u16::from(*key)) } else { Op::Remove(u16::from(key & 0x7f)) }).collect();
        check(&ops, |table, item| table.seed().hash(item.key()));
    }
}

#[test]
fn a_million_items_fit_the_slot_budget() {
    let mut table = HashTable::new(HashSeed::new(1));
    let mut worst: f64 = 0.0;
    for n in 0..200_000u32 {
        let name = n.to_be_bytes();
        let key = DocKey { collection: CollectionId(0), key: &name };
        let new = NewItem::new(key, ItemFields::default(), &[]).publish();
        table.insert(table.seed().hash(key), new);
        if n > 100_000 {
            worst = worst.max(table.table_bytes() as f64 / f64::from(n + 1));
        }
    }
    // Right after growth both tables exist: 64 bytes per group at 2.8 and 5.6 items per group.
    assert!(worst < 36.0, "{worst} bytes per item");
    for n in 0..200_000u32 {
        let name = n.to_be_bytes();
        let key = DocKey { collection: CollectionId(0), key: &name };
        assert!(table.get(table.seed().hash(key), key).is_some());
    }
}

#[test]
fn a_probe_is_as_long_as_the_walk_from_the_home_group() {
    let mut groups = GroupArray::with_groups(4);
    // 21 items fill their home group and two after it, one of them by wrapping around.
    let hash = KeyHash(6);
    (0..21).for_each(|key| groups.insert_new(hash, item(key, 1)));
    for (index, probes) in [(2, 1), (3, 2), (0, 3)] {
        assert_eq!(groups.items(index).count(), 7);
        assert_eq!(groups.probes(hash, index), probes);
    }
}

#[test]
fn statistics_of_a_large_table_are_sampled() {
    let mut table = HashTable::new(HashSeed::new(3));
    assert_eq!((table.stats().sampled, table.stats().slots), (0, 0));
    for key in 0..5000 {
        let new = item(key, 1);
        table.insert(table.seed().hash(new.key()), new);
        let stats = table.stats();
        assert_eq!(stats.groups, table.group_count());
        assert_eq!((stats.slots, stats.mem_bytes), (stats.groups * 7, table.table_bytes()));
        assert_eq!(stats.probe_histogram.iter().sum::<u64>(), stats.sampled as u64);
        assert!(stats.sampled <= 64 * 7 && stats.max_probes >= stats.min_probes);
        if stats.groups <= 64 {
            assert_eq!(stats.sampled, table.len());
        }
        // Right after a growth a sample may meet only groups that are still empty.
        let longest = stats.probe_histogram.iter().rposition(|count| *count > 0);
        assert_eq!(longest.map_or(0, |at| at + 1), stats.max_probes.min(PROBE_LENGTHS));
    }
    // 5000 items need 893 groups at 4/5 of 7: 1024, the first one doubled ten times.
    assert_eq!((table.stats().groups, table.stats().resizes), (1024, 11));
}
