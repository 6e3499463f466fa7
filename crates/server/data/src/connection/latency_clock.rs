//! The clock that times commands.
//!
//! Below the driver, only this clock is read. Tests use a clock that steps.

use std::cell::Cell;
use std::time::Instant;

/// Measures the duration of a command.
pub(crate) enum LatencyClock {
    System(Instant),
    /// Advances by a step with each reading, for tests.
    Stepping {
        now_ns: Cell<u64>,
        step_ns: u64,
    },
}

impl LatencyClock {
    /// Nanoseconds since an arbitrary start.
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::System(start) => u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
            Self::Stepping { now_ns, step_ns } => {
                now_ns.set(now_ns.get().wrapping_add(*step_ns));
                now_ns.get()
            }
        }
    }
}
