//! Sub-document operations by span beside the naive way, and JSON detection, in processor time.
//!
//! The naive way parses the document into serde_json's tree, looks up or edits there and prints.
//! Without `--bench`, as under `cargo test`, everything runs once and tiny, and both ways have to
//! agree.
//!
//! `cargo bench -p oribi-subdoc --bench subdoc [-- --rounds N]` prints one JSON object for each
//! sample.

#[path = "subdoc/documents.rs"]
mod documents;
#[path = "subdoc/ways.rs"]
mod ways;

use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How much processor time one sample should take.
const SAMPLE: Duration = Duration::from_millis(20);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let after = arguments.iter().skip_while(|argument| *argument != "--rounds").nth(1);
    let rounds = match is_bench {
        true => after.map_or(9, |rounds| rounds.parse().expect("a number stands behind --rounds")),
        false => 1,
    };
    for round in 0..rounds {
        for size in [1 << 10, 100 << 10] {
            operations(size, round, is_bench);
        }
        detection(round, is_bench);
    }
}

/// Get and counter on a document of about `size` bytes, by both ways in turn.
fn operations(size: usize, round: usize, is_bench: bool) {
    let document = documents::records(size);
    for place in ["first", "middle", "last"] {
        let path = documents::path_of_count(&document, place);
        ways::check_agreement(&document, &path);
        let ways: [(&str, &str, &dyn Fn() -> usize); 4] = [
            ("get", "span", &|| ways::get_by_span(&document, &path)),
            ("get", "tree", &|| ways::get_by_tree(&document, &path)),
            ("counter", "span", &|| ways::count_by_span(&document, &path).len()),
            ("counter", "tree", &|| ways::count_by_tree(&document, &path).len()),
        ];
        for (work, way, run) in ways {
            let nanos = nanos_of(run, is_bench);
            println!(
                "{{\"bench\":\"subdoc\",\"work\":\"{work}\",\"way\":\"{way}\",\"place\":\"{place}\",\"size_bytes\":{},\"round\":{round},\"ns\":{nanos:.1}}}",
                document.len(),
            );
        }
    }
}

/// Is it JSON: the checker of this crate beside serde_json's.
fn detection(round: usize, is_bench: bool) {
    for (kind, document) in documents::kinds() {
        let ways: [(&str, &dyn Fn() -> usize); 2] = [
            ("check", &|| usize::from(oribi_subdoc::json::is_json(black_box(&document)))),
            ("serde_json", &|| usize::from(ways::is_json_by_serde(black_box(&document)))),
        ];
        for (way, run) in ways {
            assert_eq!(run(), 1, "{kind} is JSON");
            let nanos = nanos_of(run, is_bench);
            println!(
                "{{\"bench\":\"json\",\"work\":\"{kind}\",\"way\":\"{way}\",\"size_bytes\":{},\"round\":{round},\"ns\":{nanos:.1}}}",
                document.len(),
            );
        }
    }
}

/// Processor time of one run, from as many as make a sample.
fn nanos_of(run: &dyn Fn() -> usize, is_bench: bool) -> f64 {
    let mut count = 1u32;
    loop {
        let started = processor_time();
        for _ in 0..count {
            black_box(run());
        }
        let taken = processor_time() - started;
        if !is_bench || taken >= SAMPLE {
            return taken.as_nanos() as f64 / f64::from(count);
        }
        count *= 2;
    }
}

/// Processor time of this thread: other programs do not count.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
