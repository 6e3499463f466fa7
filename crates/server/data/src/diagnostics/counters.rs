//! Operation counters: each worker owns sets that it alone writes; readers sum them.
//!
//! There is one set per worker ([`WorkerCounters`]: bytes, connections, logins) and one per worker
//! and bucket ([`OperationCounters`], in `bucket`: document operations, also per collection, and
//! sampled latencies).
//!
//! Invariants: a counter has one writer, so an increment is a load and a store without a locked
//! instruction; the sets of two workers never share a cache line. Sums may lag behind the
//! operations that are in progress. `reset` remembers the current sums instead of writing to
//! counters of other threads. Callers: the dispatcher (increments), stats and metrics (sums).

pub mod bucket;
pub mod collections;
pub mod timings;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// One number, written by one thread only.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the thread that owns the counter may call it.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Replaces the number. Only the thread that owns the counter may call it.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number as of a moment ago.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counter_set {
    ($(#[$set_doc:meta])* $set:ident, $(#[$totals_doc:meta])* $totals:ident, $length:ident, {
        $($(#[$doc:meta])* $name:ident),+ $(,)?
    }) => {
        $(#[$set_doc])*
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $set {
            $($(#[$doc])* pub $name: Counter,)+
        }

        $(#[$totals_doc])*
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct $totals {
            $($(#[$doc])* pub $name: u64,)+
        }

        const $length: usize = [$(stringify!($name)),+].len();

        impl $totals {
            /// The sum with one worker's set.
            pub fn plus(self, worker: &$set) -> $totals {
                $totals { $($name: self.$name.wrapping_add(worker.$name.get()),)+ }
            }

            /// The sum of two sums.
            pub fn and(self, other: $totals) -> $totals {
                $totals { $($name: self.$name.wrapping_add(other.$name),)+ }
            }

            pub fn since(self, earlier: $totals) -> $totals {
                $totals { $($name: self.$name.wrapping_sub(earlier.$name),)+ }
            }

            /// Name and value of each counter, in declaration order; STAT uses the same names.
            pub fn entries(&self) -> [(&'static str, u64); $length] {
                [$((stringify!($name), self.$name),)+]
            }
        }
    };
}

counter_set! {
    /// Counters of one worker that belong to no bucket.
    WorkerCounters,
    /// Sums over all workers.
    CounterTotals, WORKER_COUNTERS, {
        bytes_read,
        bytes_written,
        /// Frames served, of any kind.
        cmd_total,
        /// Of these, commands of memcached's text protocol; each key of a `get` is one.
        cmd_text,
        /// Of these, meta commands.
        cmd_meta,
        auth_cmds,
        /// SASL exchanges that failed.
        auth_errors,
        total_connections,
        /// Connections closed because of the client's input or inactivity.
        closed_for_cause,
        /// Of these, connections that were idle for too long.
        closed_idle,
        /// Of these, connections whose client did not read its answers.
        closed_slow_reader,
        tls_handshakes,
        /// TLS handshakes that failed.
        tls_handshake_failures,
    }
}

impl CounterTotals {
    /// Commands by the protocol that their clients speak.
    pub fn by_protocol(&self) -> [(&'static str, u64); 3] {
        let (text, meta) = (self.cmd_text, self.cmd_meta);
        // The sums are of several moments.
        let binary = self.cmd_total.saturating_sub(text.saturating_add(meta));
        [("binary", binary), ("text", text), ("meta", meta)]
    }
}

counter_set! {
    /// Counters of one worker for the documents of one bucket.
    OperationCounters,
    /// Sums over all workers, for one bucket or for all of them.
    OperationTotals, OPERATION_COUNTERS, {
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
        /// Deletions that found no document.
        delete_misses,
        /// Increments that succeeded, creation of the counter included.
        incr_hits,
        /// Increments of a missing document that were not allowed to create it.
        incr_misses,
        /// Decrements that succeeded, creation of the counter included.
        decr_hits,
        /// Decrements of a missing document that were not allowed to create it.
        decr_misses,
        /// Writes with a CAS that succeeded.
        cas_hits,
        /// Writes with a CAS to a missing document.
        cas_misses,
        /// Writes with a CAS that did not match the document's.
        cas_badval,
        /// Touch and get-and-touch requests.
        cmd_touch,
        /// Of these, requests that succeeded.
        touch_hits,
        /// Of these, requests for a missing document.
        touch_misses,
        /// Requests to lock a document.
        cmd_lock,
        /// Requests refused because the document was locked.
        lock_errors,
        /// Requests to unlock a document that was not locked.
        unlock_errors,
        /// Documents stored with their metadata.
        ep_num_ops_set_meta,
        /// Documents deleted with metadata.
        ep_num_ops_del_meta,
        /// Writes with metadata that were not newer than the stored document.
        ep_num_ops_set_meta_res_fail,
        /// Deletions with metadata that were not newer than the stored document.
        ep_num_ops_del_meta_res_fail,
        cmd_flush,
        /// Writes that waited for the store.
        durable_writes,
        /// Writes whose acknowledgement became ambiguous.
        durable_ambiguous,
        /// Requests refused because the memory quota was exhausted.
        ep_oom_errors,
        /// Requests refused with "try again later".
        ep_tmp_oom_errors,
    }
}

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
        assert!(index < self.workers.len(), "a worker has its counters");
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

    pub fn reset(&self) {
        *self.baseline.lock() = self.totals();
    }
}

#[cfg(test)]
mod tests {
    use super::ServerCounters;

    #[test]
    fn totals_sum_workers_and_survive_a_reset() {
        let counters = ServerCounters::new(2);
        counters.worker(0).bytes_read.add(3);
        counters.worker(1).bytes_read.add(4);
        counters.reset();
        counters.worker(1).bytes_read.add(5);
        assert_eq!(counters.totals().bytes_read, 12);
        assert_eq!(counters.totals_since_reset().bytes_read, 5);
        assert_eq!(counters.totals().entries()[0], ("bytes_read", 12));
    }
}
