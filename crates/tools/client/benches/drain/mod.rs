//! Draining streams of statistics of growing length, by this client and by the buffer it replaces.
//!
//! In every round each length is drained by three clients in turn, over loopback from a server in
//! another thread, and what was found is compared with what was sent:
//! - `oribi`: [`oribi_client::StatStream`];
//! - `naive`: one buffer that moves its rest to the front after each frame ([`naive`]), with the
//!   whole stream in flight. Its cost per byte grows with the length, so long streams are not run;
//! - `naive_capped`: the same with at most [`CAPPED_BYTES`] in flight.
//!
//! Short streams are repeated until a sample has enough bytes to be timed.

mod naive;
mod source;

use std::io::Write;

use anyhow::{Context, Result, anyhow, ensure};
use oribi_client::Connection;
use serde::Serialize;

use crate::measure::{self, Options, Spent, Stopwatch};
use naive::NaiveClient;
use source::{StatBlock, Tally};

/// Lengths of the streams, in bytes.
const STREAM_BYTES: [usize; 8] =
    [16_000, 64_000, 256_000, 1_000_000, 4_000_000, 16_000_000, 100_000_000, 1_000_000_000];

/// Longest stream that the naive client drains with all of it in flight; four times as much would
/// take sixteen times as long, minutes for one sample.
const NAIVE_STREAM_BYTES_MAX: usize = 4_000_000;

/// What the capped naive client has in flight: as much as this client's buffer receives at once.
const CAPPED_BYTES: usize = oribi_protocol::limits::READ_BLOCK_BYTES;

/// Bytes of a sample, at least, when nothing else is asked for: those of the longest stream, so
/// that samples of all lengths take as long and what disturbs the machine disturbs them alike.
const SAMPLE_BYTES: usize = 1_000_000_000;

/// The same for the naive clients, which take ten times as long and more.
const NAIVE_SAMPLE_BYTES: usize = 10_000_000;

/// Before a sample, so that its connection and its buffers have been used once.
const WARM_UP_BYTES: usize = 100_000;

/// Opaque of the naive client's requests.
const OPAQUE: u32 = 7;

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Drainer {
    Oribi,
    NaiveCapped,
    Naive,
}

/// What one sample has to do.
#[derive(Clone, Copy, Debug)]
struct Work {
    bytes: usize,
    stream_bytes: usize,
    streams: usize,
    expected: Tally,
}

/// What it took.
struct Drained {
    spent: Spent,
    moved_bytes: u64,
}

#[derive(Serialize)]
struct Sample {
    bench: &'static str,
    round: u32,
    drainer: Drainer,
    size_bytes: usize,
    stream_bytes: usize,
    streams: usize,
    stats: u64,
    received_bytes: u64,
    moved_bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
}

/// Measures everything and writes a line per sample.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let block = StatBlock::new(OPAQUE);
    let sizes = options.sizes.clone().unwrap_or_else(|| STREAM_BYTES.to_vec());
    for round in 0..options.rounds {
        for size_bytes in &sizes {
            for drainer in [Drainer::Oribi, Drainer::NaiveCapped, Drainer::Naive] {
                if drainer == Drainer::Naive && *size_bytes > NAIVE_STREAM_BYTES_MAX {
                    continue;
                }
                let sample = measure_one(&block, options, round, *size_bytes, drainer)?;
                measure::emit(out, &sample)?;
            }
        }
    }
    Ok(())
}

fn measure_one(
    block: &StatBlock,
    options: &Options,
    round: u32,
    size_bytes: usize,
    drainer: Drainer,
) -> Result<Sample> {
    let stream = block.stream(size_bytes);
    let sample_bytes = options.sample_bytes.unwrap_or(match drainer {
        Drainer::Oribi => SAMPLE_BYTES,
        Drainer::NaiveCapped => NAIVE_SAMPLE_BYTES,
        // A multiple of the largest would take minutes.
        Drainer::Naive => NAIVE_STREAM_BYTES_MAX / 4,
    });
    let work = Work {
        bytes: size_bytes,
        stream_bytes: block.stream_bytes(stream),
        streams: sample_bytes.div_ceil(size_bytes),
        expected: block.tally(stream),
    };
    let (address, server) = source::serve_one()?;
    let drained = match drainer {
        Drainer::Oribi => measure::runtime()?.block_on(drain_oribi(address.port(), block, work)),
        Drainer::NaiveCapped => drain_naive(address, CAPPED_BYTES, block, work),
        Drainer::Naive => drain_naive(address, work.stream_bytes, block, work),
    };
    let Drained { spent, moved_bytes } = drained.with_context(|| format!("{drainer:?}"))?;
    server.join().map_err(|_| anyhow!("the server panicked"))??;
    Ok(Sample {
        bench: "drain_stats",
        round,
        drainer,
        size_bytes,
        stream_bytes: work.stream_bytes,
        streams: work.streams,
        stats: work.expected.stats * work.streams as u64,
        received_bytes: (work.stream_bytes * work.streams) as u64,
        moved_bytes,
        wall_ns: spent.wall_ns,
        cpu_ns: spent.cpu_ns,
    })
}

async fn drain_oribi(port: u16, block: &StatBlock, work: Work) -> Result<Drained> {
    let mut connection = Connection::open_plain("127.0.0.1", port, TIMEOUT).await?;
    let warm_up = drain_stream(&mut connection, WARM_UP_BYTES).await?;
    check(warm_up, block.tally(block.stream(WARM_UP_BYTES)))?;
    let (received_before, moved_before) = (connection.received_bytes(), connection.moved_bytes());
    let watch = Stopwatch::start();
    for _ in 0..work.streams {
        check(drain_stream(&mut connection, work.bytes).await?, work.expected)?;
    }
    let spent = watch.read();
    let received_bytes = connection.received_bytes() - received_before;
    ensure!(received_bytes == (work.stream_bytes * work.streams) as u64, "received too little");
    Ok(Drained { spent, moved_bytes: connection.moved_bytes() - moved_before })
}

async fn drain_stream(connection: &mut Connection, bytes: usize) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut stream = connection.stats(&bytes.to_string()).await?;
    while let Some(stat) = stream.next().await? {
        tally.add(stat.name, stat.value);
        while let Some(stat) = stream.try_next()? {
            tally.add(stat.name, stat.value);
        }
    }
    Ok(tally)
}

fn drain_naive(
    address: std::net::SocketAddr,
    in_flight_bytes_max: usize,
    block: &StatBlock,
    work: Work,
) -> Result<Drained> {
    let mut client = NaiveClient::connect(address, in_flight_bytes_max)?;
    let warm_up = block.stream(WARM_UP_BYTES);
    let found = client.drain(WARM_UP_BYTES, block.stream_bytes(warm_up), OPAQUE)?;
    check(found, block.tally(warm_up))?;
    let moved_before = client.moved_bytes;
    let watch = Stopwatch::start();
    for _ in 0..work.streams {
        check(client.drain(work.bytes, work.stream_bytes, OPAQUE)?, work.expected)?;
    }
    let spent = watch.read();
    Ok(Drained { spent, moved_bytes: client.moved_bytes - moved_before })
}

fn check(found: Tally, expected: Tally) -> Result<()> {
    ensure!(found == expected, "found {found:?} where {expected:?} was sent");
    Ok(())
}
