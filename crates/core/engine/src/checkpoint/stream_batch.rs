//! Result of one read by a stream: one snapshot, with at most one version of a key.
//!
//! Owns: where the snapshot's items are. Those of a closed checkpoint stay the queue's, which
//! counts them and keeps them until the stream reads on; the batch knows the checkpoint without
//! keeping it. When memory recovery takes the stream's cursor away, they leave with the checkpoint,
//! however long the stream stalls, and the batch is lost. Items of the open checkpoint are copied,
//! because it continues changing. The queue may drop those, so the reader counts them.
//!
//! A reader asks for the items each time that it sends some ([`StreamBatch::hold`]) and holds them
//! concurrently, without the queue lock and without counting a reference for each.

use std::sync::{Arc, Weak};

use oribi_types::Seqno;

use super::closed::ClosedCheckpoint;
use super::slots::SlotItems;
use crate::item::ItemRef;

/// See the module text.
pub struct StreamBatch {
    content: Content,
    from: u64,
    end: u64,
    begins_checkpoint: bool,
    is_rest: bool,
}

enum Content {
    Closed(Weak<ClosedCheckpoint>),
    /// In ascending seqno, and the bytes of their blocks.
    Copied(Vec<ItemRef>, usize),
}

/// The items of a batch, while they are looked at.
pub struct BatchGuard<'b> {
    closed: Option<Arc<ClosedCheckpoint>>,
    copied: &'b [ItemRef],
}

impl BatchGuard<'_> {
    /// The items after `seqno`, in ascending order.
    pub fn items_after(&self, seqno: Seqno) -> impl Iterator<Item = &ItemRef> {
        let closed = self.closed.as_ref().map(|closed| closed.items_after(seqno.0));
        BatchItems { closed: closed.unwrap_or_default(), copied: self.copied_after(seqno).iter() }
    }

    /// The same in descending order.
    pub fn items_down_after(&self, seqno: Seqno) -> impl Iterator<Item = &ItemRef> {
        let closed = self.closed.iter().flat_map(move |closed| closed.items_down_after(seqno.0));
        closed.chain(self.copied_after(seqno).iter().rev())
    }

    fn copied_after(&self, seqno: Seqno) -> &[ItemRef] {
        debug_assert!(self.closed.is_none() || self.copied.is_empty(), "a batch has one source");
        &self.copied[self.copied.partition_point(|item| item.seqno() <= seqno)..]
    }
}

struct BatchItems<'b> {
    closed: SlotItems<'b>,
    copied: std::slice::Iter<'b, ItemRef>,
}

impl<'b> Iterator for BatchItems<'b> {
    type Item = &'b ItemRef;

    #[inline]
    fn next(&mut self) -> Option<&'b ItemRef> {
        self.closed.next().or_else(|| self.copied.next())
    }
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
        assert!(from <= end, "a snapshot begins before its end");
        assert!(items.first().is_none_or(|first| first.seqno() > from), "items follow the start");
        assert!(items.last().is_none_or(|last| last.seqno() <= end), "items are in the snapshot");
        debug_assert!(items.is_sorted_by_key(|item| item.seqno()), "versions are in order");
        let (from, end, content) = (from.0, end.0, Content::Copied(items, item_bytes));
        StreamBatch { content, from, end, begins_checkpoint, is_rest: true }
    }

    pub(super) fn of_closed(from: Seqno, closed: &Arc<ClosedCheckpoint>) -> StreamBatch {
        assert!(from.0 < closed.end, "a snapshot has a seqno");
        assert!(closed.start <= from.0 + 1, "a checkpoint leaves after every stream has read it");
        StreamBatch {
            content: Content::Closed(Arc::downgrade(closed)),
            from: from.0,
            end: closed.end,
            begins_checkpoint: from.0 + 1 == closed.start,
            is_rest: false,
        }
    }

    /// The same batch, of which only `item` is left, which it keeps.
    pub(crate) fn keeping(self, item: ItemRef) -> StreamBatch {
        let bytes = item.block_bytes();
        debug_assert!(item.seqno().0 <= self.end, "the item belongs to the batch");
        StreamBatch { content: Content::Copied(vec![item], bytes), ..self }
    }

    /// Everything after this seqno is in the batch.
    pub fn from(&self) -> Seqno {
        Seqno(self.from)
    }

    /// Seqno of the last item, up to which the batch is complete; `from` if the batch is empty.
    pub fn end(&self) -> Seqno {
        Seqno(self.end)
    }

    /// True when the queue had nothing after the cursor.
    pub fn is_empty(&self) -> bool {
        debug_assert!(self.from <= self.end, "a snapshot begins before its end");
        self.from == self.end
    }

    /// Bytes of the blocks that the batch keeps in memory; the others are the queue's.
    pub fn copied_bytes(&self) -> usize {
        match &self.content {
            Content::Closed(_) => 0,
            Content::Copied(_, bytes) => *bytes,
        }
    }

    /// True when the queue had nothing after the batch; false when that is unknown.
    pub fn is_rest(&self) -> bool {
        self.is_rest
    }

    /// True when the batch begins where a checkpoint begins.
    pub fn begins_checkpoint(&self) -> bool {
        self.begins_checkpoint
    }

    /// The items; `None` when they have left the queue, and with them the stream's cursor.
    pub fn hold(&self) -> Option<BatchGuard<'_>> {
        Some(match &self.content {
            Content::Closed(closed) => BatchGuard { closed: Some(closed.upgrade()?), copied: &[] },
            Content::Copied(items, _) => BatchGuard { closed: None, copied: items },
        })
    }
}
