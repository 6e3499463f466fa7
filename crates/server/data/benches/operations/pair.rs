//! Two workers serve the same documents, one connection each, or each a server of its own.
//!
//! With `--turns`, one worker's batch is served after the other's, and a store to a known address
//! says where each begins and ends: a tool that records every load and store (`valgrind
//! --tool=lackey`) then shows which cache lines both workers touch. While one serves, the other may
//! still be on its way to the barrier; it says where its stack is, to be told from what both share.
//! Without it, both serve at once,
//! and the processor time of an operation is printed. `cargo xtask scaling` runs both.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_protocol::frame::Header;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::limits::HEADER_BYTES;
use oribi_protocol::status::Status;
use oribi_server::harness::{ConnectionHarness, HARNESS_WORKERS};

use super::{DOCUMENTS, Operation, Options, feed, request};

/// As a server has by default.
const VBUCKETS: u16 = 64;
/// Reads of each document before the operations: its frequency of use rises no more.
const READS_BEFORE: usize = 8;

/// Which documents the operations are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    HotKey,
    TenKeys,
    OneVbucket,
    All,
}

impl Pattern {
    pub fn named(name: &str) -> Option<Pattern> {
        match name {
            "hot-key" => Some(Pattern::HotKey),
            "ten-keys" => Some(Pattern::TenKeys),
            "one-vbucket" => Some(Pattern::OneVbucket),
            "all" => Some(Pattern::All),
            _ => None,
        }
    }

    fn numbers(self, documents: usize) -> Vec<usize> {
        let is_in_first =
            |number: &usize| vbucket_of(format!("{number:016}").as_bytes(), VBUCKETS).0 == 0;
        match self {
            Pattern::HotKey => vec![0],
            Pattern::TenKeys => (0..10).collect(),
            Pattern::OneVbucket => (0..documents).filter(is_in_first).collect(),
            Pattern::All => (0..documents).collect(),
        }
    }
}

/// A worker stores to its first word when its batch begins and to its second when that has ended.
#[repr(align(128))]
struct Marks([[AtomicU64; 2]; HARNESS_WORKERS]);

static MARKS: Marks = Marks([const { [const { AtomicU64::new(0) }; 2] }; HARNESS_WORKERS]);

/// Runs two workers as the options say, and prints what they measured.
pub fn run(options: &Options, pattern: Pattern) -> Result<(), String> {
    let documents = if options.is_in_turns { 1_000 } else { DOCUMENTS };
    let filled = || {
        let mut harness = ConnectionHarness::with_vbuckets(VBUCKETS);
        let mut answers = Vec::new();
        let reads = std::iter::repeat_n(Operation::Get, READS_BEFORE);
        for operation in std::iter::once(Operation::Set).chain(reads) {
            for number in 0..documents {
                let mut batch = Vec::new();
                request(&mut batch, operation, number, options.value_bytes, VBUCKETS);
                feed(&mut harness, &batch, &mut answers);
            }
        }
        harness
    };
    let servers: Vec<ConnectionHarness> =
        (0..if options.is_apart { HARNESS_WORKERS } else { 1 }).map(|_| filled()).collect();
    let numbers = pattern.numbers(documents);
    let barrier = Barrier::new(HARNESS_WORKERS);
    // On a line of its own, whatever else writes there.
    println!("\nmarks {:#x}", MARKS.0.as_ptr().addr());
    let ns: Vec<f64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..HARNESS_WORKERS)
            .map(|worker| {
                let connect = servers[worker % servers.len()].of_worker();
                let (numbers, barrier) = (&numbers, &barrier);
                scope.spawn(move || {
                    let mut harness = connect(worker);
                    let inputs = inputs(options, numbers, worker);
                    match options.is_in_turns {
                        true => serve_in_turns(&mut harness, &inputs, options, barrier, worker),
                        false => serve_at_once(&mut harness, &inputs, options, barrier),
                    }
                })
            })
            .collect();
        workers.into_iter().map(|one| one.join().expect("a worker does not panic")).collect()
    });
    println!("ns {}", ns.iter().sum::<f64>() / ns.len() as f64);
    Ok(())
}

/// Batches of random documents; every `100 / set_pct`th operation writes.
fn inputs(options: &Options, numbers: &[usize], worker: usize) -> Vec<Vec<u8>> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 + worker as u64;
    let batch = |_| {
        let mut batch = Vec::new();
        for _ in 0..options.batch {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let is_set = (random >> 32) % 100 < options.set_pct as u64;
            let operation = if is_set { Operation::Set } else { Operation::Get };
            let number = numbers[(random % numbers.len() as u64) as usize];
            request(&mut batch, operation, number, options.value_bytes, VBUCKETS);
        }
        batch
    };
    (0..options.batches.min(64)).map(batch).collect()
}

fn serve_in_turns(
    harness: &mut ConnectionHarness,
    inputs: &[Vec<u8>],
    options: &Options,
    barrier: &Barrier,
    worker: usize,
) -> f64 {
    let mut answers = Vec::new();
    println!("\nstack {worker} {:#x}", std::ptr::from_ref(&answers).addr());
    for input in inputs.iter().cycle().take(options.batches) {
        for turn in 0..HARNESS_WORKERS {
            barrier.wait();
            if turn == worker {
                MARKS.0[worker][0].store(1, Ordering::Release);
                feed(harness, input, &mut answers);
                MARKS.0[worker][1].store(1, Ordering::Release);
            }
        }
    }
    expect_success(&answers, options.batch);
    0.0
}

/// Nanoseconds of this thread's processor per operation.
fn serve_at_once(
    harness: &mut ConnectionHarness,
    inputs: &[Vec<u8>],
    options: &Options,
    barrier: &Barrier,
) -> f64 {
    let mut answers = Vec::new();
    inputs.iter().for_each(|input| feed(harness, input, &mut answers));
    barrier.wait();
    let begun = processor_ns();
    for input in inputs.iter().cycle().take(options.batches) {
        feed(harness, input, &mut answers);
    }
    let took_ns = processor_ns() - begun;
    expect_success(&answers, options.batch);
    took_ns as f64 / (options.batches * options.batch) as f64
}

/// Every operation of the last batch was answered and did what it was there for.
fn expect_success(answers: &[u8], operations: usize) {
    let (mut rest, mut answered) = (answers, 0);
    while let Some((header, behind)) = rest.split_first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(header).expect("a server's answer");
        assert_eq!(header.vbucket_or_status, Status::Success.code(), "answer {answered}");
        rest = behind.get(header.body_bytes as usize..).expect("a whole answer");
        answered += 1;
    }
    assert_eq!(answered, operations, "answers of a batch");
}

/// As the kernel accounts it to the calling thread.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}
