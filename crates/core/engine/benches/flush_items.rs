//! What it costs to make queued documents durable, for the engine alone and with each store.
//!
//! `cargo bench -p oribi-engine --bench flush_items -- [--items N] [--vbuckets N] [--bytes N]
//! [--rounds N]`; see `flush_cost`.

mod arguments;
mod cpu_time;
mod flush_cost;
mod program;

fn main() -> std::process::ExitCode {
    program::run(flush_cost::run)
}
