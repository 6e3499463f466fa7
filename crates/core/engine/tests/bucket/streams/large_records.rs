//! Large records of a backfill: the process's budget grants them before they are read.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use oribi_engine::dcp::{StreamFilter, StreamStep};
use oribi_engine::{Bucket, MemoryGrant, MemoryRequest, ReaderMemory};
use oribi_types::VbUuid;

use super::{StreamContents, WakeCount, from, over_a_store, write};
use crate::NOW;

const LARGE: usize = 300 << 10;

/// A budget of so many grants at a time.
#[derive(Default)]
struct TestMemory {
    grants_max: AtomicUsize,
    grants: AtomicUsize,
    bytes: AtomicUsize,
}

struct SharedMemory(Arc<TestMemory>);
struct TestRequest(Arc<TestMemory>, usize);
struct TestGrant(Arc<TestMemory>, usize);

impl ReaderMemory for SharedMemory {
    fn request(&self, bytes: usize) -> Box<dyn MemoryRequest> {
        Box::new(TestRequest(Arc::clone(&self.0), bytes))
    }
}

impl MemoryRequest for TestRequest {
    fn poll(&mut self) -> Option<Box<dyn MemoryGrant>> {
        let memory = &self.0;
        if memory.grants.load(Ordering::SeqCst) == memory.grants_max.load(Ordering::SeqCst) {
            return None;
        }
        memory.grants.fetch_add(1, Ordering::SeqCst);
        memory.bytes.fetch_add(self.1, Ordering::SeqCst);
        Some(Box::new(TestGrant(Arc::clone(memory), self.1)))
    }
}

impl MemoryGrant for TestGrant {
    fn shrink_to(&mut self, bytes: usize) {
        self.0.bytes.fetch_sub(self.1 - bytes, Ordering::SeqCst);
        self.1 = bytes;
    }
}

impl Drop for TestGrant {
    fn drop(&mut self) {
        self.0.grants.fetch_sub(1, Ordering::SeqCst);
        self.0.bytes.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// A bucket with a small, a large and another small document in its store.
fn with_large(grants_max: usize) -> (Arc<Bucket>, Arc<TestMemory>) {
    let (bucket, memory) = (over_a_store(), Arc::new(TestMemory::default()));
    memory.grants_max.store(grants_max, Ordering::SeqCst);
    bucket.set_reader_memory(Arc::new(SharedMemory(Arc::clone(&memory))));
    write(&bucket, 0..1, "small");
    write(&bucket, 1..2, &"x".repeat(LARGE));
    write(&bucket, 2..3, "small");
    bucket.flush_step().expect("the store is sound");
    (bucket, memory)
}

// Invariant: A backfill reads a large document only after the memory budget has granted it, once
// for all readers.
#[test]
fn a_large_record_is_read_when_memory_is_granted() {
    let (bucket, memory) = with_large(0);
    let request = from(0, VbUuid(0), StreamFilter::All);
    let sink = Arc::<WakeCount>::default();
    let stream = RefCell::new(bucket.open_stream(&request, sink, 1).expect("it opens"));
    let heard = RefCell::new(StreamContents::default());
    let read = || heard.borrow_mut().read(&mut stream.borrow_mut());
    read();
    let check_copy = || {
        let bytes = memory.bytes.load(Ordering::SeqCst);
        assert!((LARGE..LARGE + 1024).contains(&bytes), "{bytes}: only the copy is kept");
        let counted = bucket.stats().memory.streams_bytes;
        assert!(counted < LARGE as u64, "{counted}: it does not count twice");
    };
    let pace = |_| {
        if memory.grants_max.swap(1, Ordering::SeqCst) == 0 {
            read();
            assert_eq!(heard.borrow().table.len(), 1, "the document before it is not held back");
        } else if memory.grants.load(Ordering::SeqCst) == 1 {
            // The inbox is full.
            check_copy();
            read();
        }
        true
    };
    bucket.backfill_step(&pace, &|| NOW).expect("the store is sound");
    if heard.borrow().table.len() == 1 {
        check_copy();
    }
    read();
    assert_eq!(heard.borrow().table.len(), 3);
    assert_eq!(memory.grants.load(Ordering::SeqCst), 0, "the grant ends with the copy");
}

#[test]
fn a_record_that_is_given_up_is_read_again() {
    let (bucket, memory) = with_large(1);
    let request = from(0, VbUuid(0), StreamFilter::All);
    let stream = bucket.open_stream(&request, Arc::<WakeCount>::default(), 1).expect("it opens");
    let stream = RefCell::new(stream);
    assert!(matches!(stream.borrow_mut().next(), StreamStep::Idle));
    let gives_up = Cell::new(true);
    let heard = RefCell::new(StreamContents::default());
    let turn = || {
        let mut stream = stream.borrow_mut();
        if gives_up.get() && stream.holds_granted() {
            stream.give_up_granted();
            assert!(!stream.holds_granted());
            assert_eq!(memory.grants.load(Ordering::SeqCst), 0);
            gives_up.set(false);
        } else if !gives_up.get() {
            heard.borrow_mut().read(&mut stream);
        }
    };
    let pace = |_| {
        turn();
        true
    };
    for _ in 0..3 {
        bucket.backfill_step(&pace, &|| NOW).expect("the store is sound");
        turn();
    }
    assert!(!gives_up.get(), "it had the large record");
    assert_eq!(heard.borrow().table.len(), 3);
    assert_eq!(memory.grants.load(Ordering::SeqCst), 0);
}
