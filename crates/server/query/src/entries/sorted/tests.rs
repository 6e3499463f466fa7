//! Entries against a sorted set, with insertions, removals and scans in random order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{EntryRange, IndexEntries, IndexFull};
use crate::entries::memory::EntryMemory;
use crate::memory_budget::MemoryBudget;

struct Budget {
    limit: usize,
    used: AtomicUsize,
}

impl MemoryBudget for Budget {
    fn reserve(&self, bytes: usize) -> bool {
        let grow = |used: usize| (used + bytes <= self.limit).then_some(used + bytes);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn entries(limit: usize) -> (IndexEntries, Arc<Budget>, Arc<EntryMemory>) {
    let budget = Arc::new(Budget { limit, used: AtomicUsize::new(0) });
    let memory = EntryMemory::new(budget.clone());
    (IndexEntries::new(memory.clone()), budget, memory)
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 11) % bound
    }

    /// An encoded key of the length 0 to 40, sometimes longer than a block.
    fn encoded(&mut self) -> Vec<u8> {
        let length = if self.below(500) == 0 { 10_000 } else { self.below(40) };
        let first = self.below(40) as u8;
        std::iter::once(first).chain((0..length).map(|at| (at * 7) as u8)).collect()
    }
}

fn bytes_of(encoded: &[u8], key: &[u8]) -> Vec<u8> {
    [encoded, key].concat()
}

fn found(entries: &IndexEntries, range: EntryRange, reverse: bool) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let result: Result<(), ()> = entries.snapshot(vec![range]).each(reverse, &mut |entry| {
        found.push(entry.bytes.to_vec());
        Ok(true)
    });
    assert_eq!(result, Ok(()));
    found
}

fn remove(entries: &IndexEntries, encoded: &[u8], key: &[u8]) -> bool {
    let stamp = entries.stamp(key);
    let mut removed = false;
    let range = EntryRange { low: bytes_of(encoded, key), high: None };
    let _: Result<(), ()> = entries.snapshot(vec![range]).each(false, &mut |entry| {
        if entry.bytes == bytes_of(encoded, key) {
            removed = entries.remove(entry, stamp);
        }
        Ok(false)
    });
    removed
}

#[test]
fn entries_equal_a_sorted_set() {
    for seed in 0..4 {
        let mut numbers = Numbers(seed);
        let (entries, budget, memory) = entries(usize::MAX);
        let mut model: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut known: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for step in 0..12_000 {
            // Grows, then shrinks.
            let inserts = if step < 7_000 { 80 } else { 15 };
            if numbers.below(100) < inserts {
                let (encoded, key) = (numbers.encoded(), numbers.below(5_000).to_be_bytes());
                let is_new = model.insert(bytes_of(&encoded, &key));
                let inserted = entries.insert(std::slice::from_ref(&encoded), &key);
                assert_eq!(inserted, Ok(usize::from(is_new)));
                known.push((encoded, key.to_vec()));
            } else if !known.is_empty() {
                let at = numbers.below(known.len() as u64) as usize;
                let (encoded, key) = known.swap_remove(at);
                let was_in = model.remove(&bytes_of(&encoded, &key));
                assert_eq!(remove(&entries, &encoded, &key), was_in);
            }
            if step % 500 == 0 {
                let (low, high) = (numbers.encoded(), numbers.encoded());
                let range = EntryRange { low: low.clone(), high: Some(high.clone()) };
                let expected: Vec<Vec<u8>> = match low < high {
                    true => model.range(low..high).cloned().collect(),
                    false => Vec::new(),
                };
                assert_eq!(found(&entries, range.clone(), false), expected);
                let mut reversed = found(&entries, range, true);
                reversed.reverse();
                assert_eq!(reversed, expected);
            }
        }
        assert_eq!(entries.len(), model.len());
        let all: Vec<Vec<u8>> = model.iter().cloned().collect();
        assert_eq!(found(&entries, EntryRange::default(), false), all);
        entries.clear();
        assert_eq!(memory.used(), 0, "all memory is given back");
        drop((entries, memory));
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn scan_sees_the_entries_of_its_beginning() {
    let (entries, _, _) = entries(usize::MAX);
    for number in 0..2_000_u32 {
        entries.insert(&[number.to_be_bytes().to_vec()], b"k").expect("there is memory");
    }
    let mut count = 0;
    let snapshot = entries.snapshot(vec![EntryRange::default()]);
    let result: Result<(), IndexFull> = snapshot.each(false, &mut |entry| {
        count += 1;
        let stamp = entries.stamp(b"k");
        assert!(entries.remove(entry, stamp));
        entries.insert(&[[9, 9, 9, 9, count as u8].to_vec()], b"later")?;
        Ok(true)
    });
    assert_eq!((result, count), (Ok(()), 2_000));
    assert_eq!(entries.len(), 256);
}

#[test]
fn entry_inserted_again_is_not_removed() {
    let (entries, _, _) = entries(usize::MAX);
    entries.insert(&[vec![1]], b"k").expect("there is memory");
    let stamp = entries.stamp(b"k");
    assert_eq!(entries.insert(&[vec![1]], b"k"), Ok(0));
    let result: Result<(), ()> =
        entries.snapshot(vec![EntryRange::default()]).each(false, &mut |entry| {
            assert!(!entries.remove(entry, stamp));
            Ok(true)
        });
    assert_eq!((result, entries.len()), (Ok(()), 1));
}

#[test]
fn entries_stay_within_their_memory() {
    let (entries, budget, memory) = entries(1 << 20);
    let mut numbers = Numbers(1);
    let full = (0..100_000_u32).find(|number| {
        entries.insert(&[numbers.encoded()], &number.to_be_bytes()) == Err(IndexFull)
    });
    assert!(full.is_some_and(|number| number > 5_000), "{full:?}");
    assert!(budget.used.load(Ordering::Relaxed) <= 1 << 20);
    entries.clear();
    assert_eq!(memory.used(), 0);
    assert_eq!(entries.insert(&[vec![1]], b"k"), Ok(1));
}

#[test]
fn writers_and_scans_run_together() {
    let (entries, _, memory) = entries(usize::MAX);
    // These stay, whatever happens around them.
    for number in 0..3_000_u32 {
        entries.insert(&[(number * 2).to_be_bytes().to_vec()], b"k").expect("there is memory");
    }
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let entries = &entries;
            scope.spawn(move || {
                for number in 0..3_000_u32 {
                    let encoded = (number * 2 + 1).to_be_bytes().to_vec();
                    let key = thread.to_be_bytes();
                    entries.insert(std::slice::from_ref(&encoded), &key).expect("memory");
                    remove(entries, &encoded, &key);
                }
            });
        }
        for _ in 0..20 {
            let all = found(&entries, EntryRange::default(), false);
            assert!(all.is_sorted());
            assert_eq!(all.iter().filter(|entry| entry.ends_with(b"k")).count(), 3_000);
        }
    });
    assert_eq!(entries.len(), 3_000);
    entries.clear();
    assert_eq!(memory.used(), 0);
}
