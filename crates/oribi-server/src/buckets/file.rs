//! `bucket.json`: what a bucket was given at its creation, and what was changed since.
//!
//! Owns: the form of the file. Invariants: it is written whole and durably, or not at all; a file that is not
//! understood is reported and never overwritten. Called when a bucket is created, opened or changed.

use std::path::{Path, PathBuf};

use oribi_engine::compression::CompressionMode;
use oribi_engine::{ConflictResolution, EvictionPolicy};
use serde::{Deserialize, Serialize};

use super::{
    BucketError, BucketHandle, BucketStorage, MIB, compression, conflict, eviction, io_error,
};
use crate::data_dir::write_atomically;

/// Its name in the bucket's directory.
pub(super) const BUCKET_FILE: &str = "bucket.json";
pub(super) const BUCKET_FILE_MODE: u32 = 0o600;
const VERSION: u32 = 1;

/// Content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketFile {
    version: u32,
    pub(super) name: String,
    pub(super) uuid: String,
    /// Missing in files of the first release, whose buckets are all embedded.
    #[serde(default = "BucketStorage::unnamed")]
    pub(super) storage: BucketStorage,
    pub(super) vbuckets: u16,
    pub(super) memory_quota_mib: u64,
    /// Missing in files of the first releases, which evicted nothing; they get what a new bucket gets.
    #[serde(default)]
    eviction: Option<String>,
    /// Missing in files of the first releases, which did not know compressed values.
    #[serde(default)]
    compression_mode: Option<String>,
    /// Missing in files of the first releases, which compared nothing.
    #[serde(default)]
    conflict_resolution: Option<String>,
    pub(super) flush_enabled: bool,
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
            conflict_resolution: Some(conflict::name_of(options.conflict_resolution).to_owned()),
            flush_enabled: options.flush_enabled,
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
            eviction: Some(eviction::setting_name(config.eviction).to_owned()),
            compression_mode: {
                let mode = handle.bucket().compression_mode();
                Some(compression::name_of(mode).to_owned())
            },
            conflict_resolution: {
                let resolution = handle.conflict_resolution();
                Some(conflict::name_of(resolution).to_owned())
            },
            flush_enabled: handle.bucket().is_flush_enabled(),
        }
    }

    /// Its text.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("plain struct")
    }

    /// The path of the file of the bucket in `directory`.
    pub(super) fn path(directory: &Path) -> PathBuf {
        directory.join(BUCKET_FILE)
    }

    /// Understands the file of bucket `name`, which stands in `directory`.
    pub(super) fn parse(
        json: &[u8],
        name: &str,
        directory: &Path,
    ) -> Result<BucketFile, BucketError> {
        let corrupt =
            |detail: String| BucketError::Corrupt { path: BucketFile::path(directory), detail };
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
        file.conflict_resolution().map_err(corrupt)?;
        Ok(file)
    }

    /// Writes the file into `directory`. Durable when it returns.
    pub(super) fn write(&self, directory: &Path) -> Result<(), BucketError> {
        let json = self.to_json();
        let path = BucketFile::path(directory);
        write_atomically(&path, &json, BUCKET_FILE_MODE).map_err(|e| io_error("write", &path, e))
    }

    /// The mode in the file, or the default one.
    pub(super) fn compression(&self) -> Result<CompressionMode, String> {
        let Some(name) = &self.compression_mode else { return Ok(CompressionMode::default()) };
        compression::mode_named(name)
            .ok_or_else(|| format!("compression mode {name:?} is not known"))
    }

    /// The resolution in the file, or the default one.
    pub(super) fn conflict_resolution(&self) -> Result<ConflictResolution, String> {
        let Some(name) = &self.conflict_resolution else {
            return Ok(ConflictResolution::default());
        };
        conflict::resolution_named(name)
            .ok_or_else(|| format!("conflict resolution {name:?} is not known"))
    }

    /// Changes the mode.
    pub(super) fn set_compression(&mut self, mode: CompressionMode) {
        self.compression_mode = Some(compression::name_of(mode).to_owned());
    }

    /// The policy in the file, or that of its storage.
    pub(super) fn eviction(&self) -> Result<EvictionPolicy, String> {
        let storage = self.storage.of_engine();
        let Some(name) = &self.eviction else { return Ok(EvictionPolicy::for_storage(storage)) };
        let policy = eviction::from_setting(name).filter(|policy| policy.fits(storage));
        policy.ok_or_else(|| format!("eviction {name:?} is not possible with this storage"))
    }
}

/// How the bucket in a directory is stored. A file that is missing or cannot be understood says nothing,
/// and the store then says itself whether it is one of the oldest kind.
pub(crate) fn storage_in(directory: &Path) -> BucketStorage {
    let json = std::fs::read(BucketFile::path(directory)).unwrap_or_default();
    let file: Option<BucketFile> = serde_json::from_slice(&json).ok();
    file.map_or_else(BucketStorage::unnamed, |file| file.storage)
}
