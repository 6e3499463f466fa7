//! What an operation costs the client: in a pipeline, and one after the other on a connection of
//! its own with as many in flight.
//!
//! See `pipeline` for what is measured.

mod measure;
mod pipeline;

fn main() -> std::process::ExitCode {
    measure::run(pipeline::run, std::env::args().skip(1), &mut std::io::stdout().lock())
}
