//! Operation counters: each worker owns a set that it alone writes, and whoever asks sums them.
//!
//! Invariants: a counter has one writer, therefore an increment is a load and a store without a locked
//! instruction; the sets of two workers never share a cache line. Sums may lag by what the workers are
//! doing right now. `reset` is honoured by remembering the sums at that time, not by writing to
//! counters that belong to others. Called by the dispatcher (increments), stats and metrics (sums).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// One number, written by one thread only.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the worker that owns the set may call it.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// The counters of one worker.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct WorkerCounters {
            $($(#[$doc])* pub $name: Counter,)+
        }

        /// Sums over all workers.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct CounterTotals {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl CounterTotals {
            fn plus(self, worker: &WorkerCounters) -> CounterTotals {
                CounterTotals { $($name: self.$name.wrapping_add(worker.$name.get()),)+ }
            }

            fn since(self, earlier: CounterTotals) -> CounterTotals {
                CounterTotals { $($name: self.$name.wrapping_sub(earlier.$name),)+ }
            }

            /// Name and value of each counter, in declaration order; the names are those of STAT.
            pub fn entries(&self) -> [(&'static str, u64); COUNTERS] {
                [$((stringify!($name), self.$name),)+]
            }
        }

        const COUNTERS: usize = [$(stringify!($name)),+].len();
    };
}

counters! {
    /// Requests that read a document.
    cmd_get,
    /// Requests that write a document's value, counters included.
    cmd_set,
    /// Reads that found the document.
    get_hits,
    /// Reads that did not.
    get_misses,
    /// Deletions that found the document.
    delete_hits,
    /// Deletions that did not.
    delete_misses,
    /// Touch and get-and-touch requests.
    cmd_touch,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Frames served, of any kind.
    cmd_total,
    /// SASL exchanges begun.
    auth_cmds,
    /// SASL exchanges that failed.
    auth_errors,
    /// Connections accepted.
    total_connections,
    /// Connections closed because of what the client sent or did not do.
    closed_for_cause,
    /// Writes that waited for the store.
    durable_writes,
    /// Writes whose acknowledgement became ambiguous.
    durable_ambiguous,
}

/// All workers' counters.
#[derive(Debug)]
pub struct ServerCounters {
    workers: Vec<Arc<WorkerCounters>>,
    baseline: Mutex<CounterTotals>,
}

impl ServerCounters {
    /// One set for each of `workers` workers.
    pub fn new(workers: usize) -> ServerCounters {
        let workers = (0..workers).map(|_| Arc::new(WorkerCounters::default())).collect();
        ServerCounters { workers, baseline: Mutex::new(CounterTotals::default()) }
    }

    /// The set of worker `index`, which that worker alone may write.
    pub fn worker(&self, index: usize) -> Arc<WorkerCounters> {
        Arc::clone(&self.workers[index])
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Sums since the start of the server.
    pub fn totals(&self) -> CounterTotals {
        self.workers.iter().fold(CounterTotals::default(), |sum, worker| sum.plus(worker))
    }

    /// Sums since the last reset, for STAT.
    pub fn totals_since_reset(&self) -> CounterTotals {
        self.totals().since(*self.baseline.lock())
    }

    /// STAT `reset`.
    pub fn reset(&self) {
        *self.baseline.lock() = self.totals();
    }
}

#[cfg(test)]
mod tests {
    use super::ServerCounters;

    #[test]
    fn totals_sum_workers_and_reset_keeps_the_absolute_numbers() {
        let counters = ServerCounters::new(2);
        counters.worker(0).cmd_get.add(3);
        counters.worker(1).cmd_get.add(4);
        counters.reset();
        counters.worker(1).cmd_get.add(5);
        assert_eq!(counters.totals().cmd_get, 12);
        assert_eq!(counters.totals_since_reset().cmd_get, 5);
        assert_eq!(counters.totals().entries()[0], ("cmd_get", 12));
    }
}
