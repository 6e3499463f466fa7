//! T2: what it costs to destroy a batch of row operations.
//!
//! A client that makes an object of each row has to walk all of them when the batch is done, and
//! each is a few dependent cache misses away. See `heap_rows` and `session_rows` for what is
//! compared. Without `--bench`, as under `cargo test`, everything runs once and tiny.
//!
//! `cargo bench -p oribi-kudu --bench batch_drop [-- --rows N --rounds N]` prints one JSON object
//! for each sample.

#[path = "batch_drop/heap_rows.rs"]
mod heap_rows;
#[path = "batch_drop/session_rows.rs"]
mod session_rows;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

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
    // The first round is not reported: it alone meets a heap in which nothing was freed yet. The
    // ways take turns, so that a machine that slows down slows all of them.
    run_round(size, &mut |_, _| {});
    for round in 0..size.rounds {
        run_round(size, &mut |way, cpu| report(way, round, size, cpu));
    }
}

/// Every way once.
fn run_round(size: Size, report: &mut dyn FnMut(&str, Duration)) {
    report("heap_objects", measure(heap_rows::batch(size.rows), heap_rows::Batch::drop_plainly));
    let batch = heap_rows::batch(size.rows);
    report("heap_objects_prefetched", measure(batch, heap_rows::Batch::drop_prefetched));
    let runtime = session_rows::runtime();
    report("session_buffers", measure(session_rows::filled_session(&runtime, size.rows), drop));
    report("session_encode", session_rows::time_of_rows(&runtime, size.rows));
}

/// Processor time that `destroy` takes for a batch that was made before.
fn measure<T>(batch: T, destroy: impl FnOnce(T)) -> Duration {
    let started = processor_time();
    destroy(batch);
    processor_time() - started
}

/// Processor time of this thread, on which everything here runs: other programs do not count.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn report(way: &str, round: usize, size: Size, cpu: Duration) {
    let nanos_per_row = cpu.as_nanos() as f64 / size.rows as f64;
    println!(
        "{{\"bench\":\"batch_drop\",\"way\":\"{way}\",\"round\":{round},\"rows\":{},\"cpu_us\":{:.1},\"ns_per_row\":{nanos_per_row:.3}}}",
        size.rows,
        cpu.as_nanos() as f64 / 1000.0,
    );
}
