//! The pace of a worker: as fast as answers come, at a limited rate, or by arrival times.
//!
//! Without a rate a worker never waits. With one, a batch goes out when its first operation is due.
//! In open loop, a batch is all operations due by now, and the wait must be exact, because its
//! error would be part of every latency: the runtime's timers tick in milliseconds. A worker with
//! its own thread sleeps in the system call (it has nothing in flight meanwhile). A worker on a
//! shared thread sleeps by the runtime's timer until shortly before, and then yields to the others
//! until it is time.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::options::KvArgs;
use super::schedule::Schedule;
use crate::perf::control::Control;

/// Longest wait without a check for the end of the run.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// How long before an operation is due the runtime's timer must fire.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// The kernel's slack for a sleep; its default of 50 microseconds would show in latencies.
const KERNEL_SLACK_NS: u64 = 1_000;

/// How a worker waits for the time of an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    /// In a system call.
    Blocking,
    /// Beside others.
    Shared,
}

/// See the module text.
#[derive(Debug)]
pub struct Pace {
    started: Instant,
    schedule: Option<Schedule>,
    open_loop: Option<Wait>,
}

impl Pace {
    /// As fast as answers come.
    pub fn unlimited() -> Pace {
        Pace { started: Instant::now(), schedule: None, open_loop: None }
    }

    /// The pace of worker `number` in a phase that began at `started`.
    pub fn new(args: &KvArgs, number: usize, started: Instant) -> Pace {
        let schedule = args.rate_limit.map(|rate| Schedule::new(rate, number, args.workers()));
        let wait = if args.connections_per_thread == 1 { Wait::Blocking } else { Wait::Shared };
        Pace { started, schedule, open_loop: args.open_loop.then_some(wait) }
    }

    /// True when latency counts from when an operation was due.
    pub fn is_open_loop(&self) -> bool {
        self.open_loop.is_some()
    }

    /// Nanoseconds since the start of the phase; 0 when nothing depends on it.
    pub fn now_ns(&self) -> u64 {
        match self.schedule {
            None => 0,
            Some(_) => self.started.elapsed().as_nanos() as u64,
        }
    }

    /// Takes the next operation and returns its due time; `None` when it has to wait, which happens
    /// only in open loop.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let Some(schedule) = &mut self.schedule else { return Some(0) };
        if self.open_loop.is_some() {
            return schedule.take_due(now_ns);
        }
        schedule.take(1);
        Some(0)
    }

    /// Waits until the next operation is due or the run is over.
    pub async fn wait(&self, control: &Control) {
        let Some(schedule) = &self.schedule else { return };
        let due = self.started + Duration::from_nanos(schedule.next_due_ns());
        while !control.is_stopped() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match self.open_loop {
                Some(Wait::Blocking) => std::thread::sleep(left.min(WAIT_MAX)),
                Some(Wait::Shared) if left <= TIMER_SLACK => tokio::task::yield_now().await,
                Some(Wait::Shared) => tokio::time::sleep((left - TIMER_SLACK).min(WAIT_MAX)).await,
                None => tokio::time::sleep(left.min(WAIT_MAX)).await,
            }
        }
    }
}

/// Lets this thread's sleeps end on time, where the system can be told.
pub fn sleep_exactly() {
    #[cfg(target_os = "linux")]
    {
        // Without it sleeps are a little longer, which shows in the latencies and does no harm.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(KERNEL_SLACK_NS));
    }
}
