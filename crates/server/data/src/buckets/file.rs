//! `bucket.json`: the options of a bucket at its creation, and their later changes.
//!
//! Owns: the format of the file. Invariants: the file is written whole and durably, or not at all;
//! a file that cannot be parsed is reported and never overwritten. Called when a bucket is created,
//! opened or changed.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use oribi_cluster::copies::REPLICAS_MAX;
use oribi_config::{BucketStorage, compression, conflict, eviction, memory_tier};
use oribi_engine::MemoryTier;
use oribi_engine::compression::CompressionMode;
use oribi_engine::{ConflictResolution, EvictionPolicy};
use oribi_system::data_file::DataFileError;
use oribi_system::data_file::write_atomically;
use serde::{Deserialize, Serialize};

use super::{BucketCopies, BucketHandle, DurabilityMin};

/// Its name in the bucket's directory.
pub(super) const BUCKET_FILE: &str = "bucket.json";
const BUCKET_FILE_MODE: u32 = 0o600;
const VERSION: u32 = 1;
/// The file counts memory in MiB.
pub(super) const MIB: u64 = 1 << 20;

/// Content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketFile {
    version: u32,
    pub(super) name: String,
    pub(super) uuid: String,
    pub(super) storage: BucketStorage,
    pub(super) vbuckets: u16,
    pub(super) memory_quota_mib: u64,
    /// Missing in files of the first releases, which had no eviction; such buckets get the default
    /// of a new bucket.
    #[serde(default)]
    pub(super) eviction: Option<String>,
    /// Missing in files of the first releases, which had no compressed values.
    #[serde(default)]
    pub(super) compression_mode: Option<String>,
    /// Missing in files of the first releases, which had no tier.
    #[serde(default)]
    pub(super) memory_tier: Option<String>,
    /// Missing in files of the first releases, which had no conflict resolution.
    #[serde(default)]
    conflict_resolution: Option<String>,
    pub(super) flush_enabled: bool,
    /// Missing when it is the default.
    #[serde(default, skip_serializing_if = "DurabilityMin::is_default")]
    pub(super) durability_min: DurabilityMin,
    /// Missing when there is no limit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) max_ttl_s: u32,
    /// Missing while the bucket follows the server's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flush_interval_ms: Option<u64>,
    /// Copies of each vbucket on other nodes; missing when the bucket is this node's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<u8>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl BucketFile {
    /// The file of a new bucket.
    pub(super) fn new(name: &str, uuid: String, options: &super::BucketOptions) -> BucketFile {
        BucketFile {
            version: VERSION,
            name: name.to_owned(),
            uuid,
            storage: options.storage.clone(),
            vbuckets: options.vbuckets,
            memory_quota_mib: options.memory_quota_mib,
            eviction: Some(eviction::setting_name(options.eviction()).to_owned()),
            compression_mode: Some(compression::name_of(options.compression).to_owned()),
            memory_tier: Some(memory_tier::name_of(options.memory_tier).to_owned()),
            conflict_resolution: Some(conflict::name_of(options.conflict_resolution).to_owned()),
            flush_enabled: options.flush_enabled,
            durability_min: options.durability_min,
            max_ttl_s: options.max_ttl_s,
            flush_interval_ms: options.own_flush_interval_ms,
            replicas: options.replicas,
        }
    }

    /// The file that an open bucket would have.
    pub(super) fn of_open(handle: &BucketHandle) -> BucketFile {
        let config = handle.bucket().config();
        BucketFile {
            version: VERSION,
            name: config.name.clone(),
            uuid: config.uuid.clone(),
            storage: handle.storage().clone(),
            vbuckets: config.vbuckets,
            memory_quota_mib: handle.bucket().memory_quota_bytes() / MIB,
            eviction: Some(eviction::setting_name(handle.bucket().eviction()).to_owned()),
            compression_mode: {
                let mode = handle.bucket().compression_mode();
                Some(compression::name_of(mode).to_owned())
            },
            memory_tier: {
                let tier = handle.bucket().memory_tier();
                Some(memory_tier::name_of(tier).to_owned())
            },
            conflict_resolution: {
                let resolution = handle.conflict_resolution();
                Some(conflict::name_of(resolution).to_owned())
            },
            flush_enabled: handle.bucket().is_flush_enabled(),
            durability_min: handle.durability_min(),
            max_ttl_s: handle.bucket().max_ttl_s(),
            flush_interval_ms: handle
                .has_own_flush_interval
                .load(Ordering::Relaxed)
                .then(|| handle.bucket().flush_interval_ms()),
            replicas: handle.copies().map(BucketCopies::replicas),
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("plain struct")
    }

    /// True when everything is equal that stays while a bucket exists.
    pub(super) fn is_same_bucket(&self, other: &BucketFile) -> bool {
        let of = |file: &BucketFile| {
            let BucketFile { name, uuid, storage, vbuckets, .. } = file;
            (name.clone(), uuid.clone(), storage.clone(), *vbuckets)
        };
        of(self) == of(other) && self.replicas.is_some() == other.replicas.is_some()
    }

    /// The path of the file of the bucket in `directory`.
    pub(super) fn path(directory: &Path) -> PathBuf {
        directory.join(BUCKET_FILE)
    }

    /// Parses the file of bucket `name`, which is in `directory`.
    pub(super) fn parse(
        json: &[u8],
        name: &str,
        directory: &Path,
    ) -> Result<BucketFile, DataFileError> {
        let corrupt = |detail: String| DataFileError::corrupt(&BucketFile::path(directory), detail);
        let file: BucketFile =
            serde_json::from_slice(json).map_err(|error| corrupt(error.to_string()))?;
        if file.version != VERSION {
            return Err(corrupt(format!("version {} is not known here", file.version)));
        }
        if file.name != name {
            return Err(corrupt(format!("it belongs to bucket {:?}", file.name)));
        }
        file.eviction().map_err(corrupt)?;
        file.compression().map_err(corrupt)?;
        file.memory_tier().map_err(corrupt)?;
        file.conflict_resolution().map_err(corrupt)?;
        if file.replicas.is_some_and(|count| count > REPLICAS_MAX) {
            return Err(corrupt(format!("a bucket has at most {REPLICAS_MAX} replicas")));
        }
        if file.replicas.is_some() && file.storage != BucketStorage::Log {
            return Err(corrupt("only a bucket on the local log has replicas".to_owned()));
        }
        Ok(file)
    }

    /// Writes the file into `directory`. Durable when it returns.
    pub(super) fn write(&self, directory: &Path) -> Result<(), DataFileError> {
        let json = self.to_json();
        let path = BucketFile::path(directory);
        write_atomically(&path, &json, BUCKET_FILE_MODE)
            .map_err(|error| DataFileError::io("write", &path, error))
    }

    /// The mode in the file, or the default one.
    pub(super) fn compression(&self) -> Result<CompressionMode, String> {
        let Some(name) = &self.compression_mode else { return Ok(CompressionMode::default()) };
        compression::mode_named(name)
            .ok_or_else(|| format!("compression mode {name:?} is not known"))
    }

    /// The tier in the file, or the default one.
    pub(super) fn memory_tier(&self) -> Result<MemoryTier, String> {
        let Some(name) = &self.memory_tier else { return Ok(MemoryTier::default()) };
        memory_tier::tier_named(name).ok_or_else(|| format!("memory tier {name:?} is not known"))
    }

    /// The resolution in the file, or the default one.
    pub(super) fn conflict_resolution(&self) -> Result<ConflictResolution, String> {
        let Some(name) = &self.conflict_resolution else {
            return Ok(ConflictResolution::default());
        };
        conflict::resolution_named(name)
            .ok_or_else(|| format!("conflict resolution {name:?} is not known"))
    }

    /// The policy in the file, or that of its storage.
    pub(super) fn eviction(&self) -> Result<EvictionPolicy, String> {
        let storage = self.storage.of_engine();
        let Some(name) = &self.eviction else { return Ok(EvictionPolicy::for_storage(storage)) };
        let policy = eviction::from_setting(name).filter(|policy| policy.fits(storage));
        policy.ok_or_else(|| format!("eviction {name:?} is not possible with this storage"))
    }
}

/// The storage of the bucket in a directory. A file that is missing or cannot be parsed does not
/// decide; the store then reports itself whether it is a log.
pub(crate) fn storage_in(directory: &Path) -> BucketStorage {
    let json = std::fs::read(BucketFile::path(directory)).unwrap_or_default();
    let file: Option<BucketFile> = serde_json::from_slice(&json).ok();
    file.map_or(BucketStorage::Log, |file| file.storage)
}
