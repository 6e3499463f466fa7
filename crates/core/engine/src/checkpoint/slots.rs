//! The slots of one checkpoint: a place for every seqno that was assigned while it was open.
//!
//! Owns: slots in chunks of [`CHUNK_SLOTS`], so that a long checkpoint never moves its slots; the
//! first chunk grows in steps, so that a checkpoint of one item takes 32 bytes of slots and not 2
//! KiB. A chunk whose slots have all been emptied is freed at once, unless it is still being
//! filled: one key overwritten for ever keeps one chunk. Called by the open checkpoint, and read
//! through a closed one.
//!
//! A replica's seqnos have gaps, of any size. There the slots are dense: a list says which seqno
//! each slot has, and looking for one is a binary search. A checkpoint of an active vbucket has no
//! such list, and its slots follow from the seqnos.

use crate::item::ItemRef;
use crate::limits::CHUNK_SLOTS;
use crate::prefetch::load_line;

/// Slots of a checkpoint's first chunk before it grows for the first time, each time by this
/// factor.
const FIRST_SLOTS: usize = 4;
// A first chunk that grows by this factor ends at the size of the others.
const _: () = assert!(CHUNK_SLOTS.ilog2().is_multiple_of(FIRST_SLOTS.ilog2()));

/// Consecutive slots; no memory once all were filled and emptied again.
struct Chunk {
    slots: Box<[Option<ItemRef>]>,
    /// Items in it, once the last slot was filled; until then 0. While the chunk is being filled,
    /// a write changes its slots and nothing else of it.
    live: usize,
}

impl Chunk {
    fn of(slots: Vec<Option<ItemRef>>) -> Chunk {
        Chunk { slots: slots.into_boxed_slice(), live: 0 }
    }

    fn items(&self) -> usize {
        debug_assert!(self.live <= self.slots.len(), "an item has a slot");
        match self.live {
            0 => self.slots.iter().flatten().count(),
            live => live,
        }
    }
}

impl Drop for Chunk {
    /// Dropping an item writes its header, and most headers have left the caches. So all of them
    /// start loading before the first is needed.
    fn drop(&mut self) {
        self.slots.iter().flatten().for_each(|item| load_line(item.address()));
    }
}

/// Items in order. A stream steps through them change by change, so a step is a few instructions.
#[derive(Default)]
pub(super) struct SlotItems<'s> {
    slots: std::slice::Iter<'s, Option<ItemRef>>,
    chunks: std::slice::Iter<'s, Chunk>,
}

impl<'s> Iterator for SlotItems<'s> {
    type Item = &'s ItemRef;

    #[inline]
    fn next(&mut self) -> Option<&'s ItemRef> {
        loop {
            match self.slots.next() {
                Some(Some(item)) => return Some(item),
                Some(None) => {}
                None => self.slots = self.chunks.next()?.slots.iter(),
            }
        }
    }
}

/// Slots by index: the seqno less that of the first slot.
#[derive(Default)]
pub(super) struct Slots {
    chunks: Vec<Chunk>,
    /// Bytes of the chunks' memory.
    chunk_bytes: usize,
    /// The index by which each slot is asked for, ascending; empty where that is the slot's own.
    sparse: Vec<u64>,
}

impl Slots {
    /// Bytes of memory that the slots take, used or not.
    pub(super) fn bytes(&self) -> usize {
        self.chunk_bytes
            + self.chunks.capacity() * size_of::<Chunk>()
            + self.sparse.capacity() * size_of::<u64>()
    }

    /// Slots that were filled, of a list of seqnos with gaps.
    pub(super) fn sparse_len(&self) -> usize {
        self.sparse.len()
    }

    /// Fills the next slot, which is asked for by `index` from now on. All slots are filled like
    /// this, or none.
    pub(super) fn push_sparse(&mut self, index: u64, item: ItemRef) {
        assert!(self.sparse.last().is_none_or(|last| *last < index), "seqnos ascend");
        assert!(!self.sparse.is_empty() || self.chunks.is_empty(), "slots of one kind");
        let place = self.sparse.len() as u64;
        self.sparse.push(index);
        self.push(place, item);
    }

    /// Empties the slot that is asked for by `index`.
    pub(super) fn take_sparse(&mut self, index: u64) -> Option<ItemRef> {
        let place = self.sparse.binary_search(&index).ok()?;
        self.take(place as u64)
    }

    /// The place of the first slot that is asked for by `index` or a higher one.
    fn place_from(&self, index: u64) -> u64 {
        match self.sparse.is_empty() {
            true => index,
            false => self.sparse.partition_point(|known| *known < index) as u64,
        }
    }

    /// Fills the slot at `index`, after all others.
    #[inline]
    pub(super) fn push(&mut self, index: u64, item: ItemRef) {
        let (number, place) = position(index);
        if self.chunks.get(number).is_none_or(|chunk| place >= chunk.slots.len()) {
            self.ensure_capacity(number);
        }
        let chunk = &mut self.chunks[number];
        let before = chunk.slots[place].replace(item);
        debug_assert!(before.is_none(), "a slot is filled once");
        if place == CHUNK_SLOTS - 1 {
            chunk.live = chunk.items();
        }
    }

    /// Empties a slot; `None` when it is empty or was never filled.
    #[inline]
    pub(super) fn take(&mut self, index: u64) -> Option<ItemRef> {
        let (number, place) = position(index);
        let chunk = self.chunks.get_mut(number)?;
        let item = chunk.slots.get_mut(place)?.take()?;
        if chunk.live > 0 {
            chunk.live -= 1;
            if chunk.live == 0 {
                debug_assert!(
                    self.chunk_bytes >= bytes_of(chunk),
                    "the bytes of chunks are counted"
                );
                self.chunk_bytes -= bytes_of(chunk);
                chunk.slots = Box::default();
            }
        }
        Some(item)
    }

    /// The item in a slot.
    pub(super) fn get(&self, index: u64) -> Option<&ItemRef> {
        let is_here = self.sparse.is_empty() || self.sparse.binary_search(&index).is_ok();
        let (number, place) = position(self.place_from(index));
        if !is_here {
            return None;
        }
        self.chunks.get(number)?.slots.get(place)?.as_ref()
    }

    /// Items from `index` on, in order.
    pub(super) fn items_from(&self, index: u64) -> SlotItems<'_> {
        let (number, place) = position(self.place_from(index));
        match self.chunks.get(number..) {
            Some([first, others @ ..]) => SlotItems {
                slots: first.slots.get(place..).unwrap_or_default().iter(),
                chunks: others.iter(),
            },
            _ => SlotItems::default(),
        }
    }

    /// Items from the last one down to `index`.
    pub(super) fn items_down_to(&self, index: u64) -> impl Iterator<Item = &ItemRef> {
        let (number, place) = position(self.place_from(index));
        let chunks = self.chunks.iter().enumerate().skip(number).rev();
        let slots = chunks.flat_map(move |(at, chunk)| {
            let skipped = if at == number { place } else { 0 };
            chunk.slots.iter().skip(skipped).rev()
        });
        slots.flatten()
    }

    /// Number of items from `index` on. Looks at one number a chunk after it, and at the slots of
    /// two chunks.
    pub(super) fn live_from(&self, index: u64) -> usize {
        let (number, place) = position(self.place_from(index));
        let Some([first, others @ ..]) = self.chunks.get(number..) else { return 0 };
        let inside = first.slots.iter().skip(place).filter(|slot| slot.is_some()).count();
        inside + others.iter().map(Chunk::items).sum::<usize>()
    }

    /// Lengthens chunk `number`, which is the first one and full, or begins it.
    #[cold]
    fn ensure_capacity(&mut self, number: usize) {
        assert!(number <= self.chunks.len(), "chunks are begun in order");
        let lengthened = self.chunks.get_mut(number).map(|chunk| std::mem::take(&mut chunk.slots));
        let mut slots = lengthened.unwrap_or_default().into_vec();
        let before = slots.len();
        let len = match (number, before) {
            (0, 0) => FIRST_SLOTS,
            (0, _) => before * FIRST_SLOTS,
            _ => CHUNK_SLOTS,
        };
        assert!(before < len && len <= CHUNK_SLOTS, "a chunk grows to its full size");
        slots.reserve_exact(len - before);
        slots.resize_with(len, || None);
        self.chunk_bytes += (len - before) * size_of::<Option<ItemRef>>();
        match self.chunks.get_mut(number) {
            Some(chunk) => chunk.slots = slots.into_boxed_slice(),
            None => {
                if number == 0 {
                    self.chunks.reserve_exact(1);
                }
                self.chunks.push(Chunk::of(slots));
            }
        }
    }

    #[cfg(test)]
    pub(super) fn chunks_held(&self) -> usize {
        self.chunks.iter().filter(|chunk| !chunk.slots.is_empty()).count()
    }
}

fn position(index: u64) -> (usize, usize) {
    (index as usize / CHUNK_SLOTS, index as usize % CHUNK_SLOTS)
}

fn bytes_of(chunk: &Chunk) -> usize {
    chunk.slots.len() * size_of::<Option<ItemRef>>()
}
