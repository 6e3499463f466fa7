//! What a block of the arena costs, next to one of the system's allocator.
//!
//! `cargo bench -p oribi-engine --bench block_arena -- [--live N] [--rounds N] [--bytes A,B,..]`;
//! see `block_cost`.

mod arguments;
mod block_cost;
mod program;

fn main() -> std::process::ExitCode {
    program::run(block_cost::run)
}
