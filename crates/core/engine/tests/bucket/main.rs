//! A whole bucket over a store in memory. Steps are driven by hand and time is a number, so nothing
//! here depends on the machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use oribi_engine::{
    AppliedMutation, Bucket, BucketConfig, MutationOutcome, StoreRequest, WarmupStep,
};
use oribi_storage::{KvStore, MemoryMedium, MemoryStore};
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

mod caches;
mod collection_model;
mod compression;
mod dense;
mod events;
mod eviction;
mod faults;
mod fetches;
mod flushers;
mod flushing;
mod in_memory;
mod listing;
mod operations;
mod operations_by_vbid;
mod ownership;
mod pending_writes;
mod replicas;
mod rewrites;
mod shared_reads;
mod statistics;
mod streams;
mod upkeep;
mod warmup;
mod with_meta;

mod concurrent;

const VB: Vbid = Vbid(1);
const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);

fn config() -> BucketConfig {
    BucketConfig {
        vbuckets: 4,
        flush_enabled: true,
        value_bytes_max: 1 << 20,
        ..BucketConfig::default()
    }
}

fn entropy() -> Box<dyn FnMut() -> u64 + Send> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Box::new(|| NEXT.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed))
}

fn open(store: Arc<dyn KvStore>) -> Arc<Bucket> {
    let bucket = Bucket::open(config(), store, entropy(), false).expect("a fresh bucket opens");
    while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
    bucket
}

/// Opens a bucket whose quota covers the memory that other tests of this process take. Nothing
/// becomes dense while the process has no memory left for a training.
fn cover_process_memory() {
    static COVER: LazyLock<Arc<Bucket>> = LazyLock::new(|| {
        let config = BucketConfig { memory_quota_bytes: 4 << 30, ..config() };
        let store = Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default())));
        Bucket::open(config, store, entropy(), false).expect("a fresh bucket opens")
    });
    LazyLock::force(&COVER);
}

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

fn set(value: &str) -> StoreRequest<'_> {
    StoreRequest { flags: 7, ..StoreRequest::set(value.as_bytes()) }
}

fn done(outcome: MutationOutcome) -> AppliedMutation {
    match outcome {
        MutationOutcome::Done(mutation) => mutation,
        other => panic!("{other:?}"),
    }
}
