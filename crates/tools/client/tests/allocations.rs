//! What a pipeline costs besides system calls: no memory of its own for an operation that has no
//! value to return, one block for one that has. And the bench of it, tiny, so that it cannot rot.
//!
//! Invariants of the allocator, cited below:
//! 1. Every call goes to the system allocator with the arguments it came with, so the system
//!    allocator's guarantees are this one's.
//! 2. Counting touches a thread-local `Cell` only, which neither allocates nor panics: it is
//!    initialised by a constant and skipped while its thread is being torn down.

#[path = "../benches/measure.rs"]
mod measure;
#[path = "../benches/pipeline/mod.rs"]
mod pipeline;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::ExitCode;

use bytes::Bytes;
use oribi_client::{Client, Completion, Operation, Pipeline, PipelineOptions, WriteOptions};
use serde_json::Value;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: invariants 1 and 2.
unsafe impl GlobalAlloc for Counting {
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
static ALLOCATOR: Counting = Counting;

const OPERATIONS: usize = 10_000;

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
async fn a_pipeline_allocates_for_values_that_it_returns_only() {
    let client = Client::connect(pipeline::serve_values(512)).await.expect("the server answers");
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

#[test]
fn the_bench_runs() {
    let mut lines = Vec::new();
    let arguments = "--rounds 1 --sizes 100,10000 --sample-bytes 200000".split(' ');
    let code = measure::run(pipeline::run, arguments.map(str::to_owned), &mut lines);
    assert_eq!(code, ExitCode::SUCCESS);
    let lines = std::str::from_utf8(&lines).expect("lines are text");
    let samples: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(samples.len(), 8);
    for sample in samples {
        assert!(sample["cpu_ns"].as_u64().is_some_and(|ns| ns > 0), "{sample}");
    }
}
