//! `kvstore`, `diskinfo` and `warmup`: activity and size of the store.
//!
//! A bucket has one store, named `rw_0` like the first store of the reference server.

use oribi_engine::{BucketStats, StoreOperation, WarmupState};

use super::collections;
use super::general::warmup_thread;
use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatWriter;

pub(super) fn write_kvstore(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    let store = &stats.store;
    writer.prefix().text("rw_0:");
    writer.number("numLoadedVb", stats.vbuckets_active);
    writer.number("failure_get", store.read_failures);
    writer.number("failure_set", store.set_failures);
    writer.number("failure_del", store.delete_failures);
    writer.number("failure_vbset", store.vbucket_state_failures);
    writer.number("failure_compaction", store.compact_failures);
    writer.number("failure_commit", store.commit_failures);
    let failing: Vec<&str> = stats.failed.iter().map(StoreOperation::name).collect();
    let failing = if failing.is_empty() { "none".to_owned() } else { failing.join(",") };
    writer.text("failing", &failing);
    writer.number("lastCommDocs", store.last_commit_records);
    writer.number("io_num_write", store.records_committed);
    writer.number("io_document_write_bytes", store.bytes_committed);
    // Warmup, background fetches, scans and look-ups read records.
    writer.number("io_bg_fetch_docs_read", store.records_read);
    writer.number("io_bg_fetch_doc_bytes", store.bytes_read);
    writer.number("commits", store.commits);
    writer.number("compactions", store.compactions);
    writer.prefix();
}

pub(super) struct DiskFigures {
    data_bytes: u64,
    file_bytes: u64,
}

impl DiskFigures {
    /// Sums over every collection of every vbucket and reads the disk. Slow.
    pub fn collect(handle: &BucketHandle) -> DiskFigures {
        let sums = collections::sum(handle, &handle.bucket().manifest());
        DiskFigures {
            data_bytes: sums.values().map(|sum| sum.disk_bytes).sum(),
            file_bytes: handle.bucket().stats().store.disk_bytes,
        }
    }

    /// Writes the group. Data are keys and values of live documents, before headers and
    /// compression.
    pub fn write(&self, writer: &mut StatWriter<'_>) {
        writer.number("ep_db_data_size", self.data_bytes);
        writer.number("ep_db_file_size", self.file_bytes);
    }
}

pub(super) fn write_warmup(writer: &mut StatWriter<'_>, stats: &BucketStats) {
    let warmup = &stats.warmup;
    writer.text("ep_warmup", "enabled");
    writer.text("ep_warmup_status", if warmup.failed == 0 { "ok" } else { "failed" });
    writer.text("ep_warmup_state", state_name(warmup.state));
    writer.text("ep_warmup_thread", warmup_thread(stats));
    writer.number("ep_warmup_key_count", warmup.items);
    writer.number("ep_warmup_value_count", warmup.values);
    writer.number("ep_warmup_estimated_key_count", warmup.items_estimate);
    writer.number("ep_warmup_dups", warmup.overtaken);
    writer.number("ep_warmup_tombstone_count", warmup.tombstones);
    writer.number("ep_warmup_time", warmup.elapsed_us);
    writer.number("ep_warmup_vbuckets", warmup.vbuckets);
    writer.number("ep_warmup_vbuckets_done", warmup.vbuckets_done);
    writer.number("ep_warmup_vbuckets_failed", warmup.failed);
}

/// The state in the reference server's words.
fn state_name(state: WarmupState) -> &'static str {
    match state {
        WarmupState::Values => "loading data",
        WarmupState::Metadata => "loading keys",
        WarmupState::Done => "done",
    }
}
