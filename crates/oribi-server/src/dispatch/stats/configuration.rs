//! `config` and `uuid`: what is fixed while a bucket is open.

use oribi_engine::BucketConfig;

use super::writer::StatWriter;

/// `config`: parameters under the reference server's names where it has them.
pub(super) fn write(writer: &mut StatWriter<'_>, config: &BucketConfig) {
    writer.text("ep_couch_bucket", &config.name);
    writer.text("ep_uuid", &config.uuid);
    writer.text("ep_bucket_type", "persistent");
    writer.text("ep_item_eviction_policy", "value_only");
    writer.number("ep_max_vbuckets", config.vbuckets);
    writer.number("ep_max_size", config.memory_quota_bytes);
    writer.number("ep_max_item_size", config.value_bytes_max);
    writer.flag("ep_flushall_enabled", config.flush_enabled);
    writer.number("ep_flush_interval_ms", config.flush_interval_ms);
}
