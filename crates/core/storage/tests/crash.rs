//! SIGKILL at random points: what was acknowledged is there, and no batch is there in part.
//!
//! The test binary starts itself again as a child that commits numbered batches and writes the
//! number of each acknowledged one to its standard output. The parent kills it, opens the store
//! and checks. A kill does not lose what the system has not written to the disk yet, so this
//! tests atomicity and replay, and not whether a sync reaches the disk.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use oribi_storage::{
    KvStore, LogOptions, LogStore, MemoryStore, Record, SeededRandom, StoreError, VbBatch,
    VbucketState,
};
use oribi_types::{Cas, CollectionId, Datatype, DocKey, RevSeqno, Seqno, Vbid};

/// Directory of the store; its presence makes a process the child.
const CHILD_DIRECTORY: &str = "ORIBI_CRASH_CHILD_DIRECTORY";
/// Name of a store that has two logs.
const OF_TWO_LOGS: &str = "of-two";
const CYCLES: u64 = 12;
const SEED: u64 = 1;
const VBUCKETS: u16 = 3;
/// Keys that each batch writes anew, so that a partial batch shows as a mixture.
const SHARED_KEYS: u64 = 20;
/// Seqnos of a batch: the shared keys and its own key.
const SEQNOS_PER_BATCH: u64 = SHARED_KEYS + 1;

/// With small segments, so that they are sealed and compacted while the child is killed. A new
/// store has as many logs as the name of its directory says.
fn open(path: &Path) -> LogStore {
    let logs = if path.ends_with(OF_TWO_LOGS) { 2 } else { 1 };
    let options = LogOptions { logs, segment_bytes: 128 << 10, ..LogOptions::default() };
    LogStore::open(path, options).expect("the store opens")
}

/// The key and value of a batch's records; some values are large enough for blob files.
fn entries(number: u64) -> Vec<(String, Vec<u8>)> {
    let body = |key: &str, bytes: usize| {
        let mut body = format!("{number}:{key}:").into_bytes();
        body.resize(body.len() + bytes, number as u8);
        body
    };
    let mut entries: Vec<(String, Vec<u8>)> = (0..SHARED_KEYS)
        .map(|key| format!("shared-{key}"))
        .map(|key| (key.clone(), body(&key, 200)))
        .collect();
    let own = format!("own-{number}");
    let bytes = if number.is_multiple_of(7) { 30_000 } else { 10 };
    entries.push((own.clone(), body(&own, bytes)));
    entries
}

/// Commits batch `number` to every vbucket as one group.
fn commit(store: &dyn KvStore, number: u64) -> Result<(), StoreError> {
    let entries = entries(number);
    let first_seqno = number * SEQNOS_PER_BATCH;
    let records: Vec<Record<'_>> = entries
        .iter()
        .zip(first_seqno..)
        .map(|((key, value), seqno)| Record {
            key: DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() },
            value,
            cas: Cas(number),
            seqno: Seqno(seqno),
            rev_seqno: RevSeqno(number),
            flags: 0,
            expiry: 0,
            datatype: Datatype::RAW,
            deleted: false,
            expired: false,
        })
        .collect();
    let state = VbucketState {
        high_seqno: Seqno(first_seqno + SEQNOS_PER_BATCH - 1),
        max_cas: Cas(number),
        ..VbucketState::empty()
    };
    let batch = |vbid| VbBatch { vbid: Vbid(vbid), records: records.clone(), state: state.clone() };
    store.commit(&(0..VBUCKETS).map(batch).collect::<Vec<_>>())
}

/// Number of the last batch of each vbucket, by its state.
fn last_batches(store: &dyn KvStore) -> Result<BTreeMap<Vbid, u64>, StoreError> {
    let states = store.vbucket_states()?;
    Ok(states.into_iter().map(|(vbid, state)| (vbid, state.max_cas.0)).collect())
}

/// Checks that everything up to `acknowledged` is there and that no batch is there in part.
/// Returns the highest batch found.
fn check(store: &dyn KvStore, acknowledged: u64) -> Result<u64, String> {
    let last = last_batches(store).map_err(|error| error.to_string())?;
    for vbid in (0..VBUCKETS).map(Vbid) {
        let number = last.get(&vbid).copied().unwrap_or(0);
        if number < acknowledged {
            return Err(format!("{vbid} ends with {number}, {acknowledged} was acknowledged"));
        }
        let mut expected = BTreeMap::new();
        for batch in 1..=number {
            let numbered = entries(batch).into_iter().zip(batch * SEQNOS_PER_BATCH..);
            expected.extend(numbered.map(|((key, value), seqno)| (key, (value, seqno))));
        }
        let mut found = BTreeMap::new();
        let scanned = store.scan_keys(vbid, &mut |record| {
            let key = String::from_utf8_lossy(record.key.key).into_owned();
            found.insert(key, (record.value.to_vec(), record.seqno.0));
            ControlFlow::Continue(())
        });
        scanned.map_err(|error| error.to_string())?;
        if found != expected {
            let keys: Vec<&String> = expected
                .keys()
                .filter(|key| found.get(*key) != expected.get(*key))
                .chain(found.keys().filter(|key| !expected.contains_key(*key)))
                .collect();
            return Err(format!("{vbid} ends with {number}, but these differ: {keys:?}"));
        }
    }
    Ok(last.into_values().max().unwrap_or(0))
}

/// Not a test by itself: what the child does until it is killed.
#[test]
fn child_commits_until_killed() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
    let store = open(Path::new(&directory));
    let last = last_batches(&store).expect("the states are readable");
    // A group may have reached some vbuckets only; it was not acknowledged and is written again.
    let of_vbucket = |vbid| last.get(&Vbid(vbid)).copied().unwrap_or(0);
    let mut number = (0..VBUCKETS).map(of_vbucket).min().unwrap_or(0);
    loop {
        number += 1;
        commit(&store, number).expect("the store commits");
        // Not println!, which the test harness would keep to itself.
        let mut output = std::io::stdout();
        let line = format!("\nacknowledged {number}\n");
        output.write_all(line.as_bytes()).and_then(|()| output.flush()).expect("the parent reads");
    }
}

fn start_child(directory: &Path) -> (Child, Receiver<u64>) {
    let program = std::env::current_exe().expect("a running test has a path");
    let mut child = Command::new(program)
        .args(["--exact", "child_commits_until_killed", "--nocapture"])
        .env(CHILD_DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = BufReader::new(child.stdout.take().expect("the output is piped"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let numbers = output.lines().map_while(Result::ok);
        for number in numbers.filter_map(|line| line.strip_prefix("acknowledged ")?.parse().ok()) {
            if sender.send(number).is_err() {
                break;
            }
        }
    });
    (child, receiver)
}

#[test]
fn acknowledged_batches_survive_sigkill() {
    survives_sigkill("store");
}

#[test]
fn acknowledged_batches_of_all_logs_survive_sigkill() {
    survives_sigkill(OF_TWO_LOGS);
}

fn survives_sigkill(name: &str) {
    let mut random = SeededRandom::new(oribi_testkit::seed(SEED));
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let path = directory.path().join(name);
    let (mut acknowledged, mut committed) = (0, 0);
    for cycle in 0..CYCLES {
        let (mut child, receiver) = start_child(&path);
        // The first children die while the store is being made, the later ones while committing.
        let batches = if cycle < 4 { 0 } else { 1 + random.below(60) };
        for _ in 0..batches {
            let number = receiver.recv_timeout(Duration::from_secs(60));
            acknowledged = number.expect("the child commits within a minute");
        }
        let patience = Duration::from_micros(random.below(30_000));
        if let Ok(number) = receiver.recv_timeout(patience) {
            acknowledged = number;
        }
        child.kill().expect("the child can be killed");
        child.wait().expect("the child can be waited for");
        // What it acknowledged before it died is still in the pipe.
        acknowledged = receiver.iter().last().unwrap_or(acknowledged);
        let store = open(&path);
        committed = check(&store, acknowledged).unwrap_or_else(|text| panic!("{cycle}: {text}"));
    }
    assert!(committed > 0 && acknowledged > 0, "no child ever committed");
}

#[test]
fn the_checker_finds_lost_and_partial_batches() {
    let store = MemoryStore::new();
    for number in 1..=5 {
        commit(&store, number).expect("the store commits");
    }
    assert_eq!(check(&store, 5), Ok(5));
    assert!(check(&store, 6).is_err(), "an acknowledged batch is missing");
    let states = store.vbucket_states().expect("the states are readable");
    let (vbid, state) = states.into_iter().next().expect("there is a vbucket");
    let value = entries(6).remove(3);
    let part = Record {
        key: DocKey { collection: CollectionId::DEFAULT, key: value.0.as_bytes() },
        value: &value.1,
        cas: Cas(6),
        seqno: Seqno(6 * SEQNOS_PER_BATCH + 3),
        rev_seqno: RevSeqno(6),
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        deleted: false,
        expired: false,
    };
    let batch = VbBatch { vbid, records: vec![part], state };
    store.commit(&[batch]).expect("the store commits");
    assert!(check(&store, 5).is_err(), "a part of batch 6 is there");
}
