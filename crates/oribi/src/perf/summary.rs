//! What a run found: one document, for programs as JSON and for people as tables.

pub mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::cpu::CpuTime;
use super::options::{Distribution, KvArgs};
use super::tally::{Counts, Latencies, describe_status};
use super::thread_times::ThreadTimes;
use super::timeline::Sample;
use super::value::Corruption;
use crate::target::Durability;

/// Percentiles that are reported.
const PERCENTILES: [(&str, f64); 7] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p95", 95.0),
    ("p99", 99.0),
    ("p99_9", 99.9),
    ("p99_99", 99.99),
];

/// A phase as it was measured.
pub struct Measured {
    /// Counts.
    pub counts: Counts,
    /// Latencies.
    pub latencies: Latencies,
    /// From its start to the last answer.
    pub took: Duration,
    /// CPU time of this process.
    pub client_cpu: CpuTime,
    /// CPU time of the server, if its process was named.
    pub server_cpu: Option<CpuTime>,
    /// CPU time of the server's threads, if its process was named and the system tells.
    pub server_threads: Option<ThreadTimes>,
    /// Throughput over time.
    pub timeline: Vec<Sample>,
}

/// The whole run. Field names are part of the interface: scripts read them.
#[derive(Serialize, Debug)]
pub struct Summary {
    /// Version of this program.
    pub version: &'static str,
    /// What was asked for.
    pub options: Options,
    /// Nodes that documents were on.
    pub nodes: Vec<String>,
    /// Writing every document, if that was done.
    pub population: Option<PhaseSummary>,
    /// Reading and writing, if that was done.
    pub load: Option<PhaseSummary>,
    /// A phase had operations and none of them succeeded: the run has failed.
    pub all_failed: bool,
    /// Misses, wrong values and refused operations: the run has failed if there are any.
    pub problems: u64,
    /// The first problems in words.
    pub examples: Vec<String>,
    /// Ctrl-C ended it.
    pub interrupted: bool,
    /// What ended it before its time.
    pub error: Option<String>,
}

/// The options that a result depends on.
#[derive(Serialize, Debug)]
pub struct Options {
    items: u64,
    batch_size: u32,
    num_threads: u64,
    connections_per_thread: u64,
    min_size: u64,
    max_size: u64,
    set_pct: u8,
    collections: Vec<String>,
    distribution: Distribution,
    zipf_exponent: Option<f64>,
    sequential: bool,
    rate_limit: Option<u64>,
    open_loop: bool,
    json_documents: bool,
    random_body: bool,
    compress: bool,
    durability: Durability,
    expiry: u32,
    key_digits: u8,
    random_seed: u64,
    memcached: bool,
}

impl Options {
    /// The options of a run.
    pub fn new(args: &KvArgs) -> Options {
        let zipf_exponent = match args.popularity() {
            super::key_choice::Popularity::Zipf(exponent) => Some(exponent),
            _ => None,
        };
        Options {
            items: args.items,
            batch_size: args.batch_size,
            num_threads: args.num_threads,
            connections_per_thread: args.connections_per_thread,
            min_size: args.min_size,
            max_size: args.max_size,
            set_pct: args.set_pct,
            collections: args.collections(),
            distribution: args.distribution,
            zipf_exponent,
            sequential: args.sequential,
            rate_limit: args.rate_limit,
            open_loop: args.open_loop,
            json_documents: args.json_documents,
            random_body: args.random_body,
            compress: args.compress,
            durability: args.durability,
            expiry: args.expiry,
            key_digits: args.key_digits,
            random_seed: args.random_seed,
            memcached: args.memcached,
        }
    }
}

/// One phase.
#[derive(Serialize, Debug)]
pub struct PhaseSummary {
    /// From its start to the last answer.
    pub seconds: f64,
    /// Operations that were answered.
    pub operations: u64,
    /// The same per second.
    pub operations_per_second: f64,
    /// Reads.
    pub gets: u64,
    /// Writes.
    pub sets: u64,
    /// Reads that found a document.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Writes that were stored.
    pub stored: u64,
    /// Values that were not what was written, by kind.
    pub corrupt: BTreeMap<&'static str, u64>,
    /// Refusals by status in words, those that were tried again included.
    pub refused: BTreeMap<String, u64>,
    /// Times that the server asked to try again and that was done.
    pub retries: u64,
    /// Operations given up after as many retries as were allowed.
    pub given_up: u64,
    /// Operations whose answer was not waited for.
    pub unanswered: u64,
    /// Bytes of values read.
    pub read_bytes: u64,
    /// Bytes of values written.
    pub written_bytes: u64,
    /// Values read and written, in megabytes (10^6 bytes) per second.
    pub megabytes_per_second: f64,
    /// Latencies of reads and writes together.
    pub latency_us: LatencySummary,
    /// Of reads.
    pub get_latency_us: LatencySummary,
    /// Of writes.
    pub set_latency_us: LatencySummary,
    /// CPU time of this process.
    pub client_cpu_ns_per_operation: Option<CpuSummary>,
    /// CPU time of the server's process, if it was named.
    pub server_cpu_ns_per_operation: Option<CpuSummary>,
    /// CPU time of the server's threads by the name of the thread, exact to the nanosecond.
    pub server_thread_cpu_ns_per_operation: Option<BTreeMap<String, f64>>,
    /// Throughput over time.
    pub timeline: Vec<Sample>,
}

/// Latencies in microseconds.
#[derive(Serialize, Debug)]
pub struct LatencySummary {
    /// Operations.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// By percentile.
    #[serde(flatten)]
    pub percentiles: BTreeMap<&'static str, f64>,
    /// Largest.
    pub max: f64,
}

/// CPU time per operation, in nanoseconds.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct CpuSummary {
    /// In the program itself.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
    /// Both.
    pub total: f64,
}

impl PhaseSummary {
    /// Sums a phase up.
    pub fn new(measured: &Measured) -> PhaseSummary {
        let Measured { counts, latencies, took, .. } = measured;
        let seconds = took.as_secs_f64();
        let per_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
        let operations = counts.operations();
        let mut refused = BTreeMap::new();
        for (&status, &count) in &counts.refused {
            *refused.entry(describe_status(status)).or_default() += count;
        }
        let corrupt = Corruption::ALL.map(|kind| (kind.name(), counts.corrupt[kind as usize]));
        PhaseSummary {
            seconds,
            operations,
            operations_per_second: per_second(operations),
            gets: counts.gets,
            sets: counts.sets,
            hits: counts.hits,
            misses: counts.misses,
            stored: counts.stored,
            corrupt: corrupt.into_iter().collect(),
            refused,
            retries: counts.retries,
            given_up: counts.given_up,
            unanswered: counts.unanswered,
            read_bytes: counts.read_bytes,
            written_bytes: counts.written_bytes,
            megabytes_per_second: per_second(counts.read_bytes + counts.written_bytes) / 1e6,
            latency_us: LatencySummary::new(&latencies.all()),
            get_latency_us: LatencySummary::new(&latencies.get),
            set_latency_us: LatencySummary::new(&latencies.set),
            client_cpu_ns_per_operation: CpuSummary::new(measured.client_cpu, operations),
            server_cpu_ns_per_operation: measured
                .server_cpu
                .and_then(|cpu| CpuSummary::new(cpu, operations)),
            server_thread_cpu_ns_per_operation: measured
                .server_threads
                .as_ref()
                .filter(|_| operations > 0)
                .map(|threads| threads.ns_per(operations)),
            timeline: measured.timeline.clone(),
        }
    }
}

impl PhaseSummary {
    /// Operations that were refused and not tried again.
    pub fn refused_operations(&self) -> u64 {
        self.operations - self.hits - self.misses - self.stored - self.given_up
    }
}

impl LatencySummary {
    fn new(histogram: &Histogram<u64>) -> LatencySummary {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let percentile = |(name, percent)| (name, micros(histogram.value_at_percentile(percent)));
        LatencySummary {
            count: histogram.len(),
            min: micros(histogram.min()),
            mean: histogram.mean() / 1000.0,
            percentiles: PERCENTILES.map(percentile).into_iter().collect(),
            max: micros(histogram.max()),
        }
    }
}

impl CpuSummary {
    fn new(cpu: CpuTime, operations: u64) -> Option<CpuSummary> {
        if operations == 0 {
            return None;
        }
        let per_operation = |time: Duration| time.as_nanos() as f64 / operations as f64;
        let (user, system) = (per_operation(cpu.user), per_operation(cpu.system));
        Some(CpuSummary { user, system, total: user + system })
    }
}

#[cfg(test)]
mod tests;
