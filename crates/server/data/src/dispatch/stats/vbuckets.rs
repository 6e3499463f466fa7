//! Groups with a fixed number of entries for each vbucket: `vbucket`, `vbucket-seqno`,
//! `vbucket-details`, `failovers` and `hash`.
//!
//! The figures of each vbucket are taken under its locks and written without them. A vbucket has at
//! most 54 entries (25 histories), so one vbucket is one step.

use std::ops::Range;
use std::sync::Arc;

use oribi_engine::{HashTableStats, histories};
use oribi_storage::VbucketPhase;
use oribi_types::{Timestamp, Vbid};

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatProducer;
use crate::connection::stat_cursor::StatWriter;

/// Cost of sampling one hash table, in bytes of output: 25 µs are about 250 entries.
const HASH_SAMPLE_CHARGE: usize = 16 * 1024;

/// Writes a group's entries about one vbucket.
type WriteVbucket = fn(&mut StatWriter<'_>, &BucketHandle, Vbid, Timestamp);

/// A group with the same entries for each vbucket of a range.
pub(super) struct EachVbucket {
    bucket: Arc<BucketHandle>,
    left: Range<u16>,
    now: Timestamp,
    write: WriteVbucket,
}

impl EachVbucket {
    /// The group of this name, if this module has it.
    pub fn named(
        group: &str,
        bucket: &Arc<BucketHandle>,
        vbuckets: Range<u16>,
        now: Timestamp,
    ) -> Option<EachVbucket> {
        let write: WriteVbucket = match group {
            "vbucket" => phase,
            "vbucket-seqno" => seqnos,
            "vbucket-details" => details,
            "failovers" => failovers,
            "hash" => hash,
            _ => return None,
        };
        Some(EachVbucket { bucket: Arc::clone(bucket), left: vbuckets, now, write })
    }
}

impl StatProducer for EachVbucket {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        while !writer.is_full() {
            let Some(vbid) = self.left.next() else { return true };
            (self.write)(writer, &self.bucket, Vbid(vbid), self.now);
        }
        self.left.is_empty()
    }
}

fn phase(writer: &mut StatWriter<'_>, bucket: &BucketHandle, vbid: Vbid, _: Timestamp) {
    if let Some(vbucket) = bucket.bucket().vbucket(vbid) {
        write_phase(writer, vbid, vbucket.phase());
    }
}

/// Writes the entry whose name is the vbucket itself.
fn write_phase(writer: &mut StatWriter<'_>, vbid: Vbid, phase: VbucketPhase) {
    writer.prefix().text("vb_");
    writer.text(itoa::Buffer::new().format(vbid.0), phase_name(phase));
}

fn seqnos(writer: &mut StatWriter<'_>, bucket: &BucketHandle, vbid: Vbid, _: Timestamp) {
    let Some(vbucket) = bucket.bucket().vbucket(vbid) else { return };
    let stats = vbucket.stats();
    writer.prefix().vbucket(vbid);
    writer.number("high_seqno", stats.high_seqno.0);
    writer.number("abs_high_seqno", stats.high_seqno.0);
    writer.number("last_persisted_seqno", stats.persisted_seqno.0);
    writer.number("uuid", stats.uuid.0);
    writer.number("purge_seqno", stats.purge_seqno.0);
    // A flush ends where a checkpoint ends, so the persisted state is always a whole snapshot.
    writer.number("last_persisted_snap_start", stats.persisted_seqno.0);
    writer.number("last_persisted_snap_end", stats.persisted_seqno.0);
    no_prepares(writer);
    writer.number("max_visible_seqno", stats.visible_seqno.0);
}

/// A pending write has one seqno, which is also its commit's, so no seqno is a prepare's.
fn no_prepares(writer: &mut StatWriter<'_>) {
    writer.number("high_prepared_seqno", 0_u64);
    writer.number("high_completed_seqno", 0_u64);
}

fn details(writer: &mut StatWriter<'_>, bucket: &BucketHandle, vbid: Vbid, now: Timestamp) {
    let Some(vbucket) = bucket.bucket().vbucket(vbid) else { return };
    let stats = vbucket.stats();
    write_phase(writer, vbid, stats.phase);
    writer.prefix().vbucket(vbid);
    writer.number("num_items", stats.items);
    writer.number("num_non_resident", stats.items_evicted);
    writer.number("num_prepared_sync_writes", stats.pending_writes);
    // Nothing is rolled back, so these values are true for every vbucket.
    writer.number("rollback_item_count", 0_u64);
    writer.flag("might_contain_xattrs", false);
    writer.number("max_cas", stats.max_cas.0);
    writer.number("ht_memory", stats.table_bytes);
    writer.number("ht_num_items", stats.items + stats.tombstones);
    writer.number("ht_num_deleted_items", stats.tombstones);
    writer.number("ht_item_memory", stats.item_bytes);
    writer.number("ht_item_memory_uncompressed", stats.item_bytes);
    writer.number("ops_create", stats.ops_create);
    writer.number("ops_update", stats.ops_update);
    writer.number("ops_delete", stats.ops_delete);
    writer.number("expired", stats.expired);
    writer.number("queue_size", stats.queue_items);
    writer.number("queue_memory", stats.queue_bytes);
    writer.number("queue_fill", stats.queue_fill);
    writer.number("queue_drain", stats.queue_drain);
    let queued = stats.queue_oldest.unwrap_or(now).unix_ns;
    writer.number("queue_oldest_age_ms", now.unix_ns.saturating_sub(queued) / 1_000_000);
    writer.number("uuid", stats.uuid.0);
    writer.number("purge_seqno", stats.purge_seqno.0);
    writer.number("max_deleted_revid", stats.max_deleted_rev_seqno.0);
    no_prepares(writer);
    writer.number("high_seqno", stats.high_seqno.0);
    writer.number("max_visible_seqno", stats.visible_seqno.0);
    writer.number("persistence_seqno", stats.persisted_seqno.0);
    writer.flag("loading", stats.loading);
}

fn failovers(writer: &mut StatWriter<'_>, bucket: &BucketHandle, vbid: Vbid, _: Timestamp) {
    let Some(vbucket) = bucket.bucket().vbucket(vbid) else { return };
    let table = vbucket.failover_table();
    let table: Vec<_> = histories(&table).collect();
    writer.prefix().vbucket(vbid);
    writer.number("num_entries", table.len());
    writer.number("num_erroneous_entries_erased", 0_u64);
    for (index, entry) in table.iter().enumerate() {
        writer.prefix().vbucket(vbid).text(itoa::Buffer::new().format(index)).text(":");
        writer.number("id", entry.uuid.0);
        writer.number("seq", entry.seqno.0);
    }
}

fn hash(writer: &mut StatWriter<'_>, bucket: &BucketHandle, vbid: Vbid, _: Timestamp) {
    let Some(vbucket) = bucket.bucket().vbucket(vbid) else { return };
    writer.charge(HASH_SAMPLE_CHARGE);
    writer.prefix().vbucket(vbid);
    writer.text("state", phase_name(vbucket.phase()));
    write_table(writer, &vbucket.hash_table_stats());
}

/// Writes the figures of a hash table. A depth is the number of groups that a look-up reads; it is
/// known for a sample of the items.
fn write_table(writer: &mut StatWriter<'_>, table: &HashTableStats) {
    writer.number("size", table.slots);
    writer.number("groups", table.groups);
    writer.number("locks", table.locks);
    writer.number("min_depth", table.min_probes);
    writer.number("max_depth", table.max_probes);
    // Depths without items are left out, as empty ranges are in every histogram of STAT.
    for (index, count) in table.probe_histogram.iter().enumerate().filter(|(_, count)| **count > 0)
    {
        let depth = index + 1;
        writer.display(&format!("histo_{depth},{depth}"), count);
    }
    writer.number("reported", table.items + table.tombstones);
    writer.number("counted", table.sampled);
    writer.number("resized", table.resizes);
    writer.number("mem_size", table.item_bytes);
    writer.number("mem_size_uncompressed", table.item_bytes);
    writer.number("table_size", table.mem_bytes);
    writer.number("num_system_items", 0_u64);
}

/// The state's name for tools.
pub(super) fn phase_name(phase: VbucketPhase) -> &'static str {
    match phase {
        VbucketPhase::Active => "active",
        VbucketPhase::Replica => "replica",
        VbucketPhase::Pending => "pending",
        VbucketPhase::Dead => "dead",
    }
}
