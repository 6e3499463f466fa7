//! What it costs to persist a document through the flusher, and to load it at the next start.
//!
//! `cargo bench -p oribi-engine --bench persistence -- [--items N] [--rounds N]
//! [--bytes A,B,..] [--logs A,B,..] [--directory PATH]`; see `persistence_cost`.

mod arguments;
mod cpu_time;
#[path = "persistence/mod.rs"]
mod persistence_cost;
mod program;

fn main() -> std::process::ExitCode {
    program::run(persistence_cost::run)
}
