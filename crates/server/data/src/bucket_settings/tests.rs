//! Reports about settings at the start, and the effect of a reload.

use std::path::Path;

use clap::Command;
use oribi_config::{ResolvedSettings, arguments, resolve};

use super::{IneffectiveSetting, over_memory, reload, review};
use crate::buckets::{BucketChange, Buckets};

const MIB: u64 = 1 << 20;

fn resolved(flags: &[&str]) -> ResolvedSettings {
    let flags = std::iter::once("serve").chain(flags.iter().copied());
    let matches = Command::new("serve").args(arguments()).get_matches_from(flags);
    resolve(&matches, |_| None).unwrap()
}

fn open(directory: &Path, resolved: &ResolvedSettings) -> Buckets {
    Buckets::open_all(directory, &resolved.settings).unwrap()
}

const FIRST: [&str; 4] = ["--vbuckets", "4", "--memory-quota-mib", "128"];

#[test]
fn an_override_unlike_the_bucket_is_reported() {
    let scratch = tempfile::tempdir().unwrap();
    let first = resolved(&FIRST);
    let buckets = open(scratch.path(), &first);
    assert_eq!(review(&first, &buckets), []);
    buckets.stop_all().unwrap();
    drop(buckets);

    let second = resolved(&["--vbuckets", "8", "--memory-quota-mib", "256", "--eviction", "value"]);
    let buckets = open(scratch.path(), &second);
    let lines: Vec<String> =
        review(&second, &buckets).iter().map(IneffectiveSetting::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("vbuckets = 8 (--vbuckets) is ignored"), "{}", lines[0]);
    assert!(lines[0].contains("exists with 4; it is fixed"), "{}", lines[0]);
    assert!(lines[1].contains("256 (--memory-quota-mib)"), "{}", lines[1]);
    assert!(lines[1].contains("/pools/default/buckets/default and ramQuotaMB=.."), "{}", lines[1]);
    // Only explicit values are reported; the default of vbuckets is 64.
    assert_eq!(review(&resolved(&[]), &buckets), []);
    buckets.stop_all().unwrap();
}

#[test]
fn quotas_beyond_the_memory_are_said() {
    assert_eq!(over_memory(100 * MIB, Some(100 * MIB)), None);
    assert_eq!(over_memory(100 * MIB, None), None);
    let found = over_memory(101 * MIB, Some(100 * MIB)).unwrap();
    assert_eq!(found, IneffectiveSetting::Quotas { quota_mib: 101, memory_mib: 100 });
    assert!(found.to_string().contains("101 MiB together"), "{found}");
}

#[test]
fn a_reload_applies_changeable_settings_names_others() {
    let scratch = tempfile::tempdir().unwrap();
    let mut in_force = resolved(&FIRST);
    let buckets = open(scratch.path(), &in_force);
    let handle = buckets.get("default").unwrap();
    // Set over HTTP, and left alone by reloads for other reasons.
    let by_http = BucketChange { memory_quota_mib: Some(200), ..BucketChange::default() };
    buckets.update("default", by_http).unwrap();

    let next = resolved(&[
        "--vbuckets=4",
        "--memory-quota-mib=128",
        "--eviction=full",
        "--compression-mode=active",
        "--flush-interval-ms=77",
        "--workers=7",
        "--log=debug",
    ]);
    let done = reload(&mut in_force, &next, &buckets).unwrap();
    let names = |changed: &[oribi_config::SettingChange]| {
        changed.iter().map(|changed| changed.name).collect::<Vec<_>>()
    };
    assert_eq!(
        names(&done.applied),
        ["eviction", "compression_mode", "flush_interval_ms", "log"],
        "{done:?}"
    );
    assert_eq!(names(&done.needs_restart), ["workers"]);
    let bucket = handle.bucket();
    assert_eq!(bucket.eviction(), oribi_engine::EvictionPolicy::Full);
    assert_eq!(bucket.flush_interval_ms(), 77);
    assert_eq!(bucket.memory_quota_bytes(), 200 * MIB);
    // Again: nothing is left to apply, and what needs a restart is said again.
    let again = reload(&mut in_force, &next, &buckets).unwrap();
    assert_eq!((names(&again.applied), names(&again.needs_restart)), (vec![], vec!["workers"]));

    // A bucket's own interval is not the server's.
    let own = BucketChange { flush_interval_ms: Some(5), ..BucketChange::default() };
    buckets.update("default", own).unwrap();
    let next = resolved(&["--memory-quota-mib=300", "--flush-interval-ms=88", "--vbuckets=4"]);
    reload(&mut in_force, &next, &buckets).unwrap();
    assert_eq!((bucket.flush_interval_ms(), bucket.memory_quota_bytes()), (5, 300 * MIB));

    // A value that a bucket cannot have: nothing changes.
    let flags = ["--eviction=nru", "--storage=memory", "--memory-quota-mib=400", "--vbuckets=4"];
    let error = reload(&mut in_force, &resolved(&flags), &buckets).unwrap_err();
    assert!(error.to_string().contains("eviction = nru"), "{error}");
    assert_eq!(bucket.memory_quota_bytes(), 300 * MIB);
    drop(handle);
    buckets.stop_all().unwrap();
}
