//! Point lookups per second against a running cluster, and the processor time of each.
//!
//! See `lookups/mod.rs` for what is measured; `bench/run --only kudu-lookups` runs this beside the
//! C++ tool.

#[path = "lookups/mod.rs"]
mod lookups;

use std::process::ExitCode;

fn main() -> ExitCode {
    match lookups::run(std::env::args().skip(1)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
