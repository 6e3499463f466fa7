//! The pace of a worker: as fast as answers come, at a limited rate, or by arrival times.
//!
//! Without a rate a worker never waits. With one, a batch goes out when its first operation is due.
//! In open loop, a batch is all operations due by now, and the wait must be exact, because its
//! error would be part of every latency. So an [`Alarm`] ends it, and the thread does not wait for
//! the end of another thread's time slice.

use std::io;
use std::time::{Duration, Instant};

use super::alarm::Alarm;
use super::options::KvArgs;
use super::schedule::Schedule;
use crate::perf::control::Control;

/// Longest wait without a check for the end of the run.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// See the module text.
#[derive(Debug)]
pub struct RequestPace {
    started: Instant,
    schedule: Option<Schedule>,
    open_loop: Option<Alarm>,
}

impl RequestPace {
    /// As fast as answers come.
    pub fn unlimited() -> RequestPace {
        RequestPace { started: Instant::now(), schedule: None, open_loop: None }
    }

    /// The pace of worker `number` in a phase that began at `started`; within a runtime, on the
    /// worker's own thread.
    ///
    /// # Errors
    /// There is no file descriptor for the timer of an open loop.
    pub fn new(args: &KvArgs, number: usize, started: Instant) -> io::Result<RequestPace> {
        let schedule = args.rate_limit.map(|rate| Schedule::new(rate, number, args.workers()));
        let open_loop = args.open_loop.then(Alarm::new).transpose()?;
        if open_loop.is_some() {
            oribi_supervisor::take_short_slices();
        }
        Ok(RequestPace { started, schedule, open_loop })
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
    ///
    /// # Errors
    /// Those of [`Alarm::sleep`].
    pub async fn wait(&mut self, control: &Control) -> io::Result<()> {
        let Some(schedule) = &self.schedule else { return Ok(()) };
        let due = self.started + Duration::from_nanos(schedule.next_due_ns());
        while !control.is_stopped() {
            let left = due.saturating_duration_since(Instant::now()).min(WAIT_MAX);
            match &mut self.open_loop {
                _ if left.is_zero() => return Ok(()),
                Some(alarm) => alarm.sleep(left).await?,
                None => tokio::time::sleep(left).await,
            }
        }
        Ok(())
    }
}
