//! Processor time of this process, as the system counts it.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of all threads, those that have ended included.
pub fn process_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
