//! `config`: the configuration of a bucket.

use oribi_config::{compression, eviction, memory_tier};
use oribi_engine::Storage;
use oribi_engine::compression::RATIO_MIN_PERCENT;

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatWriter;

/// `config`: parameters, under the reference server's names where it has them.
pub(super) fn write(writer: &mut StatWriter<'_>, handle: &BucketHandle) {
    let bucket = handle.bucket();
    let config = bucket.config();
    let is_persistent = config.storage == Storage::Persistent;
    writer.text("ep_couch_bucket", &config.name);
    writer.text("ep_uuid", &config.uuid);
    writer.text("ep_bucket_type", if is_persistent { "persistent" } else { "ephemeral" });
    writer.text("ep_backend", handle.storage().kind());
    writer.text("ep_item_eviction_policy", eviction::stat_name(bucket.eviction()));
    writer.text("ep_memory_tier", memory_tier::name_of(bucket.memory_tier()));
    writer.text("ep_compression_mode", compression::name_of(bucket.compression_mode()));
    let ratio = format!("{:.1}", RATIO_MIN_PERCENT as f64 / 100.0);
    writer.text("ep_min_compression_ratio", &ratio);
    writer.number("ep_max_vbuckets", config.vbuckets);
    writer.number("ep_max_size", bucket.memory_quota_bytes());
    writer.number("ep_mem_high_wat_percent", config.high_watermark_percent);
    writer.number("ep_mem_low_wat_percent", config.low_watermark_percent);
    writer.number("ep_max_item_size", config.value_bytes_max);
    writer.flag("ep_flushall_enabled", bucket.is_flush_enabled());
    writer.number("ep_max_ttl", bucket.max_ttl_s());
    writer.number("ep_exp_pager_stime", config.upkeep.expiry_pager_interval_s);
    writer.number("ep_persistent_metadata_purge_age", config.upkeep.tombstone_purge_age_s);
    writer.number("ep_checkpoint_quota_percent", config.upkeep.checkpoint_quota_percent);
    writer.number("ep_flush_interval_ms", bucket.flush_interval_ms());
}
