//! A known number of operations through one connection in memory, for a profiler that counts
//! instructions.
//!
//! See `operations` for what is run; `bench/run --only callgrind` runs it under callgrind.

mod operations;

fn main() -> std::process::ExitCode {
    match operations::run(std::env::args().skip(1)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}
