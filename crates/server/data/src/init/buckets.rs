//! Buckets, scopes and collections of the initial state.
//!
//! Owns: which settings of an existing bucket are compared, changed and refused. Caller:
//! [`super::Init`].

use std::path::Path;
use std::sync::Arc;

use oribi_config::CollectionPath;
use oribi_config::{BucketStorage, compression, conflict, eviction, memory_tier};
use oribi_config::{Settings, is_bucket_name};
use oribi_engine::collections::ManifestChange;

use super::error::InitError;
use super::file::{FileBucket, FileCollection};
use super::seeds::Seed;
use crate::buckets::{BucketChange, BucketHandle, BucketOptions, Buckets, DurabilityMin};

/// Memory quota of a bucket whose entry names none, in MiB: the smallest one that Couchbase takes.
const QUOTA_MIB_DEFAULT: u64 = 100;

pub(super) struct InitBucket {
    pub(super) name: String,
    pub(super) options: BucketOptions,
    /// For one that exists.
    change: BucketChange,
    /// Settings that cannot change, as they have to be.
    fixed: Vec<(&'static str, String)>,
    scopes: Vec<String>,
    collections: Vec<(CollectionPath, Option<u32>)>,
    pub(super) seeds: Vec<Seed>,
}

impl InitBucket {
    pub(super) fn of(
        entry: FileBucket,
        directory: &Path,
        settings: &Settings,
    ) -> Result<InitBucket, String> {
        let name = entry.name.clone();
        let of_bucket = |why: String| format!("bucket {name:?}: {why}");
        if !is_bucket_name(&name) {
            return Err(of_bucket("this is not the name of a bucket".to_owned()));
        }
        let mut bucket = InitBucket::with_settings(&entry, settings).map_err(of_bucket)?;
        bucket.scopes = entry.scopes;
        for collection in entry.collections {
            let (path, max_ttl_s) = match collection {
                FileCollection::Path(path) => (path, None),
                FileCollection::Whole(table) => (table.name, table.max_ttl_s),
            };
            bucket.collections.push((path.parse().map_err(of_bucket)?, max_ttl_s));
        }
        for documents in entry.documents {
            bucket.seeds.push(Seed::of(documents, directory).map_err(of_bucket)?);
        }
        Ok(bucket)
    }

    fn with_settings(entry: &FileBucket, settings: &Settings) -> Result<InitBucket, String> {
        let mut options = BucketOptions::from_settings(settings);
        options.memory_quota_mib = entry.memory_quota_mib.unwrap_or(QUOTA_MIB_DEFAULT);
        let mut fixed = Vec::new();
        if let Some(storage) = &entry.storage {
            options.storage = BucketStorage::from_name(storage)?;
            fixed.push(("storage", options.storage.name()));
        }
        if let Some(vbuckets) = entry.vbuckets {
            if !vbuckets.is_power_of_two() || vbuckets > 1024 {
                return Err(format!("vbuckets is {vbuckets}, not a power of two up to 1024"));
            }
            options.vbuckets = vbuckets;
            fixed.push(("vbuckets", vbuckets.to_string()));
        }
        if let Some(name) = &entry.conflict_resolution {
            options.conflict_resolution =
                named("conflict_resolution", name, conflict::resolution_named)?;
            fixed.push(("conflict_resolution", name.clone()));
        }
        let mut change = BucketChange {
            memory_quota_mib: entry.memory_quota_mib,
            flush_enabled: entry.flush_enabled,
            max_ttl_s: entry.max_ttl_s,
            ..BucketChange::default()
        };
        if let Some(name) = &entry.eviction {
            change.eviction = Some(named("eviction", name, eviction::from_setting)?);
            options.eviction = change.eviction;
        } else if !options.are_possible() {
            // The settings' policy applies to buckets of the settings' storage.
            options.eviction = None;
        }
        if !options.are_possible() {
            return Err("this eviction does not go with the storage".to_owned());
        }
        if let Some(name) = &entry.compression_mode {
            options.compression = named("compression_mode", name, compression::mode_named)?;
            change.compression = Some(options.compression);
        }
        if let Some(name) = &entry.memory_tier {
            options.memory_tier = named("memory_tier", name, memory_tier::tier_named)?;
            change.memory_tier = Some(options.memory_tier);
        }
        if let Some(name) = &entry.durability_min {
            options.durability_min = named("durability_min", name, DurabilityMin::named)?;
            change.durability_min = Some(options.durability_min);
            if !options.durability_min.is_possible(options.storage == BucketStorage::Memory) {
                return Err(format!("durability_min cannot be {name:?} in memory"));
            }
        }
        options.flush_enabled = entry.flush_enabled.unwrap_or(options.flush_enabled);
        options.max_ttl_s = entry.max_ttl_s.unwrap_or(options.max_ttl_s);
        if options.memory_quota_mib == 0 {
            return Err("memory_quota_mib is 0".to_owned());
        }
        let (scopes, collections, seeds) = (Vec::new(), Vec::new(), Vec::new());
        let name = entry.name.clone();
        Ok(InitBucket { name, options, change, fixed, scopes, collections, seeds })
    }

    /// Compares and changes the settings of the bucket, and makes its scopes and collections.
    pub(super) fn apply(
        &self,
        path: &Path,
        buckets: &Buckets,
        handle: &Arc<BucketHandle>,
    ) -> Result<(), InitError> {
        for (setting, wanted) in &self.fixed {
            let present = match *setting {
                "storage" => handle.storage().name(),
                "vbuckets" => handle.vbuckets().to_string(),
                _ => conflict::name_of(handle.conflict_resolution()).to_owned(),
            };
            if present != *wanted {
                return Err(InitError::Fixed {
                    path: path.to_owned(),
                    bucket: self.name.clone(),
                    setting,
                    present,
                    wanted: wanted.clone(),
                });
            }
        }
        let change = self.needed(handle);
        if change != BucketChange::default() {
            buckets.update(&self.name, change)?;
            tracing::info!(bucket = self.name, ?change, "changed a bucket to the initial state");
        }
        self.make_collections(handle)
    }

    /// The part of the change that differs from the bucket.
    fn needed(&self, handle: &BucketHandle) -> BucketChange {
        let bucket = handle.bucket();
        let quota_mib = bucket.memory_quota_bytes() >> 20;
        let change = self.change;
        BucketChange {
            memory_quota_mib: change.memory_quota_mib.filter(|quota| *quota != quota_mib),
            eviction: change.eviction.filter(|policy| *policy != bucket.eviction()),
            flush_enabled: change.flush_enabled.filter(|flag| *flag != bucket.is_flush_enabled()),
            flush_interval_ms: None,
            compression: change.compression.filter(|mode| *mode != bucket.compression_mode()),
            memory_tier: change.memory_tier.filter(|tier| *tier != bucket.memory_tier()),
            durability_min: change.durability_min.filter(|level| *level != handle.durability_min()),
            max_ttl_s: change.max_ttl_s.filter(|seconds| *seconds != bucket.max_ttl_s()),
            replicas: None,
        }
    }

    fn make_collections(&self, handle: &BucketHandle) -> Result<(), InitError> {
        let of_collections = self.collections.iter().map(|(path, _)| &path.scope);
        for name in self.scopes.iter().chain(of_collections) {
            if handle.bucket().manifest().scope_id(name).is_err() {
                let change = ManifestChange::CreateScope { name: name.clone() };
                self.change_manifest(handle, name, &change)?;
            }
        }
        for (path, max_ttl_s) in &self.collections {
            let (scope, name) = (path.scope.clone(), path.collection.clone());
            let manifest = handle.bucket().manifest();
            let present = manifest.collection_id(&scope, &name).ok();
            let present = present.and_then(|id| manifest.collection(id));
            let max_ttl_s = max_ttl_s.filter(|seconds| *seconds != 0);
            let change = match present {
                None => ManifestChange::CreateCollection { scope, name, max_ttl_s },
                Some(present) if present.max_ttl_s == max_ttl_s => continue,
                Some(_) => ManifestChange::SetMaxTtl { scope, name, max_ttl_s },
            };
            self.change_manifest(handle, &path.to_string(), &change)?;
        }
        Ok(())
    }

    fn change_manifest(
        &self,
        handle: &BucketHandle,
        collection: &str,
        change: &ManifestChange,
    ) -> Result<(), InitError> {
        let changed = handle.bucket().update_manifest(change);
        let (bucket, collection) = (self.name.clone(), collection.to_owned());
        changed.map(drop).map_err(|error| InitError::Collection { bucket, collection, error })
    }
}

fn named<T>(key: &str, name: &str, find: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    find(name).ok_or_else(|| format!("{key} cannot be {name:?}"))
}
