//! Changes to the settings of an open bucket.
//!
//! Owns: which settings change, and the order of file and memory. Invariant: a change is made as a
//! whole or not at all, and is in `bucket.json` before it is in force; that of a bucket which the
//! nodes of a cluster share is in their agreement before. Callers: the admin HTTP, the reload of
//! the configuration, and the cluster's agent.

use std::path::Path;
use std::sync::atomic::Ordering;

use oribi_config::{compression, eviction, memory_tier};
use oribi_engine::EvictionPolicy;
use oribi_engine::MemoryTier;
use oribi_engine::compression::CompressionMode;
use oribi_system::data_file::DataFileError;

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
    /// Copies of each vbucket on other nodes.
    pub replicas: Option<u8>,
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
        check_fits(&handle, &change)?;
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

impl Buckets {
    /// Puts settings in force on which the nodes of a cluster have agreed, and which
    /// [`Buckets::store_settings`] stores; true when some are new. Does not block.
    ///
    /// # Errors
    /// An unknown name, and settings that this version, or the bucket here, cannot have; nothing
    /// changes then.
    pub(crate) fn apply_settings(&self, name: &str, settings: &[u8]) -> Result<bool, BucketError> {
        let handle = self.get(name).ok_or_else(|| BucketError::Unknown(name.to_owned()))?;
        let file = BucketFile::parse(settings, name, Path::new("c/buckets"))?;
        let present = BucketFile::of_open(&handle);
        if !file.is_same_bucket(&present) {
            return Err(BucketError::Exists(name.to_owned()));
        }
        let change = file.as_change()?;
        check_fits(&handle, &change)?;
        let is_new = change != present.as_change()?;
        handle.apply(&change);
        Ok(is_new)
    }

    /// Stores settings on which the nodes of a cluster have agreed. Durable when it returns.
    ///
    /// # Errors
    /// An unknown name, settings that this version cannot read, or an I/O error.
    pub(crate) fn store_settings(&self, name: &str, settings: &[u8]) -> Result<(), BucketError> {
        let _one_at_a_time = self.changes.lock();
        let handle = self.get(name).ok_or_else(|| BucketError::Unknown(name.to_owned()))?;
        let Some(directory) = &handle.directory else { return Ok(()) };
        let file = BucketFile::parse(settings, name, directory)?;
        if file.uuid != handle.bucket().config().uuid {
            return Err(BucketError::Exists(name.to_owned()));
        }
        Ok(file.write(directory)?)
    }
}

/// The settings of a shared bucket after a change.
///
/// # Errors
/// Settings that this version cannot read, or a change that does not fit the bucket.
pub fn changed_settings(
    handle: &BucketHandle,
    settings: &[u8],
    change: &BucketChange,
) -> Result<Vec<u8>, BucketError> {
    check_fits(handle, change)?;
    let mut file = BucketFile::parse(settings, handle.name(), Path::new("c/buckets"))?;
    file.change(change);
    Ok(file.to_json())
}

fn check_fits(handle: &BucketHandle, change: &BucketChange) -> Result<(), BucketError> {
    let storage = handle.storage().of_engine();
    if let Some(policy) = change.eviction.filter(|policy| !policy.fits(storage)) {
        let (name, policy) = (handle.name().to_owned(), eviction::setting_name(policy));
        return Err(BucketError::Eviction { name, policy });
    }
    let is_impossible = |level: &DurabilityMin| !level.is_possible(handle.is_in_memory());
    if let Some(level) = change.durability_min.filter(is_impossible) {
        let (name, level) = (handle.name().to_owned(), level.name());
        return Err(BucketError::Durability { name, level });
    }
    if change.replicas.is_some() && handle.copies().is_none() {
        return Err(BucketError::Alone(handle.name().to_owned()));
    }
    Ok(())
}

impl BucketFile {
    /// All settings that can change, as a change to them.
    fn as_change(&self) -> Result<BucketChange, DataFileError> {
        let corrupt = |detail: String| DataFileError::corrupt(Path::new("c/buckets"), detail);
        Ok(BucketChange {
            memory_quota_mib: Some(self.memory_quota_mib),
            eviction: Some(self.eviction().map_err(corrupt)?),
            flush_enabled: Some(self.flush_enabled),
            flush_interval_ms: self.flush_interval_ms,
            compression: Some(self.compression().map_err(corrupt)?),
            memory_tier: Some(self.memory_tier().map_err(corrupt)?),
            durability_min: Some(self.durability_min),
            max_ttl_s: Some(self.max_ttl_s),
            replicas: self.replicas,
        })
    }

    fn change(&mut self, change: &BucketChange) {
        self.memory_quota_mib = change.memory_quota_mib.unwrap_or(self.memory_quota_mib);
        self.flush_enabled = change.flush_enabled.unwrap_or(self.flush_enabled);
        self.durability_min = change.durability_min.unwrap_or(self.durability_min);
        self.max_ttl_s = change.max_ttl_s.unwrap_or(self.max_ttl_s);
        self.flush_interval_ms = change.flush_interval_ms.or(self.flush_interval_ms);
        self.replicas = change.replicas.or(self.replicas);
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
        if let (Some(replicas), Some(copies)) = (change.replicas, &self.copies) {
            copies.set_replicas(replicas);
        }
        if let Some(quota_mib) = change.memory_quota_mib {
            self.bucket.set_memory_quota(quota_mib.saturating_mul(MIB));
        }
    }
}
