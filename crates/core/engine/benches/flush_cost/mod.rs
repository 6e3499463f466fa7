//! Cost of a persisted document, one JSON object a line.
//!
//! Documents are queued first, in every vbucket in turn, and flushed after, so that no writer is in
//! the way. `store` is `none` for one that takes every commit and keeps nothing: the rest is the
//! engine's work to read the queue, to build records and to free them. `log` is the real one, in a
//! directory under the system's temporary one. `cpu_ns` is the time of the flushing
//! thread alone, `process_cpu_ns` that of all threads; both and `wall_ns` are by item.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use oribi_engine::{Bucket, BucketConfig, EvictionPolicy, MutationOutcome, StoreRequest};
use oribi_storage::testing::NullStore;
use oribi_storage::{KvStore, LogStore, StoreError};
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};

use crate::arguments::{each, number};
use crate::cpu_time;

struct Options {
    items: usize,
    vbuckets: u16,
    bytes: usize,
    rounds: usize,
    stores: Vec<String>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let stores = ["none", "log"].map(str::to_owned).to_vec();
        let mut options = Options { items: 400_000, vbuckets: 64, bytes: 512, rounds: 5, stores };
        each(arguments, |name, value| {
            match name {
                "--items" => options.items = number(value)?.max(1),
                "--vbuckets" => {
                    options.vbuckets =
                        u16::try_from(number(value)?).map_err(|error| error.to_string())?;
                }
                "--bytes" => options.bytes = number(value)?,
                "--rounds" => options.rounds = number(value)?.max(1),
                "--stores" => options.stores = value.split(',').map(str::to_owned).collect(),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

/// Runs every store in turn and writes one line for each round.
pub fn run(arguments: impl Iterator<Item = String>, out: &mut dyn Write) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    for round in 0..options.rounds {
        for name in &options.stores {
            let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
            let store = open_store(name, directory.path())?;
            let cost = measure(&options, store)?;
            let Cost { wall_ns, cpu_ns, process_cpu_ns, commits } = cost;
            writeln!(
                out,
                r#"{{"measure":"flush","store":"{name}","items":{},"vbuckets":{},"size_bytes":{},"round":{round},"commits":{commits},"wall_ns":{wall_ns:.1},"cpu_ns":{cpu_ns:.1},"process_cpu_ns":{process_cpu_ns:.1}}}"#,
                options.items, options.vbuckets, options.bytes,
            )
            .map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn open_store(name: &str, path: &Path) -> Result<Arc<dyn KvStore>, String> {
    let text = |error: StoreError| error.to_string();
    Ok(match name {
        "none" => Arc::new(NullStore),
        "log" => Arc::new(LogStore::open(&path.join("log"), Default::default()).map_err(text)?),
        _ => return Err(format!("there is no store {name}")),
    })
}

struct Cost {
    wall_ns: f64,
    cpu_ns: f64,
    process_cpu_ns: f64,
    commits: usize,
}

fn measure(options: &Options, store: Arc<dyn KvStore>) -> Result<Cost, String> {
    let config = BucketConfig {
        vbuckets: options.vbuckets,
        memory_quota_bytes: 1 << 40,
        value_bytes_max: options.bytes.max(1),
        eviction: EvictionPolicy::None,
        ..BucketConfig::default()
    };
    let mut next = 1_u64;
    let entropy = Box::new(move || {
        next = next.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        next
    });
    let bucket = Bucket::open(config, store, entropy, false).map_err(|error| error.to_string())?;
    fill(&bucket, options)?;
    let (cpu_before, process_before) = (thread_cpu_ns(), cpu_time::process_ns());
    let start = Instant::now();
    let (mut items, mut commits) = (0, 0);
    while items < options.items {
        items += bucket.flush_step().map_err(|error| error.to_string())?.items;
        commits += 1;
    }
    let each = |ns: f64| ns / options.items as f64;
    Ok(Cost {
        wall_ns: each(start.elapsed().as_nanos() as f64),
        cpu_ns: each((thread_cpu_ns() - cpu_before) as f64),
        process_cpu_ns: each(cpu_time::process_ns().saturating_sub(process_before) as f64),
        commits,
    })
}

fn fill(bucket: &Bucket, options: &Options) -> Result<(), String> {
    let value = vec![b'v'; options.bytes];
    for number in 0..options.items {
        let name = format!("key-{number:010}");
        let key = DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() };
        let request = StoreRequest::set(&value);
        let vbid = Vbid((number % usize::from(options.vbuckets)) as u16);
        let stored = bucket.store(vbid, key, &request, Timestamp::from_unix_s(1_700_000_000));
        if !matches!(stored, MutationOutcome::Done(_)) {
            return Err(format!("{name} was not stored: {stored:?}"));
        }
    }
    Ok(())
}

/// Time of this thread on a processor, in nanoseconds; 0 where the system does not tell.
fn thread_cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    schedstat.split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0)
}
