//! Figures are those that were counted, in JSON and in tables.

use super::*;
use crate::perf::cpu::Usage;
use crate::perf::latencies::Latencies;
use crate::perf::thread_times::ThreadTimes;

fn measured() -> (KvCounts, PhaseMeasurements) {
    let mut counts = KvCounts {
        gets: 800,
        sets: 200,
        hits: 790,
        misses: 10,
        stored: 199,
        read_bytes: 3_000_000,
        written_bytes: 1_000_000,
        ..KvCounts::default()
    };
    counts.refuse(0x86);
    counts.corrupt(Corruption::Checksum, || "an example".to_owned());
    let mut latencies = Latencies::new();
    (1..=800).for_each(|n| latencies.read.record(n * 1_000).unwrap());
    latencies.write.record_n(2_000_000, 200).unwrap();
    let cpu = |user, system| CpuTime {
        user: Duration::from_micros(user),
        system: Duration::from_micros(system),
    };
    let usage = Usage {
        client: cpu(150, 100),
        server: Some(cpu(1000, 500)),
        server_threads: Some(ThreadTimes::named([("worker", 1_234_000)])),
    };
    let timeline = vec![TimelineSample { seconds: 2.0, operations_per_second: 500.0 }];
    let took = Duration::from_secs(2);
    (counts, PhaseMeasurements { latencies, took, usage, timeline })
}

fn phase() -> KvPhaseSummary {
    let (counts, measured) = measured();
    KvPhaseSummary::new(&counts, &measured)
}

#[test]
fn figures_are_those_that_were_counted() {
    let json = serde_json::to_value(phase()).unwrap();
    assert_eq!(json["operations"], 1000);
    assert_eq!(json["operations_per_second"], 500.0);
    assert_eq!(json["corrupt"]["wrong_checksum"], 1);
    assert_eq!(json["corrupt"]["wrong_length"], 0);
    assert_eq!(json["refused"]["temporary failure"], 1);
    assert_eq!(json["megabytes_per_second"], 2.0);
    assert_eq!(json["client_cpu_ns_per_operation"]["total"], 250.0);
    assert_eq!(json["server_cpu_ns_per_operation"]["user"], 1000.0);
    assert_eq!(json["server_thread_cpu_ns_per_operation"]["worker"], 1234.0);
    assert_eq!(json["latency_us"]["count"], 1000);
    let median = json["get_latency_us"]["p50"].as_f64().unwrap();
    assert!((median - 400.0).abs() < 1.0, "{median}");
    assert_eq!(json["timeline"][0]["seconds"], 2.0);
}

#[test]
fn tables_show_what_there_is() {
    let phase = phase();
    assert_eq!(phase.refused_operations(), 1);
    let summary = KvSummary {
        version: "1",
        options: options(&crate::perf::kv::options::tests::parse(&[]).unwrap()),
        nodes: Vec::new(),
        population: None,
        load: Some(phase),
        problems: 12,
        all_failed: false,
        examples: Vec::new(),
        interrupted: false,
        error: None,
    };
    let text = summary.tables();
    for part in ["1,000", "250 (150 user, 100 system)", "2.00 ms", "load GET", "load SET"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("population") && !text.contains("given up"), "{text}");
}

#[test]
fn empty_phase_has_no_figures_per_operation() {
    let (_, measured) = measured();
    let measured = PhaseMeasurements { took: Duration::ZERO, ..measured };
    let json = serde_json::to_value(KvPhaseSummary::new(&KvCounts::default(), &measured)).unwrap();
    assert!(json["client_cpu_ns_per_operation"].is_null());
    assert!(json["server_thread_cpu_ns_per_operation"].is_null());
    assert_eq!(json["operations_per_second"], 0.0);
}
