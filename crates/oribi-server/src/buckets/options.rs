//! What can be chosen when a bucket is created, and what the settings say for those that are not asked.
//!
//! Owns: the choices and which of them go together. Called by the registry of buckets, the admin HTTP and the
//! cluster. It opens nothing.

use oribi_engine::compression::CompressionMode;
use oribi_engine::{ConflictResolution, EvictionPolicy, Upkeep};

use super::BucketStorage;
use crate::config::Settings;

/// Where eviction begins and ends, in per cent of the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// Here it begins.
    pub high: u8,
    /// Here it ends.
    pub low: u8,
}

/// What can be chosen when a bucket is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketOptions {
    /// Where documents are kept.
    pub storage: BucketStorage,
    /// Power of two up to 1024.
    pub vbuckets: u16,
    /// Memory for items, in MiB.
    pub memory_quota_mib: u64,
    /// What is evicted when that runs short; by the storage when not set.
    pub eviction: Option<EvictionPolicy>,
    /// What is done about compression.
    pub compression: CompressionMode,
    /// What decides which of two versions from different clusters stays.
    pub conflict_resolution: ConflictResolution,
    /// Whether the bucket may be emptied by command.
    pub flush_enabled: bool,
    /// Pause between two commits when no durable write waits.
    pub flush_interval_ms: u64,
    /// Parts of the quota, in per cent, at which eviction begins and ends.
    pub watermarks_percent: Watermarks,
    /// Work in the background.
    pub upkeep: Upkeep,
    /// Whether a damaged journal is accepted when the bucket is opened.
    pub accepts_damaged_journal: bool,
    /// Whether to wait for as long as a store behind a network cannot be reached.
    pub waits_for_store: bool,
}

impl BucketOptions {
    /// The options that the settings give to new buckets.
    pub fn from_settings(settings: &Settings) -> BucketOptions {
        BucketOptions {
            storage: settings.storage.clone(),
            vbuckets: settings.vbuckets,
            memory_quota_mib: settings.new_bucket_quota_mib(),
            eviction: settings.eviction,
            compression: settings.compression_mode,
            conflict_resolution: settings.conflict_resolution,
            flush_enabled: settings.flush_enabled,
            flush_interval_ms: settings.flush_interval_ms,
            watermarks_percent: Watermarks {
                high: settings.high_watermark_percent,
                low: settings.low_watermark_percent,
            },
            upkeep: settings.upkeep(),
            accepts_damaged_journal: settings.accept_damaged_journal,
            waits_for_store: true,
        }
    }

    /// What is evicted when memory runs short.
    pub fn eviction(&self) -> EvictionPolicy {
        self.eviction.unwrap_or_else(|| EvictionPolicy::for_storage(self.storage.of_engine()))
    }

    /// True when what is to be evicted can be evicted with this storage.
    pub fn are_possible(&self) -> bool {
        self.eviction().fits(self.storage.of_engine())
    }
}
