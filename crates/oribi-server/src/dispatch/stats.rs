//! STAT: one answer per figure, then an empty one.
//!
//! Owns: the groups and the names of their entries, which follow those that monitoring tools know.
//! Everything is computed when asked; this is no hot path. An unknown group is KeyEnoent, a bad
//! argument Einval, a vbucket outside the map NotMyVbucket.

use std::fmt::Display;

use oribi_engine::{Refused, VbucketStats};
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_storage::VbucketPhase;
use oribi_types::Vbid;

use super::exchange::Exchange;
use super::handshake::VERSION;
use crate::buckets::BucketHandle;
use std::sync::Arc;

/// Stat.
pub(super) fn stat(x: &mut Exchange<'_>) {
    let Ok(text) = std::str::from_utf8(x.frame.key) else { return x.fail(Status::Einval) };
    let (group, argument) = text.split_once(' ').unwrap_or((text, ""));
    let argument = argument.trim();
    if group == "reset" {
        return reset(x);
    }
    let Some(bucket) = selected(x) else { return };
    match group {
        "" => general(x, &bucket),
        "uuid" => entry(x, "uuid", &bucket.bucket().config().uuid),
        "vbucket" => {
            return each_vbucket(x, &bucket, argument, |x, vbid, stats| {
                entry(x, &format!("vb_{}", vbid.0), phase_name(stats.phase));
            });
        }
        "vbucket-seqno" => return each_vbucket(x, &bucket, argument, vbucket_seqno),
        "vbucket-details" => return each_vbucket(x, &bucket, argument, vbucket_details),
        "memory" => memory(x, &bucket),
        "config" => config(x, &bucket),
        "collections" => collections(x, &bucket),
        "warmup" => warmup(x, &bucket),
        _ => return x.fail(Status::KeyEnoent),
    }
    end(x);
}

fn selected(x: &mut Exchange<'_>) -> Option<Arc<BucketHandle>> {
    let bucket = x.state.bucket.as_ref().filter(|bucket| !bucket.is_deleted()).cloned();
    if bucket.is_none() {
        x.fail(Status::NoBucket);
    } else if !x.state.rights.read {
        x.fail(Status::Eaccess);
        return None;
    }
    bucket
}

fn reset(x: &mut Exchange<'_>) {
    if !x.state.rights.admin && !x.state.rights.write {
        return x.fail(Status::Eaccess);
    }
    x.env.server.counters.reset();
    end(x);
}

fn entry(x: &mut Exchange<'_>, name: &str, value: impl Display) {
    let value = value.to_string();
    let parts =
        ResponseParts { key: name.as_bytes(), value: value.as_bytes(), ..x.parts(Status::Success) };
    write_response(x.out.tail(), &parts);
}

/// The empty answer that ends a group.
fn end(x: &mut Exchange<'_>) {
    x.succeed();
}

fn general(x: &mut Exchange<'_>, handle: &BucketHandle) {
    let server = Arc::clone(&x.env.server);
    let stats = handle.bucket().stats();
    let now_s = x.env.now.unix_s();
    entry(x, "pid", std::process::id());
    entry(x, "uptime", now_s.saturating_sub(server.started.unix_s()));
    entry(x, "time", now_s);
    entry(x, "version", VERSION);
    entry(x, "pointer_size", usize::BITS);
    entry(x, "threads", server.counters.workers());
    entry(x, "curr_connections", server.connections());
    entry(x, "rejected_conns", server.rejected_connections());
    for (name, value) in server.counters.totals_since_reset().entries() {
        entry(x, name, value);
    }
    entry(x, "bucket", handle.name());
    entry(x, "curr_items", stats.items);
    entry(x, "curr_items_tot", stats.items);
    entry(x, "vb_active_num", stats.vbuckets_active);
    entry(x, "vb_active_curr_items", stats.items);
    entry(x, "vb_active_num_non_resident", 0);
    entry(x, "vb_replica_num", 0);
    entry(x, "vb_pending_num", 0);
    entry(x, "mem_used", stats.mem_used_bytes());
    entry(x, "ep_max_size", stats.memory_quota_bytes);
    entry(x, "ep_queue_size", stats.queue_items);
    entry(x, "ep_total_persisted", stats.store.records_committed);
    entry(x, "ep_flusher_commits", stats.store.commits);
    entry(x, "ep_item_commit_failed", stats.store.commit_failures);
    entry(x, "ep_degraded_mode", stats.storage_failed);
    entry(x, "ep_warmup_thread", if stats.warmup.done { "complete" } else { "running" });
}

fn memory(x: &mut Exchange<'_>, handle: &BucketHandle) {
    let stats = handle.bucket().stats();
    entry(x, "mem_used", stats.mem_used_bytes());
    entry(x, "ep_max_size", stats.memory_quota_bytes);
    entry(x, "ep_kv_size", stats.item_bytes);
    entry(x, "ep_storedval_num", stats.items);
    entry(x, "ep_hash_table_size", stats.table_bytes);
    entry(x, "ep_checkpoint_memory_queue", stats.queue_bytes);
    entry(x, "ep_checkpoints", stats.checkpoints);
    entry(x, "ep_tombstones", stats.tombstones);
}

fn config(x: &mut Exchange<'_>, handle: &BucketHandle) {
    let config = handle.bucket().config().clone();
    entry(x, "ep_couch_bucket", &config.name);
    entry(x, "ep_uuid", &config.uuid);
    entry(x, "ep_max_vbuckets", config.vbuckets);
    entry(x, "ep_max_size", config.memory_quota_bytes);
    entry(x, "ep_max_item_size", config.value_bytes_max);
    entry(x, "ep_flushall_enabled", config.flush_enabled);
    entry(x, "ep_flush_interval_ms", config.flush_interval_ms);
}

fn collections(x: &mut Exchange<'_>, handle: &BucketHandle) {
    let manifest = handle.bucket().manifest();
    entry(x, "manifest_uid", format_args!("{}", manifest.uid()));
    for scope in manifest.scopes() {
        for collection in &scope.collections {
            let prefix = format!("0x{:x}:0x{:x}", scope.id.0, collection.id.0);
            entry(x, &format!("{prefix}:name"), &collection.name);
            entry(x, &format!("{prefix}:scope_name"), &scope.name);
            if let Some(max_ttl_s) = collection.max_ttl_s {
                entry(x, &format!("{prefix}:maxTTL"), max_ttl_s);
            }
        }
    }
}

fn warmup(x: &mut Exchange<'_>, handle: &BucketHandle) {
    let warmup = handle.bucket().stats().warmup;
    entry(x, "ep_warmup", "enabled");
    entry(x, "ep_warmup_state", if warmup.done { "done" } else { "loading data" });
    entry(x, "ep_warmup_thread", if warmup.done { "complete" } else { "running" });
    entry(x, "ep_warmup_value_count", warmup.items);
    entry(x, "ep_warmup_key_count", warmup.items);
    entry(x, "ep_warmup_tombstone_count", warmup.tombstones);
    entry(x, "ep_warmup_vbuckets", warmup.vbuckets);
    entry(x, "ep_warmup_vbuckets_done", warmup.vbuckets_done);
    entry(x, "ep_warmup_vbuckets_failed", warmup.failed);
    entry(x, "ep_warmup_time", warmup.elapsed_us);
}

/// Runs `show` for the vbucket that the argument names, or for all.
fn each_vbucket(
    x: &mut Exchange<'_>,
    handle: &BucketHandle,
    argument: &str,
    show: impl Fn(&mut Exchange<'_>, Vbid, &VbucketStats),
) {
    let wanted = match argument {
        "" => None,
        text => match text.parse() {
            Ok(number) => Some(Vbid(number)),
            Err(_) => return x.fail(Status::Einval),
        },
    };
    if wanted.is_some_and(|vbid| vbid.0 >= handle.vbuckets()) {
        return x.refuse(Refused::NotMyVbucket);
    }
    let all = (0..handle.vbuckets()).map(Vbid);
    for vbid in all.filter(|vbid| wanted.is_none_or(|wanted| wanted == *vbid)) {
        if let Some(stats) = handle.bucket().vbucket_stats(vbid) {
            show(x, vbid, &stats);
        }
    }
    end(x);
}

fn vbucket_seqno(x: &mut Exchange<'_>, vbid: Vbid, stats: &VbucketStats) {
    let prefix = format!("vb_{}", vbid.0);
    entry(x, &format!("{prefix}:uuid"), stats.uuid.0);
    entry(x, &format!("{prefix}:high_seqno"), stats.high_seqno.0);
    entry(x, &format!("{prefix}:abs_high_seqno"), stats.high_seqno.0);
    entry(x, &format!("{prefix}:last_persisted_seqno"), stats.persisted_seqno.0);
    entry(x, &format!("{prefix}:purge_seqno"), stats.purge_seqno.0);
}

fn vbucket_details(x: &mut Exchange<'_>, vbid: Vbid, stats: &VbucketStats) {
    let prefix = format!("vb_{}", vbid.0);
    entry(x, &prefix, phase_name(stats.phase));
    entry(x, &format!("{prefix}:num_items"), stats.items);
    entry(x, &format!("{prefix}:num_tombstones"), stats.tombstones);
    entry(x, &format!("{prefix}:queue_size"), stats.queue_items);
    entry(x, &format!("{prefix}:ht_item_memory"), stats.item_bytes);
    entry(x, &format!("{prefix}:ht_memory"), stats.table_bytes);
    entry(x, &format!("{prefix}:max_cas"), stats.max_cas.0);
    entry(x, &format!("{prefix}:max_deleted_revid"), stats.max_deleted_rev_seqno.0);
    vbucket_seqno(x, vbid, stats);
}

fn phase_name(phase: VbucketPhase) -> &'static str {
    match phase {
        VbucketPhase::Active => "active",
        VbucketPhase::Replica => "replica",
        VbucketPhase::Pending => "pending",
        VbucketPhase::Dead => "dead",
    }
}
