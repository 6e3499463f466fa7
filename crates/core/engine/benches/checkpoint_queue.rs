//! What the checkpoint queue costs under its lock, and in memory.
//!
//! `cargo bench -p oribi-engine --bench checkpoint_queue -- [--items A,B,..] [--queued A,B,..]
//! [--rounds N]`; see `checkpoint_cost`.

mod arguments;
mod checkpoint_cost;
mod program;

fn main() -> std::process::ExitCode {
    program::run(checkpoint_cost::run)
}
