//! How long a scan waits for streams that take nothing.
//!
//! Owns: the pauses that count. Many wake-ups of a waiting scan mean no progress, above all those
//! of streams that request a backfill. Only a pause of full length counts. So a thousand wake-ups
//! at once, or a process without a processor for a while, count as one pause and drop no stream.
//! Driven by the threads of the bucket, which read the clock.

use std::time::{Duration, Instant};

use super::BackfillPause;

/// Pause of a backfill that waits for a reader, for memory or for a commit.
pub(crate) const BACKFILL_PAUSE: Duration = Duration::from_millis(10);
/// Pauses without progress before a scan drops streams: thirty seconds in all, or one second if
/// streams of other readers wait.
const PAUSES_MAX: u32 = 3000;
const PAUSES_MAX_FOR_OTHERS: u32 = 100;
const _: () = assert!(PAUSES_MAX_FOR_OTHERS < PAUSES_MAX);

/// See the module text.
pub(crate) struct ScanPatience {
    pauses: u32,
    /// The last one that counted, or progress.
    counted: Instant,
}

impl ScanPatience {
    pub(crate) fn new(now: Instant) -> ScanPatience {
        ScanPatience { pauses: 0, counted: now }
    }

    /// True while the scan may pause again.
    pub(crate) fn lasts(&mut self, pause: BackfillPause, now: Instant) -> bool {
        if pause.idle == 0 {
            *self = ScanPatience::new(now);
        } else if now.saturating_duration_since(self.counted) >= BACKFILL_PAUSE {
            (self.pauses, self.counted) = (self.pauses + 1, now);
            debug_assert!(self.pauses <= pause.idle, "a pause counts once");
        }
        self.pauses < if pause.has_waiters { PAUSES_MAX_FOR_OTHERS } else { PAUSES_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pauses until the patience is over, each this long.
    fn pauses(has_waiters: bool, length: Duration, pauses_max: u32) -> u32 {
        let begin = Instant::now();
        let mut patience = ScanPatience::new(begin);
        let is_over = |idle: &u32| {
            let now = begin + length * *idle;
            !patience.lasts(BackfillPause { idle: *idle, has_waiters }, now)
        };
        (0..pauses_max).find(is_over).unwrap_or(pauses_max)
    }

    /// Ten readers opened 64 streams each. Each request woke the scans, and after a hundred
    /// requests the scans dropped streams before these had time to read.
    #[test]
    fn wake_ups_at_once_leave_nothing_behind() {
        assert_eq!(pauses(true, Duration::from_micros(1), 5000), 5000);
        // A hundredth of a pause each: a second, or thirty, is as long as it was.
        let (a_second, thirty) = (pauses(true, BACKFILL_PAUSE / 100, 11_000), 100 * 100);
        assert_eq!(a_second, thirty);
        assert_eq!(pauses(true, BACKFILL_PAUSE, 5000), 100);
        assert_eq!(pauses(false, BACKFILL_PAUSE, 5000), 3000);
    }

    #[test]
    fn a_pause_in_which_the_process_stood_still_is_one() {
        assert_eq!(pauses(true, Duration::from_secs(100), 5000), 100);
    }

    #[test]
    fn progress_begins_anew() {
        let begin = Instant::now();
        let mut patience = ScanPatience::new(begin);
        for number in 1..1000u32 {
            let pause = BackfillPause { idle: number % 100, has_waiters: true };
            assert!(patience.lasts(pause, begin + BACKFILL_PAUSE * number), "{number}");
        }
    }
}
