//! The checkpoint manager against a plain model: every invariant of the module after every step.

use std::collections::BTreeMap;

use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno, Timestamp};
use proptest::prelude::{ProptestConfig, Strategy, prop_oneof, proptest};

use super::{CheckpointManager, CursorId};
use crate::item::{ItemFields, ItemRef, NewItem};
use crate::limits::{CHECKPOINT_ITEMS_MAX, CHUNK_SLOTS};

fn new_item(key: u16) -> NewItem {
    let name = key.to_be_bytes();
    let key = DocKey { collection: CollectionId::DEFAULT, key: &name };
    NewItem::new(key, ItemFields::default(), &[b"value"])
}

fn key_of(item: &ItemRef) -> u16 {
    u16::from_be_bytes(item.key().key.try_into().unwrap())
}

#[derive(Clone, Debug)]
enum Op {
    Enqueue(u16),
    EnqueueMany(u16),
    Read(usize),
    Advance(usize),
    Rewind(usize),
    Expel,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0u16..40).prop_map(Op::Enqueue),
        1 => (0u16..2000).prop_map(Op::EnqueueMany),
        2 => (0usize..2).prop_map(Op::Read),
        2 => (0usize..2).prop_map(Op::Advance),
        1 => (0usize..2).prop_map(Op::Rewind),
        1 => proptest::strategy::Just(Op::Expel),
    ];
    proptest::collection::vec(op, 0..120)
}

/// What a reader has: the store that a flusher would have written, and the batch under way.
#[derive(Default)]
struct Reader {
    store: BTreeMap<u16, Seqno>,
    pending: Option<(Vec<ItemRef>, Seqno)>,
    position: Seqno,
}

struct World {
    manager: CheckpointManager,
    cursors: [CursorId; 2],
    readers: [Reader; 2],
    newest: BTreeMap<u16, Seqno>,
    last_cas: Cas,
    now: Timestamp,
}

impl World {
    fn new() -> World {
        let mut manager = CheckpointManager::new(Seqno(0), Cas(0));
        let cursors = [manager.register_cursor("persistence"), manager.register_cursor("stream")];
        World {
            manager,
            cursors,
            readers: Default::default(),
            newest: BTreeMap::new(),
            last_cas: Cas(0),
            now: Timestamp { unix_ns: 1 << 40 },
        }
    }

    fn enqueue(&mut self, key: u16) {
        let previous = self.newest.get(&key).copied();
        let before = self.manager.high_seqno();
        let done = self.manager.enqueue(new_item(key), previous, RevSeqno(1), self.now);
        assert_eq!(done.item.seqno(), Seqno(before.0 + 1));
        assert!(done.item.cas() > self.last_cas, "CAS goes up");
        if let Some(displaced) = done.displaced {
            assert_eq!((key_of(&displaced), Some(displaced.seqno())), (key, previous));
        }
        self.last_cas = done.item.cas();
        self.newest.insert(key, done.item.seqno());
    }

    fn read(&mut self, reader: usize) {
        if self.readers[reader].pending.is_some() {
            return;
        }
        let batch = self.manager.read(self.cursors[reader], 1);
        assert!(batch.items.is_sorted_by_key(|item| item.seqno()));
        assert!(batch.items.iter().all(|item| item.seqno() > self.readers[reader].position));
        self.readers[reader].pending = Some((batch.items, batch.end));
    }

    fn advance(&mut self, reader: usize) {
        let Some((items, end)) = self.readers[reader].pending.take() else { return };
        self.manager.advance(self.cursors[reader]);
        for item in items {
            self.readers[reader].store.insert(key_of(&item), item.seqno());
        }
        self.readers[reader].position = end;
    }

    fn rewind(&mut self, reader: usize) {
        if self.readers[reader].pending.take().is_some() {
            self.manager.rewind(self.cursors[reader]);
        }
    }

    fn expel(&mut self) {
        let gone = self.manager.expel();
        let lowest = self.readers.iter().map(|reader| reader.position).min().unwrap();
        for item in gone.items() {
            assert!(item.seqno() <= lowest, "expelled in front of a cursor");
        }
    }

    fn slots(&self) -> impl Iterator<Item = &ItemRef> {
        self.manager.chunks.iter().flat_map(|chunk| &chunk.slots).flatten()
    }

    fn check(&self) {
        let live: Vec<&ItemRef> = self.slots().collect();
        assert_eq!(self.manager.live_items, live.len());
        let bytes: usize = live.iter().map(|item| item.block_bytes()).sum();
        assert_eq!(self.manager.live_bytes, bytes);
        for (reader, cursor) in self.readers.iter().zip(self.cursors) {
            let read_to = reader.pending.as_ref().map_or(reader.position, |(_, end)| *end);
            let behind = live.iter().filter(|item| item.seqno() > read_to).count();
            assert_eq!(self.manager.remaining(cursor), behind);
        }
        let open = self.manager.open_start;
        let mut open_keys = BTreeMap::new();
        for item in &live {
            if item.seqno().0 >= open {
                assert_eq!(open_keys.insert(key_of(item), ()), None, "two slots of one key");
            }
        }
        self.check_stats(&live);
    }

    /// Figures against a count of all slots.
    fn check_stats(&self, live: &[&ItemRef]) {
        let stats = self.manager.stats();
        assert_eq!(stats.checkpoints.len(), self.manager.checkpoint_count());
        let mut next = stats.checkpoints[0].snapshot_start.0;
        for (id, checkpoint) in (stats.checkpoints[0].id..).zip(&stats.checkpoints) {
            let (start, end) = (checkpoint.snapshot_start.0, checkpoint.snapshot_end.0);
            assert_eq!((checkpoint.id, start), (id, next), "checkpoints follow each other");
            next = end + 1;
            let first = live.partition_point(|item| item.seqno().0 < start);
            let inside = &live[first..live.partition_point(|item| item.seqno().0 <= end)];
            assert_eq!(checkpoint.items, inside.len());
            let bytes: usize = inside.iter().map(|item| item.block_bytes()).sum();
            assert_eq!(checkpoint.item_bytes, bytes);
            let expelled = checkpoint.highest_expelled;
            assert!(inside.first().is_none_or(|item| item.seqno() > expelled));
            assert!(expelled == Seqno(0) || (start..=end).contains(&expelled.0));
            let reading = stats.cursors.iter().filter(|cursor| cursor.checkpoint_id == id);
            assert_eq!(checkpoint.cursors, reading.count());
        }
        assert_eq!(next, self.manager.high_seqno + 1);
        let open = stats.checkpoints.last().unwrap();
        assert_eq!((open.is_open, open.id), (true, stats.open_checkpoint_id));
        assert_eq!((stats.items, stats.open_items), (self.manager.live_items, open.items));
        for ((reader, cursor), id) in self.readers.iter().zip(&stats.cursors).zip(self.cursors) {
            assert_eq!(
                (cursor.seqno, cursor.remaining),
                (reader.position, self.manager.remaining(id))
            );
            let at =
                stats.checkpoints.iter().find(|found| found.id == cursor.checkpoint_id).unwrap();
            assert_eq!(at.snapshot_start.0 + cursor.distance, cursor.seqno.0 + 1);
            let read_to = reader.pending.as_ref().map_or(reader.position, |(_, end)| *end);
            let oldest = live.get(live.partition_point(|item| item.seqno() <= read_to));
            let queued = oldest.map(|item| Timestamp { unix_ns: item.cas().0 & !0xffff });
            assert_eq!(self.manager.oldest_unread(id), queued);
        }
    }
}

fn run(ops: &[Op]) {
    let mut world = World::new();
    for op in ops {
        match *op {
            Op::Enqueue(key) => world.enqueue(key),
            Op::EnqueueMany(from) => (from..from + 700).for_each(|key| world.enqueue(key)),
            Op::Read(reader) => world.read(reader),
            Op::Advance(reader) => world.advance(reader),
            Op::Rewind(reader) => world.rewind(reader),
            Op::Expel => world.expel(),
        }
        world.check();
    }
    // Drain: every reader ends with the newest version of every key.
    for reader in 0..2 {
        world.rewind(reader);
        while world.manager.remaining(world.cursors[reader]) > 0 {
            world.read(reader);
            world.advance(reader);
        }
        assert_eq!(world.readers[reader].store, world.newest);
    }
    world.expel();
    assert_eq!(world.manager.live_items, 0);
    assert!(world.manager.chunks.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn keeps_its_invariants(ops in ops()) {
        run(&ops);
    }
}

/// The random operations seldom close a checkpoint; here there are several, and each of them is
/// partly expelled at some time.
#[test]
fn figures_of_many_checkpoints() {
    let mut world = World::new();
    for round in 0..40u16 {
        (0..1000).for_each(|n| world.enqueue((round % 12) * 700 + n));
        world.now.unix_ns += 1 << 20;
        let reader = usize::from(round % 2);
        match round % 8 {
            0 => world.rewind(reader),
            2..5 => world.read(reader),
            5 | 6 => world.advance(reader),
            _ => world.expel(),
        }
        world.check();
    }
    assert!(world.manager.stats().open_checkpoint_id >= 4);
    for reader in [0, 1, 0, 1, 0, 1] {
        world.read(reader);
        world.advance(reader);
        world.expel();
        world.check();
    }
}

/// A cut in the middle of a checkpoint could persist a prefix that misses a key altogether: its old
/// slot is empty and its new one lies behind the cut. Reads therefore end at checkpoint boundaries.
#[test]
fn a_read_ends_where_a_checkpoint_ends() {
    let mut world = World::new();
    for n in 0..CHECKPOINT_ITEMS_MAX + 10 {
        world.enqueue(n as u16);
    }
    let batch = world.manager.read(world.cursors[0], 1);
    assert_eq!(batch.end, Seqno(CHECKPOINT_ITEMS_MAX));
    assert!(batch.more);
    world.manager.advance(world.cursors[0]);
    let batch = world.manager.read(world.cursors[0], 1);
    assert_eq!((batch.end, batch.more), (Seqno(CHECKPOINT_ITEMS_MAX + 10), false));
}

#[test]
fn an_overwrite_in_the_open_checkpoint_leaves_one_item() {
    let mut world = World::new();
    for _ in 0..3 * CHUNK_SLOTS {
        world.enqueue(1);
    }
    let batch = world.manager.read(world.cursors[0], 10);
    assert_eq!(batch.items.len(), 1);
    assert_eq!(batch.end, Seqno(3 * CHUNK_SLOTS as u64));
}

#[test]
fn cas_follows_the_clock_and_never_goes_back() {
    let mut manager = CheckpointManager::new(Seqno(9), Cas(5 << 16));
    let at = |ns| Timestamp { unix_ns: ns };
    let cas = |manager: &mut CheckpointManager, ns| {
        manager.enqueue(new_item(1), None, RevSeqno(1), at(ns)).item.cas().0
    };
    assert_eq!(cas(&mut manager, 0), (5 << 16) + 1, "a clock in the past counts logically");
    assert_eq!(cas(&mut manager, (9 << 16) + 77), 9 << 16, "low 16 bits are logical");
    assert_eq!(cas(&mut manager, (9 << 16) + 99), (9 << 16) + 1);
    assert_eq!(manager.high_seqno(), Seqno(12));
}
