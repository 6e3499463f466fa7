//! What it costs to persist a document through the flusher, and to load it at the next start.
//!
//! `cargo bench -p oribi-engine --bench persistence -- [--stores log,embedded] [--items N] [--rounds N]
//! [--bytes A,B,..] [--directory PATH]`; see `persistence_cost`.

#[path = "persistence/mod.rs"]
mod persistence_cost;

fn main() -> std::process::ExitCode {
    match persistence_cost::run(std::env::args().skip(1), &mut std::io::stdout()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}
