//! Memory that is kept for its next use goes back to the system when no use comes.
//!
//! Owns: when a period of the arena's kept blocks ends (`block_arena/kept_blocks.rs`), for the
//! whole process, because all buckets share one arena. Every pager calls [`step`]; the first that
//! comes after the end of a period ends it. A burst's memory returns to the system after two
//! periods, and memory that is used again within one stays. The amount returned at once is bounded,
//! so that a pager soon continues its other work.

use std::time::Duration;

use oribi_types::Timestamp;
use parking_lot::Mutex;

use crate::block_arena;

/// Long enough that a client's pause does not cost its memory, short enough that the process soon
/// shrinks after a burst. jemalloc's default is as long.
const PERIOD: Duration = Duration::from_secs(10);
/// Bytes given back in one step: some milliseconds of unmapping.
const STEP_BYTES_MAX: usize = 64 << 20;

static PERIODS: Mutex<Periods> = Mutex::new(Periods { begun: Timestamp::from_unix_s(0) });

/// The period under way.
struct Periods {
    begun: Timestamp,
}

impl Periods {
    /// True when the period is over at `now`; the next one begins then. A clock that was set back
    /// ends it, too.
    fn ends(&mut self, now: Timestamp) -> bool {
        let passed = Duration::from_nanos(now.unix_ns.abs_diff(self.begun.unix_ns));
        let is_over = passed >= PERIOD;
        if is_over {
            self.begun = now;
        }
        is_over
    }
}

/// Ends the period if it is due, and returns some of the unused memory. True when more remains.
pub(crate) fn step(now: Timestamp) -> bool {
    let Some(mut periods) = PERIODS.try_lock() else { return false };
    if periods.ends(now) {
        block_arena::end_period();
    }
    block_arena::release_unwanted(STEP_BYTES_MAX)
}

/// Nothing calls [`step`] any more: gives back everything that is kept.
pub(crate) fn no_step_follows() {
    block_arena::release_kept();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_ends_once_whoever_looks() {
        let mut periods = Periods { begun: Timestamp::from_unix_s(100) };
        let looks = [100, 109, 110, 110, 119, 120, 50, 59, 60];
        let ends = looks.map(|second| periods.ends(Timestamp::from_unix_s(second)));
        assert_eq!(ends, [false, false, true, false, false, true, true, false, true]);
    }
}
