//! Durable storage: the [`KvStore`] trait and its implementations.
//!
//! Owns: the trait, the records that cross it, the log store, the fault-injecting store and the
//! conformance suite that every backend passes. Invariants: the trait is called per batch, never
//! per operation; a store is only ever handed borrowed bytes and never sees an engine type; an
//! error from `commit` means that none of its batches may be treated as durable. Callers: the
//! engine's flusher, warmup and background fetch. It does not depend on clients.

pub mod conformance;
mod counters;
mod directory;
mod fault_store;
#[doc(hidden)]
pub mod forward;
mod kv_store;
mod load_plan;
mod log_store;
mod memory_store;
#[cfg(any(test, feature = "testing"))]
mod null_store;
mod owned_record;
pub mod prefetch;
mod record;
mod seeded_random;
mod seqno_scan;
mod shared_memory_store;
mod shared_store;
mod state_layout;
mod store_error;
mod store_stats;
mod vbucket_state;
mod visitor;

pub use conformance::Medium;
pub use counters::{Counters, ReadCount};
pub use directory::LOGS_MAX;
pub use fault_store::{FaultPlan, FaultStore, StoreFault};
pub use kv_store::{
    GetVisitor, KvStore, LookupResult, StoreMaintenance, StoreProperties, load_all,
};
pub use load_plan::{LoadPart, LoadPlan, LoadValues, LoadVisitor};
pub use log_store::{
    CompactionStep, LogLosses, LogOptions, LogSizes, LogStore, Packing, SnapshotSizes, snapshot_log,
};
pub use memory_store::{MemoryMedium, MemoryStore};
pub use owned_record::OwnedRecord;
pub use record::{Record, VbBatch};
pub use seeded_random::SeededRandom;
pub use seqno_scan::{ScanProgress, SeqnoRange, SeqnoScan, SnapshotSeqnos};
pub use shared_memory_store::{SharedMedium, SharedMemoryStore};
pub use shared_store::{Ownership, PartVisitor, SharedStore};
pub use state_layout::{VBUCKETS_MAX, assert_fits, decode_state, encode_state};
pub use store_error::StoreError;
pub use store_stats::StoreStats;
pub use vbucket_state::{FailoverEntry, VbucketPhase, VbucketState};
pub use visitor::{LARGE_RECORD_BYTES, RecordVisitor, ReserveMemory, reserve_for, unlimited};

/// Parts of this crate for tests of other crates: files that fail, bugs to plant, and a store
/// that keeps nothing.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    pub use crate::log_store::{Bug, SimDirectory, Trouble};
    pub use crate::null_store::NullStore;
}
