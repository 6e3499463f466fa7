//! What a GET costs inside the engine when its neighbours in the pipeline are announced, and when
//! not.
//!
//! Fills a bucket over a memory store with documents, then reads random ones in batches as a
//! pipelined connection does and copies each value into an output block. No socket, no protocol.
//! Prints nanoseconds per GET: the median of many short slices, with and without announcing,
//! interleaved. Arguments: documents (default 1,000,000) and bytes per value (default 512).

use std::sync::Arc;
use std::time::Instant;

use oribi_engine::{
    Bucket, BucketConfig, EvictionPolicy, MutationOutcome, ReadSection, SharedOutcome, Storage,
    StoreRequest,
};
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

const VBUCKETS: u16 = 64;
const BATCH: usize = 100;
const SLICE_BATCHES: usize = 200;
const SLICES: usize = 60;
const NOW: Timestamp = Timestamp { unix_ns: 1_700_000_000_000_000_000 };

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let items = numbers.next().unwrap_or(1_000_000);
    let value_bytes = numbers.next().unwrap_or(512);
    let bucket = filled(items, value_bytes);
    let mut random = 0x9e37_79b9_7f4a_7c15;
    let distances = [0, 4, 8, 12, 16, 24];
    let mut samples = distances.map(|_| Vec::with_capacity(SLICES));
    for _ in 0..SLICES {
        for (distance, samples) in distances.iter().zip(&mut samples) {
            samples.push(slice(&bucket, items, value_bytes, &mut random, *distance));
        }
    }
    for (distance, samples) in distances.iter().zip(&mut samples) {
        println!("{distance:3} keys announced ahead: {:4.0} ns/GET", median(samples));
    }
}

fn key_text(number: usize) -> String {
    format!("key-{number:012}")
}

fn document(key: &str) -> (Vbid, DocKey<'_>) {
    let vbid = Vbid(
        (key.as_bytes().iter().fold(0_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(*byte))
            % u32::from(VBUCKETS)) as u16,
    );
    (vbid, DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() })
}

fn filled(items: usize, value_bytes: usize) -> Arc<Bucket> {
    let config = BucketConfig {
        vbuckets: VBUCKETS,
        memory_quota_bytes: 20 << 30,
        storage: Storage::Memory,
        eviction: EvictionPolicy::None,
        ..BucketConfig::default()
    };
    let mut next = 1;
    let entropy = Box::new(move || {
        next += 1;
        next
    });
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy, false).expect("opens");
    let value = vec![b'x'; value_bytes];
    for number in 0..items {
        let text = key_text(number);
        let (vbid, key) = document(&text);
        let request = StoreRequest::set(&value);
        let outcome = bucket.store(vbid, key, &request, NOW);
        assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
    }
    bucket
}

fn slice(bucket: &Bucket, items: usize, value_bytes: usize, random: &mut u64, ahead: usize) -> f64 {
    let keys: Vec<String> = (0..BATCH * SLICE_BATCHES)
        .map(|_| {
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            key_text((*random % items as u64) as usize)
        })
        .collect();
    let mut out = Vec::with_capacity(256 << 10);
    let item_bytes = value_bytes + 64;
    let begun = Instant::now();
    for batch in keys.chunks(BATCH) {
        out.clear();
        let mut announced = Vec::with_capacity(BATCH);
        let mut located = 0;
        let section = ReadSection::open();
        for (number, text) in batch.iter().enumerate() {
            while ahead > 0 && announced.len() < batch.len().min(number + ahead) {
                let (vbid, key) = document(&batch[announced.len()]);
                announced.push(bucket.announce(vbid, key).expect("a vbucket of the map"));
            }
            while located < announced.len().min(number + ahead.div_ceil(2)) {
                bucket.locate(&section, &announced[located], item_bytes);
                located += 1;
            }
            let (vbid, key) = document(text);
            let ahead = match announced.get(number) {
                Some(ahead) => *ahead,
                None => bucket.hash(vbid, key).expect("a vbucket of the map"),
            };
            let SharedOutcome::Hit(item) = bucket.get_shared(&section, ahead, key, NOW) else {
                panic!("a small document is in memory");
            };
            out.extend_from_slice(item.value());
        }
    }
    begun.elapsed().as_nanos() as f64 / keys.len() as f64
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
