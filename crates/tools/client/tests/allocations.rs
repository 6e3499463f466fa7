//! What a pipeline costs besides system calls: no memory for an operation that has no
//! value to return, one block for one that has.

mod support;

use bytes::Bytes;
use oribi_client::{
    Client, Completion, ConnectOptions, Operation, Pipeline, PipelineOptions, WriteOptions,
};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::CountingAllocator;
use support::{ServerAction, answer, handshake, opcode, serve};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::new();

const OPERATIONS: u64 = 10_000;

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
async fn allocations(client: &Client, pipeline: &mut Pipeline<'_>, write: Option<&Bytes>) -> u64 {
    let options = WriteOptions::default();
    let before = ALLOCATOR.allocations_of_this_thread();
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
    ALLOCATOR.allocations_of_this_thread() - before
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
