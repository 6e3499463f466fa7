//! Applies the configuration to existing buckets.
//!
//! Owns: the review at the start, which reports explicit values that an existing bucket does not
//! have, and the reload, which applies the values that can change. `bucket.json` has the settings
//! of a bucket; the configuration has those of a new one. Invariant: a reload checks everything
//! before it changes anything, and changes only what the configuration changed, so that values set
//! over HTTP survive a reload for another reason. Caller: the `oribi` binary.

use std::fmt;

use oribi_config::{ResolvedSettings, SettingChange, Settings};
use oribi_config::{compression, conflict, eviction, memory_tier};
use oribi_system::memory::memory_of_process;

use crate::buckets::{BucketChange, BucketError, BucketHandle, Buckets};

const MIB: u64 = 1 << 20;

/// An explicit value that is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IneffectiveSetting {
    /// The bucket was created with another value.
    Bucket {
        bucket: String,
        setting: &'static str,
        /// The explicit value and its source.
        given: String,
        /// The value in force.
        in_force: String,
        /// The HTTP field by which it changes; `None` when it cannot.
        field: Option<&'static str>,
    },
    /// The quotas of all buckets exceed the memory of the process.
    Quotas {
        quota_mib: u64,
        /// Memory that the process may use.
        memory_mib: u64,
    },
}

impl fmt::Display for IneffectiveSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IneffectiveSetting::Bucket { bucket, setting, given, in_force, field } => {
                write!(
                    f,
                    "{setting} = {given} is ignored: bucket {bucket:?} exists with {in_force}; "
                )?;
                match field {
                    Some(field) => write!(
                        f,
                        "change it with POST /pools/default/buckets/{bucket} and {field}=.., or \
                         remove the setting"
                    ),
                    None => f.write_str(
                        "it is fixed for the life of a bucket: restore a backup into a new one, or \
                         remove the setting",
                    ),
                }
            }
            IneffectiveSetting::Quotas { quota_mib, memory_mib } => write!(
                f,
                "the buckets' memory quotas are {quota_mib} MiB together, but this process may use \
                 {memory_mib} MiB: the system may end it before writes are refused; lower \
                 memory_quota_mib for new buckets, and ramQuotaMB of those that exist"
            ),
        }
    }
}

/// A setting of new buckets: its name, its HTTP field, its value in a bucket.
struct BucketSetting {
    name: &'static str,
    field: Option<&'static str>,
    value: fn(&BucketHandle) -> String,
}

const OF_BUCKET: [BucketSetting; 9] = [
    BucketSetting { name: "storage", field: None, value: |b| b.storage().name() },
    BucketSetting { name: "vbuckets", field: None, value: |b| b.vbuckets().to_string() },
    BucketSetting {
        name: "conflict_resolution",
        field: None,
        value: |b| conflict::name_of(b.conflict_resolution()).to_owned(),
    },
    BucketSetting {
        name: "memory_quota_mib",
        field: Some("ramQuotaMB"),
        value: |b| (b.bucket().memory_quota_bytes() / MIB).to_string(),
    },
    BucketSetting {
        name: "eviction",
        field: Some("evictionPolicy"),
        value: |b| eviction::setting_name(b.bucket().eviction()).to_owned(),
    },
    BucketSetting {
        name: "compression_mode",
        field: Some("compressionMode"),
        value: |b| compression::name_of(b.bucket().compression_mode()).to_owned(),
    },
    BucketSetting {
        name: "memory_tier",
        field: Some("memoryTier"),
        value: |b| memory_tier::name_of(b.bucket().memory_tier()).to_owned(),
    },
    BucketSetting {
        name: "flush_enabled",
        field: Some("flushEnabled"),
        value: |b| b.bucket().is_flush_enabled().to_string(),
    },
    BucketSetting {
        name: "flush_interval_ms",
        field: Some("flushIntervalMs"),
        value: |b| b.bucket().flush_interval_ms().to_string(),
    },
];

/// The explicit values that are not in force, and quotas above the available memory.
pub fn review(resolved: &ResolvedSettings, buckets: &Buckets) -> Vec<IneffectiveSetting> {
    let mut ignored = Vec::new();
    let listed = resolved.settings.buckets.iter().filter_map(|name| buckets.get(name));
    for handle in listed {
        for BucketSetting { name, field, value } in &OF_BUCKET {
            let Some(given) = resolved.explicit(name) else { continue };
            let in_force = value(&handle);
            if given.value != in_force {
                ignored.push(IneffectiveSetting::Bucket {
                    bucket: handle.name().to_owned(),
                    setting: name,
                    given: format!("{} ({})", given.value, given.source),
                    in_force,
                    field: *field,
                });
            }
        }
    }
    ignored.extend(over_memory(buckets.quota_bytes(), memory_of_process()));
    ignored
}

fn over_memory(quota_bytes: u64, memory_bytes: Option<u64>) -> Option<IneffectiveSetting> {
    let memory_bytes = memory_bytes.filter(|memory| quota_bytes > *memory)?;
    Some(IneffectiveSetting::Quotas {
        quota_mib: quota_bytes / MIB,
        memory_mib: memory_bytes / MIB,
    })
}

/// Result of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettingsReload {
    pub applied: Vec<SettingChange>,
    /// In force after a restart.
    pub needs_restart: Vec<SettingChange>,
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum SettingsReloadError {
    /// A bucket cannot have the new value.
    #[error("{setting} = {value} is not possible for bucket {bucket:?}")]
    Impossible { setting: &'static str, value: String, bucket: String },
    /// A bucket could not be changed; those before it were.
    #[error(transparent)]
    Bucket(#[from] BucketError),
}

/// Applies the settings that `next` changes and that can change at run time, and records them in
/// `in_force`. `log` stands for the filter of the log, which the caller applies.
///
/// # Errors
/// A value that a bucket cannot have, and nothing changed; or the disk's.
pub fn reload(
    in_force: &mut ResolvedSettings,
    next: &ResolvedSettings,
    buckets: &Buckets,
) -> Result<SettingsReload, SettingsReloadError> {
    let mut reloaded = SettingsReload::default();
    for changed in in_force.changes(next) {
        let applies = changed.name == "log" || is_changeable(changed.name);
        let is_set = in_force.settings != next.settings && changed.after != "not set";
        match applies && is_set {
            true => reloaded.applied.push(changed),
            false => reloaded.needs_restart.push(changed),
        }
    }
    let change = change_of(&reloaded.applied, &next.settings);
    let named = in_force.settings.buckets.iter().filter_map(|name| buckets.get(name));
    let (shared, handles): (Vec<_>, Vec<_>) = named.partition(|handle| handle.is_shared());
    if let Some(policy) = change.eviction {
        for handle in &handles {
            if !policy.fits(handle.storage().of_engine()) {
                let (value, bucket) = (eviction::setting_name(policy), handle.name().to_owned());
                let value = value.to_owned();
                return Err(SettingsReloadError::Impossible { setting: "eviction", value, bucket });
            }
        }
    }
    if change != BucketChange::default() {
        for handle in &shared {
            tracing::warn!(
                bucket = handle.name(),
                "the settings of a bucket of a cluster change over HTTP only, for all nodes"
            );
        }
        for handle in &handles {
            buckets.update(handle.name(), change)?;
        }
    }
    if reloaded.applied.iter().any(|changed| changed.name == "flush_interval_ms") {
        buckets.list().iter().for_each(|handle| {
            handle.follow_flush_interval(next.settings.flush_interval_ms);
        });
    }
    for changed in &reloaded.applied {
        in_force.adopt(changed.name, next);
    }
    Ok(reloaded)
}

fn is_changeable(name: &str) -> bool {
    OF_BUCKET.iter().any(|one| one.name == name && one.field.is_some())
}

/// The change of the buckets that the configuration names. The flush interval is the server's, so
/// it is not written to them.
fn change_of(applied: &[SettingChange], next: &Settings) -> BucketChange {
    let has = |name: &str| applied.iter().any(|changed| changed.name == name);
    BucketChange {
        memory_quota_mib: next.memory_quota_mib.filter(|_| has("memory_quota_mib")),
        eviction: next.eviction.filter(|_| has("eviction")),
        compression: has("compression_mode").then_some(next.compression_mode),
        memory_tier: has("memory_tier").then_some(next.memory_tier),
        flush_enabled: has("flush_enabled").then_some(next.flush_enabled),
        ..BucketChange::default()
    }
}

#[cfg(test)]
mod tests;
