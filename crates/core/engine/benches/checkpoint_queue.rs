//! Cost of the checkpoint queue under its lock.
//!
//! `cargo bench -p oribi-engine --bench checkpoint_queue -- [--items A,B,..] [--queued A,B,..]
//! [--rounds N]`; see `checkpoint_cost`.

mod arguments;
mod checkpoint_cost;

fn main() -> std::process::ExitCode {
    match checkpoint_cost::run(std::env::args().skip(1), &mut std::io::stdout()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}
