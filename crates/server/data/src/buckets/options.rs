//! The options of a new bucket, and their defaults from the settings.
//!
//! Owns: the options, and the rule for valid combinations. Callers: the registry of buckets, the
//! admin HTTP and the cluster.

use oribi_config::BucketStorage;
use oribi_config::Settings;
use oribi_engine::MemoryTier;
use oribi_engine::compression::CompressionMode;
use oribi_engine::{ConflictResolution, EvictionPolicy, Upkeep};

use super::DurabilityMin;

/// Start and end of eviction, in per cent of the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    pub high: u8,
    pub low: u8,
}

/// Options of a bucket at its creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketOptions {
    /// Where documents are stored.
    pub storage: BucketStorage,
    /// Power of two up to 1024.
    pub vbuckets: u16,
    /// Logs of its store when that is created; by processors and quota when not given.
    pub logs: Option<usize>,
    /// Memory for items, in MiB.
    pub memory_quota_mib: u64,
    /// The eviction policy; the storage's default when not set.
    pub eviction: Option<EvictionPolicy>,
    /// When values are compressed.
    pub compression: CompressionMode,
    /// What happens to cold values before they leave memory.
    pub memory_tier: MemoryTier,
    /// How the bucket resolves conflicts between versions from different clusters.
    pub conflict_resolution: ConflictResolution,
    /// The level that lower writes are raised to.
    pub durability_min: DurabilityMin,
    /// Longest life of documents whose collection has no rule, in seconds; 0 for any.
    pub max_ttl_s: u32,
    /// Whether the bucket may be emptied by command.
    pub flush_enabled: bool,
    /// How long writes gather before a flush, for buckets without their own interval.
    pub flush_interval_ms: u64,
    /// The bucket's own flush interval.
    pub own_flush_interval_ms: Option<u64>,
    /// Parts of the quota, in per cent, at which eviction starts and ends.
    pub watermarks_percent: Watermarks,
    /// Settings of background work.
    pub upkeep: Upkeep,
    /// Copies of each vbucket on other nodes; `None` for a bucket of this node alone.
    pub replicas: Option<u8>,
    /// Whether a damaged journal is accepted when the bucket is opened.
    pub accepts_damaged_log: bool,
    /// Whether to wait without limit while a remote store is unreachable.
    pub waits_for_store: bool,
}

impl BucketOptions {
    /// The options that the settings give to new buckets.
    pub fn from_settings(settings: &Settings) -> BucketOptions {
        BucketOptions {
            storage: settings.storage.clone(),
            vbuckets: settings.vbuckets,
            logs: settings.logs,
            memory_quota_mib: settings.new_bucket_quota_mib(),
            eviction: settings.eviction,
            compression: settings.compression_mode,
            memory_tier: settings.memory_tier,
            conflict_resolution: settings.conflict_resolution,
            durability_min: DurabilityMin::default(),
            max_ttl_s: 0,
            flush_enabled: settings.flush_enabled,
            flush_interval_ms: settings.flush_interval_ms,
            own_flush_interval_ms: None,
            watermarks_percent: Watermarks {
                high: settings.high_watermark_percent,
                low: settings.low_watermark_percent,
            },
            upkeep: Upkeep {
                expiry_pager_interval_s: settings.expiry_pager_interval_s,
                tombstone_purge_age_s: settings.tombstone_purge_age_s,
                checkpoint_quota_percent: settings.checkpoint_quota_percent,
                ..Upkeep::default()
            },
            replicas: None,
            accepts_damaged_log: settings.accept_damaged_log,
            waits_for_store: true,
        }
    }

    /// The eviction policy in force.
    pub fn eviction(&self) -> EvictionPolicy {
        self.eviction.unwrap_or_else(|| EvictionPolicy::for_storage(self.storage.of_engine()))
    }

    /// True when the storage supports the eviction policy.
    pub fn are_possible(&self) -> bool {
        self.eviction().fits(self.storage.of_engine())
    }
}

#[cfg(test)]
mod tests {
    use oribi_engine::limits::{HIGH_WATERMARK_PERCENT, LOW_WATERMARK_PERCENT};

    use super::*;

    #[test]
    fn settings_and_engine_have_the_same_defaults() {
        let options = BucketOptions::from_settings(&Settings::default());
        assert_eq!(options.upkeep, Upkeep::default());
        let watermarks = options.watermarks_percent;
        assert_eq!(watermarks.high, HIGH_WATERMARK_PERCENT);
        assert_eq!(watermarks.low, LOW_WATERMARK_PERCENT);
    }
}
