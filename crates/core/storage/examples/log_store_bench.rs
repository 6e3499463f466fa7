//! The log store by itself: cost of a persisted item, of a load, of a start.
//!
//! Owns: the workload (documents of 512 B, half of each incompressible; commits of about ten
//! thousand over all 64 vbuckets, as the flusher makes them; first every key once, then uniformly
//! random overwrites, so that compaction runs) and its report. CPU is that of the whole process,
//! background threads included, without what making the batches takes. Run it with `cargo run
//! --release -p oribi-storage --example log_store_bench -- [--keys N] [--overwrites N] [--packed]
//! [--logs N]`. With several logs, a thread for each commits its part, as flushers do.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use oribi_storage::{
    KvStore, LogOptions, LogStore, Packing, Record, SeededRandom, SeqnoRange, StoreError, VbBatch,
    VbucketState, load_all, unlimited,
};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

const VBUCKETS: usize = 64;
const VALUE_BYTES: usize = 512;
const RECORDS_PER_COMMIT: usize = 10_000;
/// Documents lie in memory at random, as item blocks do: far more than a cache holds.
const BODIES_BYTES: usize = 64 << 20;
/// Unit of the times in `/proc/self/stat`.
const TICK: Duration = Duration::from_millis(10);

struct Options {
    keys: usize,
    overwrites: usize,
    directory: Option<String>,
    packing: Option<Packing>,
    logs: usize,
}

fn main() -> Result<(), StoreError> {
    let options = match options_of(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}");
            std::process::exit(2);
        }
    };
    let directory = match &options.directory {
        Some(path) => tempfile::tempdir_in(path),
        None => tempfile::tempdir(),
    };
    let directory = directory.map_err(|error| StoreError::Io(error.to_string()))?;
    let workload = Workload::new(&options);
    println!(
        "{} keys, {} overwrites, {VALUE_BYTES} B, {RECORDS_PER_COMMIT} a commit",
        options.keys, options.overwrites
    );
    run(&directory.path().join("log"), &workload, &options)
}

fn options_of(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options =
        Options { keys: 1_000_000, overwrites: 2_000_000, directory: None, packing: None, logs: 1 };
    while let Some(argument) = arguments.next() {
        if argument == "--packed" {
            options.packing = Some(Packing::default());
            continue;
        }
        let text = arguments.next().unwrap_or_default();
        let number = || text.parse::<usize>().map_err(|_| format!("{argument} takes a number"));
        match argument.as_str() {
            "--keys" => options.keys = number()?.max(RECORDS_PER_COMMIT),
            "--overwrites" => options.overwrites = number()?,
            "--logs" => options.logs = number()?,
            "--directory" => options.directory = Some(text),
            _ => {
                return Err(
                    "usage: log_store_bench [--keys N] [--overwrites N] [--directory PATH] [--packed] [--logs N]".into(),
                );
            }
        }
    }
    Ok(options)
}

fn run(path: &Path, workload: &Workload, chosen: &Options) -> Result<(), StoreError> {
    let (packing, logs) = (chosen.packing, chosen.logs);
    let options = LogOptions { packing, logs, ..LogOptions::default() };
    let store = LogStore::open(path, options.clone())?;
    workload.write(&store)?;
    let sizes = store.sizes();
    figure("index", sizes.index_bytes as f64 / sizes.keys.max(1) as f64, "B/key");
    figure("garbage", sizes.garbage_bytes as f64 * 100.0 / sizes.log_bytes as f64, "%");
    workload.read(&store)?;
    drop(store);
    for (name, reads_hints) in [("reopen", true), ("reopen without index files", false)] {
        let options = LogOptions { reads_hints, ..options.clone() };
        let begun = Instant::now();
        let store = LogStore::open(path, options)?;
        figure(name, millis(begun.elapsed()), "ms");
        workload.scan_by_seqno(&store, "first scan by seqno", 0)?;
        workload.scan_by_seqno(&store, "second scan by seqno", 0)?;
    }
    Ok(())
}

/// Arguments of every store.
struct Workload {
    keys: Vec<String>,
    bodies: Vec<u8>,
    overwrites: usize,
}

impl Workload {
    fn new(options: &Options) -> Workload {
        let mut random = SeededRandom::new(1);
        let mut bodies = vec![b'x'; BODIES_BYTES];
        for body in bodies.chunks_exact_mut(VALUE_BYTES) {
            for chunk in body[..VALUE_BYTES / 2].chunks_exact_mut(8) {
                chunk.copy_from_slice(&random.number().to_le_bytes());
            }
        }
        let keys = (0..options.keys).map(|_| format!("document-{:016x}", random.number()));
        Workload { keys: keys.collect(), bodies, overwrites: options.overwrites }
    }

    fn write(&self, store: &dyn KvStore) -> Result<(), StoreError> {
        let mut writes = Writes { workload: self, seqnos: [0; VBUCKETS], random: random(2) };
        let all: Vec<usize> = (0..self.keys.len()).collect();
        let inserts = all.chunks(RECORDS_PER_COMMIT).map(<[usize]>::to_vec);
        measure("insert", store, inserts, &mut writes)?;
        let mut random = random(3);
        let mut last_commit = vec![0; self.keys.len()];
        let commits = 1..=self.overwrites / RECORDS_PER_COMMIT;
        let overwrites = commits.map(|commit| {
            let mut chosen = Vec::with_capacity(RECORDS_PER_COMMIT);
            while chosen.len() < RECORDS_PER_COMMIT {
                let key = random.below(self.keys.len() as u64) as usize;
                if std::mem::replace(&mut last_commit[key], commit) != commit {
                    chosen.push(key);
                }
            }
            chosen
        });
        measure("overwrite", store, overwrites, &mut writes)?;
        figure("disk", store.stats().disk_bytes as f64 / (1 << 20) as f64, "MiB");
        Ok(())
    }

    fn read(&self, store: &dyn KvStore) -> Result<(), StoreError> {
        let (begun, cpu) = (Instant::now(), process_cpu());
        let mut visited = 0u64;
        load_all(store, &mut |_, _| {
            visited += 1;
            ControlFlow::Continue(())
        })?;
        figure("load", visited as f64 / begun.elapsed().as_secs_f64(), "items/s");
        figure("load CPU", (process_cpu() - cpu).as_secs_f64() * 1e9 / visited as f64, "ns/item");
        let begun = Instant::now();
        let mut visited = 0u64;
        for vbid in 0..8 {
            store.scan_keys(Vbid(vbid), &mut |_| {
                visited += 1;
                ControlFlow::Continue(())
            })?;
        }
        figure("scan by key", visited as f64 / begun.elapsed().as_secs_f64(), "items/s");
        self.scan_by_seqno(store, "scan by seqno", 0)?;
        self.scan_by_seqno(store, "scan of the last hundredth", 99)?;
        let mut random = random(4);
        let begun = Instant::now();
        let gets = 200_000;
        for _ in 0..gets {
            let number = random.below(self.keys.len() as u64) as usize;
            let key =
                DocKey { collection: CollectionId::DEFAULT, key: self.keys[number].as_bytes() };
            let is_found =
                store.get(Vbid((number % VBUCKETS) as u16), key, &mut unlimited, &mut |_| {})?;
            assert!(is_found, "every key was written");
        }
        figure("get", f64::from(gets) / begun.elapsed().as_secs_f64(), "items/s");
        Ok(())
    }

    /// Scans all vbuckets by seqno, each from so many hundredths of its history on.
    fn scan_by_seqno(
        &self,
        store: &dyn KvStore,
        name: &str,
        hundredths: u64,
    ) -> Result<(), StoreError> {
        let (begun, cpu) = (Instant::now(), thread_cpu());
        let (mut visited, mut last) = (0u64, 0);
        for (vbid, state) in store.vbucket_states()? {
            let from = Seqno(state.high_seqno.0 * hundredths / 100 + 1);
            last = 0;
            let range = SeqnoRange::seqnos(from, Seqno(u64::MAX));
            store.begin_scan(vbid, range)?.resume(&mut unlimited, &mut |record| {
                assert!(record.seqno.0 > last, "seqnos ascend");
                last = record.seqno.0;
                visited += 1;
                ControlFlow::Continue(())
            })?;
        }
        std::hint::black_box(last);
        let cpu = (thread_cpu() - cpu).as_secs_f64();
        figure(name, visited as f64 / begun.elapsed().as_secs_f64(), "items/s");
        figure(&format!("{name}: per core"), visited as f64 / cpu, "items/s");
        figure(&format!("{name}: items"), visited as f64, "");
        Ok(())
    }
}

struct Writes<'w> {
    workload: &'w Workload,
    seqnos: [u64; VBUCKETS],
    random: SeededRandom,
}

impl<'w> Writes<'w> {
    fn batches(&mut self, chosen: &[usize]) -> Vec<VbBatch<'w>> {
        let mut records: Vec<Vec<Record<'w>>> = vec![Vec::new(); VBUCKETS];
        for number in chosen {
            let vbid = number % VBUCKETS;
            self.seqnos[vbid] += 1;
            let body = self.random.below((BODIES_BYTES / VALUE_BYTES) as u64) as usize;
            let value = &self.workload.bodies[body * VALUE_BYTES..][..VALUE_BYTES];
            let key = self.workload.keys[*number].as_bytes();
            records[vbid].push(record(self.seqnos[vbid], key, value));
        }
        let numbered = records.into_iter().zip(0..);
        let batch = |(records, vbid)| VbBatch {
            vbid: Vbid(vbid),
            records,
            state: state(self.seqnos[usize::from(vbid)]),
        };
        numbered.map(batch).collect()
    }
}

/// Commits and reports. Each group of vbuckets has a thread that commits it; the first one has this
/// thread.
fn measure(
    name: &str,
    store: &dyn KvStore,
    commits: impl Iterator<Item = Vec<usize>>,
    writes: &mut Writes<'_>,
) -> Result<(), StoreError> {
    let groups = store.properties().commit_groups;
    let cpu = process_cpu();
    let mut making = Duration::ZERO;
    let mut items = 0;
    let mut latencies = Vec::new();
    let mut commits = commits;
    std::thread::scope(|scope| {
        let committers: Vec<_> = (1..groups)
            .map(|_| {
                let (parts, received) = sync_channel::<Vec<VbBatch<'_>>>(0);
                let (results, answers) = sync_channel(0);
                scope.spawn(move || {
                    let mut commits = received.iter().map(|part| store.commit(&part));
                    commits.try_for_each(|result| results.send(result))
                });
                (parts, answers)
            })
            .collect();
        loop {
            let begun = thread_cpu();
            let Some(chosen) = commits.next() else { return Ok(()) };
            items += chosen.len();
            let mut parts: Vec<Vec<VbBatch<'_>>> = (0..groups).map(|_| Vec::new()).collect();
            for batch in writes.batches(&chosen) {
                parts[usize::from(batch.vbid.0) % groups].push(batch);
            }
            making += thread_cpu() - begun;
            let begun = Instant::now();
            let mut parts = parts.into_iter();
            let own = parts.next().unwrap_or_default();
            for (part, (committer, _)) in parts.zip(&committers) {
                committer.send(part).expect("a committer ends after this one");
            }
            store.commit(&own)?;
            for (_, answers) in &committers {
                answers.recv().expect("a committer answers")?;
            }
            latencies.push(begun.elapsed());
        }
    })?;
    let cpu = (process_cpu() - cpu).saturating_sub(making);
    if items == 0 {
        return Ok(());
    }
    let total: Duration = latencies.iter().sum();
    latencies.sort();
    let at = |percent: usize| millis(latencies[(latencies.len() - 1) * percent / 100]);
    figure(&format!("{name}: rate"), items as f64 / total.as_secs_f64(), "items/s");
    figure(&format!("{name}: CPU"), cpu.as_secs_f64() * 1e9 / items as f64, "ns/item");
    figure(&format!("{name}: commit p50"), at(50), "ms");
    figure(&format!("{name}: commit p99"), at(99), "ms");
    figure(&format!("{name}: commit max"), at(100), "ms");
    Ok(())
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
        expired: false,
    }
}

fn state(high_seqno: u64) -> VbucketState {
    VbucketState {
        high_seqno: Seqno(high_seqno),
        max_cas: Cas(high_seqno),
        ..VbucketState::empty()
    }
}

fn random(seed: u64) -> SeededRandom {
    SeededRandom::new(seed)
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("{name:<28} {value:>14.2} {unit}");
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// CPU time of the process, zero where the system does not say.
fn process_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may have spaces; it ends with the last parenthesis.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// CPU time of this thread, zero where the system does not say.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
