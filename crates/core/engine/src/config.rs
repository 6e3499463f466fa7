//! Settings of a bucket, and which of them go together.
//!
//! Owns: every setting, its default and its check. A bucket is opened with a [`BucketConfig`] and
//! keeps it; the few settings that change while it is open (quota, eviction, flush, flush interval,
//! compression) have setters on the bucket. The server reads them from a file; the engine does not.
//! `docs/memory.md` says why there are four eviction policies.

use crate::limits::{
    FLUSH_BYTES_MAX, HIGH_WATERMARK_PERCENT, LOW_WATERMARK_PERCENT, VALUE_BYTES_MAX, VBUCKETS_MAX,
};

use oribi_types::policy::{EvictionPolicy, Storage};

/// Settings of a bucket, fixed while it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketConfig {
    /// Name that clients select.
    pub name: String,
    /// 32 hexadecimal digits, chosen at creation.
    pub uuid: String,
    /// Number of vbuckets: a power of two up to 1024, fixed for the bucket's life.
    pub vbuckets: u16,
    /// Bytes of items and tables in memory beyond which writes are refused.
    pub memory_quota_bytes: u64,
    /// Whether the memcached flush command may empty the bucket, at first; see
    /// [`crate::Bucket::set_flush_enabled`].
    pub flush_enabled: bool,
    /// Longest value, at most 20 MiB.
    pub value_bytes_max: usize,
    /// How long writes gather before a flush that no operation waits for, in milliseconds, at
    /// first; see [`crate::Bucket::set_flush_interval_ms`].
    pub flush_interval_ms: u64,
    /// Where documents are kept.
    pub storage: Storage,
    /// The initial eviction policy; see [`crate::Bucket::set_eviction`].
    pub eviction: EvictionPolicy,
    /// Part of the quota, in per cent, beyond which the item pager begins to evict.
    pub high_watermark_percent: u8,
    /// Part of the quota, in per cent, at which it stops.
    pub low_watermark_percent: u8,
    /// Background work: how often, and how much at once.
    pub upkeep: Upkeep,
}

impl BucketConfig {
    /// Says which setting is impossible, or does not go with another.
    pub(crate) fn check(&self) -> Result<(), String> {
        let vbuckets = self.vbuckets;
        if !vbuckets.is_power_of_two() || vbuckets > VBUCKETS_MAX {
            return Err(format!(
                "vbuckets = {vbuckets} is not a power of two from 1 to {VBUCKETS_MAX}"
            ));
        }
        if self.value_bytes_max > VALUE_BYTES_MAX {
            return Err(format!("value_bytes_max is over {VALUE_BYTES_MAX}"));
        }
        if !self.eviction.fits(self.storage) {
            return Err(format!("eviction {:?} with storage {:?}", self.eviction, self.storage));
        }
        let (low, high) = (self.low_watermark_percent, self.high_watermark_percent);
        if low >= high || high > 100 {
            return Err(format!(
                "watermarks of {low} and {high} % are not in ascending order up to 100"
            ));
        }
        let percent = self.upkeep.checkpoint_quota_percent;
        if !(1..=100).contains(&percent) {
            return Err(format!("a checkpoint quota of {percent} % is not between 1 and 100"));
        }
        Ok(())
    }
}

impl Default for BucketConfig {
    /// A persistent bucket of 64 vbuckets and 1 GiB, called `default`, that flushes without waiting
    /// and evicts values.
    fn default() -> BucketConfig {
        let storage = Storage::Persistent;
        BucketConfig {
            name: "default".to_owned(),
            uuid: "0".repeat(32),
            vbuckets: 64,
            memory_quota_bytes: 1 << 30,
            flush_enabled: false,
            value_bytes_max: VALUE_BYTES_MAX,
            flush_interval_ms: 0,
            storage,
            eviction: EvictionPolicy::for_storage(storage),
            high_watermark_percent: HIGH_WATERMARK_PERCENT,
            low_watermark_percent: LOW_WATERMARK_PERCENT,
            upkeep: Upkeep::default(),
        }
    }
}

/// How often background work runs and how much it takes at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upkeep {
    /// Seconds between the beginnings of two passes of the expiry pager; 0 for never.
    pub expiry_pager_interval_s: u32,
    /// Seconds that a tombstone stays in the store after its deletion was persisted.
    pub tombstone_purge_age_s: u32,
    /// Part of the memory quota, in per cent, that the mutation queues may take before checkpoints
    /// are closed, expelled and, at last, slow cursors dropped.
    pub checkpoint_quota_percent: u8,
    /// Bytes of items gathered over all vbuckets before they are committed together; the last
    /// checkpoint may exceed it. Bounds what one flush pins in memory.
    pub flush_bytes_max: usize,
}

impl Default for Upkeep {
    /// Ten minutes, three days and a fifth: what Couchbase's clients and tools are used to. Flushes
    /// of 32 MiB.
    fn default() -> Upkeep {
        Upkeep {
            expiry_pager_interval_s: 600,
            tombstone_purge_age_s: 3 * 24 * 60 * 60,
            checkpoint_quota_percent: 20,
            flush_bytes_max: FLUSH_BYTES_MAX,
        }
    }
}
