//! The group without a name: a summary of everything.
//!
//! Owns: which figures of server and bucket the group has, and under which names monitoring finds
//! them. The blocking thread collects the bucket's part, because the store's figures need the disk.
//! Figures of features that Oribi lacks are left out. Some stay, where tools divide by them or wait
//! for them and a constant is true: there are no replicas.

use std::sync::Arc;

use oribi_engine::{BucketStats, VbucketStats};
use oribi_types::{Datatype, Timestamp};

use super::super::handshake::{TEXT_VERSION, VERSION};
use super::keys::datatype_names;
use super::memory;
use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatWriter;
use crate::diagnostics::cpu_times::CpuTimes;
use crate::server_context::ServerContext;

/// Sums over the vbuckets that [`BucketStats`] lacks.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct VbucketSums {
    ops_create: u64,
    ops_update: u64,
    ops_delete: u64,
    expired: u64,
    queue_fill: u64,
    queue_drain: u64,
    queue_oldest: Option<Timestamp>,
}

impl VbucketSums {
    fn add(&mut self, vbucket: &VbucketStats) {
        self.ops_create += vbucket.ops_create;
        self.ops_update += vbucket.ops_update;
        self.ops_delete += vbucket.ops_delete;
        self.expired += vbucket.expired;
        self.queue_fill += vbucket.queue_fill;
        self.queue_drain += vbucket.queue_drain;
        let oldest = [self.queue_oldest, vbucket.queue_oldest].into_iter().flatten();
        self.queue_oldest = oldest.min_by_key(|queued| queued.unix_ns);
    }
}

/// The bucket's figures for the group.
pub(super) struct BucketFigures {
    pub stats: BucketStats,
    sums: VbucketSums,
}

impl BucketFigures {
    /// Takes each vbucket's locks twice and reads the disk. Slow.
    pub fn collect(handle: &BucketHandle) -> BucketFigures {
        let mut sums = VbucketSums::default();
        for vbucket in handle.bucket().vbuckets() {
            sums.add(&vbucket.stats());
        }
        BucketFigures { stats: handle.bucket().stats(), sums }
    }
}

/// Writes the whole group.
pub(super) fn write(
    writer: &mut StatWriter<'_>,
    server: &Arc<ServerContext>,
    handle: &BucketHandle,
    figures: &BucketFigures,
    now: Timestamp,
) {
    write_server(writer, server, now);
    for (name, value) in handle.operations().totals_since_reset().entries() {
        writer.number(name, value);
    }
    write_documents(writer, handle, figures);
    write_cache(writer, figures);
    write_queue(writer, figures, now);
    memory::write_short(writer, &figures.stats);
}

fn write_server(writer: &mut StatWriter<'_>, server: &Arc<ServerContext>, now: Timestamp) {
    writer.number("pid", std::process::id());
    writer.number("uptime", now.unix_s().saturating_sub(server.diagnostics.started.unix_s()));
    writer.number("time", now.unix_s());
    // A client sees the version that its protocol's command answers.
    writer.text("version", if writer.is_text() { TEXT_VERSION } else { VERSION });
    writer.number("pointer_size", usize::BITS);
    writer.number("threads", server.diagnostics.counters.workers());
    writer.number("curr_connections", server.connections.open());
    writer.number("max_connections", server.connections.limits.connections_max);
    for name in ["rejected_conns", "rejected_connections"] {
        writer.number(name, server.connections.rejected());
    }
    let is_accepting = server.connections.open() < server.connections.limits.connections_max;
    writer.number("accepting_conns", u8::from(is_accepting));
    if let Some(times) = CpuTimes::of_process() {
        writer.display("rusage_user", format_args!("{:.6}", times.user_s));
        writer.display("rusage_system", format_args!("{:.6}", times.system_s));
    }
    writer.number("connection_buffer_bytes", server.connections.registry.buffer_bytes());
    let totals = server.diagnostics.counters.totals_since_reset();
    for (name, value) in totals.entries() {
        writer.number(name, value);
    }
    writer.number("idle_kicks", totals.closed_idle);
    let [(_, binary), ..] = totals.by_protocol();
    writer.number("cmd_binary", binary);
}

fn write_documents(writer: &mut StatWriter<'_>, handle: &BucketHandle, figures: &BucketFigures) {
    let BucketFigures { stats, sums } = figures;
    writer.text("bucket", handle.name());
    writer.text("ep_uuid", &handle.bucket().config().uuid);
    writer.number("curr_items", stats.items);
    writer.number("curr_items_tot", stats.items);
    writer.number("ep_item_num", stats.items + stats.tombstones);
    writer.number("ep_vb_total", handle.vbuckets());
    // A vbucket is also active while its documents are loaded.
    writer.number("vb_active_num", stats.vbuckets_active + stats.vbuckets_loading);
    writer.number("vb_active_curr_items", stats.items);
    for (bits, count) in stats.datatypes.iter().enumerate() {
        let names = datatype_names(Datatype(bits as u8));
        writer.number(&format!("ep_active_datatype_{names}"), *count);
    }
    writer.number("vb_active_itm_memory", stats.item_bytes);
    writer.number("vb_active_ht_memory", stats.table_bytes);
    writer.number("vb_active_queue_size", stats.queue_items);
    writer.number("vb_active_queue_memory", stats.queue_bytes);
    writer.number("vb_active_queue_fill", sums.queue_fill);
    writer.number("vb_active_queue_drain", sums.queue_drain);
    writer.number("vb_active_ops_create", sums.ops_create);
    writer.number("vb_active_ops_update", sums.ops_update);
    writer.number("vb_active_ops_delete", sums.ops_delete);
    writer.number("vb_active_expired", sums.expired);
    for absent in [
        "vb_replica_num",
        "vb_replica_curr_items",
        "vb_replica_num_non_resident",
        "vb_pending_num",
        "vb_pending_curr_items",
        "vb_dead_num",
    ] {
        writer.number(absent, 0_u64);
    }
    writer.number("vb_replica_perc_mem_resident", 100_u64);
}

/// Writes the figures that monitors of memcached read.
fn write_cache(writer: &mut StatWriter<'_>, figures: &BucketFigures) {
    let BucketFigures { stats, sums } = figures;
    writer.number("limit_maxbytes", stats.memory.quota_bytes);
    writer.number("total_items", sums.ops_create + sums.ops_update);
    // Documents that left. An evicted value is read from the store again.
    writer.number("evictions", stats.memory.nru_deletions);
    writer.number("store_no_memory", stats.memory.refused_no_memory);
}

fn write_queue(writer: &mut StatWriter<'_>, figures: &BucketFigures, now: Timestamp) {
    let BucketFigures { stats, sums } = figures;
    let store = &stats.store;
    writer.number("ep_queue_size", stats.queue_items);
    writer.number("ep_diskqueue_items", stats.queue_items);
    writer.number("ep_diskqueue_memory", stats.queue_bytes);
    writer.number("ep_diskqueue_fill", sums.queue_fill);
    writer.number("ep_diskqueue_drain", sums.queue_drain);
    let queued = sums.queue_oldest.unwrap_or(now).unix_ns;
    writer.number("ep_diskqueue_oldest_age_ms", now.unix_ns.saturating_sub(queued) / 1_000_000);
    writer.number("ep_total_enqueued", sums.queue_fill);
    writer.number("ep_total_persisted", store.records_committed);
    writer.number("ep_total_del_items", store.deletions_committed);
    writer.number("ep_flusher_commits", store.commits);
    writer.number("ep_item_commit_failed", store.commit_failures);
    writer.number("ep_item_flush_failed", store.set_failures + store.delete_failures);
    writer.number("ep_data_read_failed", store.read_failures);
    writer.number("ep_data_write_failed", store.set_failures + store.delete_failures);
    writer.number("ep_db_file_size", store.disk_bytes);
    writer.flag("ep_degraded_mode", stats.failed.refuse_writes());
    writer.text("ep_warmup_thread", warmup_thread(stats));
    writer.number("ep_warmup_time", stats.warmup.elapsed_us);
    writer.number("ep_warmup_value_count", stats.warmup.values);
}

/// The state that tools poll until it is `complete`.
pub(super) fn warmup_thread(stats: &BucketStats) -> &'static str {
    if stats.warmup.done { "complete" } else { "running" }
}
