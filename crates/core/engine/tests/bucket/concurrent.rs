//! Readers and writers of the same keys at the same time, with the flusher freeing what they
//! replace.
//!
//! Every value names its key, its writer and the number of the write, and carries a checksum over
//! these and its filling. So a reader can tell by itself that a value is whole, was written for
//! this key, and is not older than one that the reader has seen. At the end each key has the newest
//! acknowledged write. ThreadSanitizer runs this as well, see docs/testing.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use oribi_engine::{
    Bucket, GetOutcome, Item, ItemRef, MutationOutcome, ReadSection, SharedOutcome, StoreCondition,
    StoreRequest,
};
use oribi_storage::MemoryStore;
use oribi_testkit::StopOnDrop;
use oribi_types::{Cas, DocKey, Seqno, Vbid};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, key, open, set};

const WRITERS: usize = 3;
const READERS: usize = 2;
const WRITES: u64 = 1_500;
/// Few enough that every key is contended, and so many that the tables grow concurrently.
const KEYS: usize = 40;

fn name(index: usize) -> String {
    format!("key-{index}")
}

fn vbid(index: usize) -> Vbid {
    Vbid((index % 4) as u16)
}

/// Numbers that look random, the same for every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// Mostly the first few keys.
    fn key(&mut self) -> usize {
        let bound = if self.below(4) == 0 { KEYS } else { 4 };
        self.below(bound as u64) as usize
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The key and version in a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    key: usize,
    writer: usize,
    number: u64,
}

impl Stamp {
    /// Key, writer and number, a filling of a length that is different each time, and the checksum.
    /// Some values are beyond what is copied into an answer, and beyond what the block arena has
    /// classes for.
    fn value(self) -> Vec<u8> {
        let filling = match self.number % 50 {
            0 => 40_000,
            1..=3 => 9_000,
            short => short as usize * 7,
        };
        let mut value = Vec::with_capacity(filling + 32);
        for field in [self.key as u64, self.writer as u64, self.number] {
            value.extend_from_slice(&field.to_le_bytes());
        }
        value.extend((0..filling).map(|at| (at as u64 * self.number) as u8));
        let sum = checksum(&value);
        value.extend_from_slice(&sum.to_le_bytes());
        value
    }

    fn read(value: &[u8]) -> Stamp {
        let (said, sum) = value.split_last_chunk::<8>().expect("a value ends with its checksum");
        assert_eq!(checksum(said), u64::from_le_bytes(*sum), "a value is torn");
        let field = |at: usize| {
            let bytes = said[at * 8..][..8].try_into().expect("8 bytes");
            u64::from_le_bytes(bytes)
        };
        Stamp { key: field(0) as usize, writer: field(1) as usize, number: field(2) }
    }
}

/// A write that was acknowledged; no stamp for a deletion.
type Acknowledged = (usize, Cas, Seqno, Option<Stamp>);

struct World {
    bucket: Arc<Bucket>,
    /// The number of the last write that each writer has begun.
    begun: [AtomicU64; WRITERS],
    writing: AtomicUsize,
    done: AtomicBool,
}

impl World {
    fn get(&self, index: usize) -> Option<ItemRef> {
        match self.bucket.get(vbid(index), key(&name(index)), NOW) {
            GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => Some(item),
            GetOutcome::Miss => None,
            GetOutcome::Refused(refused) => panic!("{refused:?}"),
        }
    }

    fn write(&self, writer: usize) -> Vec<Acknowledged> {
        let mut random = Random(0x9e37_79b9 + writer as u64);
        let mut acknowledged = Vec::new();
        for number in 1..=WRITES {
            let index = random.key();
            let name = name(index);
            let key: DocKey<'_> = key(&name);
            self.begun[writer].store(number, Ordering::Release);
            let stamp = Stamp { key: index, writer, number };
            let value = stamp.value();
            let store = |mode, cas| {
                let request = StoreRequest { mode, value: &value, cas, ..set("") };
                (self.bucket.store(vbid(index), key, &request, NOW), Some(stamp))
            };
            let (outcome, stamp) = match random.below(10) {
                0 => (self.bucket.delete(vbid(index), key, Cas(0), NOW), None),
                1 => store(StoreCondition::Add, Cas(0)),
                2 => store(StoreCondition::Replace, Cas(0)),
                3 => store(StoreCondition::Set, self.get(index).map_or(Cas(0), |item| item.cas())),
                _ => store(StoreCondition::Set, Cas(0)),
            };
            match outcome {
                MutationOutcome::Done(mutation) => {
                    acknowledged.push((index, mutation.cas, mutation.seqno, stamp));
                }
                MutationOutcome::Exists | MutationOutcome::NotFound => {}
                other => panic!("{other:?}"),
            }
        }
        self.writing.fetch_sub(1, Ordering::AcqRel);
        acknowledged
    }

    /// Reads until the writers are done; returns how many documents were found with their own
    /// reference and without the table's lock.
    fn read(&self, reader: usize) -> (usize, usize) {
        let mut random = Random(0x1234_5678 + reader as u64);
        let mut seen = LookupResult::default();
        let mut kept: Vec<ItemRef> = Vec::new();
        let (mut counted, mut shared) = (0, 0);
        let is_enough = |counted, shared| {
            let has_read = counted > 0 && shared > 0;
            has_read && self.writing.load(Ordering::Acquire) == 0
        };
        while !is_enough(counted, shared) && !self.done.load(Ordering::Acquire) {
            let index = random.key();
            if let Some(item) = self.get(index) {
                counted += 1;
                seen.check(self, index, &item);
                // References to old versions are held for a while, and their values stay what they
                // were.
                kept.push(item);
            }
            if kept.len() > 64 {
                kept.drain(..32).for_each(|item| _ = Stamp::read(item.value()));
            }
            shared += self.read_shared(&mut random, &mut seen);
        }
        (counted, shared)
    }

    /// Reads some documents without a lock; what was found stays what it is to the section's end.
    fn read_shared(&self, random: &mut Random, seen: &mut LookupResult) -> usize {
        let section = ReadSection::open();
        let mut found = Vec::new();
        for _ in 0..8 {
            let index = random.key();
            let name = name(index);
            let ahead = self.bucket.announce(vbid(index), key(&name)).expect("it is in the map");
            self.bucket.locate(&section, &ahead, 64);
            let vbucket = self.bucket.vbucket(ahead.vbid()).expect("it is in the map");
            let context = self.bucket.context(NOW);
            let outcome = vbucket.get_shared(&section, &context, ahead.hash(), key(&name));
            if let SharedOutcome::Hit(item) = outcome {
                seen.check(self, index, &item);
                found.push(item);
            }
        }
        found.iter().for_each(|item| _ = Stamp::read(item.value()));
        found.len()
    }

    fn flush(&self) {
        while !self.done.load(Ordering::Acquire) {
            self.bucket.flush_step().expect("a store in memory takes everything");
            std::thread::yield_now();
        }
    }
}

/// The newest version of each key that one reader has seen.
struct LookupResult {
    newest: Vec<Option<(Cas, Stamp)>>,
    numbers: [[u64; WRITERS]; KEYS],
}

impl Default for LookupResult {
    fn default() -> LookupResult {
        LookupResult { newest: vec![None; KEYS], numbers: [[0; WRITERS]; KEYS] }
    }
}

impl LookupResult {
    /// The document is whole, was written under this key, and is not older than what was seen.
    fn check(&mut self, world: &World, index: usize, item: &Item) {
        let (cas, stamp) = (item.cas(), Stamp::read(item.value()));
        assert_eq!((stamp.key, item.key().key), (index, name(index).as_bytes()));
        let begun = world.begun[stamp.writer].load(Ordering::Acquire);
        assert!(stamp.number <= begun, "{stamp:?} was never written");
        if let Some((seen_cas, seen)) = self.newest[index] {
            assert!(cas >= seen_cas, "{stamp:?} came after the newer {seen:?}");
            assert_eq!(cas == seen_cas, stamp == seen, "a CAS names one version");
        }
        self.newest[index] = Some((cas, stamp));
        let number = &mut self.numbers[index][stamp.writer];
        assert!(stamp.number >= *number, "{stamp:?} came after number {number}");
        *number = stamp.number;
    }
}

// Invariant: The lock order is vbucket table, then vbucket queue.
// Invariant: A look-up of a small document in memory takes no lock, and the block stays readable
// until the read section ends.
#[test]
fn readers_see_whole_values_and_never_go_back() {
    let world = World {
        bucket: open(Arc::new(MemoryStore::new())),
        begun: [const { AtomicU64::new(0) }; WRITERS],
        writing: AtomicUsize::new(WRITERS),
        done: AtomicBool::new(false),
    };
    let acknowledged = std::thread::scope(|scope| {
        let world = &world;
        let stopped = StopOnDrop(&world.done);
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || world.write(writer))).collect();
        let readers: Vec<_> =
            (0..READERS).map(|reader| scope.spawn(move || world.read(reader))).collect();
        let flusher = scope.spawn(|| world.flush());
        let written: Vec<_> =
            writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
        for reader in readers {
            let (counted, shared) = reader.join().expect("a reader");
            assert!(counted > 0 && shared > 0);
        }
        drop(stopped);
        flusher.join().expect("the flusher");
        written
    });
    check_history(&world, &acknowledged);
}

/// Versions of a key have CAS and seqno in the same order, each once, and the last one is there.
fn check_history(world: &World, acknowledged: &[Acknowledged]) {
    let mut histories: BTreeMap<usize, BTreeMap<Cas, (Seqno, Option<Stamp>)>> = BTreeMap::new();
    for (index, cas, seqno, stamp) in acknowledged {
        let before = histories.entry(*index).or_default().insert(*cas, (*seqno, *stamp));
        assert!(before.is_none(), "a CAS was given twice");
    }
    assert_eq!(histories.len(), KEYS, "every key was written");
    for (index, history) in histories {
        let seqnos: Vec<_> = history.values().map(|(seqno, _)| *seqno).collect();
        assert!(seqnos.is_sorted_by(|first, second| first < second), "{seqnos:?}");
        let (cas, (_, stamp)) = history.last_key_value().expect("written at least once");
        let found = world.get(index).map(|item| (item.cas(), Stamp::read(item.value())));
        assert_eq!(found, stamp.map(|stamp| (*cas, stamp)), "key {index}");
    }
}
