//! What one read by a cursor returned.
//!
//! Owns: references to whole closed checkpoints, or for a stream to items of the open one. Items of
//! a checkpoint are visited through it, after the queue lock was released, without counting a
//! reference for each; the queue keeps the checkpoints at least until the cursor has advanced, and
//! the batch keeps them after that.

use std::sync::Arc;

use oribi_types::{Cas, Seqno};

use super::closed::ClosedCheckpoint;
use crate::item::ItemRef;
use crate::prefetch::load_line;

/// Items whose headers are being loaded while the one before them is looked at: a miss takes about
/// as long as the work on so many.
pub(crate) const ITEMS_AHEAD: usize = 8;

/// How much one read takes. Whole checkpoints are taken, at least one, until either is reached.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// Items.
    pub items_max: usize,
    /// Bytes of their blocks.
    pub bytes_max: usize,
    /// Checkpoints: what the time under the queue lock depends on.
    pub checkpoints_max: usize,
}

/// Consecutive closed checkpoints.
#[derive(Default)]
pub struct CursorBatch {
    pub(super) checkpoints: Vec<Arc<ClosedCheckpoint>>,
    /// Everything behind this seqno is in the batch.
    pub from: Seqno,
    /// The batch is complete up to here, also where slots were empty.
    pub end: Seqno,
    /// Highest CAS handed out up to `end`, or later.
    pub max_cas: Cas,
    /// Number of items.
    pub item_count: usize,
    /// Bytes of the blocks of all items of its checkpoints.
    pub item_bytes: usize,
    /// True when more was queued behind `end` at the time of the read.
    pub more: bool,
}

impl CursorBatch {
    /// The items in ascending seqno.
    pub fn items(&self) -> impl Iterator<Item = &ItemRef> {
        self.checkpoints.iter().flat_map(|checkpoint| checkpoint.items_after(self.from.0))
    }

    /// True when nothing was queued.
    pub fn is_empty(&self) -> bool {
        self.item_count == 0
    }
}

/// One snapshot for a stream: at most one version of a key. It is read item by item, at the
/// stream's pace.
pub struct StreamBatch {
    content: Content,
    from: u64,
    end: u64,
    /// Seqno of the last item that was returned, or `from`.
    at: u64,
    item_bytes: usize,
    begins_checkpoint: bool,
}

enum Content {
    Closed(Arc<ClosedCheckpoint>),
    /// In ascending seqno.
    Copied(Vec<ItemRef>),
}

impl StreamBatch {
    pub(super) fn empty(at: Seqno) -> StreamBatch {
        StreamBatch::of_copies(at, at, Vec::new(), 0, false)
    }

    pub(super) fn of_copies(
        from: Seqno,
        end: Seqno,
        items: Vec<ItemRef>,
        item_bytes: usize,
        begins_checkpoint: bool,
    ) -> StreamBatch {
        let (from, end, content) = (from.0, end.0, Content::Copied(items));
        StreamBatch { content, from, end, at: from, item_bytes, begins_checkpoint }
    }

    pub(super) fn of_closed(from: Seqno, closed: &Arc<ClosedCheckpoint>) -> StreamBatch {
        StreamBatch {
            content: Content::Closed(Arc::clone(closed)),
            from: from.0,
            end: closed.end,
            at: from.0,
            item_bytes: closed.item_bytes,
            begins_checkpoint: from.0 + 1 == closed.start,
        }
    }

    /// Everything behind this seqno is in the batch.
    pub fn from(&self) -> Seqno {
        Seqno(self.from)
    }

    /// Seqno of the last item, up to which the batch is complete; `from` if the batch is empty.
    pub fn end(&self) -> Seqno {
        Seqno(self.end)
    }

    /// True when the queue had nothing behind the cursor.
    pub fn is_empty(&self) -> bool {
        self.from == self.end
    }

    /// Bytes of the blocks that the batch keeps in memory.
    pub fn item_bytes(&self) -> usize {
        self.item_bytes
    }

    /// True when the queue had nothing behind the batch; false when that is not known.
    pub fn is_rest(&self) -> bool {
        matches!(self.content, Content::Copied(_))
    }

    /// True when the batch begins where a checkpoint begins.
    pub fn begins_checkpoint(&self) -> bool {
        self.begins_checkpoint
    }

    /// Number of items that [`StreamBatch::next`] has not returned.
    pub fn items_left(&self) -> usize {
        match &self.content {
            Content::Closed(closed) => closed.count_after(self.at),
            Content::Copied(items) => items.len() - self.first_left(items),
        }
    }

    /// The next item in ascending seqno.
    #[expect(clippy::should_implement_trait, reason = "the item borrows from the batch")]
    pub fn next(&mut self) -> Option<&ItemRef> {
        let item = match &self.content {
            Content::Closed(closed) => closed.next_after(self.at),
            Content::Copied(items) => items.get(self.first_left(items)),
        }?;
        self.at = item.seqno().0;
        Some(item)
    }

    /// All items that [`StreamBatch::next`] has not returned, in ascending seqno. References that
    /// the batch holds are moved.
    pub fn into_items(self) -> Vec<ItemRef> {
        match self.content {
            Content::Closed(closed) => {
                let mut items = Vec::with_capacity(closed.count_after(self.at));
                let mut ahead = closed.items_after(self.at).skip(ITEMS_AHEAD);
                for item in closed.items_after(self.at) {
                    ahead.next().into_iter().for_each(|next| load_line(next.address()));
                    items.push(item.clone());
                }
                items
            }
            Content::Copied(mut items) => {
                let left = items.partition_point(|item| item.seqno().0 <= self.at);
                items.drain(..left);
                items
            }
        }
    }

    fn first_left(&self, items: &[ItemRef]) -> usize {
        items.partition_point(|item| item.seqno().0 <= self.at)
    }
}
