//! Memory of large values: used again while they are overwritten, given back when that is over, and
//! never more than was promised.
//!
//! its own process, because it measures the process: page faults, resident memory, and what the
//! arena has taken. Where no threads run, the tests end the periods.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oribi_engine::block_arena::{
    end_period, kept_bytes, release_kept, release_unwanted, reserve_outside, set_bounds,
    taken_bytes,
};
use oribi_engine::{
    Bucket, BucketConfig, BucketThreads, EvictionPolicy, MutationOutcome, Storage, StoreRequest,
};
use oribi_storage::testing::NullStore;
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

const MIB: u64 = 1 << 20;
const LARGE: u64 = 20 * MIB;
const PAGE: u64 = 4096;
const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);

/// The tests of this file share a process, so one at a time looks at its memory.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    release_kept();
    alone
}

fn open(quota: u64) -> Arc<Bucket> {
    let config = BucketConfig {
        vbuckets: 4,
        memory_quota_bytes: quota,
        value_bytes_max: LARGE as usize,
        storage: Storage::Memory,
        eviction: EvictionPolicy::None,
        ..BucketConfig::default()
    };
    let mut next = 0;
    let entropy = Box::new(move || {
        next += 1;
        next
    });
    Bucket::open(config, Arc::new(NullStore), entropy, true).expect("a bucket opens")
}

fn place(number: u64, name: &str) -> (Vbid, DocKey<'_>) {
    let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
    (Vbid((number % 4) as u16), key)
}

fn set(bucket: &Bucket, number: u64, value: &[u8]) {
    let name = format!("{number}");
    let (vbid, key) = place(number, &name);
    let vbucket = bucket.vbucket(vbid).expect("it is there");
    let outcome = vbucket.store(&bucket.context(NOW), key, &StoreRequest::set(value));
    assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
}

fn delete(bucket: &Bucket, number: u64) {
    let name = format!("{number}");
    let (vbid, key) = place(number, &name);
    let vbucket = bucket.vbucket(vbid).expect("it is there");
    let outcome = vbucket.delete(&bucket.context(NOW), key, Cas(0));
    assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
}

/// Page faults of this process so far that needed no disk.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the system has /proc");
    let (_, fields) = stat.rsplit_once(')').expect("the name is in parentheses");
    // The tenth field of all; the name is the second.
    fields.split_whitespace().nth(7).expect("the field is there").parse().expect("a number")
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("the system has /proc");
    let pages = statm.split(' ').nth(1).expect("the second number is what is resident");
    pages.parse::<u64>().expect("a number") * PAGE
}

/// Four values of 20 MiB leave memory together, and four others come.
fn replace(bucket: &Bucket, value: &[u8]) {
    (0..4).for_each(|number| delete(bucket, number));
    (0..4).for_each(|number| set(bucket, number, value));
}

#[test]
fn values_that_are_replaced_fault_nothing_in() {
    let _alone = alone();
    let bucket = open(1024 * MIB);
    let value = vec![b'x'; LARGE as usize];
    (0..4).for_each(|number| set(&bucket, number, &value));
    (0..2).for_each(|_| replace(&bucket, &value));
    let before = faults();
    (0..5).for_each(|_| replace(&bucket, &value));
    let faulted = (faults() - before) / 20;
    assert!(faulted < 50, "{faulted} faults a set of {} pages", LARGE / PAGE);
}

#[test]
fn values_of_many_lengths_share_blocks() {
    const SETS: u64 = 150;
    let _alone = alone();
    let bucket = open(1024 * MIB);
    let value = vec![b'x'; LARGE as usize];
    let mut random: u64 = 0x9e37_79b9;
    let mut written = 0;
    let mut before = 0;
    for nth in 0..2 * SETS {
        if nth == SETS {
            (written, before) = (0, faults());
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = 2 * MIB + (random >> 33) % (8 * MIB);
        set(&bucket, nth * 7 % 16, &value[..bytes as usize]);
        written += bytes;
    }
    let faulted = (faults() - before) * PAGE;
    assert!(faulted < written / 5, "{} of {} MiB are new", faulted / MIB, written / MIB);
    let (kept, live) = (kept_bytes(), 16 * 6 * MIB);
    assert!(kept < 2 * live, "{} MiB wait for their use", kept / MIB);
}

#[test]
fn unused_blocks_are_returned_after_two_periods() {
    let _alone = alone();
    let bucket = open(1024 * MIB);
    let value = vec![b'x'; LARGE as usize];
    (0..8).for_each(|number| set(&bucket, number, &value));
    // The burst is over: four values stay, and are replaced now and then.
    (4..8).for_each(|number| delete(&bucket, number));
    let (kept, resident) = (kept_bytes(), resident_bytes());
    assert!((4 * LARGE..5 * LARGE).contains(&kept), "{} MiB are kept", kept / MIB);
    end_period();
    replace(&bucket, &value);
    assert!(!release_unwanted(usize::MAX), "the first period was not a whole one");
    assert_eq!(kept_bytes(), kept);
    end_period();
    assert!(release_unwanted(LARGE as usize), "one of four blocks");
    while release_unwanted(LARGE as usize) {}
    assert_eq!(kept_bytes(), 0);
    let gone = resident.saturating_sub(resident_bytes());
    assert!(gone > 3 * LARGE, "{} MiB have left the process", gone / MIB);
}

/// The arena's part of the promise: its upper bound (`memory/process.rs`).
fn bound(quota: u64) -> u64 {
    quota + quota / 16 + 32 * MIB
}

// Invariant: Freed large blocks are kept only below the arena's lower bound.
#[test]
fn the_bound_holds_for_mixed_value_sizes() {
    const QUOTA: u64 = 256 * MIB;
    let _alone = alone();
    let before = resident_bytes();
    let bucket = open(QUOTA);
    // The threads tell the bucket when the process is at its bound.
    let threads = BucketThreads::start(Arc::clone(&bucket)).expect("threads start");
    let (large, small) = (vec![b'x'; LARGE as usize], vec![b'y'; 16 << 10]);
    let smalls = 230 * MIB / (17 << 10);
    for round in 0..4 {
        (0..11).for_each(|number| set(&bucket, number, &large));
        (0..11).for_each(|number| delete(&bucket, number));
        let kept = kept_bytes();
        assert!(kept > 9 * LARGE, "round {round}: {} MiB are kept", kept / MIB);
        for number in 100..100 + smalls {
            // No write is refused while memory waits for its next use.
            set(&bucket, number, &small);
            assert!(taken_bytes() <= bound(QUOTA), "round {round}, number {number}");
        }
        let resident = resident_bytes().saturating_sub(before);
        assert!(resident <= QUOTA + QUOTA / 10 + 64 * MIB, "{} MiB", resident / MIB);
        assert!(kept_bytes() < 3 * LARGE, "small values have taken the kept blocks' place");
        (100..100 + smalls).for_each(|number| delete(&bucket, number));
    }
    assert_eq!(bucket.stats().memory.refused_at_bound, 0);
    threads.stop().expect("a bucket in memory has nothing to flush");
    assert_eq!(kept_bytes(), 0, "nothing looks after it any more");
}

#[test]
fn a_smaller_quota_takes_the_headroom_away() {
    let _alone = alone();
    let bucket = open(1024 * MIB);
    let value = vec![b'x'; LARGE as usize];
    (0..20).for_each(|number| set(&bucket, number, &value));
    (0..20).for_each(|number| delete(&bucket, number));
    assert!(kept_bytes() > 18 * LARGE);
    bucket.set_memory_quota(64 * MIB);
    assert!(taken_bytes() <= 64 * MIB + 2 * MIB + 16 * MIB, "{} MiB", taken_bytes() / MIB);
    drop(bucket);
}

#[test]
fn outside_reservations_count_against_the_upper_bound() {
    let _alone = alone();
    let taken = taken_bytes();
    set_bounds(taken, taken + 64 * MIB);
    let first = reserve_outside(100 * MIB);
    assert_eq!(first.bytes(), 32 * MIB, "half of what is left");
    let second = reserve_outside(10 * MIB);
    assert_eq!(second.bytes(), 10 * MIB, "as much as it asks for");
    let third = reserve_outside(100 * MIB);
    assert_eq!(third.bytes(), 11 * MIB, "half of the rest");
    drop((first, second, third));
    assert_eq!(reserve_outside(100 * MIB).bytes(), 32 * MIB, "nothing stays reserved");
    set_bounds(u64::MAX, u64::MAX);
}
