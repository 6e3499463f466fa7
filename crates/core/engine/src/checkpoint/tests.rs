//! The checkpoint manager against a plain model: a list of all mutations there ever were, the
//! newest version of each key, and every invariant of the module after every step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno, Timestamp};

use super::expelled::ExpelledCheckpoints;
use super::sums::QueueMemory;
use super::{
    CheckpointLimits, CheckpointManager, CursorBatch, CursorId, ReadLimits, StreamBatch,
    StreamSink, StreamWaker,
};
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::limits::{STREAM_READ_ITEMS_MAX, STREAM_READ_SEQNOS_MAX};

mod cases;
mod random;

/// Small checkpoints, so that random operations get to many of them.
const LIMITS: CheckpointLimits =
    CheckpointLimits { items_max: 600, bytes_max: 48 * 700, slots_max: 900 };
/// Cursors that come and go. The first is the flusher's, the others are streams'.
const READERS: usize = 3;
const NAMES: [&str; READERS] = ["persistence", "stream", "other stream"];

fn new_item(key: u16, deleted: bool) -> NewItem {
    let name = key.to_be_bytes();
    let key = DocKey { collection: CollectionId::DEFAULT, key: &name };
    // Blocks of different sizes, so that sums tell them apart.
    let value = vec![b'v'; usize::from(name[1]) * 3];
    let value: &[&[u8]] = if deleted { &[] } else { &[&value] };
    NewItem::new(key, ItemFields { deleted, ..Default::default() }, value)
}

fn key_of(item: &ItemRef) -> u16 {
    u16::from_be_bytes(item.key().key.try_into().unwrap())
}

fn items_of(batch: &StreamBatch) -> usize {
    batch.hold().expect("the queue keeps it").items_after(batch.from()).count()
}

fn limits(items_max: usize) -> ReadLimits {
    ReadLimits { items_max, bytes_max: usize::MAX, checkpoints_max: usize::MAX }
}

/// A reader's state: the store that a flusher or a client would have written, and the batches
/// under way.
struct Reader {
    id: CursorId,
    store: BTreeMap<u16, Seqno>,
    pending: Vec<CursorBatch>,
    /// The snapshot that a stream sends, and its position.
    sending: Option<(StreamBatch, Seqno)>,
    position: Seqno,
    /// False from when memory recovery took its cursor away.
    is_registered: bool,
    /// A stream that has read to the end and was not told of more.
    is_idle: bool,
}

impl Reader {
    fn read_to(&self) -> Seqno {
        let sending = self.sending.as_ref().map(|(batch, _)| batch.end());
        sending.or(self.pending.last().map(|batch| batch.end)).unwrap_or(self.position)
    }

    /// Takes in up to `count` items of what the stream is sending.
    fn send(&mut self, count: usize) {
        let Some((batch, at)) = &mut self.sending else { return };
        let held = batch.hold().expect("the queue keeps it");
        for item in held.items_after(*at).take(count) {
            let (key, seqno) = (key_of(item), item.seqno());
            assert!(*at < seqno && seqno <= batch.end());
            self.store.insert(key, seqno);
            *at = seqno;
        }
    }
}

/// Notes which reader was told.
#[derive(Default)]
struct RecordingSink(Mutex<Vec<u64>>);

impl StreamSink for RecordingSink {
    fn ready(&self, token: u64) {
        self.0.lock().push(token);
    }
}

struct World {
    manager: CheckpointManager,
    readers: [Option<Reader>; READERS],
    table: BTreeMap<u16, ItemRef>,
    /// Keys by seqno, from 1.
    history: Vec<u16>,
    /// Batches that were taken and are not settled.
    unsettled: VecDeque<(ExpelledCheckpoints, QueueMemory)>,
    last_cas: Cas,
    now: Timestamp,
    told: Arc<RecordingSink>,
}

impl World {
    fn new() -> World {
        let mut world = World {
            manager: CheckpointManager::with_limits(Seqno(0), Cas(0), LIMITS),
            readers: Default::default(),
            table: BTreeMap::new(),
            history: Vec::new(),
            unsettled: VecDeque::new(),
            last_cas: Cas(0),
            now: Timestamp { unix_ns: 1 << 40 },
            told: Arc::default(),
        };
        world.register(0, 0);
        world.register(1, 0);
        world
    }

    fn high(&self) -> Seqno {
        Seqno(self.history.len() as u64)
    }

    fn enqueue(&mut self, key: u16, deleted: bool) {
        let before = self.table.get(&key);
        let displaced_expected = before.is_some_and(|old| old.seqno().0 >= self.open_start_soon());
        let done = self.manager.enqueue(new_item(key, deleted), before, RevSeqno(1), self.now);
        self.history.push(key);
        assert_eq!(done.item.seqno(), self.high());
        assert!(done.item.cas() > self.last_cas, "CAS goes up");
        assert_eq!(done.displaced.is_some(), displaced_expected);
        if let Some(displaced) = done.displaced {
            assert!(displaced.same_block(before.unwrap()));
        }
        self.last_cas = done.item.cas();
        self.table.insert(key, done.item);
        self.tell();
    }

    /// Wakes as a vbucket does. Every idle stream is told, once, and no other.
    fn tell(&mut self) {
        if self.manager.has_idle_stream() {
            self.manager.take_idle_streams().iter().for_each(StreamWaker::wake);
        }
        let told = std::mem::take(&mut *self.told.0.lock());
        for (at, reader) in self.readers.iter_mut().enumerate() {
            let is_told = told.iter().filter(|token| **token == at as u64).count();
            let was_idle = reader
                .as_mut()
                .is_some_and(|reader| std::mem::take(&mut reader.is_idle) && reader.is_registered);
            assert_eq!(is_told, usize::from(was_idle), "{}", NAMES[at]);
        }
        assert!(!self.manager.has_idle_stream());
    }

    /// Start of the open checkpoint after an enqueue that may close the one before.
    fn open_start_soon(&self) -> u64 {
        let open = &self.manager.open;
        let is_full = open.items >= LIMITS.items_max
            || open.item_bytes >= LIMITS.bytes_max
            || self.high().0 + 1 - open.start >= LIMITS.slots_max;
        if is_full { self.high().0 + 1 } else { open.start }
    }

    /// The table lets go of a version without an overwrite, as a collection's purge does.
    fn purge(&mut self, key: u16) {
        if let Some(item) = self.table.remove(&key) {
            self.manager.orphaned(&item);
        }
    }

    /// The newest version of each key at `end`.
    fn state_at(&self, end: Seqno) -> BTreeMap<u16, Seqno> {
        let seqnos = (1..).map(Seqno);
        self.history[..end.0 as usize].iter().copied().zip(seqnos).collect()
    }

    fn register(&mut self, reader: usize, from: u64) {
        let from = from.min(self.high().0);
        let first = self.manager.lowest_needed().0;
        let open_start = self.manager.open.start;
        let registered = match reader {
            0 => self.manager.register_cursor(NAMES[0], Seqno(from)),
            _ => {
                self.drop_reader(reader);
                let waker = StreamWaker::new(Arc::clone(&self.told) as _, reader as u64);
                self.manager.register_stream(NAMES[reader], Seqno(from), waker)
            }
        };
        assert!(reader == 0 || self.manager.open.start == open_start, "no stream closes it");
        assert_eq!(registered.needs_backfill, from + 1 < first);
        let position = Seqno(from.max(first - 1));
        assert_eq!(registered.first.0, position.0 + 1);
        let old = self.readers[reader].replace(Reader {
            id: registered.id,
            store: self.state_at(position),
            pending: Vec::new(),
            sending: None,
            position,
            is_registered: true,
            is_idle: false,
        });
        if let Some(old) = old {
            assert!(!self.manager.has_cursor(old.id), "a name has one cursor");
            assert!(self.manager.read(old.id, limits(1)).is_none());
        }
    }

    fn drop_reader(&mut self, reader: usize) {
        if let Some(reader) = self.readers[reader].take() {
            self.manager.drop_cursor(reader.id);
            assert!(self.manager.read(reader.id, limits(1)).is_none());
            assert!(self.manager.read_stream(reader.id, usize::MAX).is_none());
            assert_eq!(self.manager.stream_position(reader.id), None);
            self.manager.advance(reader.id);
            self.manager.rewind(reader.id);
        }
    }

    fn drop_slow(&mut self) {
        let positions = |droppable: bool| {
            let known = self.readers.iter().enumerate();
            let known = known.filter_map(|(at, reader)| reader.as_ref().map(|r| (at, r)));
            known.filter(move |(at, r)| r.is_registered && (*at > 0) == droppable)
        };
        let kept = positions(false).map(|(_, r)| r.position.0).min();
        let kept = kept.unwrap_or(self.manager.open.start - 1);
        let slow: Vec<usize> =
            positions(true).filter(|(_, r)| r.position.0 < kept).map(|(at, _)| at).collect();
        self.manager.drop_slow_cursors().iter().for_each(StreamWaker::wake);
        let mut told = std::mem::take(&mut *self.told.0.lock());
        told.sort_unstable();
        assert!(told.iter().copied().eq(slow.iter().map(|at| *at as u64)));
        for at in slow {
            let reader = self.readers[at].as_mut().unwrap();
            assert!(!self.manager.has_cursor(reader.id));
            reader.is_registered = false;
            reader.sending = None;
        }
    }

    fn read(&mut self, reader: usize, limits: ReadLimits) {
        if reader > 0 {
            return self.read_stream(reader);
        }
        let Some(reader) = self.readers[reader].as_mut() else { return };
        let read_to = reader.read_to();
        let Some(batch) = self.manager.read(reader.id, limits) else {
            assert!(!reader.is_registered);
            return;
        };
        assert!(reader.is_registered);
        assert_eq!(batch.from, read_to);
        assert!(batch.items().is_sorted_by_key(|item| item.seqno()));
        assert!(batch.items().all(|item| item.seqno() > read_to && item.seqno() <= batch.end));
        assert_eq!(batch.items().count(), batch.item_count);
        assert_eq!(batch.more, batch.end.0 < self.history.len() as u64);
        assert_eq!(batch.is_empty(), read_to.0 == self.history.len() as u64);
        assert!(batch.checkpoints.len() <= limits.checkpoints_max.max(1));
        reader.pending.push(batch);
    }

    /// A stream finishes what it sends and reads on.
    fn read_stream(&mut self, at: usize) {
        let Some(mut reader) = self.readers[at].take() else { return };
        self.finish_sending(&mut reader);
        let (open_start, high) = (self.manager.open.start, self.high());
        let waiting = self.manager.remaining(reader.id);
        let Some(batch) = self.manager.read_stream(reader.id, usize::MAX) else {
            assert!(!reader.is_registered);
            self.readers[at] = Some(reader);
            return;
        };
        assert!(reader.is_registered);
        assert_eq!(batch.from(), reader.position);
        assert_eq!(batch.is_empty(), reader.position == high);
        reader.is_idle = batch.is_empty();
        let is_in_open = reader.position.0 + 1 >= open_start;
        let is_small = waiting <= STREAM_READ_ITEMS_MAX
            && high.0 - reader.position.0 <= STREAM_READ_SEQNOS_MAX;
        if is_in_open {
            assert_eq!((batch.end(), items_of(&batch)), (high, waiting));
        }
        let is_closed = self.manager.open.start > open_start;
        assert_eq!(is_closed, is_in_open && !is_small, "a stream that keeps up closes nothing");
        if !batch.is_empty() {
            reader.sending = Some((batch, reader.position));
        }
        self.readers[at] = Some(reader);
    }

    fn finish_sending(&self, reader: &mut Reader) {
        reader.send(usize::MAX);
        if let Some((batch, at)) = reader.sending.take() {
            assert_eq!(at, batch.end());
            assert_eq!(reader.store, self.state_at(batch.end()), "a snapshot's end is consistent");
            reader.position = batch.end();
        }
    }

    fn advance(&mut self, at: usize) {
        if at > 0 {
            self.readers[at].iter_mut().for_each(|reader| reader.send(3));
            return;
        }
        let Some(mut reader) = self.readers[at].take() else { return };
        self.manager.advance(reader.id);
        for batch in std::mem::take(&mut reader.pending) {
            // Small runs and whole batches in turn.
            let items_max = if batch.item_count.is_multiple_of(2) { 800 } else { usize::MAX };
            for run in batch.runs(items_max, usize::MAX) {
                let items = run.newest_items();
                assert!(items.is_sorted_by_key(|item| item.seqno()));
                let newest: BTreeMap<u16, Seqno> =
                    items.iter().map(|item| (key_of(item), item.seqno())).collect();
                assert_eq!(newest.len(), items.len(), "a key is written once");
                reader.store.extend(newest);
                let expected = self.state_at(run.end());
                assert_eq!(reader.store, expected, "a run's end is consistent");
                reader.position = run.end();
            }
            assert_eq!(reader.position, batch.end);
        }
        self.readers[at] = Some(reader);
    }

    fn rewind(&mut self) {
        if let Some(reader) = self.readers[0].as_mut() {
            reader.pending.clear();
            self.manager.rewind(reader.id);
        }
    }

    fn lowest(&self) -> Option<Seqno> {
        let registered = self.readers.iter().flatten().filter(|reader| reader.is_registered);
        registered.map(|reader| reader.position).min()
    }

    fn end_streams(&mut self) {
        let ended = self.manager.end_streams();
        let registered = self.readers[1..].iter().flatten().filter(|reader| reader.is_registered);
        assert_eq!(ended.len(), registered.count());
        for reader in self.readers[1..].iter_mut().flatten() {
            assert!(!self.manager.has_cursor(reader.id));
            reader.is_registered = false;
            reader.sending = None;
        }
    }

    fn expel(&mut self) {
        let lowest = self.lowest().unwrap_or(self.high());
        let gone = self.manager.expel();
        assert!(gone.items().all(|item| item.seqno() <= lowest), "expelled in front of a cursor");
        let stays = self.manager.closed.front();
        assert!(stays.is_none_or(|closed| closed.end > lowest.0), "more could have left");
        assert!(!self.manager.can_expel());
        let dead = gone.tombstones().count();
        assert_eq!(dead, gone.items().filter(|item| item.is_deleted()).count());
        self.leave(gone);
    }

    fn leave(&mut self, gone: ExpelledCheckpoints) {
        let held = QueueMemory {
            slot_bytes: gone.0.iter().map(|closed| closed.slot_bytes()).sum(),
            orphan_bytes: self.orphan_bytes(gone.items()),
        };
        self.unsettled.push_back((gone, held));
    }

    fn settle(&mut self) {
        if let Some((gone, held)) = self.unsettled.pop_front() {
            let freed = gone.free();
            assert_eq!(freed.0, held);
            self.manager.settle(freed);
        }
    }

    fn clear(&mut self) {
        self.end_streams();
        // The queue's versions leave together with the table's.
        let gone = self.manager.clear();
        self.leave(gone);
        self.table.clear();
        let high = self.high();
        let state = self.state_at(high);
        for reader in self.readers.iter_mut().flatten().filter(|reader| reader.is_registered) {
            reader.pending.clear();
            (reader.position, reader.store) = (high, state.clone());
        }
        assert_eq!(self.manager.queued().items, 0);
    }

    /// Bytes of blocks that the table does not hold.
    fn orphan_bytes<'a>(&self, items: impl Iterator<Item = &'a ItemRef>) -> usize {
        let is_orphan = |item: &&ItemRef| {
            self.table.get(&key_of(item)).is_none_or(|current| !current.same_block(item))
        };
        items.filter(is_orphan).map(|item| item.block_bytes()).sum()
    }

    fn check(&self) {
        self.manager.check_invariants();
        let manager = &self.manager;
        let closed = manager.closed.iter().flat_map(|closed| closed.items_after(0));
        let live: Vec<&ItemRef> = closed.chain(manager.open.slots.items_from(0)).collect();
        let bytes: usize = live.iter().map(|item| item.block_bytes()).sum();
        let queued = manager.queued();
        assert_eq!((queued.items as usize, queued.bytes as usize), (live.len(), bytes));
        // Nothing that anybody may still need is missing.
        if let Some(lowest) = self.lowest() {
            assert!(manager.lowest_needed().0 <= lowest.0 + 1);
        }
        for reader in self.readers.iter().flatten() {
            let behind = live.iter().filter(|item| item.seqno() > reader.read_to()).count();
            let behind = if reader.is_registered { behind } else { 0 };
            assert_eq!(manager.remaining(reader.id), behind);
            let undone = live.iter().filter(|item| item.seqno() > reader.position).count();
            let undone = if reader.is_registered { undone } else { 0 };
            assert_eq!(manager.unprocessed(reader.id), undone);
            let read_to = reader.read_to().0;
            let is_in_front = read_to < manager.open.start;
            let is_stream = self.readers[0].as_ref().is_none_or(|first| first.id != reader.id);
            assert!(!reader.is_registered || is_stream || is_in_front, "invariant 5");
            let position = reader.is_registered.then_some(reader.read_to());
            assert_eq!(manager.stream_position(reader.id), position);
        }
        self.check_memory(&live);
        self.check_stats(&live);
    }

    fn check_memory(&self, live: &[&ItemRef]) {
        let manager = &self.manager;
        let mut slot_bytes: usize = manager.closed.iter().map(|closed| closed.slot_bytes()).sum();
        slot_bytes += manager.open.slots.bytes();
        slot_bytes += self.unsettled.iter().map(|(_, held)| held.slot_bytes).sum::<usize>();
        let mut orphans = self.orphan_bytes(live.iter().copied());
        let known: usize = manager.closed.iter().map(|closed| closed.held().orphan_bytes).sum();
        assert_eq!(known, orphans, "each checkpoint knows its own");
        orphans += self.unsettled.iter().map(|(_, held)| held.orphan_bytes).sum::<usize>();
        assert_eq!(manager.own_bytes(), slot_bytes + orphans);
        let item_bytes: usize = live.iter().map(|item| item.block_bytes()).sum();
        assert_eq!(manager.queue_bytes(), slot_bytes + item_bytes);
        // Empty chunks are not kept: at most the one that is being filled.
        let full = manager.open.slots.chunks_held();
        assert!(full <= manager.open.items + 1);
    }

    /// Figures against a count of all slots.
    fn check_stats(&self, live: &[&ItemRef]) {
        let stats = self.manager.stats();
        assert_eq!(stats.checkpoints.len(), self.manager.checkpoint_count());
        let mut next = stats.checkpoints[0].snapshot_start.0;
        assert_eq!(Seqno(next), self.manager.lowest_needed());
        for (id, checkpoint) in (stats.checkpoints[0].id..).zip(&stats.checkpoints) {
            let (start, end) = (checkpoint.snapshot_start.0, checkpoint.snapshot_end.0);
            assert_eq!((checkpoint.id, start), (id, next), "checkpoints follow each other");
            next = end + 1;
            let first = live.partition_point(|item| item.seqno().0 < start);
            let inside = &live[first..live.partition_point(|item| item.seqno().0 <= end)];
            assert_eq!(checkpoint.items, inside.len());
            assert_eq!(checkpoint.is_open, id == stats.open_checkpoint_id);
            assert!(checkpoint.is_open || checkpoint.items > 0, "no empty one is closed");
            let bytes: usize = inside.iter().map(|item| item.block_bytes()).sum();
            assert_eq!(checkpoint.item_bytes, bytes);
            let keys: BTreeMap<u16, ()> = inside.iter().map(|item| (key_of(item), ())).collect();
            assert_eq!(keys.len(), inside.len(), "two slots of one key in a checkpoint");
            let reading = stats.cursors.iter().filter(|cursor| cursor.checkpoint_id == id);
            assert_eq!(checkpoint.cursors, reading.count());
        }
        assert_eq!(Seqno(next), Seqno(self.high().0 + 1));
        let open = stats.checkpoints.last().unwrap();
        assert_eq!((stats.items, stats.open_items), (live.len(), open.items));
        assert!(open.is_open);
        self.check_cursors(&stats, live);
    }

    fn check_cursors(&self, stats: &super::CheckpointManagerStats, live: &[&ItemRef]) {
        let registered = self.readers.iter().zip(NAMES);
        let registered = registered.filter_map(|(reader, name)| Some((reader.as_ref()?, name)));
        let registered = registered.filter(|(reader, _)| reader.is_registered);
        let mut count = 0;
        for (reader, name) in registered {
            count += 1;
            let cursor = stats.cursors.iter().find(|cursor| *cursor.name == *name).unwrap();
            let remaining = self.manager.remaining(reader.id);
            assert_eq!((cursor.seqno, cursor.remaining), (reader.position, remaining));
            let at =
                stats.checkpoints.iter().find(|found| found.id == cursor.checkpoint_id).unwrap();
            assert_eq!(at.snapshot_start.0 + cursor.distance, cursor.seqno.0 + 1);
            let oldest = live.get(live.partition_point(|item| item.seqno() <= reader.position));
            let queued = oldest.map(|item| Timestamp { unix_ns: item.cas().0 & !0xffff });
            assert_eq!(self.manager.oldest_unprocessed(reader.id), queued);
        }
        assert_eq!(stats.cursors.len(), count);
    }

    /// Every reader ends with the newest version of every key, and nothing stays.
    fn drain(&mut self) {
        self.rewind();
        for reader in 0..READERS {
            let Some(id) = self.readers[reader].as_ref().map(|reader| reader.id) else { continue };
            while self.manager.remaining(id) > 0 {
                self.read(reader, limits(1));
                self.advance(reader);
            }
            if reader > 0 {
                // The last read accepts what the one before returned.
                self.read_stream(reader);
            }
        }
        self.manager.close_open();
        self.expel();
        while !self.unsettled.is_empty() {
            self.settle();
        }
        self.check();
        assert_eq!(self.manager.queued().items, 0);
        assert!(self.manager.closed.is_empty());
        assert_eq!(self.manager.own_bytes(), self.manager.open.slots.bytes());
    }
}
