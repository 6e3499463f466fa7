//! Destroying a batch of operations, in three ways, with the memory out of the caches as it is when a batch
//! has been sent and answered.
//!
//! `objects`: what Kudu's C++ client holds for each row until the answer comes (`objects.rs`), destroyed tablet by
//! tablet, one operation after the other. `objects-prefetch`: the same, while what comes next is prefetched, as that
//! client does since 2019. `buffers`: what a session of this crate holds, two buffers per tablet. All hold the same rows, those
//! of the load generator. Every round makes each batch anew, pushes it out of the caches and takes the time of
//! destroying it; one JSON object per sample goes to the output.

#[path = "../../src/session/row_buffers.rs"]
#[allow(dead_code, reason = "sending is not measured")]
mod row_buffers;

mod objects;

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use objects::Operation;
use row_buffers::RowBuffers;

/// Tablets of the load generator's table.
const TABLETS: u64 = 8;
/// Bytes of a row without its text: operation, two bitmaps, an INT64, an INT32, offset and length of the text.
const ROW_BYTES: usize = 31;
/// Bytes of a row's text.
const TEXT_BYTES: usize = 32;
/// Read and written between making and destroying a batch; more than any cache holds.
const CACHE_BYTES: usize = 128 << 20;
const CACHE_LINE_BYTES: usize = 64;

/// Runs the measurement.
pub fn run(
    arguments: impl Iterator<Item = String>,
    out: &mut dyn Write,
) -> Result<(), Box<dyn Error>> {
    let (mut rounds, mut operations) = (5u32, 1_000_000u64);
    let mut arguments = arguments;
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            // Cargo adds it to whatever it runs as a bench.
            "--bench" => {}
            "--rounds" => rounds = value()?.parse()?,
            "--operations" => operations = value()?.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let mut other_memory = vec![0u8; CACHE_BYTES];
    for round in 0..rounds {
        let mut measure = |way: &str, took: Duration| {
            let ns = took.as_nanos();
            writeln!(
                out,
                r#"{{"round": {round}, "way": "{way}", "operations": {operations}, "drop_ns": {ns}}}"#
            )
        };
        let batches = object_batches(operations);
        measure("objects", time_of(batches, &mut other_memory, objects::destroy))?;
        let batches = object_batches(operations);
        measure(
            "objects-prefetch",
            time_of(batches, &mut other_memory, objects::destroy_prefetching),
        )?;
        let batches = buffer_batches(operations);
        measure("buffers", time_of(batches, &mut other_memory, drop))?;
    }
    Ok(())
}

/// The time of destroying batches that are in no cache any more.
fn time_of<T>(batches: Vec<T>, other_memory: &mut [u8], destroy: impl Fn(T)) -> Duration {
    for byte in other_memory.iter_mut().step_by(CACHE_LINE_BYTES) {
        *byte = byte.wrapping_add(1);
    }
    black_box(&mut *other_memory);
    let started = Instant::now();
    batches.into_iter().for_each(destroy);
    started.elapsed()
}

/// Rows come in the order of their keys and are hashed to tablets.
fn tablet_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) % TABLETS) as usize
}

fn object_batches(operations: u64) -> Vec<Vec<Option<Box<Operation>>>> {
    let table = std::sync::Arc::new(());
    let mut batches = (0..TABLETS).map(|_| Vec::new()).collect::<Vec<_>>();
    for key in 0..operations {
        batches[tablet_of(key)].push(Some(Operation::insert(&table, key)));
    }
    batches
}

fn buffer_batches(operations: u64) -> Vec<RowBuffers> {
    let mut batches = (0..TABLETS).map(|_| RowBuffers::default()).collect::<Vec<_>>();
    for key in 0..operations {
        let batch = &mut batches[tablet_of(key)];
        batch.rows.extend_from_slice(&row_of(key));
        batch.indirect.extend_from_slice(&[b'x'; TEXT_BYTES]);
        batch.row_count += 1;
    }
    batches
}

/// The bytes of a row; what is in them makes no difference for destroying them.
fn row_of(key: u64) -> [u8; ROW_BYTES] {
    let mut row = [0; ROW_BYTES];
    row[3..11].copy_from_slice(&key.to_le_bytes());
    row
}
