//! What it costs to make queued documents durable, for the engine alone and with each store.
//!
//! `cargo bench -p oribi-engine --bench flush_items -- [--items N] [--vbuckets N] [--bytes N] [--rounds N]`; see `flush_cost`.

mod flush_cost;

fn main() -> std::process::ExitCode {
    match flush_cost::run(std::env::args().skip(1), &mut std::io::stdout()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}
