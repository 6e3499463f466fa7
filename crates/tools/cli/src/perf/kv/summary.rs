//! Result of a run: one document, for programs as JSON and for people as tables.

pub mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::options::KvArgs;
use super::tally::{KvCounts, describe_status};
use super::value::Corruption;
use crate::perf::cpu::CpuTime;
use crate::perf::key_choice::Popularity;
use crate::perf::report::LatencySummary;
use crate::perf::timeline::TimelineSample;
use crate::perf::workers::PhaseMeasurements;

/// The whole run. Field names are part of the interface: scripts read them.
#[derive(Serialize, Debug)]
pub struct KvSummary {
    /// Version of this program.
    pub version: &'static str,
    pub options: Value,
    /// Nodes that documents were on.
    pub nodes: Vec<String>,
    /// Writing every document, if that was done.
    pub population: Option<KvPhaseSummary>,
    /// Reading and writing, if that was done.
    pub load: Option<KvPhaseSummary>,
    /// A phase had operations and none of them succeeded: the run has failed.
    pub all_failed: bool,
    /// Misses, wrong values and refused operations: the run has failed if there are any.
    pub problems: u64,
    /// The first problems in words.
    pub examples: Vec<String>,
    pub interrupted: bool,
    /// Reason of an early end.
    pub error: Option<String>,
}

/// The options that a result depends on.
pub fn options(args: &KvArgs) -> Value {
    let zipf_exponent = match args.popularity() {
        Popularity::Zipf(exponent) => Some(exponent),
        _ => None,
    };
    json!({
        "items": args.items,
        "batch_size": args.batch_size,
        "num_threads": args.num_threads,
        "connections_per_thread": args.connections_per_thread,
        "min_size": args.min_size,
        "max_size": args.max_size,
        "set_pct": args.set_pct,
        "collections": args.collections(),
        "distribution": args.distribution,
        "zipf_exponent": zipf_exponent,
        "sequential": args.sequential,
        "rate_limit": args.rate_limit,
        "open_loop": args.open_loop,
        "json_documents": args.json_documents,
        "random_body": args.random_body,
        "compress": args.compress,
        "durability": args.durability,
        "expiry": args.expiry,
        "key_digits": args.key_digits,
        "random_seed": args.random_seed,
        "memcached": args.memcached,
        "protocol": args.protocol,
        "keys_per_get": args.keys_per_get,
    })
}

#[derive(Serialize, Debug)]
pub struct KvPhaseSummary {
    /// From its start to the last answer.
    pub seconds: f64,
    /// Operations that were answered.
    pub operations: u64,
    /// The same per second.
    pub operations_per_second: f64,
    pub gets: u64,
    pub sets: u64,
    /// Reads that found a document.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Writes that were stored.
    pub stored: u64,
    /// Values that differ from the written ones, by kind.
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
    pub get_latency_us: LatencySummary,
    pub set_latency_us: LatencySummary,
    /// CPU time of this process.
    pub client_cpu_ns_per_operation: Option<CpuSummary>,
    /// CPU time of the server's process, if it was named.
    pub server_cpu_ns_per_operation: Option<CpuSummary>,
    /// CPU time of the server's threads by the name of the thread, exact to the nanosecond.
    pub server_thread_cpu_ns_per_operation: Option<BTreeMap<String, f64>>,
    pub timeline: Vec<TimelineSample>,
}

/// CPU time per operation, in nanoseconds.
#[derive(Serialize, Clone, Copy, Debug)]
pub struct CpuSummary {
    /// In the program itself.
    pub user: f64,
    pub system: f64,
    pub total: f64,
}

impl KvPhaseSummary {
    /// Sums a phase up.
    pub fn new(counts: &KvCounts, measured: &PhaseMeasurements) -> KvPhaseSummary {
        let (operations, latencies) = (counts.operations(), &measured.latencies);
        let mut refused = BTreeMap::new();
        for (&status, &count) in &counts.refused {
            *refused.entry(describe_status(status)).or_default() += count;
        }
        let corrupt = Corruption::ALL.map(|kind| (kind.name(), counts.corrupt[kind as usize]));
        KvPhaseSummary {
            seconds: measured.took.as_secs_f64(),
            operations,
            operations_per_second: measured.per_second(operations),
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
            megabytes_per_second: measured.per_second(counts.read_bytes + counts.written_bytes)
                / 1e6,
            latency_us: LatencySummary::in_micros(&latencies.all()),
            get_latency_us: LatencySummary::in_micros(&latencies.read),
            set_latency_us: LatencySummary::in_micros(&latencies.write),
            client_cpu_ns_per_operation: CpuSummary::new(measured.usage.client, operations),
            server_cpu_ns_per_operation: measured
                .usage
                .server
                .and_then(|cpu| CpuSummary::new(cpu, operations)),
            server_thread_cpu_ns_per_operation: measured
                .usage
                .server_threads
                .as_ref()
                .filter(|_| operations > 0)
                .map(|threads| threads.ns_per(operations)),
            timeline: measured.timeline.clone(),
        }
    }

    /// Operations that were refused and not tried again.
    pub fn refused_operations(&self) -> u64 {
        self.operations - self.hits - self.misses - self.stored - self.given_up
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
