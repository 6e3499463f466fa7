//! Copies whose memory is full of open prepares. They follow their active all the same, and have
//! the values when they need them.

use std::cell::RefCell;
use std::sync::Arc;

use oribi_engine::{
    ApplyError, BackfillPause, BucketConfig, EvictionPolicy, FetchSink, GetOutcome, MemoryTier,
    OperationRejection,
};
use oribi_types::CopiesEpoch;

use super::node::{EPOCH, MAJORITY, Node, trio};
use super::world::Link;
use crate::eviction::RecordingSink;
use crate::operations_by_vbid::OperationsByVbid as _;
use crate::{NOW, VB, config, done, key, set};

const QUOTA: u64 = 1 << 20;
const VALUE_BYTES: usize = 120_000;
/// Twice the values of so many prepares, in the queue and next to the table, exceed the quota.
const PREPARES: usize = 8;
const _: () = assert!((PREPARES * VALUE_BYTES) as u64 > QUOTA * 3 / 4);
/// Tries of a copy to take a snapshot.
const TRIES: usize = 8;

fn small(eviction: EvictionPolicy) -> BucketConfig {
    BucketConfig { memory_quota_bytes: QUOTA, eviction, ..config() }
}

fn name(number: usize) -> String {
    format!("k{number}")
}

fn value(number: usize) -> String {
    let digit = char::from_digit(number as u32, 10).expect("few values");
    std::iter::repeat_n(digit, VALUE_BYTES).collect()
}

/// Background work of a node: queues are flushed, and memory is freed.
fn work(node: &Node) {
    node.flush();
    node.bucket.page_items_step(&|| NOW);
    node.bucket.review_pressure();
}

/// The copy takes what has come. False when that was nothing.
fn take(link: &mut Link, replica: &Node) -> bool {
    let has_come = link.receive(usize::MAX);
    let mut applied = Err(ApplyError::NoMemory);
    for _ in 0..TRIES {
        applied = link.apply(&replica.bucket);
        if applied != Err(ApplyError::NoMemory) {
            break;
        }
        work(replica);
    }
    assert_eq!(applied, Ok(()), "a copy takes what its active took");
    has_come
}

/// The copy takes all that its active has.
fn follow(link: &mut Link, active: &Node, replica: &Node) {
    loop {
        let reader = RefCell::new(&mut *link);
        let pace = |pause: BackfillPause| {
            take(&mut reader.borrow_mut(), replica);
            pause.idle == 0
        };
        active.bucket.backfill_step(&pace, &|| NOW).expect("the store is sound");
        if !take(link, replica) {
            return active.flush();
        }
    }
}

fn feed(active: &Node, replica: &Node) -> Link {
    let mut link = Link::open(&active.bucket, &replica.bucket).expect("a stream");
    follow(&mut link, active, replica);
    link
}

/// A copy whose memory was full of open prepares, and its active.
fn full_copy(eviction: EvictionPolicy) -> (Node, Node, Link) {
    let (active, _) = Node::with(1, BucketConfig { memory_quota_bytes: 1 << 30, ..config() });
    let (replica, _) = Node::with(2, small(eviction));
    if eviction == EvictionPolicy::None {
        replica.bucket.set_memory_tier(MemoryTier::Off);
    }
    active.promote(1, &[1, 2, 3]);
    let mut link = Link::open(&active.bucket, &replica.bucket).expect("a stream");
    for number in 0..PREPARES {
        active.write(&name(number), &value(number), MAJORITY);
        follow(&mut link, &active, &replica);
    }
    (active, replica, link)
}

/// What a client reads, which waits for fetches.
fn read(node: &Node, number: usize) -> String {
    let sink: Arc<dyn FetchSink> = Arc::new(RecordingSink::default());
    for _ in 0..TRIES {
        match node.bucket.get(VB, key(&name(number)), NOW) {
            GetOutcome::Hit(item) => return String::from_utf8_lossy(item.value()).into_owned(),
            GetOutcome::Refused(OperationRejection::NeedsFetch) => {
                node.bucket.fetch(VB, key(&name(number)), &sink, 1);
                node.bucket.fetch_step();
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it is never read")
}

// It had no memory for what came before the first commit, and waited for ever.
// Invariant: A copy whose memory is full of open prepares follows its active.
#[test]
fn a_full_copy_takes_what_its_active_took() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let (active, replica, mut link) = full_copy(eviction);
        let used_bytes = || replica.bucket.stats().memory.used_bytes;
        assert!(used_bytes() <= QUOTA + 4 * VALUE_BYTES as u64, "{} bytes", used_bytes());
        replica.acknowledge(&active, EPOCH);
        assert_eq!(active.vbucket().stats().pending_writes, 0);
        follow(&mut link, &active, &replica);
        assert_eq!(replica.vbucket().stats().pending_writes, 0);
        work(&replica);
        assert!(used_bytes() <= QUOTA, "{} bytes", used_bytes());
        replica.promote(2, &[2]);
        (0..PREPARES).for_each(|number| assert_eq!(read(&replica, number), value(number)));
    }
}

// Also where nothing else ever leaves memory.
#[test]
fn prepares_leave_memory_under_any_policy() {
    let (_active, replica, _link) = full_copy(EvictionPolicy::None);
    work(&replica);
    assert!(replica.bucket.stats().memory.used_bytes < QUOTA);
    assert_eq!(replica.vbucket().stats().pending_writes, PREPARES);
}

#[test]
fn a_promoted_copy_reads_prepares_back() {
    let (active, replica, link) = full_copy(EvictionPolicy::Value);
    let (third, _) = Node::with(3, config());
    drop((active, link));
    work(&replica);
    replica.promote(2, &[2, 3]);
    let link = feed(&replica, &third);
    third.acknowledge(&replica, CopiesEpoch(2));
    let refused = replica.bucket.get(VB, key("k0"), NOW);
    let is_waiting = matches!(refused, GetOutcome::Refused(OperationRejection::Recommitting));
    assert!(is_waiting, "a value is not read on the thread of a client: {refused:?}");
    for _ in 0..TRIES {
        work(&replica);
    }
    assert_eq!(replica.vbucket().stats().pending_writes, 0);
    drop(link);
    feed(&replica, &third);
    for number in 0..PREPARES {
        assert_eq!(read(&replica, number), value(number));
        assert_eq!(third.value(&name(number)), Some(value(number)));
    }
}

// An active's prepares leave memory, too: nodes follow each other, and may all be full.
#[test]
fn a_full_active_commits_its_prepares() {
    let (active, plan) = Node::with(1, small(EvictionPolicy::Value));
    let (second, _) = Node::with(2, config());
    active.promote(1, &[1, 2, 3]);
    done(active.bucket.store(VB, key("k0"), &set(&value(9)), NOW));
    let first = active.write("k0", &value(0), MAJORITY);
    let mut last = first;
    for number in 1..PREPARES {
        work(&active);
        last = active.write(&name(number), &value(number), MAJORITY);
    }
    work(&active);
    let mut link = feed(&active, &second);
    plan.fail_gets(true);
    second.acknowledge(&active, EPOCH);
    assert!(active.bucket.flush_step().is_err(), "the disk fails");
    assert_eq!(active.vbucket().stats().pending_writes, PREPARES);
    plan.fail_gets(false);
    for _ in 0..TRIES {
        work(&active);
    }
    assert_eq!(active.vbucket().stats().pending_writes, 0);
    follow(&mut link, &active, &second);
    for number in 0..PREPARES {
        assert_eq!(read(&active, number), value(number));
        assert_eq!(second.value(&name(number)), Some(value(number)));
    }
    let GetOutcome::Hit(item) = active.bucket.get(VB, key(&name(PREPARES - 1)), NOW) else {
        panic!("a hit")
    };
    assert_eq!((item.cas(), item.seqno() > last.seqno), (last.cas, true));
}

// A value below a prepare took memory for as long as the prepare was open.
#[test]
fn values_below_open_prepares_leave_memory() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let (active, _) = Node::with(1, BucketConfig { eviction, ..config() });
        let (second, _) = Node::with(2, config());
        active.promote(1, &[1, 2, 3]);
        done(active.bucket.store(VB, key("k1"), &set(&value(1)), NOW));
        done(active.bucket.store(VB, key("k2"), &set(&value(2)), NOW));
        active.flush();
        active.write("k1", &value(3), MAJORITY);
        assert!(active.bucket.evict(VB, key("k1")));
        let evicted = active.vbucket().stats();
        assert_eq!((evicted.items, evicted.items_evicted), (2, 1));
        assert_eq!(read(&active, 1), value(1));
        assert!(active.bucket.evict(VB, key("k1")), "once more");
        assert!(!active.bucket.evict(VB, key("k1")), "its value has left memory");
        feed(&active, &second);
        second.acknowledge(&active, EPOCH);
        assert_eq!(read(&active, 1), value(3));
        assert_eq!(active.vbucket().stats().items, 2);
    }
}

// All values were read at the start, however many there were.
#[test]
fn a_restart_leaves_values_of_prepares_in_the_store() {
    let (active, mut second, third) = trio();
    for number in 0..PREPARES {
        active.write(&name(number), &value(number), MAJORITY);
    }
    feed(&active, &second);
    second.flush();
    second.restart();
    assert_eq!(second.vbucket().stats().pending_writes, PREPARES);
    assert!(second.bucket.stats().memory.used_bytes < VALUE_BYTES as u64);
    second.promote(2, &[1, 2, 3]);
    feed(&second, &third);
    third.acknowledge(&second, CopiesEpoch(2));
    for _ in 0..TRIES {
        second.flush();
    }
    (0..PREPARES).for_each(|number| assert_eq!(read(&second, number), value(number)));
}
