//! Single properties of the queue, each with the reason for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use oribi_types::{Cas, RevSeqno, Seqno, Timestamp};

use super::{World, items_of, limits, new_item};
use crate::checkpoint::{CheckpointLimits, CheckpointManager, ReadLimits};
use crate::limits::CHUNK_SLOTS;

/// A queue as a server has it, with one cursor.
fn usual() -> (CheckpointManager, crate::checkpoint::CursorId) {
    let mut manager = CheckpointManager::new(Seqno(0), Cas(0));
    let id = manager.register_cursor("persistence", Seqno(0)).id;
    (manager, id)
}

/// Queues an item that the table holds from now on.
fn queue(manager: &mut CheckpointManager, key: u16) -> crate::item::ItemRef {
    manager.enqueue(new_item(key, false), None, RevSeqno(1), Timestamp::default()).item
}

/// A cut in the middle of a checkpoint could persist a prefix that misses a key altogether: its old
/// slot is empty and its new one lies after the cut. Reads therefore end at checkpoint boundaries.
#[test]
fn a_read_ends_where_a_checkpoint_ends() {
    let few = CheckpointLimits { items_max: 1000, ..CheckpointLimits::default() };
    let mut manager = CheckpointManager::with_limits(Seqno(0), Cas(0), few);
    let cursor = manager.register_cursor("persistence", Seqno(0)).id;
    let items: Vec<_> = (0..1010).map(|n| queue(&mut manager, n)).collect();
    let batch = manager.read(cursor, limits(1)).unwrap();
    assert_eq!(batch.end, Seqno(1000));
    assert!(batch.more);
    manager.advance(cursor);
    let batch = manager.read(cursor, limits(1)).unwrap();
    assert_eq!((batch.end, batch.more), (Seqno(items.len() as u64), false));
}

#[test]
fn an_overwrite_in_an_open_checkpoint_leaves_one_item() {
    let mut world = World::new();
    for _ in 0..3 * CHUNK_SLOTS {
        world.enqueue(1, false);
        assert!(world.manager.open.slots.chunks_held() <= 2);
    }
    world.read(0, limits(10));
    let batch = &world.readers[0].as_ref().unwrap().pending[0];
    assert_eq!(batch.items().count(), 1);
    assert_eq!(batch.end, Seqno(3 * CHUNK_SLOTS as u64));
}

// Invariant: A closed checkpoint never changes.
/// The reader has what was queued up to its read. Were the open checkpoint still deduplicated
/// behind it, the count of what remains would be off by one for each overwrite.
#[test]
fn read_items_are_not_deduplicated() {
    let mut world = World::new();
    world.enqueue(1, false);
    world.read(0, limits(10));
    world.enqueue(1, false);
    world.check();
    assert_eq!(world.manager.checkpoint_count(), 2);
    world.rewind();
    world.check();
    world.drain();
}

// Invariant: The open checkpoint closes when the flusher reads it, a stream lags or it is full,
// never by age.
#[test]
fn a_checkpoint_stays_open_however_old_it_is() {
    let mut world = World::new();
    world.enqueue(1, false);
    world.now.unix_ns += 1 << 50;
    world.enqueue(1, false);
    assert_eq!(world.manager.checkpoint_count(), 1, "the second displaced the first");
    world.check();
}

#[test]
fn overwrites_of_one_key_close_a_checkpoint_by_slots() {
    let limits = CheckpointLimits { slots_max: 1000, ..CheckpointLimits::default() };
    let mut manager = CheckpointManager::with_limits(Seqno(0), Cas(0), limits);
    manager.register_cursor("persistence", Seqno(0));
    let mut previous = None;
    for _ in 0..1001 {
        let new = new_item(1, false);
        let done = manager.enqueue(new, previous.as_ref(), RevSeqno(1), Timestamp::default());
        previous = Some(done.item);
    }
    assert_eq!(manager.checkpoint_count(), 2);
}

#[test]
fn one_queued_item_takes_little() {
    let (mut manager, cursor) = usual();
    let item = queue(&mut manager, 1);
    assert!(manager.own_bytes() <= 256, "{}", manager.own_bytes());
    let batch = manager.read(cursor, limits(1)).unwrap();
    assert!(manager.own_bytes() <= 256, "{}", manager.own_bytes());
    assert!(batch.items().next().unwrap().same_block(&item));
}

/// Beyond the item itself, a queued mutation takes at most 16 bytes once there are some.
#[test]
fn many_queued_items_take_one_slot_each() {
    let (mut manager, _) = usual();
    for count in [1000_usize, 8000, 50_000] {
        let have = manager.enqueued() as usize;
        for n in have..count {
            queue(&mut manager, n as u16);
        }
        let each = manager.own_bytes() / count;
        assert!(each <= 16, "{each} bytes at {count}");
    }
}

#[test]
fn a_slow_cursor_is_dropped_and_begins_again() {
    let mut world = World::new();
    (0..2000).for_each(|key| world.enqueue(key, false));
    while world.manager.remaining(world.readers[0].as_ref().unwrap().id) > 0 {
        world.read(0, limits(1));
        world.advance(0);
    }
    world.expel();
    assert_eq!(world.manager.lowest_needed(), Seqno(1), "the stream has read nothing");
    world.drop_slow();
    world.check();
    assert!(!world.readers[1].as_ref().unwrap().is_registered);
    world.expel();
    world.check();
    assert_eq!(world.manager.lowest_needed(), Seqno(2001));
    world.register(1, 0);
    let again = world.readers[1].as_ref().unwrap();
    assert_eq!((again.position, world.manager.remaining(again.id)), (Seqno(2000), 0));
}

#[test]
fn a_cursor_that_keeps_up_is_not_dropped() {
    let mut world = World::new();
    world.enqueue(1, false);
    world.read_stream(1);
    world.read_stream(1);
    assert_eq!(world.manager.drop_slow_cursors().len(), 0, "only persistence is behind");
}

/// Without a cursor nothing is queued, but a queue that lost its last cursor is not forgotten.
#[test]
fn items_behind_the_last_cursor_are_expelled() {
    let mut world = World::new();
    (0..10).for_each(|key| world.enqueue(key, false));
    world.drop_reader(0);
    world.drop_reader(1);
    world.enqueue(3, false);
    world.check();
    world.expel();
    world.settle();
    world.check();
    assert_eq!(world.manager.own_bytes(), 0);
    world.enqueue(4, false);
    world.check();
    assert_eq!((world.manager.own_bytes(), world.manager.queue_bytes()), (0, 0));
    world.register(2, 5);
    world.enqueue(5, false);
    world.check();
    world.drain();
}

// Invariant: A stream that keeps up leaves the open checkpoint open, and its snapshot does not
// change.
/// A stream that keeps up sees each version, and the flusher still writes only the last.
#[test]
fn a_stream_that_keeps_up_leaves_the_checkpoint_open() {
    let mut world = World::new();
    for _ in 0..3 * CHUNK_SLOTS {
        world.enqueue(1, false);
        world.read_stream(1);
        let (batch, _) = world.readers[1].as_ref().unwrap().sending.as_ref().unwrap();
        assert_eq!((items_of(batch), batch.end()), (1, world.high()));
        world.read_stream(1);
        world.check();
    }
    assert_eq!(world.manager.checkpoint_count(), 1);
    world.read(0, limits(10));
    assert_eq!(world.readers[0].as_ref().unwrap().pending[0].item_count, 1);
    world.drain();
}

// Invariant: A stream that keeps up leaves the open checkpoint open, and its snapshot does not
// change.
/// A stream keeps items that it has read: neither deduplication nor the flusher removes them.
#[test]
fn a_snapshot_stays_as_it_was() {
    let mut world = World::new();
    (0..10).for_each(|key| world.enqueue(key, false));
    world.read_stream(1);
    (0..10).for_each(|key| world.enqueue(key, true));
    world.purge(3);
    world.read(0, limits(10));
    world.advance(0);
    world.expel();
    world.check();
    world.read_stream(1);
    world.check();
    world.drain();
}

/// Checkpoints of one read, each with another version of two keys.
fn versions_in(checkpoints: u16) -> (CheckpointManager, crate::checkpoint::CursorBatch) {
    let (mut manager, cursor) = usual();
    let mut table = std::collections::BTreeMap::new();
    for other in 0..checkpoints {
        for key in [1, 1000 + other, 2] {
            let (new, before) = (new_item(key, other % 2 == 1), table.get(&key));
            let done = manager.enqueue(new, before, RevSeqno(1), Timestamp::default());
            table.insert(key, done.item);
        }
        manager.close_open();
    }
    let batch = manager.read(cursor, limits(usize::MAX)).unwrap();
    (manager, batch)
}

// Invariant: A batch is a run of checkpoints with the newest version of each key, durable as a
// whole or not at all.
#[test]
fn a_run_has_the_newest_version_of_each_key() {
    let (_manager, batch) = versions_in(4);
    let seqnos = |items_max| -> Vec<Vec<u64>> {
        let runs = batch.runs(items_max, usize::MAX);
        let seqnos_of = |run: crate::checkpoint::CheckpointRun<'_>| {
            run.newest_items().iter().map(|item| item.seqno().0).collect()
        };
        runs.map(seqnos_of).collect()
    };
    assert_eq!(seqnos(usize::MAX), [vec![2, 5, 8, 10, 11, 12]]);
    // Nothing is left out for a version of another run, which may be lost.
    assert_eq!(seqnos(6), [vec![2, 4, 5, 6], vec![8, 10, 11, 12]]);
    assert_eq!(seqnos(0).len(), 4, "at least one checkpoint");
    assert_eq!(batch.runs(usize::MAX, 0).count(), 4);
}

#[test]
fn a_big_item_is_handed_out_in_a_closed_checkpoint() {
    let mut world = World::new();
    let name = 1u16.to_be_bytes();
    let key = oribi_types::DocKey { collection: oribi_types::CollectionId(0), key: &name };
    let big = vec![0; crate::limits::STREAM_READ_BYTES_MAX];
    let new = crate::item::NewItem::new(key, crate::item::ItemFields::default(), &[&big]);
    world.manager.enqueue(new, None, RevSeqno(1), world.now);
    let id = world.readers[1].as_ref().unwrap().id;
    let batch = world.manager.read_stream(id, usize::MAX).unwrap();
    assert_eq!((world.manager.checkpoint_count(), items_of(&batch)), (2, 1));
    assert_eq!(batch.copied_bytes(), 0);
}

/// A reader that stalls keeps only memory that is counted.
#[test]
fn items_read_from_a_closed_checkpoint_count_as_queue() {
    let mut world = World::new();
    (0..10).for_each(|key| world.enqueue(key, false));
    let id = world.readers[1].as_ref().unwrap().id;
    let copied = world.manager.read_stream(id, usize::MAX).unwrap();
    assert!(copied.copied_bytes() > 0);
    (10..20).for_each(|key| world.enqueue(key, false));
    let referred = world.manager.read_stream(id, 0).unwrap();
    assert_eq!((referred.copied_bytes(), items_of(&referred)), (0, 10));
    world.read(0, limits(100));
    world.advance(0);
    assert_eq!(world.manager.drop_slow_cursors().len(), 1);
    drop(world.manager.expel().free());
    assert!(referred.hold().is_none(), "it has left with the cursor");
    assert_eq!(items_of(&copied), 10, "what was copied is the stream's");
}

#[test]
fn a_read_is_bounded_in_checkpoints_and_bytes() {
    let mut world = World::new();
    for key in 0..10 {
        world.enqueue(key, false);
        world.manager.close_open();
    }
    let some = ReadLimits { items_max: 100, bytes_max: usize::MAX, checkpoints_max: 3 };
    world.read(0, some);
    assert_eq!(world.readers[0].as_ref().unwrap().read_to(), Seqno(3));
    let few = ReadLimits { items_max: 100, bytes_max: 1, checkpoints_max: 3 };
    world.read(0, few);
    assert_eq!(world.readers[0].as_ref().unwrap().read_to(), Seqno(4), "at least one");
    world.check();
}

#[test]
fn cas_follows_the_clock_and_never_goes_back() {
    let mut manager = CheckpointManager::new(Seqno(9), Cas(5 << 16));
    let at = |ns| Timestamp { unix_ns: ns };
    let cas = |manager: &mut CheckpointManager, ns| {
        manager.enqueue(new_item(1, false), None, RevSeqno(1), at(ns)).item.cas().0
    };
    assert_eq!(cas(&mut manager, 0), (5 << 16) + 1, "a clock in the past counts logically");
    assert_eq!(cas(&mut manager, (9 << 16) + 77), 9 << 16, "low 16 bits are logical");
    assert_eq!(cas(&mut manager, (9 << 16) + 99), (9 << 16) + 1);
    assert_eq!(manager.high_seqno(), Seqno(12));
}

#[test]
fn the_check_finds_what_is_wrong() {
    type Damage = fn(&mut CheckpointManager);
    let damages: [(&str, Damage); 6] = [
        ("a wrong count", |manager| manager.open.items += 1),
        ("a gap", |manager| manager.open.start += 1),
        ("a lost item", |manager| drop(manager.open.slots.take(0))),
        ("wrong sums", |manager| manager.closed_sums.items += 1),
        ("a highest CAS that is not", |manager| manager.max_cas = 1),
        ("a cursor that was left behind", |manager| {
            manager.closed.pop_front();
        }),
    ];
    let queued = || {
        let (mut manager, cursor) = usual();
        (0..10).for_each(|key| drop(queue(&mut manager, key)));
        manager.read(cursor, limits(1)).expect("the cursor is there");
        (10..20).for_each(|key| drop(queue(&mut manager, key)));
        manager
    };
    queued().check_invariants();
    for (name, damage) in damages {
        let mut manager = queued();
        damage(&mut manager);
        let found = catch_unwind(AssertUnwindSafe(|| manager.check_invariants())).is_err();
        assert!(found, "the check does not notice {name}");
    }
}
