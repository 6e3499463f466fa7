//! `memory`: what the quota is used for.
//!
//! Nothing here is an allocator's opinion: the figures are the blocks and tables that the engine has, and
//! what counts against the quota is their sum.

use oribi_engine::BucketStats;

use super::writer::StatWriter;

/// The group.
pub(super) fn write(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    write_short(writer, stats);
    writer.number("mem_used_estimate", stats.mem_used_bytes());
    writer.number("ep_hash_table_size", stats.table_bytes);
    writer.number("ep_storedval_num", stats.items);
    writer.number("ep_storedval_size", stats.item_bytes);
    writer.number("ep_item_num", stats.items + stats.tombstones);
    writer.number("ep_tombstones", stats.tombstones);
}

/// Its part that is in the group without a name too.
pub(super) fn write_short(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    writer.number("bytes", stats.mem_used_bytes());
    writer.number("mem_used", stats.mem_used_bytes());
    writer.number("ep_kv_size", stats.item_bytes);
    writer.number("ep_overhead", stats.table_bytes);
    writer.number("ep_max_size", stats.memory_quota_bytes);
    writer.number("ep_checkpoint_memory", stats.queue_bytes);
    writer.number("ep_checkpoints", stats.checkpoints);
}
