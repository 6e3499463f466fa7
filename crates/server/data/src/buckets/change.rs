//! Changes to the settings of an open bucket.
//!
//! Owns: which settings change, and the order of file and memory. Invariant: a change is made as a
//! whole or not at all, and is in `bucket.json` before it is in force. Callers: the admin HTTP and
//! the reload of the configuration.

use std::sync::atomic::Ordering;

use oribi_config::{compression, eviction, memory_tier};
use oribi_engine::EvictionPolicy;
use oribi_engine::MemoryTier;
use oribi_engine::compression::CompressionMode;

use super::error::io_error;
use super::file::{BucketFile, MIB};
use super::{BucketError, BucketHandle, Buckets, DurabilityMin};

/// Changes to an open bucket; a field that is `None` stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketChange {
    /// Memory for items, in MiB.
    pub memory_quota_mib: Option<u64>,
    pub eviction: Option<EvictionPolicy>,
    /// Whether the bucket may be emptied by command.
    pub flush_enabled: Option<bool>,
    /// How long writes gather before a flush, in milliseconds.
    pub flush_interval_ms: Option<u64>,
    /// When values are compressed.
    pub compression: Option<CompressionMode>,
    /// What happens to cold values before they leave memory.
    pub memory_tier: Option<MemoryTier>,
    /// The level that lower writes are raised to.
    pub durability_min: Option<DurabilityMin>,
    /// Longest life of documents whose collection has no rule, in seconds; 0 for any.
    pub max_ttl_s: Option<u32>,
}

impl Buckets {
    /// Changes the settings that can change while a bucket is open. Durable, and in force, when it
    /// returns.
    ///
    /// # Errors
    /// An unknown name, an eviction policy or a durability that does not fit the storage, or an I/O
    /// error; nothing changes then.
    pub fn update(&self, name: &str, change: BucketChange) -> Result<(), BucketError> {
        let _one_at_a_time = self.changes.lock();
        let handle = self.get(name).ok_or_else(|| BucketError::Unknown(name.to_owned()))?;
        let storage = handle.storage().of_engine();
        if let Some(policy) = change.eviction.filter(|policy| !policy.fits(storage)) {
            let (name, policy) = (name.to_owned(), eviction::setting_name(policy));
            return Err(BucketError::Eviction { name, policy });
        }
        let is_impossible = |level: &DurabilityMin| !level.is_possible(handle.is_in_memory());
        if let Some(level) = change.durability_min.filter(is_impossible) {
            let (name, level) = (name.to_owned(), level.name());
            return Err(BucketError::Durability { name, level });
        }
        if let Some(directory) = &handle.directory {
            let path = BucketFile::path(directory);
            let json = std::fs::read(&path).map_err(|e| io_error("read", &path, e))?;
            let mut file = BucketFile::parse(&json, name, directory)?;
            file.change(&change);
            file.write(directory)?;
        }
        handle.apply(&change);
        Ok(())
    }
}

impl BucketFile {
    fn change(&mut self, change: &BucketChange) {
        self.memory_quota_mib = change.memory_quota_mib.unwrap_or(self.memory_quota_mib);
        self.flush_enabled = change.flush_enabled.unwrap_or(self.flush_enabled);
        self.durability_min = change.durability_min.unwrap_or(self.durability_min);
        self.max_ttl_s = change.max_ttl_s.unwrap_or(self.max_ttl_s);
        self.flush_interval_ms = change.flush_interval_ms.or(self.flush_interval_ms);
        if let Some(mode) = change.compression {
            self.compression_mode = Some(compression::name_of(mode).to_owned());
        }
        if let Some(tier) = change.memory_tier {
            self.memory_tier = Some(memory_tier::name_of(tier).to_owned());
        }
        if let Some(policy) = change.eviction {
            self.eviction = Some(eviction::setting_name(policy).to_owned());
        }
    }
}

impl BucketHandle {
    /// Puts a change in force; the caller has checked it.
    fn apply(&self, change: &BucketChange) {
        if let Some(mode) = change.compression {
            self.bucket.set_compression_mode(mode);
        }
        if let Some(tier) = change.memory_tier {
            self.bucket.set_memory_tier(tier);
        }
        if let Some(level) = change.durability_min {
            self.gate.set_durability_min(level);
        }
        if let Some(max_ttl_s) = change.max_ttl_s {
            self.bucket.set_max_ttl_s(max_ttl_s);
        }
        if let Some(enabled) = change.flush_enabled {
            self.bucket.set_flush_enabled(enabled);
        }
        if let Some(interval_ms) = change.flush_interval_ms {
            self.has_own_flush_interval.store(true, Ordering::Relaxed);
            self.bucket.set_flush_interval_ms(interval_ms);
        }
        if let Some(policy) = change.eviction {
            self.bucket.set_eviction(policy);
        }
        if let Some(quota_mib) = change.memory_quota_mib {
            self.bucket.set_memory_quota(quota_mib.saturating_mul(MIB));
        }
    }
}
