//! How much of a backup or a restore runs at the same time.

use std::thread::available_parallelism;

use clap::Args;

/// Most parts unless an option says otherwise: with more, the server has no core left for its
/// clients.
const JOBS_MAX: u16 = 4;

/// See the module text.
#[derive(Args, Clone, Copy, Debug)]
pub struct Jobs {
    /// Parts that run at the same time, each with its own vbuckets, connections and memory
    /// [default: one per core, at most 4].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: Option<u16>,
}

impl Jobs {
    /// The number, at least one.
    pub fn number(self) -> u16 {
        self.jobs.unwrap_or_else(usual)
    }
}

/// Parts unless an option says otherwise.
pub fn usual() -> u16 {
    let cores = available_parallelism().map_or(1, usize::from);
    u16::try_from(cores).unwrap_or(u16::MAX).min(JOBS_MAX)
}
