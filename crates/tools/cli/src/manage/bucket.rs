//! `oribi bucket`: the buckets of a running server.

use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use hyper::Method;
use indicatif::{HumanBytes, HumanCount};
use serde_json::Value;

use super::collection::whole_seconds;
use super::confirm::Consent;
use super::place::AdminPlace;
use super::table::table;
use super::{done, run};
use crate::admin::{Admin, path, unless_missing};
use crate::print;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum BucketCommand {
    /// List the buckets that the user may use.
    #[command(visible_alias = "ls")]
    List {
        /// Print what the server says about them, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Create a bucket.
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        settings: BucketArguments,
        #[command(flatten)]
        fixed: FixedSettings,
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Change settings of a bucket while it is in use.
    #[command(group(ArgGroup::new("change").required(true).multiple(true).args(CHANGES)))]
    Change {
        /// Its name.
        name: String,
        #[command(flatten)]
        settings: BucketArguments,
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Remove a bucket and all its documents.
    #[command(visible_alias = "rm", alias = "delete")]
    Drop(OneBucket),
    /// Remove all documents of a bucket, which needs its setting --flush-enabled.
    Flush(OneBucket),
    /// Give back disk space of removed and overwritten documents, in the background.
    Compact {
        /// Its name.
        name: String,
        #[command(flatten)]
        place: AdminPlace,
    },
}

/// A bucket that loses its documents.
#[derive(Args, Debug)]
pub struct OneBucket {
    /// Its name.
    name: String,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    place: AdminPlace,
}

/// Every field of [`BucketArguments`].
const CHANGES: [&str; 9] = [
    "memory_quota_mib",
    "eviction",
    "compression",
    "memory_tier",
    "flush_interval_ms",
    "durability_min",
    "max_ttl",
    "flush_enabled",
    "replicas",
];

/// Settings that can change.
#[derive(Args, Debug)]
pub struct BucketArguments {
    /// Memory for the bucket in MiB.
    #[arg(long, alias = "quota", value_name = "MIB", help_heading = "Bucket")]
    memory_quota_mib: Option<u64>,
    #[arg(long, value_enum, help_heading = "Bucket")]
    eviction: Option<Eviction>,
    /// Whether values are compressed.
    #[arg(long, value_enum, help_heading = "Bucket")]
    compression: Option<Compression>,
    /// What happens to values that are not used, before they are evicted.
    #[arg(long, value_enum, help_heading = "Bucket")]
    memory_tier: Option<MemoryTier>,
    /// Longest time until a write is on disk, in milliseconds.
    #[arg(long, value_name = "MS", help_heading = "Bucket")]
    flush_interval_ms: Option<u64>,
    /// Writes at a lower durability level are raised to this one.
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Bucket")]
    durability_min: Option<DurabilityMin>,
    /// Longest life of documents, such as 7d or 3600 (seconds), where their collection has no rule;
    /// 0 for no limit. Documents that exist keep their expiry.
    #[arg(long, value_name = "TIME", help_heading = "Bucket", value_parser = whole_seconds)]
    max_ttl: Option<i64>,
    /// Allow `oribi bucket flush`; --flush-enabled=false forbids it.
    #[arg(
        long,
        value_name = "BOOL",
        help_heading = "Bucket",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    flush_enabled: Option<bool>,
    /// Copies of each vbucket on other nodes of the cluster, 0 to 3.
    #[arg(
        long,
        value_name = "COUNT",
        help_heading = "Bucket",
        value_parser = clap::value_parser!(u8).range(0..=3)
    )]
    replicas: Option<u8>,
}

/// Settings of a new bucket that cannot change.
#[derive(Args, Debug)]
pub struct FixedSettings {
    /// Where documents are kept: log, memory, or `kudu://MASTER[,MASTER]/DATABASE` (default: the
    /// server's).
    #[arg(long, help_heading = "Bucket")]
    storage: Option<String>,
    /// Number of vbuckets, a power of two up to 1024.
    #[arg(long, value_name = "COUNT", help_heading = "Bucket")]
    vbuckets: Option<u16>,
    /// How versions from elsewhere are compared with those that are there.
    #[arg(long, value_enum, help_heading = "Bucket")]
    conflict_resolution: Option<ConflictResolution>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Eviction {
    /// Values of documents; their keys and metadata stay.
    Value,
    /// Whole documents.
    Full,
    /// Nothing: writes are refused (buckets in memory).
    None,
    /// Documents that were not used for long are removed (buckets in memory).
    Nru,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Compression {
    Off,
    Passive,
    Active,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum MemoryTier {
    /// Cold values are evicted.
    Off,
    /// Cold values are compressed in memory first.
    Dense,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
#[value(rename_all = "camelCase")]
enum DurabilityMin {
    None,
    /// In the memory of a majority of the copies.
    Majority,
    /// And on the disk of the active copy.
    MajorityAndPersistActive,
    /// On the disks of a majority of the copies.
    PersistToMajority,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum ConflictResolution {
    /// The higher revision wins.
    Seqno,
    /// The higher CAS wins.
    Lww,
}

impl BucketArguments {
    fn form(&self) -> Vec<(&'static str, String)> {
        let eviction = self.eviction.map(|eviction| match eviction {
            Eviction::Value => "valueOnly",
            Eviction::Full => "fullEviction",
            Eviction::None => "noEviction",
            Eviction::Nru => "nruEviction",
        });
        let compression = self.compression.map(|mode| match mode {
            Compression::Off => "off",
            Compression::Passive => "passive",
            Compression::Active => "active",
        });
        let tier = self.memory_tier.map(|tier| match tier {
            MemoryTier::Off => "off",
            MemoryTier::Dense => "dense",
        });
        let durability_min = self.durability_min.map(|level| match level {
            DurabilityMin::None => "none",
            DurabilityMin::Majority => "majority",
            DurabilityMin::MajorityAndPersistActive => "majorityAndPersistActive",
            DurabilityMin::PersistToMajority => "persistToMajority",
        });
        let fields = [
            ("ramQuotaMB", self.memory_quota_mib.map(|quota| quota.to_string())),
            ("evictionPolicy", eviction.map(str::to_owned)),
            ("compressionMode", compression.map(str::to_owned)),
            ("memoryTier", tier.map(str::to_owned)),
            ("flushIntervalMs", self.flush_interval_ms.map(|interval| interval.to_string())),
            ("durabilityMinLevel", durability_min.map(str::to_owned)),
            ("maxTTL", self.max_ttl.map(|seconds| seconds.to_string())),
            ("flushEnabled", self.flush_enabled.map(|flag| u8::from(flag).to_string())),
            ("replicaNumber", self.replicas.map(|count| count.to_string())),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl FixedSettings {
    fn form(&self) -> Vec<(&'static str, String)> {
        let resolution = self.conflict_resolution.map(|resolution| match resolution {
            ConflictResolution::Seqno => "seqno",
            ConflictResolution::Lww => "lww",
        });
        let fields = [
            ("storage", self.storage.clone()),
            ("numVBuckets", self.vbuckets.map(|count| count.to_string())),
            ("conflictResolutionType", resolution.map(str::to_owned)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl BucketCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run(async {
            match self {
                BucketCommand::List { json, place } => list(&place.find().await?, json).await,
                BucketCommand::Create { name, settings, fixed, place } => {
                    let mut form = settings.form();
                    form.extend(fixed.form());
                    form.push(("name", name.clone()));
                    let admin = place.find().await?;
                    admin.change(Method::POST, "/pools/default/buckets", &form).await?;
                    warn_of_quota(&admin, settings.memory_quota_mib).await;
                    done(&format!("created bucket {name}"))
                }
                BucketCommand::Change { name, settings, place } => {
                    change(&place, Method::POST, (&name, &[]), &settings.form()).await?;
                    warn_of_quota(&place.find().await?, settings.memory_quota_mib).await;
                    done(&format!("changed bucket {name}"))
                }
                BucketCommand::Drop(OneBucket { name, consent, place }) => {
                    consent.to(&format!("drops bucket {name} and its documents"), &name)?;
                    change(&place, Method::DELETE, (&name, &[]), &[]).await?;
                    done(&format!("dropped bucket {name}"))
                }
                BucketCommand::Flush(OneBucket { name, consent, place }) => {
                    consent.to(&format!("removes all documents of bucket {name}"), &name)?;
                    let action = ["controller", "doFlush"];
                    change(&place, Method::POST, (&name, &action), &[]).await?;
                    done(&format!("flushed bucket {name}"))
                }
                BucketCommand::Compact { name, place } => {
                    let action = ["controller", "compactBucket"];
                    change(&place, Method::POST, (&name, &action), &[]).await?;
                    done(&format!("compaction of bucket {name} has begun"))
                }
            }
        })
    }
}

/// Changes a bucket, or something below its path.
/// Says that a new quota is more than the machine's memory. The server accepts it, because another
/// machine may take over the directory.
async fn warn_of_quota(admin: &Admin, quota_mib: Option<u64>) {
    let Some(quota_mib) = quota_mib else { return };
    // A server that does not tell is no failure of the change.
    let pool = admin.get("/pools/default").await.unwrap_or_default();
    let memory = pool["nodes"][0]["memoryTotal"].as_u64().unwrap_or(u64::MAX);
    if quota_mib.saturating_mul(1 << 20) > memory {
        eprintln!(
            "note: the quota is more than the machine's memory, {}; the system may end the server",
            HumanBytes(memory)
        );
    }
}

async fn change(
    place: &AdminPlace,
    method: Method,
    (name, rest): (&str, &[&str]),
    form: &[(&str, String)],
) -> anyhow::Result<()> {
    let path = path(&[&["pools", "default", "buckets", name], rest].concat());
    let changed = place.find().await?.change(method, &path, form).await;
    changed.map_err(|error| unless_missing(error, &format!("bucket {name:?}")))
}

async fn list(admin: &Admin, as_json: bool) -> anyhow::Result<ExitCode> {
    let buckets = admin.get("/pools/default/buckets").await?;
    if as_json {
        print::json(&buckets)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = buckets.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(row);
    let header = [
        "NAME",
        "TYPE",
        "STATUS",
        "DOCUMENTS",
        "MEMORY",
        "QUOTA",
        "DISK",
        "EVICTION",
        "COMPRESSION",
    ];
    print::bytes(table(header, rows.collect()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn row(bucket: &Value) -> [String; 9] {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let bytes = |value: &Value| match value.as_u64() {
        Some(bytes) => HumanBytes(bytes).to_string(),
        None => "-".to_owned(),
    };
    let stats = &bucket["basicStats"];
    [
        text(&bucket["name"]),
        text(&bucket["bucketType"]),
        text(&bucket["nodes"][0]["status"]),
        stats["itemCount"].as_u64().map_or("-".to_owned(), |items| HumanCount(items).to_string()),
        bytes(&stats["memUsed"]),
        bytes(&bucket["quota"]["ram"]),
        bytes(&stats["diskUsed"]),
        text(&bucket["evictionPolicy"]),
        text(&bucket["compressionMode"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_a_change() {
        let command = BucketArguments::augment_args(clap::Command::new("bucket"));
        let ids: Vec<_> = command.get_arguments().map(|one| one.get_id().as_str()).collect();
        assert_eq!(ids, CHANGES);
    }
}
