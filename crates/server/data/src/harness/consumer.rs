//! The check that the fuzzer of change streams and the tests share: what a consumer sends, while
//! documents change below it.
//!
//! The input says how the consumer opens its connection, and then which steps follow ([`steps`]):
//! requests and answers of a consumer with every flag, arbitrary bytes, and between them writes,
//! changes of the collections, flushes, backfills that run while the consumer reads, memory that
//! runs short, and time. The bucket is so small that the queue's memory runs out.
//!
//! [`oracle`] follows the streams as a consumer would. At the end the consumer acknowledges and
//! reads everything, and every stream that is still open must have shown the newest version of each
//! document that it is about. The check fails on a panic and on a broken rule.

mod input;
mod oracle;
mod steps;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use oribi_auth::UserStore;
use oribi_engine::{BackfillPause, BucketConfig};
use oribi_protocol::feature::Feature;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, Timestamp, Vbid};

use super::login::log_in;
use super::{ConnectionHarness, HARNESS_VBUCKETS, LIMITS, harness_config, server_over};
use input::Input;
pub use oracle::ConsumerTally;
use oracle::{ConsumerOracle, WrittenVersion};

/// Memory of the bucket: its queues are full after some of the longest values.
const QUOTA_BYTES: u64 = 1 << 20;
/// Steps of one input; more only make it slow.
const STEPS_MAX: usize = 200;
/// Rounds after which open streams must have shown everything.
const ROUNDS_MAX: usize = 50;

/// One consumer, one writer, and what is known of both.
struct Run {
    consumer: RefCell<ConnectionHarness>,
    writer: ConnectionHarness,
    oracle: RefCell<ConsumerOracle>,
    /// All versions by vbucket and seqno. A flushed bucket gives seqnos again.
    written: BTreeMap<(Vbid, u64), Vec<WrittenVersion>>,
    /// Seqno of each document's newest version.
    newest: BTreeMap<(Vbid, CollectionId, Vec<u8>), u64>,
    /// Versions came that no request was answered with: expirations.
    may_expire: bool,
}

/// Runs the input and panics when an invariant does not hold.
pub fn check_consumer(input: &[u8]) -> ConsumerTally {
    let mut input = Input::new(input);
    let mut run = Run::begin(&mut input);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        run.step(&mut input);
        run.compare_changes();
    }
    run.finish()
}

/// One user store for all runs, so that they pay for the key derivation of the log-in only once.
fn users() -> Arc<UserStore> {
    static USERS: OnceLock<Arc<UserStore>> = OnceLock::new();
    Arc::clone(USERS.get_or_init(|| Arc::new(UserStore::development())))
}

impl Run {
    fn begin(input: &mut Input<'_>) -> Run {
        let config = BucketConfig { memory_quota_bytes: QUOTA_BYTES, ..harness_config() };
        let store = Arc::new(MemoryStore::new());
        let (server, bucket) = server_over(users(), (config, store), LIMITS, true, false);
        let mut consumer = ConnectionHarness::connect(server, bucket);
        let mut writer = consumer.beside();
        log_in(&mut writer, |feature| feature != Feature::UnorderedExecution);
        let chosen = input.byte();
        let has_collections = chosen & 1 == 0;
        log_in(&mut consumer, |feature| match feature {
            Feature::UnorderedExecution => chosen & 0x70 == 0x70,
            Feature::Collections => has_collections,
            Feature::Snappy => chosen & 2 == 0,
            Feature::Json => chosen & 4 == 0,
            _ => true,
        });
        let run = Run {
            consumer: RefCell::new(consumer),
            writer,
            oracle: RefCell::new(ConsumerOracle::new(has_collections)),
            written: BTreeMap::new(),
            newest: BTreeMap::new(),
            may_expire: false,
        };
        run.open(input);
        if chosen & 8 == 0 {
            run.control(b"enable_noop", b"true");
        }
        run
    }

    /// Sends a request of the consumer, and checks the output.
    fn send(&self, parts: &RequestParts<'_>) {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, parts);
        self.send_bytes(&bytes);
    }

    fn send_bytes(&self, bytes: &[u8]) {
        let mut consumer = self.consumer.borrow_mut();
        let has_ended = consumer.close_reason().is_some();
        let output = consumer.feed(bytes);
        assert!(!has_ended || output.is_empty(), "a message after the end: {output:?}");
        self.oracle.borrow_mut().hear(&output);
    }

    fn advance_ms(&mut self, ms: u64) {
        let mut consumer = self.consumer.borrow_mut();
        let output = consumer.advance_ms(ms);
        self.oracle.borrow_mut().hear(&output);
        drop(consumer);
        self.writer.advance_ms(ms);
    }

    /// Serves the streams that wait for a backfill; the consumer reads while a scan waits for it,
    /// some times.
    fn backfill(&self, patience: u32) {
        let bucket = Arc::clone(self.writer.bucket().bucket());
        let pace = |pause: BackfillPause| {
            self.send_bytes(&[]);
            pause.idle < patience
        };
        bucket.backfill_step(&pace, &Timestamp::default).expect("a store in memory can be read");
    }

    /// Compares what came with what was written.
    fn compare_changes(&self) {
        self.oracle.borrow_mut().compare(&self.written, self.may_expire);
    }

    /// Reads everything, and looks for what is missing.
    fn finish(mut self) -> ConsumerTally {
        for _ in 0..ROUNDS_MAX {
            if self.consumer.borrow().close_reason().is_some() {
                break;
            }
            let changes = self.oracle.borrow().tally.changes;
            self.acknowledge(u32::MAX);
            self.writer.bucket().bucket().flush_step().expect("a store in memory can be written");
            self.backfill(2);
            self.send_bytes(&[]);
            self.compare_changes();
            let is_quiet = self.oracle.borrow().tally.changes == changes;
            let waiting = self.writer.bucket().bucket().backfill_stats().waiting;
            if is_quiet && waiting == 0 {
                break;
            }
        }
        self.writer.advance_ms(0);
        let is_open = self.consumer.borrow().close_reason().is_none();
        let mut oracle = self.oracle.into_inner();
        if is_open {
            oracle.look_for(&self.newest);
        }
        oracle.tally.backfills = self.writer.bucket().bucket().backfill_stats().scans;
        oracle.tally
    }
}

/// Vbuckets that requests name: those of the bucket, and one more.
fn some_vbucket(byte: u8) -> Vbid {
    Vbid(u16::from(byte) % (HARNESS_VBUCKETS + 1))
}
