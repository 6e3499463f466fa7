//! Micro benchmark of the embedded store: open, durable commits, scans, reopening.
//!
//! Owns: the workload (records of 512 B, half of it incompressible, in group commits over several
//! vbuckets as a flusher makes them) and its report. Figures are for comparison within one machine
//! and one run. Run it with
//! `cargo run --release -p oribi-storage --example store_bench -- [--records N] [--json]`.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use oribi_storage::{
    FjallOptions, FjallStore, KvStore, Record, SeededRandom, StoreError, VbBatch, VbucketState,
};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

const VBUCKETS: u64 = 64;
const VALUE_BYTES: usize = 512;
const RECORDS_PER_COMMIT: u64 = 1000;
/// Vbuckets that share a group commit.
const VBUCKETS_PER_COMMIT: u64 = 4;

/// New stores that are made and closed again, because one alone says little about syncs.
const EMPTY_OPENS: usize = 9;

struct Options {
    records: u64,
    json: bool,
    store: FjallOptions,
}

/// One line of the report.
struct Figure {
    name: &'static str,
    unit: &'static str,
    value: f64,
}

fn main() -> Result<(), StoreError> {
    let options = match options_of(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            std::process::exit(2);
        }
    };
    let directory = tempfile::tempdir().map_err(|error| StoreError::Io(error.to_string()))?;
    let figures = measure(directory.path(), &options)?;
    if options.json {
        let fields: Vec<String> = figures
            .iter()
            .map(|figure| format!("\"{}\":{:.3}", figure.name, figure.value))
            .collect();
        println!("{{{}}}", fields.join(","));
    } else {
        for figure in &figures {
            println!("{:<28} {:>14.2} {}", figure.name, figure.value, figure.unit);
        }
    }
    Ok(())
}

fn options_of(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { records: 500_000, json: false, store: FjallOptions::default() };
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("{argument} takes a number"))
        };
        match argument.as_str() {
            "--json" => options.json = true,
            "--records" => options.records = number()?.max(RECORDS_PER_COMMIT),
            "--memtable-mib" => options.store.memtable_bytes = number()? << 20,
            "--worker-threads" => options.store.worker_threads = number()? as usize,
            _ => {
                return Err("usage: store_bench [--records N] [--memtable-mib N] \
                            [--worker-threads N] [--json]"
                    .into());
            }
        }
    }
    Ok(options)
}

fn measure(path: &Path, options: &Options) -> Result<Vec<Figure>, StoreError> {
    let mut figures = Vec::new();
    let mut add = |name, unit, value| figures.push(Figure { name, unit, value });
    let mut opens = Vec::new();
    for number in 0..EMPTY_OPENS {
        let start = Instant::now();
        let store = FjallStore::open(&path.join(number.to_string()), options.store.clone())?;
        opens.push(start.elapsed());
        drop(store);
    }
    opens.sort();
    add("open_empty_min", "ms", millis(opens[0]));
    add("open_empty_median", "ms", millis(opens[EMPTY_OPENS / 2]));
    let path = &path.join("loaded");
    let store = FjallStore::open(path, options.store.clone())?;
    add("threads_open", "", status("Threads"));
    add("rss_open", "MiB", status("VmRSS") / 1024.0);
    drop(store);
    let start = Instant::now();
    let store = FjallStore::open(path, options.store.clone())?;
    add("reopen_empty", "ms", millis(start.elapsed()));

    let (commits, latencies) = commit_all(&store, options.records)?;
    let total: Duration = latencies.iter().sum();
    let records = (commits * RECORDS_PER_COMMIT) as f64;
    add("commit_rate", "records/s", records / total.as_secs_f64());
    add("commit_p50", "ms", millis(latencies[latencies.len() / 2]));
    add("commit_p99", "ms", millis(latencies[latencies.len() * 99 / 100]));
    add("commit_max", "ms", millis(latencies[latencies.len() - 1]));
    add("rss_loaded", "MiB", status("VmRSS") / 1024.0);
    add("disk_loaded", "MiB", store.stats().disk_bytes as f64 / (1 << 20) as f64);
    drop(store);

    let start = Instant::now();
    let store = FjallStore::open(path, options.store.clone())?;
    add("reopen_loaded", "ms", millis(start.elapsed()));
    let start = Instant::now();
    let mut visited = 0u64;
    for vbid in 0..VBUCKETS {
        store.scan_keys(Vbid(vbid as u16), &mut |_| {
            visited += 1;
            ControlFlow::Continue(())
        })?;
    }
    add("scan_keys_rate", "records/s", visited as f64 / start.elapsed().as_secs_f64());
    let start = Instant::now();
    let mut visited = 0u64;
    for vbid in 0..8 {
        store.scan_seqnos(Vbid(vbid), Seqno(0), Seqno(u64::MAX), &mut |_| {
            visited += 1;
            ControlFlow::Continue(())
        })?;
    }
    add("scan_seqnos_rate", "records/s", visited as f64 / start.elapsed().as_secs_f64());
    Ok(figures)
}

/// Commits the records in groups and returns how many groups there were and their times, sorted.
fn commit_all(store: &FjallStore, records: u64) -> Result<(u64, Vec<Duration>), StoreError> {
    let mut random = SeededRandom::new(1);
    let mut seqnos = [0u64; VBUCKETS as usize];
    let mut latencies = Vec::new();
    let commits = records / RECORDS_PER_COMMIT;
    let value: Vec<u8> = (0..VALUE_BYTES / 2).map(|_| random.number() as u8).collect();
    for commit in 0..commits {
        let mut documents = Vec::new();
        for _ in 0..RECORDS_PER_COMMIT {
            let number = random.number();
            let mut body = value.clone();
            body.resize(VALUE_BYTES, b'x');
            // Fresh noise in half of the body, so that it compresses about two to one.
            for chunk in body[..VALUE_BYTES / 2].chunks_exact_mut(8) {
                chunk.copy_from_slice(&random.number().to_le_bytes());
            }
            documents.push((format!("document-{number:016x}"), body));
        }
        let mut batches = Vec::new();
        let share = (RECORDS_PER_COMMIT / VBUCKETS_PER_COMMIT) as usize;
        for (part, documents) in documents.chunks(share).enumerate() {
            let vbid = (commit * VBUCKETS_PER_COMMIT + part as u64) % VBUCKETS;
            let seqno = &mut seqnos[vbid as usize];
            let records = documents.iter().map(|(key, body)| {
                *seqno += 1;
                record(*seqno, key.as_bytes(), body)
            });
            let records: Vec<Record<'_>> = records.collect();
            batches.push(VbBatch { vbid: Vbid(vbid as u16), records, state: state(*seqno) });
        }
        let start = Instant::now();
        store.commit(&batches)?;
        latencies.push(start.elapsed());
    }
    latencies.sort();
    Ok((commits, latencies))
}

fn record<'a>(seqno: u64, key: &'a [u8], value: &'a [u8]) -> Record<'a> {
    Record {
        key: DocKey { collection: CollectionId::DEFAULT, key },
        value,
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        rev_seqno: RevSeqno(1),
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        deleted: false,
    }
}

fn state(high_seqno: u64) -> VbucketState {
    VbucketState {
        high_seqno: Seqno(high_seqno),
        max_cas: Cas(high_seqno),
        ..VbucketState::empty()
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A number of this process's status file, 0 where the system has none.
fn status(field: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0.0)
}
