//! State of `oribi top`: the latest figures, the rates since those before, and their history.
//!
//! Owns rates, history and order; draws nothing. A counter that went back, as after a restart, has
//! the rate 0 until the next look.

use std::collections::{HashMap, VecDeque};

use super::sample::{BucketSample, CollectionSample, Operations, ServerSample, TopSample};

/// Looks that the curve remembers.
const HISTORY_MAX: usize = 240;

/// Order of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum SortKey {
    #[default]
    Ops,
    Items,
    Memory,
    Name,
}

impl SortKey {
    /// The one after it, and the first after the last.
    pub fn next(self) -> SortKey {
        match self {
            SortKey::Ops => SortKey::Items,
            SortKey::Items => SortKey::Memory,
            SortKey::Memory => SortKey::Name,
            SortKey::Name => SortKey::Ops,
        }
    }

    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            SortKey::Ops => "op/s",
            SortKey::Items => "items",
            SortKey::Memory => "memory",
            SortKey::Name => "name",
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Rates {
    pub gets: f64,
    pub sets: f64,
    pub deletes: f64,
    pub touches: f64,
}

impl Rates {
    pub fn total(&self) -> f64 {
        self.gets + self.sets + self.deletes + self.touches
    }

    fn between(before: &Operations, after: &Operations, seconds: f64) -> Rates {
        let rate = |before, after| per_second(before, after, seconds);
        Rates {
            gets: rate(before.gets, after.gets),
            sets: rate(before.sets, after.sets),
            deletes: rate(before.deletes, after.deletes),
            touches: rate(before.touches, after.touches),
        }
    }
}

fn per_second(before: u64, after: u64, seconds: f64) -> f64 {
    match seconds > 0.0 {
        true => after.saturating_sub(before) as f64 / seconds,
        false => 0.0,
    }
}

/// A bucket as it is shown.
#[derive(Clone, Debug)]
pub struct BucketRow {
    /// Its figures; the collections are separate rows.
    pub sample: BucketSample,
    pub rates: Rates,
    /// Part of the reads since the look before that found their document.
    pub hit_ratio: Option<f64>,
    /// Mutations persisted a second.
    pub persisted_rate: f64,
    /// Documents read from the store a second.
    pub fetched_rate: f64,
}

/// A collection as it is shown.
#[derive(Clone, Debug)]
pub struct CollectionRow {
    /// Name of its bucket.
    pub bucket: String,
    pub sample: CollectionSample,
    pub rates: Rates,
}

/// See the module text.
#[derive(Debug, Default)]
pub struct TopModel {
    pub peer: String,
    /// Why nothing new comes, while nothing does.
    pub lost: Option<String>,
    /// Order of both tables.
    pub sort: SortKey,
    /// Rows of the lower table that are scrolled out of sight.
    pub scrolled: usize,
    pub server: ServerSample,
    /// Bytes received a second.
    pub received_rate: f64,
    /// Bytes sent a second.
    pub sent_rate: f64,
    /// Commands a second in the binary, the text and the meta protocol.
    pub protocol_rates: [f64; 3],
    /// Operations a second on all buckets.
    pub rates: Rates,
    /// Part of the reads of all buckets that found their document.
    pub hit_ratio: Option<f64>,
    pub buckets: Vec<BucketRow>,
    pub collections: Vec<CollectionRow>,
    /// Operations a second at each look, the oldest first.
    pub history: VecDeque<u64>,
    previous: Option<TopSample>,
}

impl TopModel {
    /// Nothing yet about the server at `peer`.
    pub fn new(peer: String, sort: SortKey) -> TopModel {
        TopModel { peer, sort, ..TopModel::default() }
    }

    /// True once there are rates, which takes two looks.
    pub fn has_rates(&self) -> bool {
        !self.history.is_empty()
    }

    /// Takes a look into account.
    pub fn update(&mut self, sample: TopSample) {
        self.lost = None;
        // Without a look before there is nothing to compare with, and every rate is 0.
        let previous = self.previous.take();
        let before = previous.as_ref().unwrap_or(&sample);
        let seconds = (sample.at - before.at).as_secs_f64();
        let buckets_before: HashMap<&str, &BucketSample> =
            before.buckets.iter().map(|bucket| (&*bucket.name, bucket)).collect();
        self.buckets.clear();
        self.collections.clear();
        let (mut hits, mut misses) = (0_u64, 0_u64);
        for bucket in &sample.buckets {
            let before = buckets_before.get(&*bucket.name).copied().unwrap_or(bucket);
            let found = bucket.hits.saturating_sub(before.hits);
            let missed = bucket.misses.saturating_sub(before.misses);
            hits = hits.saturating_add(found);
            misses = misses.saturating_add(missed);
            self.buckets.push(bucket_row(before, bucket, seconds, ratio(found, missed)));
            self.add_collections(before, bucket, seconds);
        }
        self.received_rate =
            per_second(before.server.received_bytes, sample.server.received_bytes, seconds);
        self.sent_rate = per_second(before.server.sent_bytes, sample.server.sent_bytes, seconds);
        self.protocol_rates = protocol_rates(&before.server, &sample.server, seconds);
        self.hit_ratio = ratio(hits, misses);
        self.rates = self.buckets.iter().fold(Rates::default(), |sum, row| Rates {
            gets: sum.gets + row.rates.gets,
            sets: sum.sets + row.rates.sets,
            deletes: sum.deletes + row.rates.deletes,
            touches: sum.touches + row.rates.touches,
        });
        if previous.is_some() {
            self.history.push_back(self.rates.total().round() as u64);
            if self.history.len() > HISTORY_MAX {
                self.history.pop_front();
            }
        }
        self.server = sample.server.clone();
        self.previous = Some(sample);
        self.sort();
    }

    /// Says that the server cannot be asked. Its rates are unknown until it can for two looks.
    pub fn lose(&mut self, reason: String) {
        self.lost = Some(reason);
        self.previous = None;
    }

    /// Sorts by another key.
    pub fn sort_by(&mut self, key: SortKey) {
        self.sort = key;
        self.sort();
    }

    /// Moves the lower table by `rows`, within its length.
    pub fn scroll(&mut self, rows: isize) {
        let last = self.collections.len().saturating_sub(1);
        self.scrolled = self.scrolled.saturating_add_signed(rows).min(last);
    }

    /// Documents, bytes of memory, of quota, queued mutations, change streams and what they have
    /// still to send, of all buckets.
    pub fn sums(&self) -> [u64; 6] {
        let sum = |figure: fn(&BucketSample) -> u64| {
            self.buckets.iter().fold(0, |sum: u64, row| sum.saturating_add(figure(&row.sample)))
        };
        [
            sum(|bucket| bucket.items),
            sum(|bucket| bucket.memory_bytes),
            sum(|bucket| bucket.quota_bytes),
            sum(|bucket| bucket.queue_items),
            sum(|bucket| bucket.streams),
            sum(|bucket| bucket.stream_lag),
        ]
    }

    fn add_collections(&mut self, before: &BucketSample, bucket: &BucketSample, seconds: f64) {
        let collections_before: HashMap<&str, &CollectionSample> =
            before.collections.iter().map(|collection| (&*collection.path, collection)).collect();
        self.collections.extend(bucket.collections.iter().map(|collection| {
            let before = collections_before.get(&*collection.path).copied().unwrap_or(collection);
            CollectionRow {
                bucket: bucket.name.clone(),
                sample: collection.clone(),
                rates: Rates::between(&before.operations, &collection.operations, seconds),
            }
        }));
    }

    /// The largest first; names the other way round, and as they are where nothing else decides.
    fn sort(&mut self) {
        let key = self.sort;
        self.buckets.sort_by(|a, b| {
            let order = match key {
                SortKey::Ops => b.rates.total().total_cmp(&a.rates.total()),
                SortKey::Items => b.sample.items.cmp(&a.sample.items),
                SortKey::Memory => b.sample.memory_bytes.cmp(&a.sample.memory_bytes),
                SortKey::Name => std::cmp::Ordering::Equal,
            };
            order.then_with(|| a.sample.name.cmp(&b.sample.name))
        });
        self.collections.sort_by(|a, b| {
            let order = match key {
                SortKey::Ops => b.rates.total().total_cmp(&a.rates.total()),
                SortKey::Items => b.sample.items.cmp(&a.sample.items),
                SortKey::Memory => b.sample.memory_bytes.cmp(&a.sample.memory_bytes),
                SortKey::Name => std::cmp::Ordering::Equal,
            };
            order.then_with(|| (&a.bucket, &a.sample.path).cmp(&(&b.bucket, &b.sample.path)))
        });
    }
}

fn protocol_rates(before: &ServerSample, after: &ServerSample, seconds: f64) -> [f64; 3] {
    let text = per_second(before.text_commands, after.text_commands, seconds);
    let meta = per_second(before.meta_commands, after.meta_commands, seconds);
    let all = per_second(before.commands, after.commands, seconds);
    [(all - text - meta).max(0.0), text, meta]
}

fn bucket_row(
    before: &BucketSample,
    bucket: &BucketSample,
    seconds: f64,
    hit_ratio: Option<f64>,
) -> BucketRow {
    BucketRow {
        rates: Rates::between(&before.operations, &bucket.operations, seconds),
        persisted_rate: per_second(before.persisted, bucket.persisted, seconds),
        fetched_rate: per_second(before.fetched, bucket.fetched, seconds),
        hit_ratio,
        sample: BucketSample { collections: Vec::new(), ..bucket.clone() },
    }
}

fn ratio(hits: u64, misses: u64) -> Option<f64> {
    let all = hits.saturating_add(misses);
    (all > 0).then(|| hits as f64 / all as f64)
}

#[cfg(test)]
pub mod tests;
