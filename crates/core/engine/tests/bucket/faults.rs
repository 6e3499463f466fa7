//! A whole bucket over a store that is slow, full or failing. Operations that must not wait are
//! counted, never timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oribi_engine::{
    AppliedMutation, Bucket, BucketConfig, EvictionPolicy, FetchOutcome, FetchSink, GetOutcome,
    MutationOutcome, OperationRejection, PersistOutcome, PersistenceSink, StoreRequest,
};
use oribi_storage::{FaultPlan, FaultStore, MemoryStore};
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};
use parking_lot::Mutex;

use crate::operations_by_vbid::OperationsByVbid;

mod failing;
mod slow_disk;

const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
const QUOTA_BYTES: u64 = 8 << 20;

/// A bucket over a store in memory that fails by plan.
struct Fixture {
    bucket: Arc<Bucket>,
    plan: Arc<FaultPlan>,
    told: Arc<RecordingSink>,
    written: AtomicU64,
}

/// Outcomes of waiters, by token.
#[derive(Default)]
struct RecordingSink(Mutex<Vec<(u64, PersistOutcome)>>);

impl PersistenceSink for RecordingSink {
    fn persisted(&self, token: u64, outcome: PersistOutcome) {
        self.0.lock().push((token, outcome));
    }
}

impl FetchSink for RecordingSink {
    fn fetched(&self, _token: u64, outcome: FetchOutcome) {
        assert_eq!(outcome, FetchOutcome::Ready, "reads do not fail");
    }
}

impl Fixture {
    fn new(eviction: EvictionPolicy) -> Fixture {
        let plan = FaultPlan::none();
        let store = FaultStore::new(MemoryStore::new(), Arc::clone(&plan));
        let config = BucketConfig {
            vbuckets: 4,
            memory_quota_bytes: QUOTA_BYTES,
            flush_enabled: true,
            value_bytes_max: 1 << 20,
            eviction,
            ..BucketConfig::default()
        };
        let mut number: u64 = 0;
        let entropy = move || {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            number
        };
        let bucket = Bucket::open(config, Arc::new(store), Box::new(entropy), false)
            .expect("a new bucket opens");
        Fixture { bucket, plan, told: Arc::default(), written: AtomicU64::new(0) }
    }

    /// Writes one new document of a kilobyte.
    fn write_next(&self) -> Result<AppliedMutation, OperationRejection> {
        let number = self.written.load(Ordering::Relaxed);
        let mutation = self.write(number, 1000)?;
        self.written.fetch_add(1, Ordering::Relaxed);
        Ok(mutation)
    }

    fn write(&self, number: u64, bytes: usize) -> Result<AppliedMutation, OperationRejection> {
        let (vbid, name) = place(number);
        let value = value(number, bytes);
        let request = StoreRequest::set(&value);
        match self.bucket.store(vbid, key(&name), &request, NOW) {
            MutationOutcome::Done(mutation) => Ok(mutation),
            MutationOutcome::Refused(refused) => Err(refused),
            other => panic!("{other:?}"),
        }
    }

    /// Reads a document that may be in the store only.
    fn read_fetching(&self, number: u64) -> Option<Vec<u8>> {
        let (vbid, name) = place(number);
        let sink: Arc<dyn FetchSink> = Arc::clone(&self.told) as Arc<dyn FetchSink>;
        loop {
            match self.bucket.get(vbid, key(&name), NOW) {
                GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
                    return Some(item.value().to_vec());
                }
                GetOutcome::Miss => return None,
                GetOutcome::Refused(OperationRejection::NeedsFetch) => {
                    self.bucket.fetch(vbid, key(&name), &sink, number);
                    assert_eq!(self.bucket.fetch_step(), 1);
                }
                GetOutcome::Refused(refused) => panic!("a read was refused: {refused:?}"),
            }
        }
    }

    /// Reads a document that is in memory.
    fn read(&self, number: u64) -> Option<Vec<u8>> {
        let (vbid, name) = place(number);
        match self.bucket.get(vbid, key(&name), NOW) {
            GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => Some(item.value().to_vec()),
            GetOutcome::Miss => None,
            GetOutcome::Refused(refused) => panic!("a read was refused: {refused:?}"),
        }
    }

    /// Asks to be told when a mutation is durable; true when it is already.
    fn wait_for(&self, number: u64, mutation: &AppliedMutation) -> bool {
        let sink: Arc<dyn PersistenceSink> = Arc::clone(&self.told) as Arc<dyn PersistenceSink>;
        let position = (mutation.seqno, Some(mutation.vb_uuid));
        self.bucket.when_persisted(place(number).0, position, &sink, number)
    }

    fn told(&self) -> Vec<(u64, PersistOutcome)> {
        std::mem::take(&mut *self.told.0.lock())
    }

    /// Everything that background threads would do, once.
    fn upkeep(&self) {
        let _ = self.bucket.flush_step();
        self.bucket.recover_checkpoints_step();
        self.bucket.page_items_step(&|| NOW);
        self.bucket.review_pressure();
    }
}

fn place(number: u64) -> (Vbid, String) {
    (Vbid((number % 4) as u16), format!("key-{number}"))
}

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = format!("value {number} ").into_bytes();
    value.resize(bytes, b'v');
    value
}
