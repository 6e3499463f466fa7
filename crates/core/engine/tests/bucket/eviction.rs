//! Eviction and fetches against a map: every answer is the same, wherever the document is.
//!
//! A bucket with a quota of some kilobytes, random operations of clients, and between them flushes,
//! pager steps, single evictions, fetches and restarts, so that loading, evicted and resident
//! documents mix. Once with every step in one thread and a model of all keys; once with threads
//! that drive the steps while clients own a part of the keys each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oribi_engine::{
    Bucket, BucketConfig, ConcatMode, ConcatRequest, CounterOutcome, CounterRequest,
    EvictionPolicy, FetchOutcome, FetchSink, GetOutcome, MemoryTier, MetaOutcome, MutationOutcome,
    OperationRejection, StoreCondition, StoreRequest, Upkeep, WarmupStep,
};
use oribi_storage::{MemoryMedium, MemoryStore};
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

mod threads;

use crate::operations_by_vbid::OperationsByVbid;
use crate::{config, entropy};

pub const BEGIN_S: u32 = 1_700_000_000;
const KEYS: u64 = 120;

/// A small generator of numbers (xorshift), so that a seed repeats a run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[derive(Default)]
pub struct RecordingSink(pub Mutex<Vec<(u64, FetchOutcome)>>);

impl FetchSink for RecordingSink {
    fn fetched(&self, token: u64, outcome: FetchOutcome) {
        self.0.lock().push((token, outcome));
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Document {
    value: Vec<u8>,
    flags: u32,
    expiry: u32,
    cas: Cas,
}

struct Client {
    bucket: Arc<Bucket>,
    documents: BTreeMap<u64, Document>,
    random: Random,
    now_s: u32,
    first_key: u64,
    evictions: u64,
    /// Steps are taken by this client, not by threads.
    drives: bool,
    memory: Memory,
}

/// The bucket's memory: some kilobytes, or a part of a quota in which dictionaries have a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Memory {
    Tiny,
    Dense,
}

pub fn place(number: u64) -> (Vbid, String) {
    (Vbid((number % 4) as u16), format!("key-{number}"))
}

pub fn doc_key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

/// How long an operation may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Operations that may wait before they are answered.
enum Answer<T> {
    Is(T),
    Wait(OperationRejection),
}

impl Client {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_s(self.now_s)
    }

    /// Does an operation again until nothing is in its way.
    fn resolve<T>(&mut self, number: u64, mut operate: impl FnMut(&mut Client) -> Answer<T>) -> T {
        // Another thread may evict what was fetched before this one sees it, many times in a row.
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match operate(self) {
                Answer::Is(answer) => return answer,
                Answer::Wait(OperationRejection::NeedsFetch) => self.fetch(number),
                Answer::Wait(
                    OperationRejection::TemporaryFailure | OperationRejection::NoMemory,
                ) => self.make_memory(),
                Answer::Wait(refused) => panic!("{refused:?}"),
            }
        }
        panic!("key {number} is never answered: {:?}", self.bucket.stats());
    }

    fn fetch(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let told = Arc::new(RecordingSink::default());
        let sink: Arc<dyn FetchSink> = told.clone();
        self.bucket.fetch(vbid, doc_key(&name), &sink, number);
        let deadline = Instant::now() + PATIENCE;
        while told.0.lock().is_empty() {
            assert!(Instant::now() < deadline, "the fetch of key {number} never ends");
            match self.drives {
                true => assert!(self.bucket.fetch_step() > 0, "a fetch that was asked for is done"),
                false => std::thread::yield_now(),
            }
        }
        assert_eq!(*told.0.lock(), [(number, FetchOutcome::Ready)]);
    }

    fn make_memory(&mut self) {
        if self.drives {
            self.bucket.flush_step().expect("the store works");
            self.page();
        } else {
            std::thread::yield_now();
        }
    }

    fn page(&self) {
        let now = self.now();
        loop {
            let report = self.bucket.page_items_step(&|| now);
            if !report.more || report.is_stuck {
                break;
            }
        }
    }

    /// The document that a reader sees now.
    fn live(&self, number: u64) -> Option<Document> {
        let found = self.documents.get(&number)?;
        (found.expiry == 0 || found.expiry > self.now_s).then(|| found.clone())
    }

    fn random_key(&mut self) -> u64 {
        self.first_key + self.random.below(KEYS)
    }

    fn random_value(&mut self) -> Vec<u8> {
        let len = match self.random.below(8) {
            0 => 0,
            1 => self.random.below(4000),
            _ => self.random.below(400),
        };
        match self.memory {
            Memory::Tiny => vec![b'a' + self.random.below(26) as u8; len as usize],
            Memory::Dense => (0..len)
                .flat_map(|line| {
                    format!("\"{line}\":{:06},", self.random.below(1 << 19)).into_bytes()
                })
                .collect(),
        }
    }

    fn random_expiry(&mut self) -> u32 {
        match self.random.below(6) {
            0 => self.now_s + 1 + self.random.below(20) as u32,
            _ => 0,
        }
    }

    fn operate(&mut self) {
        let number = self.random_key();
        match self.random.below(12) {
            0..=2 => self.get(number),
            3..=5 => self.store(number),
            6 => self.delete(number),
            7 => self.append(number),
            8 => self.count(number),
            9 => self.touch(number),
            10 => self.get_and_touch(number),
            _ => self.get_meta(number),
        }
    }

    fn get(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let answer = self.resolve(number, |client| {
            match client.bucket.get(vbid, doc_key(&name), client.now()) {
                GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => Answer::Is(Some(Document {
                    value: item.value().to_vec(),
                    flags: item.flags(),
                    expiry: item.expiry(),
                    cas: item.cas(),
                })),
                GetOutcome::Miss => Answer::Is(None),
                GetOutcome::Refused(refused) => Answer::Wait(refused),
            }
        });
        assert_eq!(answer, self.live(number), "get of key {number}");
    }

    fn get_meta(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let answer = self.resolve(number, |client| {
            match client.bucket.get_meta(vbid, doc_key(&name), client.now()) {
                MetaOutcome::Found(item, _) if item.is_deleted() => {
                    assert_ne!(item.cas(), Cas(0), "no client sees a marker of absence");
                    Answer::Is(None)
                }
                MetaOutcome::Found(item, _) => {
                    Answer::Is(Some((item.cas(), item.flags(), item.expiry(), item.value_bytes())))
                }
                MetaOutcome::Miss => Answer::Is(None),
                MetaOutcome::Refused(refused) => Answer::Wait(refused),
            }
        });
        let live = self.live(number).map(|it| (it.cas, it.flags, it.expiry, it.value.len()));
        assert_eq!(answer, live, "metadata of key {number}");
    }

    fn store(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let live = self.live(number);
        let (value, expiry) = (self.random_value(), self.random_expiry());
        let mode = [StoreCondition::Set, StoreCondition::Add, StoreCondition::Replace]
            [self.random.below(3) as usize];
        let cas = match (self.random.below(4), &live) {
            (0, Some(live)) => live.cas,
            (1, _) => Cas(77),
            _ => Cas(0),
        };
        let preserve_expiry = self.random.below(4) == 0;
        let flags = self.random.below(3) as u32;
        let request = StoreRequest {
            mode,
            value: &value,
            flags,
            expiry,
            cas,
            preserve_expiry,
            is_compressed: false,
        };
        let answer =
            self.mutate(number, |bucket, now| bucket.store(vbid, doc_key(&name), &request, now));
        let expected = match (mode, &live) {
            (StoreCondition::Add, Some(_)) => Err(MutationOutcome::Exists),
            (StoreCondition::Replace, None) => Err(MutationOutcome::NotFound),
            (_, None) if cas != Cas(0) => Err(MutationOutcome::NotFound),
            (_, Some(live)) if cas != Cas(0) && cas != live.cas => Err(MutationOutcome::Exists),
            _ => Ok(()),
        };
        let kept = live.filter(|_| preserve_expiry).map(|live| live.expiry);
        let expiry = kept.unwrap_or(expiry);
        self.expect(number, answer, expected, |cas| Document { value, flags, expiry, cas });
    }

    fn delete(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let answer =
            self.mutate(number, |bucket, now| bucket.delete(vbid, doc_key(&name), Cas(0), now));
        match self.live(number) {
            Some(_) => assert!(matches!(answer, MutationOutcome::Done(_)), "{answer:?}"),
            None => assert_eq!(answer, MutationOutcome::NotFound),
        }
        self.documents.remove(&number);
    }

    fn append(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let value = b"-more".as_slice();
        let request = ConcatRequest { mode: ConcatMode::Append, value, cas: Cas(0) };
        let answer =
            self.mutate(number, |bucket, now| bucket.concat(vbid, doc_key(&name), &request, now));
        let live = self.live(number);
        let expected = if live.is_some() { Ok(()) } else { Err(MutationOutcome::NotStored) };
        self.expect(number, answer, expected, |cas| {
            let mut joined = live.expect("there was one");
            joined.value.extend_from_slice(value);
            Document { cas, ..joined }
        });
    }

    fn touch(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let expiry = self.random_expiry();
        let answer =
            self.mutate(number, |bucket, now| bucket.touch(vbid, doc_key(&name), expiry, now));
        let live = self.live(number);
        let expected = if live.is_some() { Ok(()) } else { Err(MutationOutcome::NotFound) };
        self.expect(number, answer, expected, |cas| Document {
            cas,
            expiry,
            ..live.expect("there was one")
        });
    }

    fn get_and_touch(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let expiry = self.random_expiry();
        let answer = self.resolve(number, |client| {
            match client.bucket.get_and_touch(vbid, doc_key(&name), expiry, client.now()) {
                GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
                    Answer::Is(Some((item.value().to_vec(), item.cas())))
                }
                GetOutcome::Miss => Answer::Is(None),
                GetOutcome::Refused(refused) => Answer::Wait(refused),
            }
        });
        let live = self.live(number);
        let value = answer.as_ref().map(|(value, _)| value);
        assert_eq!(value, live.as_ref().map(|live| &live.value), "get and touch of key {number}");
        if let (Some(live), Some((_, cas))) = (live, answer) {
            self.documents.insert(number, Document { cas, expiry, ..live });
        }
    }

    fn count(&mut self, number: u64) {
        let (vbid, name) = place(number);
        let request =
            CounterRequest { delta: 5, decrement: false, initial: Some(1), expiry: 0, cas: Cas(0) };
        let answer = self.resolve(number, |client| {
            match client.bucket.counter(vbid, doc_key(&name), &request, client.now()) {
                CounterOutcome::Refused(refused) => Answer::Wait(refused),
                answer => Answer::Is(answer),
            }
        });
        let live = self.live(number);
        let before = live.as_ref().map(|live| std::str::from_utf8(&live.value).map(str::parse));
        let expected = match before {
            None => Some(1),
            Some(Ok(Ok(before))) => Some(5 + u64::wrapping_add(before, 0)),
            Some(_) => None,
        };
        match (answer, expected) {
            (CounterOutcome::Done { mutation, value }, Some(expected)) => {
                assert_eq!(value, expected, "counter {number}");
                let (flags, expiry) = live.map_or((0, 0), |live| (live.flags, live.expiry));
                let value = value.to_string().into_bytes();
                self.documents.insert(number, Document { value, flags, expiry, cas: mutation.cas });
            }
            (answer, expected) => {
                assert_eq!((answer, expected), (CounterOutcome::NotANumber, None));
            }
        }
    }

    fn mutate(
        &mut self,
        number: u64,
        operation: impl Fn(&Bucket, Timestamp) -> MutationOutcome,
    ) -> MutationOutcome {
        self.resolve(number, |client| match operation(&client.bucket, client.now()) {
            MutationOutcome::Refused(refused) => Answer::Wait(refused),
            answer => Answer::Is(answer),
        })
    }

    fn expect(
        &mut self,
        number: u64,
        answer: MutationOutcome,
        expected: Result<(), MutationOutcome>,
        document: impl FnOnce(Cas) -> Document,
    ) {
        match (answer, expected) {
            (MutationOutcome::Done(mutation), Ok(())) => {
                self.documents.insert(number, document(mutation.cas));
            }
            (answer, expected) => assert_eq!(Err(answer), expected, "write of key {number}"),
        }
    }

    /// Everything is as the model says, and the sums are.
    fn check(&mut self) {
        for number in self.first_key..self.first_key + KEYS {
            self.get(number);
        }
        let now_s = self.now_s;
        self.documents.retain(|_, document| document.expiry == 0 || document.expiry > now_s);
    }
}

pub fn small(policy: EvictionPolicy) -> BucketConfig {
    // All of it may be queued, so that it is memory that refuses writes, and no deletion.
    let upkeep = Upkeep { checkpoint_quota_percent: 100, ..Upkeep::default() };
    BucketConfig { memory_quota_bytes: 24 << 10, eviction: policy, upkeep, ..config() }
}

fn open_with(memory: Memory, policy: EvictionPolicy, disk: &Arc<MemoryMedium>) -> Arc<Bucket> {
    if memory == Memory::Tiny {
        return open(policy, disk);
    }
    let config = BucketConfig {
        memory_quota_bytes: 8 << 20,
        high_watermark_percent: 3,
        low_watermark_percent: 2,
        ..small(policy)
    };
    let store = Arc::new(MemoryStore::on(Arc::clone(disk)));
    let bucket = Bucket::open(config, store, entropy(), true).expect("the bucket opens");
    bucket.set_memory_tier(MemoryTier::Dense);
    bucket
}

pub fn open(policy: EvictionPolicy, disk: &Arc<MemoryMedium>) -> Arc<Bucket> {
    let store = Arc::new(MemoryStore::on(Arc::clone(disk)));
    Bucket::open(small(policy), store, entropy(), true).expect("the bucket opens")
}

fn run_steps(memory: Memory, policies: &[EvictionPolicy], seed: u64) -> (u64, u64) {
    let policy = policies[0];
    let disk = Arc::new(MemoryMedium::default());
    let mut compressions = 0;
    let mut client = Client {
        memory,
        bucket: open_with(memory, policy, &disk),
        documents: BTreeMap::new(),
        random: Random(seed),
        now_s: BEGIN_S,
        first_key: 0,
        evictions: 0,
        drives: true,
    };
    for step in 0..6000 {
        match client.random.below(40) {
            0 => {
                client.bucket.flush_step().expect("the store works");
            }
            1 => client.page(),
            2 => {
                let (vbid, name) = place(client.random_key());
                client.bucket.evict(vbid, doc_key(&name));
            }
            3 => {
                let number = client.random_key();
                client.fetch(number);
            }
            4 => drop(client.bucket.warmup_step()),
            5 => client.now_s += 1,
            7 if step % 4 == 0 && policies.len() > 1 => {
                let policy = policies[client.random.below(policies.len() as u64) as usize];
                assert!(client.bucket.set_eviction(policy));
                assert_eq!(client.bucket.eviction(), policy);
            }
            6 if step % 4 == 0 => {
                while client.bucket.flush_step().expect("the store works").more {}
                let stats = client.bucket.stats().memory;
                client.evictions += stats.evictions;
                compressions += stats.compressions;
                client.bucket = open_with(memory, policy, &disk);
            }
            _ => client.operate(),
        }
    }
    client.bucket.set_eviction(policy);
    finish(&mut client);
    let stats = client.bucket.stats();
    let evictions = client.evictions + stats.memory.evictions;
    if memory == Memory::Tiny {
        assert!(evictions > 400, "{policy:?}, seed {seed}: {evictions} {:?}", stats.memory);
    }
    (evictions, compressions + stats.memory.compressions)
}

fn finish(client: &mut Client) {
    while !matches!(client.bucket.warmup_step(), WarmupStep::Done) {}
    client.check();
    while client.bucket.flush_step().expect("the store works").more {}
    client.page();
    let stats = client.bucket.stats();
    assert_eq!(stats.items, client.documents.len(), "documents are counted wherever they are");
    let mut figures = Vec::new();
    let mut counted = 0;
    for vbid in 0..4 {
        client.bucket.vbucket(Vbid(vbid)).expect("it is there").collection_stats(&mut figures);
        counted += figures.iter().map(|(_, figures)| figures.items).sum::<u64>();
    }
    assert_eq!(counted, client.documents.len() as u64);
    let bytes: usize = (client.documents.iter())
        .map(|(number, document)| place(*number).1.len() + document.value.len())
        .sum();
    let disk_bytes: u64 = (0..4)
        .map(|vbid| {
            client.bucket.vbucket(Vbid(vbid)).expect("it is there").collection_stats(&mut figures);
            figures.iter().map(|(_, figures)| figures.disk_bytes).sum::<u64>()
        })
        .sum();
    assert_eq!(disk_bytes, bytes as u64, "and so are their bytes");
    let bytes_max = match client.memory {
        Memory::Tiny => 24 << 10,
        Memory::Dense => (8 << 20) * 3 / 100,
    };
    assert!(stats.memory.used_bytes <= bytes_max, "{:?}", stats.memory);
}

// Compat (Differences): Full eviction
// Invariant: Only durable versions leave memory, and only while the table holds the only reference.
#[test]
fn answers_under_eviction_are_those_of_the_model() {
    for policy in [EvictionPolicy::Value, EvictionPolicy::Full] {
        for seed in 1..=10 {
            println!("{policy:?} seed {seed}");
            run_steps(Memory::Tiny, &[policy], seed * 0x9e37_79b9);
        }
    }
}

/// Dense, evicted and plain documents mix, and every operation meets each.
#[test]
fn dense_values_keep_the_answers_of_the_model() {
    crate::cover_process_memory();
    let (mut evictions, mut compressions) = (0, 0);
    for policy in [EvictionPolicy::Value, EvictionPolicy::Full] {
        for seed in 1..=6 {
            println!("{policy:?} seed {seed}");
            let run = run_steps(Memory::Dense, &[policy], seed * 0x9e37_79b9);
            evictions += run.0;
            compressions += run.1;
        }
    }
    assert!(evictions > 400 && compressions > 1000, "{evictions} {compressions}");
}

/// Documents that an earlier policy evicted whole are found under every later one.
#[test]
fn any_policy_change_keeps_the_answers_of_the_model() {
    for seed in 1..=10 {
        println!("seed {seed}");
        run_steps(Memory::Tiny, &[EvictionPolicy::Full, EvictionPolicy::Value], seed * 0x9e37_79b9);
    }
}

#[test]
fn a_policy_unsupported_by_the_storage_is_rejected() {
    let bucket = open(EvictionPolicy::Value, &Arc::new(MemoryMedium::default()));
    assert!(!bucket.set_eviction(EvictionPolicy::Nru));
    assert_eq!(bucket.eviction(), EvictionPolicy::Value);
}
