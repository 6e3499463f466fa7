//! A commit that takes for ever: clients are served concurrently, and memory stays bounded.

use std::sync::Arc;

use oribi_engine::EvictionPolicy;
use parking_lot::{Condvar, Mutex};

use crate::faults::{Fixture, QUOTA_BYTES, value};

/// A gate that a commit has to pass.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    waits: bool,
}

impl Gate {
    /// Called by the commit.
    fn pass(&self) {
        let mut state = self.state.lock();
        state.waits = true;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| !state.is_open);
    }

    fn wait_for_a_commit(&self) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| !state.waits);
    }

    fn open(&self) {
        self.state.lock().is_open = true;
        self.changed.notify_all();
    }

    fn is_open(&self) -> bool {
        self.state.lock().is_open
    }
}

/// Runs `meanwhile` while a commit is in the store and does not come back.
fn while_a_commit_is_blocked(fixture: &Fixture, meanwhile: impl FnOnce(&Gate)) {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    fixture.plan.before_commits(move |_| at_gate.pass());
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| fixture.bucket.flush_step());
        gate.wait_for_a_commit();
        meanwhile(&gate);
        assert!(!gate.is_open() && !flusher.is_finished(), "the commit was blocked all the time");
        gate.open();
        flusher.join().expect("the flusher").expect("the commit is a success");
    });
    fixture.plan.heal();
}

#[test]
fn reads_and_writes_complete_during_a_stuck_commit() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    for _ in 0..100 {
        fixture.write_next().expect("there is room");
    }
    while_a_commit_is_blocked(&fixture, |_| {
        // Of what is in the blocked commit and of what is not in it.
        for _ in 0..100 {
            fixture.write_next().expect("there is room");
        }
        let read = (0..10_000).filter(|read| fixture.read(read % 200).is_some()).count();
        assert_eq!(read, 10_000);
    });
    assert!((0..200).all(|number| fixture.read(number) == Some(value(number, 1000))));
}

#[test]
fn evicted_items_are_fetched_during_a_stuck_commit() {
    let fixture = Fixture::new(EvictionPolicy::Full);
    for _ in 0..100 {
        fixture.write_next().expect("there is room");
    }
    fixture.bucket.flush_step().expect("the store is sound");
    fixture.write_next().expect("there is room");
    let evicted = (0..100).filter(|number| {
        let (vbid, name) = crate::faults::place(*number);
        fixture.bucket.evict(vbid, crate::faults::key(&name))
    });
    assert_eq!(evicted.count(), 100, "what is durable can be evicted");
    while_a_commit_is_blocked(&fixture, |_| {
        assert!((0..100).all(|number| fixture.read_fetching(number) == Some(value(number, 1000))));
    });
}

// Invariant: Writes do not pass the quota between two reviews, nor the queue its part while a
// commit hangs.
/// The flusher's thread, which was in the commit, alone compared the queues with their quota: they
/// took all memory, and every clean document was evicted.
#[test]
fn the_queue_keeps_its_quota_during_a_stuck_commit() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    let bucket = &fixture.bucket;
    for _ in 0..4 {
        (0..1000).for_each(|_| _ = fixture.write_next().expect("there is room"));
        while bucket.flush_step().expect("the store is sound").more {}
    }
    let clean = bucket.stats().mem_used_bytes();
    assert!(clean > QUOTA_BYTES / 2 && clean < QUOTA_BYTES * 3 / 4, "{clean} bytes");
    // New documents, and such as take the place of clean ones, so that only the queue grows.
    for overwrites in [false, true] {
        let number = |count| if overwrites { count } else { 10_000 + count };
        fixture.write(number(3999), 1000).expect("there is room");
        while_a_commit_is_blocked(&fixture, |_| {
            let taken = (0..).take_while(|count| fixture.write(number(*count), 1000).is_ok());
            let taken = taken.count() as u64;
            let quota = bucket.checkpoint_quota_bytes();
            let queued = bucket.stats().queue_bytes as u64;
            assert!((quota..quota + quota / 10).contains(&queued), "{queued} bytes of {quota}");
            assert!(taken * 1000 < quota, "{taken} documents");
            while bucket.page_items_step(&|| crate::faults::NOW).more {}
            assert_eq!(bucket.stats().memory.evictions, 0, "what is clean stays");
        });
        while bucket.flush_step().expect("the store is sound").more {}
    }
}

#[test]
fn memory_is_bounded_while_a_commit_is_blocked() {
    let fixture = Fixture::new(EvictionPolicy::Value);
    fixture.write_next().expect("there is room");
    while_a_commit_is_blocked(&fixture, |_| {
        let many = 4 * QUOTA_BYTES / 1000;
        let refused = (0..many).find_map(|count| {
            if count % 64 == 0 {
                // The pager's thread continues while the flusher's is blocked.
                fixture.bucket.page_items_step(&|| crate::faults::NOW);
                fixture.bucket.recover_checkpoints_step();
                fixture.bucket.review_pressure();
            }
            fixture.write_next().err()
        });
        assert!(refused.is_some(), "{many} documents that no disk has were taken");
        let used = fixture.bucket.stats().mem_used_bytes();
        assert!(used <= QUOTA_BYTES + QUOTA_BYTES / 10, "{used} bytes");
        assert!(fixture.read(0).is_some(), "reads go on");
    });
    let again = (0..1000).any(|_| {
        fixture.upkeep();
        fixture.write_next().is_ok()
    });
    assert!(again, "writes are taken again");
}
