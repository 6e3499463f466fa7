//! `memory`: the use of the quota.
//!
//! These figures do not come from the allocator. They are the engine's blocks, tables and queues,
//! and their sum counts against the quota. The memory of connections is a separate figure, because
//! it is the server's.

use oribi_config::eviction;
use oribi_engine::{Bucket, BucketStats, MemoryStats, block_arena};

use crate::connection::stat_cursor::StatWriter;
use crate::server_context::ServerContext;

pub(super) fn write(writer: &mut StatWriter<'_>, bucket: &Bucket, stats: &BucketStats) {
    let (memory, config) = (&stats.memory, bucket.config());
    write_short(writer, stats);
    writer.number("mem_used_estimate", memory.used_bytes);
    writer.number("ep_mem_high_wat_percent", config.high_watermark_percent);
    writer.number("ep_mem_low_wat_percent", config.low_watermark_percent);
    writer.text("ep_item_eviction_policy", eviction::stat_name(bucket.eviction()));
    writer.number("ep_hash_table_size", memory.table_bytes);
    writer.number("ep_store_memory", memory.store_bytes);
    writer.number("ep_storedval_num", memory.items_resident);
    writer.number("ep_storedval_size", memory.item_bytes);
    writer.number("ep_item_num", stats.items + stats.tombstones);
    writer.number("ep_tombstones", stats.tombstones);
    writer.number("ep_dense_plain_bytes", memory.dense.plain_bytes);
    writer.number("ep_dense_bytes", memory.dense.dense_bytes);
    writer.number("ep_dense_compressions", memory.compressions);
    writer.number("ep_dense_dictionaries", memory.dense.dictionaries);
    writer.number("ep_dense_dictionary_bytes", memory.dictionary_bytes);
    writer.number("ep_num_pager_runs", memory.pager_runs);
    writer.number("ep_bg_remaining_items", memory.fetch_queue);
    writer.number("ep_bg_fetch_joined", memory.fetches_joined);
    writer.number("ep_bg_fetch_failed", memory.fetch_failures);
    writer.number("ep_refused_temporarily", memory.refused_temporarily);
    writer.number("ep_refused_no_memory", memory.refused_no_memory);
    writer.number("ep_refused_at_bound", memory.refused_at_bound);
    writer.number("ep_defragmenter_num_moved", memory.blocks_moved);
}

/// Memory of the server, for any bucket: what all connections hold, and freed large values that
/// wait for the next ones.
pub(super) fn write_server(writer: &mut StatWriter<'_>, server: &ServerContext) {
    writer.number("ep_kept_block_bytes", block_arena::kept_bytes());
    for (name, value) in server.connections.memory.stats().entries() {
        writer.number(name, value);
    }
}

/// The part of the group that the group without a name repeats.
pub(super) fn write_short(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    let memory = &stats.memory;
    writer.number("bytes", memory.used_bytes);
    writer.number("mem_used", memory.used_bytes);
    writer.number("ep_kv_size", memory.item_bytes);
    writer.number("ep_overhead", memory.table_bytes + memory.queue_bytes);
    writer.number("ep_max_size", memory.quota_bytes);
    writer.number("ep_mem_high_wat", memory.high_watermark_bytes);
    writer.number("ep_mem_low_wat", memory.low_watermark_bytes);
    writer.number("ep_checkpoint_memory", stats.queue_bytes);
    writer.number("ep_checkpoint_memory_overhead", memory.queue_bytes);
    writer.number("ep_checkpoints", stats.checkpoints);
    write_residency(writer, memory);
}

/// Writes how much is in memory, and how the rest left it.
fn write_residency(writer: &mut StatWriter<'_>, memory: &MemoryStats) {
    writer.number("vb_active_num_non_resident", memory.items_evicted);
    // Rounded down: 100 means that every document is resident.
    writer.number("vb_active_perc_mem_resident", memory.resident_percent() as u64);
    writer.number("vb_active_auto_delete_count", memory.nru_deletions);
    writer.number("ep_num_non_resident", memory.items_evicted);
    writer.number("ep_dense_num", memory.dense.values);
    writer.number("ep_dense_inflations", memory.dense.inflations);
    writer.number("ep_num_value_ejects", memory.evictions);
    writer.number("ep_bg_fetched", fetched(memory));
}

/// Documents that operations had to read from the store.
pub fn fetched(memory: &MemoryStats) -> u64 {
    memory.fetches.saturating_sub(memory.fetches_joined + memory.fetch_failures)
}
