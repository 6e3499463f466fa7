//! What a pipeline costs besides system calls: no memory for an operation that has no
//! value to return, one block for one that has.
//!
//! Invariants of the allocator, cited below:
//! 1. Every call goes to the system allocator with the arguments it came with, so the system
//!    allocator's guarantees are this one's.
//! 2. CountingSystem touches a thread-local `Cell` only, which neither allocates nor panics: it is
//!    initialised by a constant and skipped while its thread is being torn down.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use oribi_client::{
    Client, Completion, ConnectOptions, Operation, Pipeline, PipelineOptions, WriteOptions,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use support::{ServerAction, answer, handshake, opcode, serve};

struct CountingSystem;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: invariants 1 and 2.
unsafe impl GlobalAlloc for CountingSystem {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The thread's count is gone while the thread ends; nothing is measured then.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: invariant 1.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: invariant 1.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingSystem = CountingSystem;

const OPERATIONS: usize = 10_000;

/// A server that answers every GET with a value of this size and every SET with a mutation token.
fn serve_values(size_bytes: usize) -> ConnectOptions {
    let value = vec![b'v'; size_bytes];
    serve(move |frame, out| {
        match opcode(frame) {
            Opcode::Get => answer(out, frame, Status::Success, b"\0\0\0\0", &value),
            Opcode::Set => answer(out, frame, Status::Success, &[1; 16], b""),
            _ => assert!(handshake(out, frame)),
        }
        ServerAction::GoOn
    })
}

/// Runs `OPERATIONS` with a thousand in flight and returns the allocations of this thread, on which
/// the whole client runs.
async fn allocations(client: &Client, pipeline: &mut Pipeline<'_>, write: Option<&Bytes>) -> usize {
    let options = WriteOptions::default();
    let before = ALLOCATIONS.get();
    for _ in 0..OPERATIONS {
        while pipeline.is_full() {
            pipeline.next().await.expect("something is in flight").result.expect("it succeeds");
        }
        let operation = match write {
            Some(value) => Operation::upsert(b"key", value.clone(), &options),
            None => Operation::get(b"key"),
        };
        pipeline.queue(client.default_collection(), &operation).expect("it is sent");
    }
    while let Some(Completion { result, .. }) = pipeline.next().await {
        result.expect("it succeeds");
    }
    ALLOCATIONS.get() - before
}

/// Buffers grow to what is in flight and stay; the few allocations are what the runtime does.
#[tokio::test(flavor = "current_thread")]
async fn a_pipeline_allocates_returned_values_only() {
    let client = Client::connect(serve_values(512)).await.expect("the server answers");
    let options = PipelineOptions::new().operations_max(1000).bytes_max(usize::MAX);
    let mut pipeline = client.pipeline(options);
    let small = Bytes::from(vec![b'v'; 100]);
    let pinned = Bytes::from(vec![b'v'; 10_000]);
    for value in [Some(&small), Some(&pinned), None] {
        let warm = allocations(&client, &mut pipeline, value).await;
        let steady = allocations(&client, &mut pipeline, value).await;
        let values = if value.is_none() { OPERATIONS } else { 0 };
        let besides = steady.checked_sub(values).expect("a value takes a block");
        assert!(besides < OPERATIONS / 100, "{besides} allocations besides, {warm} when cold");
    }
}
