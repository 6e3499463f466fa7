//! T3: what it costs to send a value, copied next to its header or from where it lies.
//!
//! See `send` for what is measured; `bench/run --only t3` runs this and draws the curves.

mod measure;
mod send;

fn main() -> std::process::ExitCode {
    measure::run(send::run, std::env::args().skip(1), &mut std::io::stdout().lock())
}
