//! The groups that only memcached has: `settings`, `items` and `slabs`.
//!
//! Owns: the figures of these groups that mean something here. Oribi's arena sorts blocks by size,
//! but eviction does not go by these classes, so all documents are one class, number 1.

use oribi_engine::BucketStats;
use oribi_protocol::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatWriter;
use crate::server_context::ServerContext;

pub(super) fn write_settings(
    writer: &mut StatWriter<'_>,
    server: &ServerContext,
    handle: &BucketHandle,
    stats: &BucketStats,
) {
    writer.number("maxbytes", stats.memory_quota_bytes);
    writer.number("maxconns", server.connections.limits.connections_max);
    writer.number("num_threads", server.diagnostics.counters.workers());
    writer.number("item_size_max", VALUE_BYTES_MAX);
    writer.number("key_size_max", KEY_BYTES_MAX);
    writer.text("cas_enabled", "yes");
    writer.text("flush_enabled", if handle.bucket().is_flush_enabled() { "yes" } else { "no" });
}

pub(super) fn write_items(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    if stats.items > 0 {
        writer.number("items:1:number", stats.items);
        writer.number("items:1:mem_requested", stats.item_bytes);
    }
}

pub(super) fn write_slabs(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    if stats.items > 0 {
        writer.number("1:used_chunks", stats.items);
        writer.number("1:mem_requested", stats.item_bytes);
    }
    writer.number("active_slabs", u8::from(stats.items > 0));
    writer.number("total_malloced", stats.item_bytes + stats.table_bytes);
}
