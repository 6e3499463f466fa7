//! The key-value engine: items in memory, queued once, flushed in batches, loaded back at start.
//!
//! Owns: buckets and all below them. Invariants, as absences: it never sees a wire byte other than
//! keys and values, never reads the clock of the operating system or a configuration file (time,
//! entropy and settings are handed in), never names a storage backend, and has no free-running loop:
//! background work is steps, and [`BucketThreads`] is only the driver that production uses, with the
//! clock that it hands to them. Statistics are structs and histograms; text is the server's.
//! Caller: the server, and tests.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "memory of items and tables; invariants in block_arena.rs")]
pub mod block_arena;
pub mod checkpoint;
pub mod collections;
pub mod compression;
pub mod limits;

mod attributes;
mod background_fetch;
mod bucket;
mod checkpoint_recovery;
mod datatype;
mod eviction;
mod expiry;
mod expiry_pager;
mod flush_pass;
mod flusher;
#[allow(unsafe_code, reason = "zeroed groups; invariants in hash_table/group.rs")]
mod hash_table;
#[allow(unsafe_code, reason = "the item block; invariants at the top of item.rs")]
mod item;
mod item_pager;
mod memory;
#[cfg(test)]
#[allow(unsafe_code, reason = "cells that the model checker watches")]
#[allow(clippy::duplicate_mod, reason = "the same code over the model checker's atomics")]
mod models;
mod outcome;
mod persistence;
mod planted;
#[allow(unsafe_code, reason = "the prefetch instruction; invariant in prefetch.rs")]
mod prefetch;
#[cfg(test)]
mod simulation;
mod stats;
mod tasks;
mod threads;
mod timings;
mod tombstone_purge;
mod upkeep;
mod vbucket;
mod warmup;

pub use background_fetch::{FetchOutcome, FetchSink};
pub use bucket::{
    Bucket, BucketConfig, DiskState, FlushAllError, KeyOnDisk, ManifestUpdateError, OpenError,
    Storage,
};
pub use checkpoint::{CheckpointManagerStats, CheckpointStats, CursorStats};
pub use checkpoint_recovery::{CheckpointPressure, RecoveryReport};
pub use eviction::EvictionPolicy;
pub use expiry_pager::ExpiryReport;
pub use flusher::FlushReport;
pub use hash_table::{HashTableStats, PROBE_LENGTHS};
pub use item::{FillingItem, HEADER_BYTES, ItemFields, ItemRef, NewItem};
pub use item_pager::PagerReport;
pub use outcome::{
    ConcatMode, ConcatRequest, ConflictResolution, CounterOutcome, CounterRequest, GIVEN_CAS_END,
    GetOutcome, LOCKED_CAS, LockOutcome, MetaOutcome, Mutation, MutationOutcome, Refused,
    StoreMode, StoreRequest, UnlockOutcome, WithMetaMode, WithMetaRequest,
};
pub use persistence::{PersistOutcome, PersistenceSink};
pub use prefetch::KeyAhead;
pub use stats::{BucketStats, MemoryStats, WarmupState, WarmupStats};
pub use tasks::{StepClock, TaskState, TaskStats};
pub use threads::BucketThreads;
pub use timings::BucketTimings;
pub use tombstone_purge::PurgeReport;
pub use upkeep::Upkeep;
pub use vbucket::{
    CollectionStats, Current, KeyStats, NextVersion, RewriteOutcome, Sought, Stamp, VBucket,
    VbucketStats, VersionFields, VersionOutcome,
};
pub use warmup::WarmupStep;
