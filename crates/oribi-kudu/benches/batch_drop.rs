//! T2: what it costs to destroy a batch of row operations.
//!
//! A client that makes an object of each row has to walk all of them when the batch is done, and each is a few
//! dependent cache misses away. See `batch_drop/rows.rs` for what is compared. Without `--bench`, as under
//! `cargo test`, everything runs once and tiny.
//!
//! `cargo bench -p oribi-kudu --bench batch_drop [-- --rows N --rounds N]` prints one JSON object for each sample.

#[path = "batch_drop/heap_rows.rs"]
mod heap_rows;
#[path = "batch_drop/session_rows.rs"]
mod session_rows;

use std::time::{Duration, Instant};

/// How many rows a batch has, and how often each way of destroying it is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    rows: usize,
    rounds: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let number = |name: &str, default: usize| {
        let after = arguments.iter().skip_while(|argument| *argument != name).nth(1);
        after.map_or(default, |value| value.parse().expect("a number stands behind the option"))
    };
    let size = match is_bench {
        true => Size { rows: number("--rows", 1_000_000), rounds: number("--rounds", 5) },
        false => Size { rows: 1000, rounds: 1 },
    };
    // The ways take turns, so that a machine that slows down slows all of them.
    for round in 0..size.rounds {
        report(
            "heap_objects",
            round,
            size,
            measure(heap_rows::batch(size.rows), heap_rows::Batch::drop_plainly),
        );
        report(
            "heap_objects_prefetched",
            round,
            size,
            measure(heap_rows::batch(size.rows), heap_rows::Batch::drop_prefetched),
        );
        let runtime = session_rows::runtime();
        let session = session_rows::filled_session(&runtime, size.rows);
        report("session_buffers", round, size, measure(session, drop));
        let per_row = session_rows::time_of_rows(&runtime, size.rows);
        report("session_encode", round, size, per_row);
    }
}

/// Time that `destroy` takes for a batch that was made before.
fn measure<T>(batch: T, destroy: impl FnOnce(T)) -> Duration {
    let started = Instant::now();
    destroy(batch);
    started.elapsed()
}

fn report(way: &str, round: usize, size: Size, elapsed: Duration) {
    let nanos_per_row = elapsed.as_nanos() as f64 / size.rows as f64;
    println!(
        "{{\"bench\":\"batch_drop\",\"way\":\"{way}\",\"round\":{round},\"rows\":{},\"elapsed_us\":{:.1},\"ns_per_row\":{nanos_per_row:.3}}}",
        size.rows,
        elapsed.as_nanos() as f64 / 1000.0,
    );
}
