//! CPU time: of this process, and of a server on the same machine.

use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::thread_times::ThreadTimes;

/// CPU time of a process so far, or between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuTime {
    /// In the program itself.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

impl CpuTime {
    /// This process so far; exact to a microsecond.
    pub fn of_this_process() -> anyhow::Result<CpuTime> {
        let usage =
            getrusage(UsageWho::RUSAGE_SELF).context("asking for this process's CPU time")?;
        let duration = |time: nix::sys::time::TimeVal| {
            Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0))
        };
        Ok(CpuTime { user: duration(usage.user_time()), system: duration(usage.system_time()) })
    }

    /// Another process on this machine so far; exact to a tick of the kernel, usually 10 ms.
    pub fn of_process(pid: u32) -> anyhow::Result<CpuTime> {
        if !cfg!(target_os = "linux") {
            bail!("--server-pid works on Linux only");
        }
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(&path)
            .with_context(|| format!("--server-pid {pid}: cannot read {path}"))?;
        let ticks = parse_stat(&stat).with_context(|| format!("{path} is not understood"))?;
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let duration = |ticks: u64| Duration::from_nanos(ticks.saturating_mul(tick_ns));
        Ok(CpuTime { user: duration(ticks.0), system: duration(ticks.1) })
    }

    /// The time since an earlier moment.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }
}

/// CPU time of this process and of a server on the same machine, so far or in a phase.
#[derive(Clone, Debug)]
pub struct Usage {
    pub client: CpuTime,
    /// Of the server, if its process was named.
    pub server: Option<CpuTime>,
    /// Of the server's threads, if its process was named and the system tells.
    pub server_threads: Option<ThreadTimes>,
}

impl Usage {
    /// Processor time so far.
    pub fn now(server_pid: Option<u32>) -> anyhow::Result<Usage> {
        Ok(Usage {
            client: CpuTime::of_this_process()?,
            server: server_pid.and_then(|pid| CpuTime::of_process(pid).ok()),
            server_threads: server_pid.and_then(|pid| ThreadTimes::of_process(pid).ok()),
        })
    }

    /// Processor time since an earlier moment.
    pub fn since(self, earlier: &Usage) -> Usage {
        Usage {
            client: self.client.since(earlier.client),
            server: self.server.zip(earlier.server).map(|(now, then)| now.since(then)),
            server_threads: self
                .server_threads
                .zip(earlier.server_threads.as_ref())
                .map(|(now, then)| now.since(then)),
        }
    }
}

/// Ticks in user and in system mode. The name of the program, in parentheses, may contain anything.
fn parse_stat(stat: &str) -> Option<(u64, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    // Counted from 1, the fields of the line are 14 and 15; the first after the name is 3.
    let mut fields = fields.split_ascii_whitespace().skip(14 - 3);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    //! The kernel's line is understood, whatever a program is called.

    use super::*;

    #[test]
    fn a_strange_name_does_not_shift_fields() {
        let line = "42 (a b) c) S 1 42 42 0 -1 4194560 100 0 0 0 1234 567 0 0 20 0 4 0 99";
        assert_eq!(parse_stat(line), Some((1234, 567)));
        assert_eq!(parse_stat("42 (x) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn this_process_is_seen_both_ways() {
        let before = CpuTime::of_this_process().unwrap();
        let mut sum = 0u64;
        // At least three ticks of work, so that the coarse count has moved, too.
        while CpuTime::of_this_process().unwrap().since(before).user < Duration::from_millis(30) {
            sum = std::hint::black_box(sum + 1);
        }
        let exact = CpuTime::of_this_process().unwrap();
        assert!(exact.user > before.user);
        if cfg!(target_os = "linux") {
            let coarse = CpuTime::of_process(std::process::id()).unwrap();
            assert!(coarse.user + coarse.system > Duration::ZERO);
        }
        CpuTime::of_process(u32::MAX).expect_err("no such process");
    }
}
