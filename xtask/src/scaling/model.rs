//! Throughput of a number of cores that share lines and locks.
//!
//! Owns: a closed queueing network, solved by mean value analysis (Reiser and Lavenberg, 1980). The
//! cores are its customers. Each spends most of an operation with itself; each shared line and each
//! lock is a station where one core at a time is served. Serving is the time that the line takes to
//! move there, and for a lock also the time that it is held.

use super::trace::{Lines, SharedLine, SharedLock};

/// One load on one machine.
pub struct Workload<'a> {
    lines: &'a Lines,
    /// An operation of a core that shares nothing.
    alone_ns: f64,
    transfer_ns: f64,
}

/// What so many cores do together.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    pub cores: usize,
    pub per_second: f64,
    /// Time that one core takes for an operation.
    pub busy_ns: f64,
}

impl<'a> Workload<'a> {
    pub fn new(lines: &'a Lines, alone_ns: f64, transfer_ns: f64) -> Workload<'a> {
        Workload { lines, alone_ns, transfer_ns }
    }

    /// Mean value analysis: with one customer nobody waits, and one who comes to a station finds
    /// there what the network has without him.
    pub fn predict(&self, cores: usize) -> Prediction {
        let demands: Vec<f64> = self.demands_ns(cores);
        let think_ns = self.alone_ns * (1.0 - self.lines.held_share());
        let mut queues = vec![0.0; demands.len()];
        let mut cycle_ns = self.alone_ns;
        for customers in 1..=cores {
            let waits = demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue));
            let waits: Vec<f64> = waits.collect();
            cycle_ns = think_ns + waits.iter().sum::<f64>();
            let rate = customers as f64 / cycle_ns;
            queues = waits.iter().map(|wait| rate * wait).collect();
        }
        Prediction { cores, per_second: cores as f64 / cycle_ns * 1e9, busy_ns: cycle_ns }
    }

    /// Time of an operation at each station when nobody waits there.
    fn demands_ns(&self, cores: usize) -> Vec<f64> {
        let others = cores as f64 - 1.0;
        let of_line = |line: &SharedLine| {
            let visits = line.writes + line.reads;
            // Written by this core, it is exclusive until any other visits it; read, it is there
            // until any other writes it.
            let lost_for_write = share(others * visits, line.writes);
            let lost_for_read = share(others * line.writes, visits);
            self.transfer_ns * (line.writes * lost_for_write + line.reads * lost_for_read)
        };
        let of_lock = |lock: &SharedLock| {
            let moved = (lock.taken + lock.lines_under) * others / cores as f64;
            self.transfer_ns * moved + lock.held_share * self.alone_ns
        };
        let lines = self.lines.lines.iter().map(of_line);
        lines.chain(self.lines.locks.iter().map(of_lock)).collect()
    }
}

/// Of two things that happen at these rates, how often the first one was the last.
fn share(first: f64, second: f64) -> f64 {
    if first > 0.0 { first / (first + second) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(lines: &Lines, cores: usize) -> f64 {
        Workload::new(lines, 1000.0, 100.0).predict(cores).per_second
    }

    #[test]
    fn cores_that_share_nothing_add_up() {
        let none = Lines::default();
        assert!((rate(&none, 128) / rate(&none, 1) - 128.0).abs() < 1e-6);
    }

    #[test]
    fn lines_that_are_only_read_cost_nothing() {
        let read = SharedLine { writes: 0.0, reads: 5.0 };
        let lines = Lines { lines: vec![read], ..Lines::default() };
        assert!((rate(&lines, 64) / rate(&lines, 1) - 64.0).abs() < 1e-6);
    }

    #[test]
    fn a_line_that_all_write_moves_no_more_often_than_it_can() {
        let hot = SharedLine { writes: 1.0, reads: 0.0 };
        let lines = Lines { lines: vec![hot], ..Lines::default() };
        // One operation moves it, but for one in 128 whose core has it already: 100 ns each.
        assert!(rate(&lines, 128) < 1.01e7);
        assert!(rate(&lines, 128) > 0.95e7);
        assert!(rate(&lines, 2) < 2e6 && rate(&lines, 2) > 1.8e6);
    }

    #[test]
    fn a_lock_is_held_by_one_core_at_a_time() {
        let lock = SharedLock { taken: 1.0, held_share: 0.5, lines_under: 0.0 };
        let lines = Lines { locks: vec![lock], ..Lines::default() };
        assert!((rate(&lines, 1) - 1e6).abs() < 1.0);
        assert!(rate(&lines, 128) < 2e6);
        let spread = SharedLock { taken: 0.01, held_share: 0.005, lines_under: 0.0 };
        let many = Lines { locks: vec![spread; 100], ..Lines::default() };
        assert!(rate(&many, 16) > 10e6, "{}", rate(&many, 16));
    }
}
