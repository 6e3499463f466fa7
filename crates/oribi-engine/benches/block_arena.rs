//! What a block of the arena costs, next to one of the system's allocator.
//!
//! `cargo bench -p oribi-engine --bench block_arena -- [--live N] [--rounds N] [--bytes A,B,..]`; see `block_cost`.

mod block_cost;

fn main() -> std::process::ExitCode {
    match block_cost::run(std::env::args().skip(1), &mut std::io::stdout()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}
