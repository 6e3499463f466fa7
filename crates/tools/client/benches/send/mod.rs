//! Sending SETs of growing values by each of the client's ways: copied next to the header, from
//! where they lie by scatter-gather, and as the client decides by itself.
//!
//! In every round each size is sent by all ways in turn, in an order that rotates, over loopback to
//! a sink in another thread. Small values go out a hundred to a flush and large ones alone, as in
//! real use; after each flush its answers are read, as a pipelining client does. Values are slices
//! of one block far larger than the processor's caches, used in turn: a value that is sent comes
//! from memory, not from the cache.
//!
//! What is compared is the processor time of the sending thread, kernel included.

mod sink;

use std::io::Write;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use oribi_client::Connection;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, SetExtras};
use serde::Serialize;

use crate::measure::{self, BenchOptions, Stopwatch, StopwatchReading};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Value sizes, in bytes: those that are published, and those around the switch point.
const VALUE_BYTES: [usize; 12] = [
    KIB,
    2 * KIB,
    3 * KIB,
    4 * KIB,
    6 * KIB,
    8 * KIB,
    16 * KIB,
    32 * KIB,
    64 * KIB,
    256 * KIB,
    MIB,
    20 * MIB,
];

/// The block that values are slices of.
const POOL_BYTES: usize = 64 * MIB;

/// Bytes of a sample, at least, when nothing else is asked for.
const SAMPLE_BYTES: usize = 64 * MIB;

/// Most requests in one flush, and about how many bytes.
const BATCH_MAX: usize = 100;
const BATCH_BYTES: usize = MIB;

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// How values are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum SendMethod {
    Copy,
    Gather,
    Adaptive,
}

impl SendMethod {
    const ALL: [SendMethod; 3] = [SendMethod::Copy, SendMethod::Gather, SendMethod::Adaptive];

    fn prepare(self, connection: &mut Connection) {
        match self {
            SendMethod::Copy => connection.set_gather_value_bytes_min(usize::MAX),
            SendMethod::Gather => connection.set_gather_value_bytes_min(0),
            SendMethod::Adaptive => {}
        }
    }
}

#[derive(Serialize)]
struct Sample {
    bench: &'static str,
    round: u32,
    way: SendMethod,
    size_bytes: usize,
    batch: usize,
    values: usize,
    wall_ns: u64,
    cpu_ns: u64,
}

/// Measures everything and writes a line per sample.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> Result<()> {
    let sizes = options.sizes.clone().unwrap_or_else(|| VALUE_BYTES.to_vec());
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let pool: Vec<u8> = (0..POOL_BYTES.max(largest)).map(|at| (at % 251) as u8).collect();
    let pool = Bytes::from(pool);
    let sample_bytes = options.sample_bytes.unwrap_or(SAMPLE_BYTES);
    for round in 0..options.rounds {
        for size_bytes in &sizes {
            let mut ways = SendMethod::ALL;
            ways.rotate_left(round as usize % SendMethod::ALL.len());
            for way in ways {
                let sample = measure_one(&pool, sample_bytes, round, *size_bytes, way)?;
                measure::emit(out, &sample)?;
            }
        }
    }
    Ok(())
}

fn measure_one(
    pool: &Bytes,
    sample_bytes: usize,
    round: u32,
    size_bytes: usize,
    way: SendMethod,
) -> Result<Sample> {
    ensure!(size_bytes > 0, "a value of 0 bytes cannot be checked");
    let batch = (BATCH_BYTES / size_bytes).clamp(1, BATCH_MAX);
    let batches = sample_bytes.div_ceil(size_bytes * batch);
    let starts = (0..=pool.len() - size_bytes).step_by(size_bytes);
    let values: Vec<Bytes> = starts.map(|start| pool.slice(start..start + size_bytes)).collect();
    let (address, server) = sink::serve_one()?;
    let sent = measure::runtime()?.block_on(async {
        let mut connection = Connection::open_plain("127.0.0.1", address.port(), TIMEOUT).await?;
        way.prepare(&mut connection);
        let mut values = values.iter().cycle();
        // Once before the clock runs, so that buffers have grown.
        send_batch(&mut connection, &mut values, batch).await?;
        let watch = Stopwatch::start();
        for _ in 0..batches {
            send_batch(&mut connection, &mut values, batch).await?;
        }
        anyhow::Ok(watch.read())
    });
    let StopwatchReading { wall_ns, cpu_ns } =
        sent.with_context(|| format!("{way:?} of {size_bytes}"))?;
    let requests = server.join().map_err(|_| anyhow!("the sink panicked"))??;
    let values = batch * batches;
    ensure!(requests == (values + batch) as u64, "the sink took {requests} requests");
    Ok(Sample { bench: "send_value", round, way, size_bytes, batch, values, wall_ns, cpu_ns })
}

/// Sends a batch and reads its answers.
async fn send_batch(
    connection: &mut Connection,
    values: &mut impl Iterator<Item = &Bytes>,
    batch: usize,
) -> Result<()> {
    for (opaque, value) in (0..).zip(values.take(batch)) {
        let flags = value.last().copied().map(u32::from).unwrap_or_default();
        let extras = SetExtras { flags, expiry: 0 }.encode();
        let parts = RequestParts {
            opaque,
            extras: &extras,
            key: b"document-000000",
            ..RequestParts::new(Opcode::Set)
        };
        connection.push_value(&parts, value);
    }
    connection.flush().await?;
    for opaque in 0..batch {
        let header = connection.next().await?.header;
        ensure!(header.opaque as usize == opaque, "answer {} to request {opaque}", header.opaque);
        ensure!(header.vbucket_or_status == 0, "status {:#x}", header.vbucket_or_status);
    }
    Ok(())
}
