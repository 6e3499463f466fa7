//! T1: what it costs to drain a stream of statistics, and that it does not depend on its length.
//!
//! See `drain` for what is measured; `bench/run --only t1` runs this and draws the curves.

mod drain;
mod measure;

fn main() -> std::process::ExitCode {
    measure::run(drain::run, std::env::args().skip(1), &mut std::io::stdout().lock())
}
