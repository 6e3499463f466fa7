//! Warmup: in parts and by recency, up to the low watermark, and around damage.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use oribi_engine::{
    Bucket, BucketConfig, EvictionPolicy, FetchOutcome, FetchSink, GetOutcome, MetaOutcome,
    MutationOutcome, OperationRejection, WarmupState, WarmupStep,
};
use oribi_storage::{KvStore, LogOptions, LogStore, MemoryStore};
use oribi_types::{Cas, Vbid};

use super::{NOW, config, done, entropy, key, set};
use crate::operations_by_vbid::OperationsByVbid;

const VBUCKETS: u16 = 4;

fn small_segments() -> LogOptions {
    LogOptions { segment_bytes: 16 << 10, compacts_in_background: false, ..LogOptions::default() }
}

fn open_log(path: &Path) -> Arc<dyn KvStore> {
    Arc::new(LogStore::open(path, small_segments()).expect("the store opens"))
}

fn open(config: BucketConfig, store: Arc<dyn KvStore>) -> Arc<Bucket> {
    Bucket::open(config, store, entropy(), false).expect("the bucket opens")
}

/// Documents `0..count` of each vbucket, their number in front of the value, one vbucket a commit.
fn fill(store: Arc<dyn KvStore>, count: usize, value_bytes: usize) {
    let bucket = open(config(), store);
    for vbid in (0..VBUCKETS).map(Vbid) {
        for number in 0..count {
            let value = format!("{number}-{}", "v".repeat(value_bytes));
            done(bucket.store(vbid, key(&format!("key-{number}")), &set(&value), NOW));
        }
        done(bucket.delete(vbid, key("key-0"), Cas(0), NOW));
        bucket.flush_step().expect("flushed");
    }
}

fn steps(bucket: &Bucket) -> Vec<WarmupStep> {
    let mut steps = Vec::new();
    loop {
        match bucket.warmup_step() {
            WarmupStep::Done => return steps,
            step => steps.push(step),
        }
    }
}

#[test]
fn documents_come_back_from_either_kind_of_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let stores: [Arc<dyn KvStore>; 2] =
        [Arc::new(MemoryStore::new()), open_log(&directory.path().join("log"))];
    for store in stores {
        fill(Arc::clone(&store), 50, 100);
        let bucket = open(config(), store);
        assert!(!bucket.stats().warmup.done);
        assert!(steps(&bucket).iter().all(|step| matches!(step, WarmupStep::Loaded { .. })));
        let warmup = bucket.stats().warmup;
        let all = u64::from(VBUCKETS) * 49;
        assert_eq!((warmup.items, warmup.values, warmup.overtaken), (all, all, 0));
        assert_eq!((warmup.tombstones, warmup.state), (u64::from(VBUCKETS), WarmupState::Done));
        assert_eq!((warmup.vbuckets_done, warmup.failed), (usize::from(VBUCKETS), 0));
        for number in 1..50 {
            let found = bucket.get(Vbid(3), key(&format!("key-{number}")), NOW);
            let GetOutcome::Hit(item) = found else { panic!("{number}: {found:?}") };
            assert!(item.value().starts_with(format!("{number}-").as_bytes()));
        }
        assert!(matches!(bucket.get(Vbid(3), key("key-0"), NOW), GetOutcome::Miss));
    }
}

/// The last writes have their values in memory, the others only their metadata.
#[test]
fn warmup_loads_recent_values_up_to_the_low_watermark() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    fill(open_log(&path), 4000, 400);
    let quota = 4 << 20;
    let tight = BucketConfig { memory_quota_bytes: quota, ..config() };
    let bucket = open(tight, open_log(&path));
    steps(&bucket);
    let stats = bucket.stats();
    let all = u64::from(VBUCKETS) * 3999;
    assert_eq!((stats.warmup.items, stats.warmup.items_estimate), (all, all + 4));
    assert!(stats.warmup.values > all / 10, "{:?}", stats.warmup);
    assert!(stats.warmup.values < all, "{:?}", stats.warmup);
    let find = |vbid| match bucket.get_meta(vbid, key("key-1999"), NOW) {
        MetaOutcome::Found(item, _) => !item.is_evicted(),
        other => panic!("{other:?}"),
    };
    // The vbuckets were written one after the other.
    assert!(find(Vbid(VBUCKETS - 1)), "the newest value is in memory");
    assert!(!find(Vbid(0)), "the oldest value is not");
}

/// A part that begins when memory is full is loaded without values, which a store may then leave
/// out. What is known of such documents is the same, and they are fetched like others.
#[test]
fn metadata_only_items_are_known_like_full_ones() {
    let store: Arc<dyn KvStore> = Arc::new(MemoryStore::new());
    fill(Arc::clone(&store), 1000, 400);
    let tight = BucketConfig { memory_quota_bytes: 256 << 10, ..config() };
    let bucket = open(tight, store);
    steps(&bucket);
    let last = Vbid(VBUCKETS - 1);
    for number in 1..1000 {
        let (name, value) = (format!("key-{number}"), format!("{number}-{}", "v".repeat(400)));
        match bucket.get_meta(last, key(&name), NOW) {
            MetaOutcome::Found(item, _) => {
                assert!(item.is_evicted(), "{name}");
                assert_eq!(item.value_bytes(), value.len(), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        if number % 100 == 0 {
            assert_eq!(get(&bucket, last, &name), (Some(value.into_bytes()), 1));
        }
    }
    assert_eq!(get(&bucket, last, "key-0"), (None, 0), "a miss asks no store");
}

#[test]
fn without_eviction_everything_is_loaded() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    fill(open_log(&path), 1000, 400);
    let eviction = EvictionPolicy::None;
    let tight = BucketConfig { memory_quota_bytes: 1 << 20, eviction, ..config() };
    let bucket = open(tight, open_log(&path));
    steps(&bucket);
    assert_eq!(bucket.stats().warmup.values, u64::from(VBUCKETS) * 999);
}

/// Changes one byte wherever a segment has these bytes, and says how often that was.
fn damage(path: &Path, wanted: &[u8]) -> usize {
    let mut damaged = 0;
    for entry in fs::read_dir(path).expect("the directory is read").flatten() {
        if entry.path().extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let mut bytes = fs::read(entry.path()).expect("the segment is read");
        let places = bytes.windows(wanted.len()).zip(0..).filter(|(bytes, _)| *bytes == wanted);
        let places: Vec<usize> = places.map(|(_, at)| at).collect();
        places.iter().for_each(|at| bytes[*at] ^= 1);
        damaged += places.len();
        if !places.is_empty() {
            fs::write(entry.path(), bytes).expect("the segment is written");
        }
    }
    damaged
}

/// One damaged record costs one vbucket, which says so; the others serve.
#[test]
fn damage_in_one_vbucket_does_not_hide_the_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    {
        let store = open_log(&path);
        fill(Arc::clone(&store), 100, 200);
        let bucket = open(config(), store);
        steps(&bucket);
        done(bucket.store(Vbid(1), key("damaged"), &set("this-will-break"), NOW));
        bucket.flush_step().expect("flushed");
        // So that the segment with the record in it is sealed, and not read by opening.
        for number in 0..200 {
            let value = "w".repeat(200);
            done(bucket.store(Vbid(2), key(&format!("later-{number}")), &set(&value), NOW));
        }
        bucket.flush_step().expect("flushed");
    }
    assert_eq!(damage(&path, b"this-will-break"), 1);
    let bucket = open(config(), open_log(&path));
    let failed: Vec<Option<Vbid>> = steps(&bucket)
        .into_iter()
        .filter_map(|step| match step {
            WarmupStep::Failed { vbid, .. } => Some(vbid),
            _ => None,
        })
        .collect();
    assert_eq!(failed, [None, Some(Vbid(1))], "first the part, then the vbucket");
    let warmup = bucket.stats().warmup;
    assert_eq!((warmup.vbuckets_done, warmup.failed, warmup.done), (3, 1, true));
    let is_unreadable = |vbid: &Vbid| {
        let standing = bucket.vbucket(*vbid).expect("it exists").copy_standing();
        assert_eq!(standing.is_lost, standing.is_unreadable, "{vbid}");
        standing.is_unreadable
    };
    assert_eq!((0..VBUCKETS).map(Vbid).filter(is_unreadable).collect::<Vec<_>>(), [Vbid(1)]);
    for vbid in (0..VBUCKETS).map(Vbid) {
        let found = bucket.get(vbid, key("key-7"), NOW);
        match vbid {
            Vbid(1) => {
                assert!(matches!(found, GetOutcome::Refused(OperationRejection::TemporaryFailure)));
            }
            _ => assert!(matches!(found, GetOutcome::Hit(_)), "{vbid}: {found:?}"),
        }
    }
    let refused = bucket.store(Vbid(1), key("key-7"), &set("new"), NOW);
    let is_refused =
        matches!(refused, MutationOutcome::Refused(OperationRejection::TemporaryFailure));
    assert!(is_refused, "a vbucket of unknown content takes no writes: {refused:?}");
    bucket.step_down(Vbid(1));
    assert!(is_unreadable(&Vbid(1)), "its documents are still in the store");
}

struct RecordingSink;

impl FetchSink for RecordingSink {
    fn fetched(&self, _: u64, outcome: FetchOutcome) {
        assert_eq!(outcome, FetchOutcome::Ready);
    }
}

fn fetch(bucket: &Bucket, vbid: Vbid, name: &str) {
    let sink: Arc<dyn FetchSink> = Arc::new(RecordingSink);
    bucket.fetch(vbid, key(name), &sink, 0);
    while bucket.fetch_step() > 0 {}
}

/// The operation, again after a fetch for as long as it asks for one; and how often it did.
fn fetching<T>(
    bucket: &Bucket,
    vbid: Vbid,
    name: &str,
    mut operation: impl FnMut() -> Result<T, OperationRejection>,
) -> (T, usize) {
    for fetches in 0..3 {
        match operation() {
            Ok(outcome) => return (outcome, fetches),
            Err(refused) => assert_eq!(refused, OperationRejection::NeedsFetch),
        }
        fetch(bucket, vbid, name);
    }
    panic!("{name} is fetched and fetched");
}

fn get(bucket: &Bucket, vbid: Vbid, name: &str) -> (Option<Vec<u8>>, usize) {
    fetching(bucket, vbid, name, || match bucket.get(vbid, key(name), NOW) {
        GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => Ok(Some(item.value().to_vec())),
        GetOutcome::Miss => Ok(None),
        GetOutcome::Refused(refused) => Err(refused),
    })
}

fn write(bucket: &Bucket, vbid: Vbid, name: &str, value: Option<&str>) {
    let (outcome, _) = fetching(bucket, vbid, name, || {
        let outcome = match value {
            Some(value) => bucket.store(vbid, key(name), &set(value), NOW),
            None => bucket.delete(vbid, key(name), Cas(0), NOW),
        };
        match outcome {
            MutationOutcome::Refused(refused) => Err(refused),
            outcome => Ok(outcome),
        }
    });
    done(outcome);
}

/// Reads and writes between the steps of a load, flushes in between, and what is present in the
/// end.
fn serve_while_loading(store: Arc<dyn KvStore>, eviction: EvictionPolicy) {
    const COUNT: usize = 300;
    fill(Arc::clone(&store), COUNT, 300);
    let bucket = open(BucketConfig { eviction, ..config() }, store);
    let mut expected: Vec<Option<String>> = vec![None; COUNT + 10];
    for (number, expected) in expected.iter_mut().enumerate().take(COUNT).skip(1) {
        *expected = Some(format!("{number}-{}", "v".repeat(300)));
    }
    let vbid = Vbid(2);
    let name = |number: usize| format!("key-{number}");
    let (mut round, mut fetches) = (0, 0);
    loop {
        for number in [round, COUNT / 2 + round, COUNT - 1 - round, COUNT + 1] {
            let (found, times) = get(&bucket, vbid, &name(number));
            let found = found.map(|value| String::from_utf8_lossy(&value).into_owned());
            assert_eq!(found, expected[number], "{number} in round {round}");
            fetches += times;
        }
        let (written, deleted) = (3 * round + 5, 3 * round + 6);
        write(&bucket, vbid, &name(written), Some("new"));
        expected[written] = Some("new".to_owned());
        write(&bucket, vbid, &name(deleted), None);
        expected[deleted] = None;
        if round % 2 == 0 {
            bucket.flush_step().expect("flushed");
        }
        round += 1;
        if matches!(bucket.warmup_step(), WarmupStep::Done) {
            break;
        }
    }
    assert!(fetches > 0, "some of it was not loaded yet");
    bucket.flush_step().expect("flushed");
    for (number, expected) in expected.iter().enumerate() {
        let (found, fetches) = get(&bucket, vbid, &name(number));
        let found = found.map(|value| String::from_utf8_lossy(&value).into_owned());
        assert_eq!((found.as_ref(), fetches), (expected.as_ref(), 0), "{number} in the end");
    }
    let items = expected.iter().flatten().count() + 3 * (COUNT - 1);
    let stats = bucket.stats();
    assert_eq!((stats.items, stats.tombstones), (items, 0), "no tombstone stays behind");
}

#[test]
fn clients_are_served_while_documents_are_loaded() {
    for eviction in [EvictionPolicy::Value, EvictionPolicy::Full] {
        serve_while_loading(Arc::new(MemoryStore::new()), eviction);
        let directory = tempfile::tempdir().expect("a directory");
        serve_while_loading(open_log(&directory.path().join("log")), eviction);
    }
}
