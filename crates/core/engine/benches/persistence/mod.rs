//! Flushing and loading whole buckets over the log store.
//!
//! Owns: the rounds. In each, a bucket is made in a fresh directory; documents of one length are
//! written over 64 vbuckets and flushed a step at a time, then all of them are overwritten once and
//! flushed again, and some one by one; then the bucket is closed in order, the store opened and
//! everything loaded by one thread. A store of several logs is flushed by a thread for each. Prints
//! a JSON object a line: what was measured, length, items, wall time and CPU of all threads.
//! Writing into memory is not measured. Values are incompressible.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use oribi_engine::{Bucket, BucketConfig, MutationOutcome, StoreRequest, WarmupStep};
use oribi_storage::{KvStore, LogOptions, LogStore, SeededRandom};
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

use crate::arguments::{each, number};
use crate::cpu_time;

const VBUCKETS: u16 = 64;
const NOW: Timestamp = Timestamp { unix_ns: 1_700_000_000_000_000_000 };
/// Documents that are written before they are flushed, about what arrives within a flush interval
/// of a busy server.
const ITEMS_PER_FLUSH: usize = 20_000;
/// Documents that are flushed one by one, as durable writes of a single client are.
const SINGLES_MAX: usize = 300;
const NOISE_BYTES: usize = 1 << 20;

struct Options {
    items: usize,
    rounds: usize,
    bytes: Vec<usize>,
    logs: Vec<usize>,
    directory: Option<String>,
}

/// Runs as the arguments say and writes a line for each sample.
pub fn run(arguments: impl Iterator<Item = String>, out: &mut dyn Write) -> Result<(), String> {
    let options = options_of(arguments)?;
    let mut random = SeededRandom::new(1);
    let noise: Vec<u8> = (0..NOISE_BYTES / 8).flat_map(|_| random.number().to_le_bytes()).collect();
    for round in 0..options.rounds {
        let sizes = options.bytes.iter();
        for (bytes, logs) in
            sizes.flat_map(|bytes| options.logs.iter().map(move |logs| (*bytes, *logs)))
        {
            let directory = match &options.directory {
                Some(path) => tempfile::tempdir_in(path),
                None => tempfile::tempdir(),
            };
            let directory = directory.map_err(|error| error.to_string())?;
            let items = options.items;
            let mut sampler = Sampler { out, round, bytes, logs, items };
            sampler.round(directory.path(), &noise)?;
        }
    }
    Ok(())
}

fn options_of(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { items: 500_000, rounds: 3, bytes: vec![512], logs: vec![1], directory: None };
    let list = |value: &str| value.split(',').map(number).collect::<Result<_, _>>();
    each(arguments, |name, value| {
        match name {
            "--items" => options.items = number(value)?,
            "--rounds" => options.rounds = number(value)?,
            "--bytes" => options.bytes = list(value)?,
            "--logs" => options.logs = list(value)?,
            "--directory" => options.directory = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(options)
}

/// One round.
struct Sampler<'r> {
    out: &'r mut dyn Write,
    round: usize,
    bytes: usize,
    logs: usize,
    items: usize,
}

impl Sampler<'_> {
    fn round(&mut self, path: &Path, noise: &[u8]) -> Result<(), String> {
        let path = path.join("store");
        {
            let bucket = bucket(open(&path, self.logs)?, false)?;
            for what in ["insert", "overwrite"] {
                let mut spent = Spent::default();
                let mut written = 0;
                while written < self.items {
                    let next = (written + ITEMS_PER_FLUSH).min(self.items);
                    for number in written..next {
                        store_document(&bucket, number, value(noise, number, self.bytes))?;
                    }
                    written = next;
                    spent.of(|| flush(&bucket))?;
                }
                self.sample(what, self.items, &spent)?;
            }
            let mut spent = Spent::default();
            let singles = self.items.min(SINGLES_MAX);
            for number in 0..singles {
                store_document(&bucket, number, value(noise, number + 1, self.bytes))?;
                spent.of(|| bucket.flush_step().map(drop).map_err(|error| error.to_string()))?;
            }
            self.sample("single", singles, &spent)?;
        }
        let mut opening = Spent::default();
        let mut store = None;
        opening.of(|| {
            store = Some(open(&path, self.logs)?);
            Ok(())
        })?;
        self.sample("open", self.items, &opening)?;
        let bucket = bucket(store.ok_or("opened")?, true)?;
        let mut loading = Spent::default();
        loading.of(|| {
            while !matches!(bucket.warmup_step(), WarmupStep::Done) {}
            Ok(())
        })?;
        let loaded = bucket.stats().items;
        if loaded != self.items {
            return Err(format!("{loaded} of {} documents are there", self.items));
        }
        self.sample("load", self.items, &loading)
    }

    fn sample(&mut self, what: &str, items: usize, spent: &Spent) -> Result<(), String> {
        let Sampler { round, bytes, logs, .. } = self;
        let Spent { wall_ns, cpu_ns } = spent;
        writeln!(
            self.out,
            "{{\"round\":{round},\"what\":\"{what}\",\"size_bytes\":{bytes},\
             \"logs\":{logs},\"items\":{items},\"wall_ns\":{wall_ns},\"cpu_ns\":{cpu_ns}}}"
        )
        .map_err(|error| error.to_string())
    }
}

/// Wall time, and CPU time of the whole process.
#[derive(Default)]
struct Spent {
    wall_ns: u128,
    cpu_ns: u64,
}

impl Spent {
    fn of(&mut self, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let (begun, cpu) = (Instant::now(), cpu_time::process_ns());
        let result = work();
        self.wall_ns += begun.elapsed().as_nanos();
        self.cpu_ns += cpu_time::process_ns().saturating_sub(cpu);
        result
    }
}

fn open(path: &Path, logs: usize) -> Result<Arc<dyn KvStore>, String> {
    let options = LogOptions { logs, ..LogOptions::default() };
    let store = LogStore::open(path, options).map_err(|error| error.to_string())?;
    Ok(Arc::new(store))
}

fn bucket(store: Arc<dyn KvStore>, after_clean_shutdown: bool) -> Result<Arc<Bucket>, String> {
    let config = BucketConfig {
        vbuckets: VBUCKETS,
        memory_quota_bytes: 20 << 30,
        ..BucketConfig::default()
    };
    let mut random = SeededRandom::new(2);
    let entropy = Box::new(move || random.number());
    Bucket::open(config, store, entropy, after_clean_shutdown).map_err(|error| error.to_string())
}

fn value(noise: &[u8], number: usize, bytes: usize) -> &[u8] {
    let from = number * 769 % (noise.len() - bytes.min(noise.len() - 1));
    &noise[from..from + bytes]
}

fn store_document(bucket: &Bucket, number: usize, value: &[u8]) -> Result<(), String> {
    let text = format!("document-{number:012}");
    let key = DocKey { collection: CollectionId::DEFAULT, key: text.as_bytes() };
    let request = StoreRequest::set(value);
    // Over the vbuckets as a hash of the key would spread them.
    let vbid = Vbid((number.wrapping_mul(0x9e37_79b9) >> 12) as u16 % VBUCKETS);
    match bucket.store(vbid, key, &request, NOW) {
        MutationOutcome::Done(_) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Flushes everything, each group of vbuckets by a thread.
fn flush(bucket: &Bucket) -> Result<(), String> {
    let flush_group = |group| {
        let step = || bucket.flusher_step(group, &|| NOW).map_err(|error| error.to_string());
        while step()?.more {}
        Ok(())
    };
    std::thread::scope(|scope| {
        let others =
            (1..bucket.flusher_count()).map(|group| scope.spawn(move || flush_group(group)));
        let others: Vec<_> = others.collect();
        let flushed = flush_group(0);
        let all = others.into_iter().map(|other| other.join().unwrap_or(Err("a panic".into())));
        all.fold(flushed, Result::and)
    })
}
