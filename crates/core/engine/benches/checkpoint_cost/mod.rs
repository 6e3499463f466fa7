//! Costs of the checkpoint queue, one JSON object a line.
//!
//! - `expel`: a cursor has processed so many items, and one more is queued after them. `hold_ns`
//!   is the time under the queue lock to take them out and, in a second hold, to settle their
//!   memory; `read_ns` the longest hold in which the cursor read them, `free_ns` what freeing them
//!   took without the lock. `closed`: checkpoints as long as a server's. `open`: all items were in
//!   one open checkpoint when the cursor came.
//! - `enqueue`: nanoseconds to queue a new version of one of 64 hot keys, whose version before it
//!   is taken out, by the number of other items in the same checkpoint. Blocks are made before and
//!   freed after.

use std::io::Write;
use std::time::Instant;

use oribi_engine::checkpoint::{CheckpointLimits, CheckpointManager, CursorId, ReadLimits};
use oribi_engine::limits::READ_CHECKPOINTS_MAX;
use oribi_engine::{ItemFields, ItemRef, NewItem};
use oribi_types::{Cas, CollectionId, DocKey, RevSeqno, Seqno, Timestamp};
use parking_lot::Mutex;

use crate::arguments::{each, number};

const HOT_KEYS: usize = 64;
/// Enqueues between two looks at the clock.
const BATCH: usize = 256;
const UNLIMITED: CheckpointLimits =
    CheckpointLimits { items_max: usize::MAX, bytes_max: usize::MAX, slots_max: u64::MAX };
/// As the flusher reads, but for the amount.
const READ_ALL: ReadLimits = ReadLimits {
    items_max: usize::MAX,
    bytes_max: usize::MAX,
    checkpoints_max: READ_CHECKPOINTS_MAX,
};

struct Options {
    items: Vec<usize>,
    queued: Vec<usize>,
    rounds: usize,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            items: vec![1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000],
            queued: vec![1000, 10_000, 100_000, 1_000_000],
            rounds: 9,
        };
        each(arguments, |name, value| {
            let numbers = || value.split(',').map(number).collect::<Result<Vec<_>, _>>();
            match name {
                "--items" => options.items = numbers()?,
                "--queued" => options.queued = numbers()?,
                "--rounds" => options.rounds = number(value)?.max(1),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if options.items.contains(&0) {
            return Err("there is at least one item to expel".to_owned());
        }
        Ok(options)
    }
}

/// Runs all measures and writes one line for each round of each.
pub fn run(arguments: impl Iterator<Item = String>, out: &mut dyn Write) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    let mut line = |text: String| writeln!(out, "{text}").map_err(|error| error.to_string());
    for round in 0..options.rounds {
        for &items in &options.items {
            for (kind, limits) in [("closed", CheckpointLimits::default()), ("open", UNLIMITED)] {
                let Expel { read_ns, hold_ns, free_ns } = expel(items, limits);
                line(format!(
                    r#"{{"measure":"expel","kind":"{kind}","items":{items},"round":{round},"hold_ns":{hold_ns},"read_ns":{read_ns},"free_ns":{free_ns}}}"#
                ))?;
            }
        }
        for &queued in &options.queued {
            let ns = enqueue(queued);
            line(format!(
                r#"{{"measure":"enqueue","items":{queued},"round":{round},"ns":{ns:.1}}}"#
            ))?;
        }
    }
    Ok(())
}

fn new_item(number: usize) -> NewItem {
    let name = (number as u64).to_be_bytes();
    let key = DocKey { collection: CollectionId::DEFAULT, key: &name };
    NewItem::new(key, ItemFields::default(), &[b"0123456789"])
}

fn queue(limits: CheckpointLimits) -> (CheckpointManager, CursorId) {
    let mut manager = CheckpointManager::with_limits(Seqno(0), Cas(0), limits);
    let cursor = manager.register_cursor("persistence", Seqno(0)).id;
    (manager, cursor)
}

fn push(manager: &mut CheckpointManager, number: usize) -> ItemRef {
    manager.enqueue(new_item(number), None, RevSeqno(1), Timestamp::default()).item
}

struct Expel {
    read_ns: u128,
    hold_ns: u128,
    free_ns: u128,
}

/// Times of one expel.
fn expel(items: usize, limits: CheckpointLimits) -> Expel {
    let (mut manager, cursor) = queue(limits);
    (0..items).for_each(|number| drop(push(&mut manager, number)));
    let queue = Mutex::new(manager);
    let (mut read_ns, mut item_count, mut more) = (0, 0, true);
    while more {
        let start = Instant::now();
        let batch = queue.lock().read(cursor, READ_ALL);
        read_ns = read_ns.max(start.elapsed().as_nanos());
        let batch = batch.expect("the cursor is there");
        (item_count, more) = (item_count + batch.item_count, batch.more);
    }
    assert_eq!(item_count, items);
    push(&mut queue.lock(), items);
    queue.lock().advance(cursor);
    let start = Instant::now();
    let expelled = queue.lock().expel();
    let first_hold = start.elapsed();
    let start = Instant::now();
    let freed = expelled.free();
    let free_ns = start.elapsed().as_nanos();
    let start = Instant::now();
    queue.lock().settle(freed);
    let hold_ns = (first_hold + start.elapsed()).as_nanos();
    assert_eq!(queue.lock().lowest_needed(), Seqno(items as u64 + 1));
    Expel { read_ns, hold_ns, free_ns }
}

/// Nanoseconds of one enqueue that replaces a version of a hot key.
fn enqueue(queued: usize) -> f64 {
    let (mut manager, _) = queue(UNLIMITED);
    let mut hot: Vec<ItemRef> = (0..HOT_KEYS).map(|key| push(&mut manager, key)).collect();
    (0..queued).for_each(|number| drop(push(&mut manager, HOT_KEYS + number)));
    let mut displaced = Vec::with_capacity(2 * BATCH);
    let mut ns = 0;
    let batches = 400;
    for _ in 0..batches {
        let new: Vec<NewItem> = (0..BATCH).map(|number| new_item(number % HOT_KEYS)).collect();
        let start = Instant::now();
        for (number, new) in new.into_iter().enumerate() {
            let before = &mut hot[number % HOT_KEYS];
            let now = Timestamp { unix_ns: number as u64 };
            let done = manager.enqueue(new, Some(before), RevSeqno(2), now);
            displaced.push(std::mem::replace(before, done.item));
            displaced.extend(done.displaced);
        }
        ns += start.elapsed().as_nanos();
        assert_eq!(displaced.len(), 2 * BATCH, "every version left the queue");
        displaced.clear();
    }
    ns as f64 / (batches * BATCH) as f64
}
