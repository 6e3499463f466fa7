//! Figures of the last minutes, so that the console opens with charts.
//!
//! Owns: the samples. A sample is the part of each bucket's figures that charts draw, as JSON.
//! Invariants: samples are in order of time and take at most [`FIGURE_HISTORY_BYTES`]; the oldest
//! is removed first; a user sees the buckets whose figures it may see now. Caller: `figures`, which
//! takes a sample every [`SAMPLE_INTERVAL`].

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::limits::FIGURE_HISTORY_BYTES;

/// Time between two samples.
pub(super) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Six minutes, the span of a chart.
const SAMPLES_MAX: usize = 36;
const _: () = assert!(SAMPLES_MAX > 1, "a curve has two samples");

/// Counters that charts draw.
const OPERATIONS: [&str; 6] =
    ["cmd_get", "cmd_set", "cmd_touch", "delete_hits", "get_hits", "get_misses"];

/// A bucket's share of a sample.
struct BucketSample {
    bucket: String,
    json: String,
}

struct Sample {
    unix_ms: u64,
    buckets: Vec<BucketSample>,
}

impl Sample {
    fn bytes(&self) -> usize {
        let of = |one: &BucketSample| {
            size_of::<BucketSample>() + one.bucket.capacity() + one.json.capacity()
        };
        size_of::<Sample>() + self.buckets.iter().map(of).sum::<usize>()
    }
}

#[derive(Default)]
struct Samples {
    samples: VecDeque<Sample>,
    bytes: usize,
}

/// See the module text.
#[derive(Default)]
pub(crate) struct FigureHistory(Mutex<Samples>);

impl FigureHistory {
    /// Adds the figures of all buckets at one time.
    pub(super) fn add(&self, unix_ms: u64, figures: &[Value]) {
        let buckets = figures.iter().map(sample_of).collect();
        let sample = Sample { unix_ms, buckets };
        let mut history = self.0.lock();
        history.bytes += sample.bytes();
        history.samples.push_back(sample);
        while history.samples.len() > SAMPLES_MAX || history.bytes > FIGURE_HISTORY_BYTES {
            let Some(oldest) = history.samples.pop_front() else { break };
            assert!(history.bytes >= oldest.bytes(), "every sample was counted when it was added");
            history.bytes -= oldest.bytes();
        }
        assert!(history.samples.len() <= SAMPLES_MAX, "a curve has so many samples at most");
        debug_assert_eq!(history.bytes == 0, history.samples.is_empty(), "bytes are of samples");
    }

    /// The samples of the buckets that the user sees, oldest first.
    pub(crate) fn list(&self, sees: impl Fn(&str) -> bool) -> Vec<Value> {
        let history = self.0.lock();
        let shown = |sample: &Sample| {
            let seen = sample.buckets.iter().filter(|one| sees(&one.bucket));
            let buckets: Vec<Value> =
                seen.filter_map(|one| serde_json::from_str(&one.json).ok()).collect();
            json!({ "unix_ms": sample.unix_ms, "buckets": buckets })
        };
        history.samples.iter().map(shown).collect()
    }
}

/// The part of a bucket's figures that charts draw.
fn sample_of(figures: &Value) -> BucketSample {
    let operations = OPERATIONS.map(|name| (name.to_owned(), figures["operations"][name].clone()));
    let drawn = json!({
        "name": figures["name"],
        "operations": Value::Object(operations.into_iter().collect()),
        "latencies": figures["latencies"],
        "memory": { "used_bytes": figures["memory"]["used_bytes"] },
        "queue_items": figures["queue_items"],
        "disk_bytes": figures["disk_bytes"],
        "changes": { "lag_s": figures["changes"]["lag_s"] },
    });
    let bucket = figures["name"].as_str().unwrap_or_default().to_owned();
    let mut json = drawn.to_string();
    json.shrink_to_fit();
    BucketSample { bucket, json }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(name: &str) -> Value {
        json!({
            "name": name,
            "operations": { "cmd_get": 7, "bytes_read": 9 },
            "latencies": { "get": [1, 2], "store": [3, 4] },
            "memory": { "used_bytes": 5, "quota_bytes": 6 },
            "queue_items": 0, "disk_bytes": 8, "changes": { "lag_s": 0 },
        })
    }

    #[test]
    fn a_sample_has_what_charts_draw() {
        let history = FigureHistory::default();
        history.add(1, &[figures("a"), figures("b")]);
        let shown = history.list(|bucket| bucket == "b");
        assert_eq!(shown.len(), 1);
        assert_eq!(shown[0]["unix_ms"], 1);
        let [bucket] = shown[0]["buckets"].as_array().unwrap().as_slice() else {
            panic!("one bucket is seen: {shown:?}");
        };
        assert_eq!((&bucket["name"], &bucket["operations"]["cmd_get"]), (&json!("b"), &json!(7)));
        assert_eq!(bucket["operations"].get("bytes_read"), None);
    }

    #[test]
    fn the_oldest_samples_are_removed() {
        let history = FigureHistory::default();
        for unix_ms in 0..SAMPLES_MAX as u64 + 5 {
            history.add(unix_ms, &[figures("a")]);
        }
        let shown = history.list(|_| true);
        assert_eq!((shown.len(), &shown[0]["unix_ms"]), (SAMPLES_MAX, &json!(5)));
    }

    #[test]
    fn many_buckets_shorten_the_history() {
        let history = FigureHistory::default();
        let many: Vec<Value> = (0..1000).map(|number| figures(&format!("b{number}"))).collect();
        for unix_ms in 0..20 {
            history.add(unix_ms, &many);
        }
        let samples = history.list(|_| true).len();
        assert!((1..20).contains(&samples), "{samples} samples");
        assert!(history.0.lock().bytes <= FIGURE_HISTORY_BYTES);
    }
}
