//! The time that the process has spent on a processor.
//!
//! Owns: the reading of `/proc/self/stat`. Callers: metrics and statistics.

use std::fs;

/// Ticks per second in `/proc/PID/stat`: the kernel's `USER_HZ`, which is part of its ABI.
const TICKS_PER_SECOND: f64 = 100.0;
/// Places of user and system time after the name of the process, which ends in a parenthesis.
const TIMES_AT: usize = 11;

/// Seconds of all threads since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuTimes {
    pub user_s: f64,
    pub system_s: f64,
}

impl CpuTimes {
    /// The times of this process; `None` when they cannot be read.
    pub fn of_process() -> Option<CpuTimes> {
        parse(&fs::read_to_string("/proc/self/stat").ok()?)
    }
}

fn parse(stat: &str) -> Option<CpuTimes> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut ticks = rest.split_whitespace().skip(TIMES_AT).map(str::parse::<f64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some(CpuTimes { user_s: user / TICKS_PER_SECOND, system_s: system / TICKS_PER_SECOND })
}

#[cfg(test)]
mod tests {
    use super::{CpuTimes, parse};

    #[test]
    fn times_are_found_after_any_program_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 900 0 0 0 250 125 0 0 20 0 9 0 5 1 2";
        assert_eq!(parse(stat), Some(CpuTimes { user_s: 2.5, system_s: 1.25 }));
        assert_eq!(parse("7 (a"), None);
        assert!(CpuTimes::of_process().is_some());
    }
}
