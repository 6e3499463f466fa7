//! Rates of two looks, order, and servers that come back with smaller counters.

use std::time::{Duration, Instant};

use super::*;

/// A look at `seconds` after `start`, with counters that grow by the second.
pub fn sample(start: Instant, seconds: u64) -> TopSample {
    let bucket = |name: &str, speed: u64| BucketSample {
        name: name.to_owned(),
        operations: Operations {
            gets: 3000 * speed * seconds,
            sets: 1000 * speed * seconds,
            deletes: 0,
            touches: 5 * seconds,
        },
        hits: 2700 * speed * seconds,
        misses: 300 * speed * seconds,
        items: 12_345 * speed,
        memory_bytes: (64 << 20) / speed,
        quota_bytes: 1 << 30,
        queue_items: 17,
        persisted: 900 * speed * seconds,
        fetched: 30 * speed * seconds,
        resident_percent: 40 + 10 * speed,
        dense: 1000 * speed,
        streams: 64 * speed,
        stream_lag: 5 * speed,
        collections: vec![
            collection("_default._default", 0, seconds),
            collection("debian.packages", 1000 * speed, seconds),
        ],
    };
    TopSample {
        at: start + Duration::from_secs(seconds),
        server: ServerSample {
            version: "1.6.0-oribi".to_owned(),
            uptime_s: 3700 + seconds,
            connections: 12,
            received_bytes: 2_000_000 * seconds,
            sent_bytes: 40_000_000 * seconds,
            commands: 13_000 * seconds,
            text_commands: 500 * seconds,
            meta_commands: 20 * seconds,
        },
        buckets: vec![bucket("alpha", 1), bucket("beta", 2)],
    }
}

fn collection(path: &str, speed: u64, seconds: u64) -> CollectionSample {
    CollectionSample {
        path: path.to_owned(),
        operations: Operations { gets: speed * seconds, ..Operations::default() },
        items: 10_000_u64.saturating_sub(speed),
        memory_bytes: speed * 1024,
    }
}

fn names(model: &TopModel) -> Vec<&str> {
    model.buckets.iter().map(|row| &*row.sample.name).collect()
}

#[test]
fn rates_are_those_between_two_looks() {
    let start = Instant::now();
    let mut model = TopModel::new("db:11210".to_owned(), SortKey::Ops);
    model.update(sample(start, 10));
    assert!(!model.has_rates());
    assert_eq!((model.rates, model.hit_ratio), (Rates::default(), None));
    model.update(sample(start, 12));
    assert!(model.has_rates());
    let rates = Rates { gets: 9000.0, sets: 3000.0, deletes: 0.0, touches: 10.0 };
    assert_eq!(model.rates, rates);
    assert_eq!(model.hit_ratio, Some(0.9));
    assert_eq!((model.received_rate, model.sent_rate), (2e6, 4e7));
    assert_eq!(model.buckets[0].persisted_rate, 1800.0);
    assert_eq!(model.buckets[0].fetched_rate, 60.0);
    assert_eq!(model.sums(), [37_035, 96 << 20, 2 << 30, 34, 192, 15]);
    assert_eq!(model.history, [12_010]);
    assert_eq!(model.collections[0].rates.gets, 2000.0);
}

#[test]
fn tables_follow_the_key() {
    let start = Instant::now();
    let mut model = TopModel::new("db:11210".to_owned(), SortKey::default());
    model.update(sample(start, 0));
    model.update(sample(start, 1));
    assert_eq!(names(&model), ["beta", "alpha"]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        model.sort_by(model.sort.next());
        seen.push((model.sort.name(), names(&model)[0].to_owned()));
    }
    let seen: Vec<(&str, &str)> = seen.iter().map(|(key, name)| (*key, &**name)).collect();
    let expected = [("items", "beta"), ("memory", "alpha"), ("name", "alpha"), ("op/s", "beta")];
    assert_eq!(seen, expected);
    let first = |model: &TopModel| model.collections[0].sample.path.clone();
    assert_eq!(first(&model), "debian.packages");
    model.sort_by(SortKey::Items);
    assert_eq!(first(&model), "_default._default");
}

#[test]
fn a_restart_shows_no_nonsense() {
    let start = Instant::now();
    let mut model = TopModel::new("db:11210".to_owned(), SortKey::Ops);
    model.update(sample(start, 100));
    model.update(sample(start, 101));
    let mut younger = sample(start, 1);
    younger.at = start + Duration::from_secs(102);
    model.update(younger);
    assert_eq!(model.rates.total(), 0.0, "the counters began anew");
    model.lose("connection refused".to_owned());
    assert!(model.lost.is_some());
    model.update(sample(start, 103));
    assert_eq!((model.lost.as_ref(), model.rates.total()), (None, 0.0));
    model.update(sample(start, 104));
    assert_eq!(model.rates.total(), 12_010.0);
}

#[test]
fn a_new_bucket_has_no_rate_yet() {
    let start = Instant::now();
    let mut model = TopModel::new("db:11210".to_owned(), SortKey::Name);
    let mut first = sample(start, 100);
    first.buckets.remove(0);
    model.update(first);
    model.update(sample(start, 101));
    assert_eq!(names(&model), ["alpha", "beta"]);
    assert_eq!(model.buckets[0].rates.total(), 0.0);
    assert!(model.buckets[1].rates.total() > 0.0);
}

#[test]
fn history_and_scrolling_are_bounded() {
    let start = Instant::now();
    let mut model = TopModel::new("db:11210".to_owned(), SortKey::Name);
    for seconds in 0..1000 {
        model.update(sample(start, seconds));
    }
    assert_eq!(model.history.len(), HISTORY_MAX);
    model.scroll(-5);
    assert_eq!(model.scrolled, 0);
    model.scroll(100);
    assert_eq!(model.scrolled, model.collections.len() - 1);
}
