//! The benches, tiny, so that they cannot rot. What they measure here is looked at for shape only.

#[path = "../benches/measure.rs"]
mod measure;
#[path = "../benches/send/mod.rs"]
mod send;

use std::process::ExitCode;

use measure::Bench;
use serde_json::Value;

fn run(bench: Bench, arguments: &str) -> (ExitCode, Vec<u8>) {
    let mut lines = Vec::new();
    let code = measure::run(bench, arguments.split(' ').map(str::to_owned), &mut lines);
    (code, lines)
}

fn samples(bench: Bench) -> Vec<Value> {
    let arguments = "--rounds 2 --sizes 3000,70000 --sample-bytes 140000 --bench";
    let (code, lines) = run(bench, arguments);
    assert_eq!(code, ExitCode::SUCCESS);
    let lines = std::str::from_utf8(&lines).expect("lines are text");
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

fn count(samples: &[Value], field: &str, value: &str) -> usize {
    samples.iter().filter(|sample| sample[field] == value).count()
}

#[test]
fn sending_runs() {
    let samples = samples(send::run);
    for way in ["copy", "gather", "adaptive"] {
        assert_eq!(count(&samples, "way", way), 4, "{way}");
    }
    for sample in &samples {
        let number = |field: &str| sample[field].as_u64().expect("a number");
        assert!(number("cpu_ns") > 0, "{sample}");
        assert!(number("values") * number("size_bytes") >= 140_000, "{sample}");
    }
}

#[test]
fn wrong_options_measure_nothing() {
    for arguments in ["--round 2", "--sizes 3000,x", "--rounds", "--sample-bytes -1"] {
        let (code, lines) = run(send::run, arguments);
        assert_eq!(code, ExitCode::FAILURE, "{arguments}");
        assert!(lines.is_empty(), "{arguments}");
    }
}
