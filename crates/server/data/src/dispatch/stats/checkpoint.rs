//! `checkpoint`: each vbucket's queue, its cursors and its checkpoints.
//!
//! The figures of a vbucket are taken once, under its queue lock. Writing them may take several
//! slices, while the queue changes. Names are those of the reference server. Its key index
//! has no counterpart here, so the entries named after it are left out.

use std::ops::Range;
use std::sync::Arc;

use oribi_engine::{CheckpointManagerStats, CheckpointStats, CursorStats};
use oribi_types::Vbid;

use crate::buckets::BucketHandle;
use crate::connection::stat_cursor::StatProducer;
use crate::connection::stat_cursor::StatWriter;

/// The producer of the group.
pub(super) struct Checkpoints {
    bucket: Arc<BucketHandle>,
    left: Range<u16>,
    current: Option<Current>,
}

/// The vbucket in progress.
struct Current {
    vbid: Vbid,
    stats: CheckpointManagerStats,
    /// Position among cursors and then checkpoints.
    next: usize,
}

impl Checkpoints {
    /// Creates the producer for these vbuckets.
    pub fn new(bucket: &Arc<BucketHandle>, vbuckets: Range<u16>) -> Checkpoints {
        Checkpoints { bucket: Arc::clone(bucket), left: vbuckets, current: None }
    }
}

impl StatProducer for Checkpoints {
    fn produce(&mut self, writer: &mut StatWriter<'_>) -> bool {
        while !writer.is_full() {
            if let Some(current) = &mut self.current {
                if current.write_next(writer) {
                    continue;
                }
                self.current = None;
            }
            let Some(vbid) = self.left.next().map(Vbid) else { return true };
            if let Some(vbucket) = self.bucket.bucket().vbucket(vbid) {
                let stats = vbucket.checkpoint_stats();
                write_queue(writer, vbid, &stats);
                self.current = Some(Current { vbid, stats, next: 0 });
            }
        }
        false
    }
}

impl Current {
    /// Writes one cursor or checkpoint; false when there is none left.
    fn write_next(&mut self, writer: &mut StatWriter<'_>) -> bool {
        let Current { vbid, stats, next } = self;
        let index = *next;
        *next += 1;
        if let Some(cursor) = stats.cursors.get(index) {
            write_cursor(writer, *vbid, cursor);
            return true;
        }
        debug_assert!(index >= stats.cursors.len(), "checkpoints follow the cursors");
        let checkpoint = stats.checkpoints.get(index - stats.cursors.len());
        if let Some(checkpoint) = checkpoint {
            write_checkpoint(writer, *vbid, checkpoint);
        }
        checkpoint.is_some()
    }
}

fn write_queue(writer: &mut StatWriter<'_>, vbid: Vbid, stats: &CheckpointManagerStats) {
    writer.prefix().vbucket(vbid);
    writer.number("open_checkpoint_id", stats.open_checkpoint_id);
    writer.number("num_conn_cursors", stats.cursors.len());
    writer.number("num_checkpoint_items", stats.items);
    writer.number("num_open_checkpoint_items", stats.open_items);
    writer.number("num_checkpoints", stats.checkpoints.len());
    writer.number("mem_usage", stats.queue_bytes + stats.item_bytes);
    writer.number("mem_usage_queue_overhead", stats.queue_bytes);
    writer.number("mem_usage_queued_items", stats.item_bytes);
}

fn write_cursor(writer: &mut StatWriter<'_>, vbid: Vbid, cursor: &CursorStats) {
    writer.prefix().vbucket(vbid).text(&cursor.name).text(":");
    writer.number("cursor_checkpoint_id", cursor.checkpoint_id);
    writer.number("cursor_distance", cursor.distance);
    writer.number("cursor_seqno", cursor.seqno.0);
    writer.number("num_visits", cursor.visits);
    writer.number("num_items_for_cursor", cursor.remaining);
}

fn write_checkpoint(writer: &mut StatWriter<'_>, vbid: Vbid, checkpoint: &CheckpointStats) {
    writer
        .prefix()
        .vbucket(vbid)
        .text("id_")
        .text(itoa::Buffer::new().format(checkpoint.id))
        .text(":");
    writer.number("mem_usage_queued_items", checkpoint.item_bytes);
    writer.number("mem_usage_queue_overhead", checkpoint.queue_bytes);
    writer.text("state", if checkpoint.is_open { "CHECKPOINT_OPEN" } else { "CHECKPOINT_CLOSED" });
    writer.text("type", "Memory");
    writer.number("snap_start", checkpoint.snapshot_start.0);
    writer.number("snap_end", checkpoint.snapshot_end.0);
    writer.number("visible_snap_end", checkpoint.snapshot_end.0);
    writer.number("highest_expelled_seqno", 0_u64);
    writer.flag("historical", false);
    writer.number("num_items", checkpoint.items);
    writer.number("num_cursors_in_checkpoint", checkpoint.cursors);
}
