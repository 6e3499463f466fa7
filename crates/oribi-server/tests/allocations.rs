//! Zero-copy and zero-allocation as a test: an allocator that counts, and one connection over an
//! in-memory bucket. A GET allocates nothing; a SET allocates its item block and nothing else;
//! a STAT with thousands of entries allocates nothing for each of them.
//!
//! All are counted over many operations after a warm-up, because containers that grow by doubling
//! (output block, checkpoint chunks, hash table) allocate once in a while by design.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use oribi_engine::collections::ManifestChange;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_server::harness::{ConnectionHarness, HARNESS_VBUCKETS};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct CountingAllocator;

// SAFETY: every call is passed on unchanged to the system allocator; counting touches only a
// thread-local cell without a destructor, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const OPERATIONS: u64 = 1000;

/// `OPERATIONS` requests of one kind over 100 keys.
fn requests(opcode: Opcode, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..OPERATIONS {
        let key = format!("key{:02}", index % 100).into_bytes();
        let extras: &[u8] = if value.is_empty() { &[] } else { &[0; 8] };
        let vbid = vbucket_of(&key, HARNESS_VBUCKETS);
        let parts = RequestParts { vbid, key: &key, value, extras, ..RequestParts::new(opcode) };
        encode_request(&mut bytes, &parts);
    }
    bytes
}

/// Allocations of feeding `input`, after it was fed twice before.
fn count(harness: &mut ConnectionHarness, input: &[u8]) -> u64 {
    let mut output = Vec::new();
    for _ in 0..2 {
        output.clear();
        harness.feed_into(input, &mut output);
    }
    output.clear();
    let before = ALLOCATIONS.with(Cell::get);
    harness.feed_into(input, &mut output);
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn get_allocates_nothing() {
    let mut harness = ConnectionHarness::new();
    for value in [&b"small"[..], &[b'x'; 20_000]] {
        harness.feed(&requests(Opcode::Set, value));
        for opcode in [Opcode::Get, Opcode::Getk, Opcode::Getq] {
            assert_eq!(count(&mut harness, &requests(opcode, b"")), 0, "{}", opcode.name());
        }
    }
}

#[test]
fn miss_allocates_nothing() {
    let mut harness = ConnectionHarness::new();
    assert_eq!(count(&mut harness, &requests(Opcode::Get, b"")), 0);
}

#[test]
fn set_allocates_its_item_and_little_else() {
    let mut harness = ConnectionHarness::new();
    let allocations = count(&mut harness, &requests(Opcode::Set, b"value"));
    assert!(allocations >= OPERATIONS, "each SET makes an item: {allocations}");
    // Checkpoint chunks hold many items each.
    assert!(allocations <= OPERATIONS + OPERATIONS / 50, "{allocations} for {OPERATIONS} SETs");
}

#[test]
fn stat_allocates_nothing_per_entry() {
    let mut harness = ConnectionHarness::new();
    for index in 0..200 {
        let (scope, name) = ("_default".to_owned(), format!("collection-{index}"));
        let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
        harness.bucket().bucket().update_manifest(&change).unwrap();
    }
    let mut input = Vec::new();
    let stat = RequestParts { key: b"collections-details", ..RequestParts::new(Opcode::Stat) };
    encode_request(&mut input, &stat);
    let mut output = Vec::new();
    harness.feed_into(&requests(Opcode::Get, b""), &mut output);
    output.clear();
    harness.feed_into(&input, &mut output);
    let bytes = output.len();
    assert!(bytes > 200 * 9 * 4 * 30, "more than seven thousand entries: {bytes}");
    assert!(count(&mut harness, &input) < 50);
}
