//! What it costs to destroy a batch of operations: heap objects per row, the same with prefetching, buffers.
//!
//! See `batch_drop/mod.rs` for what is measured; `bench/run --only kudu-batch-drop` makes figures of it.

#[path = "batch_drop/mod.rs"]
mod batch_drop;

use std::process::ExitCode;

fn main() -> ExitCode {
    match batch_drop::run(std::env::args().skip(1), &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
