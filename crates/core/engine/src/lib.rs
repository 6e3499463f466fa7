//! The key-value engine: items in memory, queued once, flushed in batches, loaded back at start.
//!
//! Owns: buckets and what they consist of. From the top: [`BucketThreads`] drives steps; [`Bucket`]
//! is the facade; flusher, warmup, fetcher and pagers share one core; the core holds the
//! vbuckets; a vbucket holds a hash table and a checkpoint queue of items. Files import downwards
//! only.
//!
//! Invariants: the engine sees keys and values, and no other wire byte. Time, entropy and settings
//! are handed in. It names no storage backend. Background work is steps; [`BucketThreads`] is the
//! driver that production uses, and the one place that reads a clock. Statistics are structs and
//! histograms; the server turns them into text. Callers: the server, and tests.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "memory of items and tables; invariants in block_arena.rs")]
pub mod block_arena;
pub mod checkpoint;
pub mod collections;
pub mod compression;
pub mod dcp;
pub mod limits;

mod attributes;
mod backfill;
mod background_fetch;
mod bucket;
mod cache_padded;
mod checkpoint_recovery;
mod compaction;
mod config;
mod core;
mod datatype;
mod dense;
mod error;
mod expiry;
mod expiry_pager;
mod failure;
mod flush_pass;
mod flusher;
mod flusher_signal;
#[allow(unsafe_code, reason = "memory that waits for readers; invariants in grace_period.rs")]
mod grace_period;
#[allow(unsafe_code, reason = "zeroed groups; invariants in hash_table/group.rs")]
mod hash_table;
mod idle_memory;
#[allow(unsafe_code, reason = "the item block; invariants at the top of item.rs")]
mod item;
mod item_pager;
mod large_read;
mod memory;
#[cfg(test)]
#[allow(unsafe_code, reason = "cells that the model checker watches")]
#[allow(clippy::duplicate_mod, reason = "the same code over the model checker's atomics")]
mod models;
mod newest_documents;
mod outcome;
mod persistence;
#[allow(unsafe_code, reason = "the prefetch instruction; invariant in prefetch.rs")]
mod prefetch;
mod prepare;
mod reader_memory;
mod record;
#[cfg(test)]
mod simulation;
mod system_event;
mod tasks;
mod threads;
mod timings;
mod tombstone_purge;
mod vbucket;
#[allow(unsafe_code, reason = "how threads wait; invariants at the top of vbucket_lock.rs")]
mod vbucket_lock;
mod warmup;

pub use backfill::{BackfillPace, BackfillPause, BackfillReport, BackfillStats};
pub use background_fetch::{FetchOutcome, FetchSink};
pub use bucket::{
    Bucket, BucketStats, CopyRoleError, DiskState, KeyAhead, KeyOnDisk, ListError, ListRequest,
    ListedDocument, ListedPage, PreparedPromotion, SnapshotScan,
};
pub use checkpoint::{CheckpointManagerStats, CheckpointStats, CursorStats, ReplicatedVersion};
pub use checkpoint_recovery::RecoveryReport;
pub use config::{BucketConfig, Upkeep};
#[doc(hidden)]
pub use dense::check_frame as check_dense_frame;
pub use dense::{DenseError, DenseStats, DictionaryName, MemoryTier};
pub use error::{BucketOpenError, FlushAllError, ManifestUpdateError};
pub use expiry_pager::ExpiryReport;
pub use failure::{FailedOperations, StoreOperation};
pub use flusher::FlushReport;
pub use grace_period::ReadSection;
pub use hash_table::{HashTableStats, KeyHash, PROBE_LENGTHS};
pub use item::{FillingItem, HEADER_BYTES, Item, ItemFields, ItemRef, NewItem, SharedItem};
pub use item_pager::PagerReport;
pub use memory::{CheckpointPressure, MemoryStats};
pub use oribi_types::policy::{ConflictResolution, EvictionPolicy, Storage};
pub use outcome::{
    AppliedMutation, ConcatMode, ConcatRequest, CounterOutcome, CounterRequest, EXPLICIT_CAS_END,
    GetOutcome, LOCKED_CAS, LockOutcome, MetaOutcome, MutationOutcome, OperationRejection,
    ReadTarget, RewriteOutcome, SharedOutcome, StoreCondition, StoreRequest, UnlockOutcome,
    VersionOutcome, WithMetaMode, WithMetaRequest,
};
pub use persistence::{PersistOutcome, PersistenceSink};
pub use prepare::PreparedVersion;
pub use reader_memory::{MemoryGrant, MemoryRequest, ReaderMemory};
pub use record::of as record_of;
pub use system_event::{ManifestEvent, ManifestEventKind};
pub use tasks::{StepClock, TaskKind, TaskState, TaskStats};
pub use threads::BucketThreads;
pub use timings::BucketTimings;
pub use tombstone_purge::PurgeReport;
pub use vbucket::{
    ApplyError, CollectionStats, Context, CopyStanding, CurrentVersion, KeyStats, NextVersion,
    ReplicaPosition, ReplicatedDocument, SnapshotChanges, Stamp, VBucket, VbucketStats,
    VersionFields, WalkCursor, WriteQuorum, WriteVisibility, counter_value, histories,
};
pub use warmup::{WarmupState, WarmupStats, WarmupStep};
