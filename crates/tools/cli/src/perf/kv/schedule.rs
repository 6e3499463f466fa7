//! When operations are due: the arrival times of a load with a fixed rate.
//!
//! Arrivals are evenly spaced over all workers together: the operation with number `k` of worker
//! `w` of `W` is due at `(k * W + w) / rate` seconds. Times are computed from the numbers, never
//! summed up, so no error accumulates however long the run. Does not read a clock.

/// A worker's arrival times, in nanoseconds from the start of the phase.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Operations per second of all workers together.
    rate: u64,
    workers: u64,
    worker: u64,
    taken: u64,
}

impl Schedule {
    /// The schedule of one of `workers` that have `rate` operations per second together. Neither
    /// may be 0.
    pub fn new(rate: u64, worker: usize, workers: usize) -> Schedule {
        Schedule { rate, workers: workers as u64, worker: worker as u64, taken: 0 }
    }

    /// When the operation is due that is taken next.
    pub fn next_due_ns(&self) -> u64 {
        self.due_ns(self.taken)
    }

    /// Takes the next operation if it is due at `now_ns`; returns its due time.
    pub fn take_due(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_due_ns();
        (due_ns <= now_ns).then(|| self.take(1)).map(|()| due_ns)
    }

    /// Takes `operations` whether they are due or not.
    pub fn take(&mut self, operations: u64) {
        self.taken += operations;
    }

    fn due_ns(&self, operation: u64) -> u64 {
        let arrival = u128::from(operation) * u128::from(self.workers) + u128::from(self.worker);
        // 2^64 nanoseconds are 584 years.
        (arrival * 1_000_000_000 / u128::from(self.rate)) as u64
    }
}

#[cfg(test)]
mod tests {
    //! The rate holds exactly, and workers take turns.

    use super::*;

    #[test]
    fn workers_share_the_rate_in_turns() {
        let mut all: Vec<u64> = Vec::new();
        for worker in 0..3 {
            let mut schedule = Schedule::new(1000, worker, 3);
            while let Some(due_ns) = schedule.take_due(999_999_999) {
                all.push(due_ns);
            }
        }
        all.sort_unstable();
        let expected: Vec<u64> = (0..1000).map(|k| k * 1_000_000).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn operations_are_due_on_time_and_all_of_them() {
        let mut schedule = Schedule::new(3, 0, 1);
        assert_eq!(schedule.take_due(0), Some(0));
        assert_eq!(schedule.take_due(333_333_332), None);
        assert_eq!(schedule.next_due_ns(), 333_333_333);
        // After a stall of ten seconds, all thirty that were due come with the times they were due.
        let late: Vec<u64> = std::iter::from_fn(|| schedule.take_due(10_000_000_000)).collect();
        assert_eq!(late.len(), 30);
        assert_eq!(late[29], 10_000_000_000);
    }

    #[test]
    fn no_error_accumulates() {
        let mut schedule = Schedule::new(7, 2, 4);
        schedule.take(7_000_000_000 / 4);
        assert_eq!(schedule.next_due_ns(), 1_000_000_000_285_714_285);
        let mut fast = Schedule::new(1_000_000_000, 0, 1);
        fast.take(u64::MAX / 2);
        assert_eq!(fast.next_due_ns(), u64::MAX / 2);
    }
}
