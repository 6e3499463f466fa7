//! A wait that ends on time, to some microseconds, and yields the processor until then.
//!
//! Owns: a timer of the kernel. The runtime's timers tick in milliseconds, and a worker that asks
//! for the time until it is due takes a processor. The server on the same machine then waits for
//! that processor, and the measurement shows it as the server's latency. So the kernel wakes the
//! thread. Elsewhere than on Linux the runtime's timer ends the wait, up to a millisecond late.
//!
//! One worker owns it and waits for one moment at a time.

use std::io;
use std::time::Duration;

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;

/// See the module text.
#[derive(Debug)]
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: AsyncFd<OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// An alarm of this runtime.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe, for types whose descriptor may change or close; \
                      an `OwnedFd` keeps its own"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Alarm { timer })
    }

    /// Returns after `wait`; at once when that is zero.
    ///
    /// # Errors
    /// The kernel refuses the timer, which it does for no span of this type that a run can have.
    pub async fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        if wait.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: wait.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut expirations)?));
            // A readiness from before the timer was set: it is forgotten, and the next one counts.
            if let Ok(read) = read {
                return read.map(|_| ());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// An alarm of this runtime.
    ///
    /// # Errors
    /// None.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm {})
    }

    /// Returns after `wait`.
    ///
    /// # Errors
    /// None.
    pub async fn sleep(&mut self, wait: Duration) -> io::Result<()> {
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll};
    use std::time::{Duration, Instant};

    use super::Alarm;

    #[tokio::test]
    async fn an_alarm_is_never_early_and_serves_many_waits() {
        let mut alarm = Alarm::new().expect("a file descriptor is free");
        for wait in [0, 1, 50_000, 300_000, 2_000_000].map(Duration::from_nanos) {
            let began = Instant::now();
            alarm.sleep(wait).await.expect("the kernel takes the span");
            assert!(began.elapsed() >= wait, "{wait:?}");
        }
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_does_not_end_the_next_one() {
        let mut alarm = Alarm::new().expect("a file descriptor is free");
        {
            let mut given_up = std::pin::pin!(alarm.sleep(Duration::from_millis(5)));
            let begin = |context: &mut Context<'_>| Poll::Ready(given_up.as_mut().poll(context));
            assert!(
                std::future::poll_fn(begin).await.is_pending(),
                "the runtime has not looked yet"
            );
        }
        // The timer of the wait that was given up is over now, and its readiness is known.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let (began, wait) = (Instant::now(), Duration::from_millis(30));
        alarm.sleep(wait).await.expect("the kernel takes the span");
        assert!(began.elapsed() >= wait);
    }

    #[tokio::test]
    async fn other_tasks_run_while_it_waits() {
        let mut alarm = Alarm::new().expect("a file descriptor is free");
        let mut turns = 0_u32;
        let others = async {
            loop {
                turns += 1;
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = others => (),
            woken = alarm.sleep(Duration::from_millis(50)) => woken.expect("the kernel takes it"),
        }
        assert!(turns > 1, "{turns}");
    }
}
