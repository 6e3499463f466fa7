//! Figures of vbuckets, keys, tasks and timings.

use std::cell::Cell;
use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::{
    Bucket, DiskState, OperationRejection, StoreRequest, TaskState, TaskStats, VBucket, WarmupStep,
};
use oribi_storage::{KvStore, MemoryStore};
use oribi_types::{Cas, CollectionId, DocKey, Seqno, Timestamp, Vbid};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, open, set};

/// A clock that continues by one millisecond with every look at it.
fn ticking(from: Timestamp) -> impl Fn() -> Timestamp {
    let reading = Cell::new(from.unix_ns);
    move || {
        reading.set(reading.get() + 1_000_000);
        Timestamp { unix_ns: reading.get() }
    }
}

fn task(bucket: &Bucket, name: &str) -> TaskStats {
    let found = bucket.task_stats().into_iter().find(|task| task.name == name);
    found.unwrap_or_else(|| panic!("no task {name}"))
}

#[test]
fn writes_are_counted_by_what_they_did() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let later = Timestamp::from_unix_s(NOW.unix_s() + 60);
    for name in ["a", "b", "c"] {
        done(bucket.store(VB, key(name), &set("1"), NOW));
    }
    done(bucket.store(VB, key("a"), &set("2"), NOW));
    done(bucket.touch(VB, key("a"), 10, later));
    done(bucket.delete(VB, key("b"), Cas(0), NOW));
    done(bucket.store(VB, key("b"), &StoreRequest { expiry: 10, ..set("3") }, NOW));
    drop(bucket.get(VB, key("b"), later));
    let stats = bucket.vbucket(VB).unwrap().stats();
    let counts = (stats.ops_create, stats.ops_update, stats.ops_delete, stats.expired);
    assert_eq!(counts, (4, 2, 1, 1));
    // However long ago the first was, the newest version of each key is all that is queued.
    assert_eq!((stats.queue_fill, stats.queue_drain, stats.queue_items), (8, 0, 3));
    assert_eq!(stats.queue_oldest, Some(Timestamp { unix_ns: NOW.unix_ns & !0xffff }));
    bucket.flush_step().unwrap();
    let stats = bucket.vbucket(VB).unwrap().stats();
    assert_eq!((stats.queue_fill, stats.queue_drain, stats.queue_oldest), (8, 3, None));
}

#[test]
fn a_loaded_document_was_not_created_and_not_queued() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    done(bucket.store(VB, key("a"), &set("1"), NOW));
    bucket.flush_step().unwrap();
    let stats = open(Arc::new(MemoryStore::on(disk))).vbucket(VB).unwrap().stats();
    assert_eq!((stats.items, stats.ops_create, stats.queue_fill), (1, 0, 0));
}

#[test]
fn a_key_is_dirty_until_it_is_flushed() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let vbucket = bucket.vbucket(VB).unwrap();
    let key_stats = |key| vbucket.key_stats(&bucket.context(NOW), key);
    assert_eq!(key_stats(key("k")), Ok(None));
    let written = done(bucket.store(VB, key("k"), &set("{}"), NOW));
    let stats = key_stats(key("k")).unwrap().unwrap();
    assert!(stats.is_dirty && !stats.is_deleted && stats.is_resident);
    assert_eq!((stats.cas, stats.seqno, stats.flags), (written.cas, written.seqno, 7));
    assert_eq!(bucket.key_on_disk(VB, key("k")).unwrap(), None);
    bucket.flush_step().unwrap();
    assert!(!key_stats(key("k")).unwrap().unwrap().is_dirty);
    done(bucket.delete(VB, key("k"), Cas(0), NOW));
    let stats = key_stats(key("k")).unwrap().unwrap();
    assert!(stats.is_dirty && stats.is_deleted);
    let unknown = DocKey { collection: CollectionId(99), key: b"k" };
    assert_eq!(key_stats(unknown), Err(OperationRejection::UnknownCollection));
    let outside = bucket.vbucket_or_rejection(Vbid(4)).map(VBucket::id);
    assert_eq!(outside, Err(OperationRejection::NotMyVbucket));
}

#[test]
fn disk_contents_are_compared_with_memory() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    let state = |bucket: &Bucket| {
        let found = bucket.key_on_disk(VB, key("k")).unwrap();
        found.map(|found| (found.state, found.seqno, found.is_deleted))
    };
    assert_eq!(state(&bucket), None);
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    bucket.flush_step().unwrap();
    assert_eq!(state(&bucket), Some((DiskState::Same, Seqno(1), false)));
    done(bucket.store(VB, key("k"), &set("2"), NOW));
    assert_eq!(state(&bucket), Some((DiskState::Stale, Seqno(1), false)));
    done(bucket.delete(VB, key("k"), Cas(0), NOW));
    bucket.flush_step().unwrap();
    assert_eq!(state(&bucket), Some((DiskState::NotInMemory, Seqno(3), true)));
}

/// A store that was damaged behind the bucket's back.
#[test]
fn a_document_changed_on_disk_is_not_taken_as_flushed() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    done(bucket.store(VB, key("k"), &set("good"), NOW));
    bucket.flush_step().unwrap();
    let other = open(Arc::new(MemoryStore::new()));
    done(other.store(VB, key("k"), &set("evil"), NOW));
    let backdoor = MemoryStore::on(disk);
    copy_document(&other, &backdoor);
    assert_eq!(bucket.key_on_disk(VB, key("k")).unwrap().unwrap().state, DiskState::Differs);
}

/// Writes document `k` of `from` into `to`, past whatever bucket is open on it.
fn copy_document(from: &Bucket, to: &MemoryStore) {
    let oribi_engine::GetOutcome::Hit(item) = from.get(VB, key("k"), NOW) else {
        panic!("the document was just written");
    };
    let record = oribi_storage::Record {
        key: item.key(),
        value: item.value(),
        cas: item.cas(),
        seqno: item.seqno(),
        rev_seqno: item.rev_seqno(),
        flags: item.flags(),
        expiry: item.expiry(),
        datatype: item.datatype(),
        deleted: false,
        expired: false,
    };
    let states = to.vbucket_states().expect("the store works");
    let (_, state) = states.into_iter().find(|(vbid, _)| *vbid == VB).expect("it was flushed");
    let batch = oribi_storage::VbBatch { vbid: VB, records: vec![record], state };
    to.commit(&[batch]).expect("the store works");
}

#[test]
fn tasks_and_timings_go_by_the_clock_of_their_driver() {
    let bucket = open(Arc::new(MemoryStore::new()));
    assert_eq!(task(&bucket, "warmup").state, TaskState::Dead, "there was nothing to load");
    for n in 0..40 {
        done(bucket.store(VB, key(&format!("k{n}")), &set("1"), NOW));
    }
    let begun = Timestamp::from_unix_s(NOW.unix_s() + 5);
    bucket.flush_step_timed(&ticking(begun)).unwrap();
    let flusher = task(&bucket, "flusher");
    assert_eq!((flusher.state, flusher.runs), (TaskState::Snoozed, 1));
    assert_eq!(flusher.last_start.unix_s(), begun.unix_s());
    assert!(
        flusher.total_runtime_us >= 1000 && flusher.last_runtime_us == flusher.total_runtime_us
    );
    let timings = bucket.timings();
    assert_eq!((timings.disk_commit.len(), timings.disk_commit.max()), (1, 1003));
    assert_eq!(timings.flush_batch_items.max(), 40);
    assert_eq!(timings.storage_age.len(), 3, "items 0, 16 and 32");
    let age_s = timings.storage_age.mean() / 1e6;
    assert!((4.9..5.1).contains(&age_s), "{age_s}");
    assert_eq!((timings.checkpoint_remover.len(), timings.item_alloc_sizes.min()), (1, 48));
    for (name, histogram) in timings.named() {
        assert_eq!(
            histogram.is_empty(),
            name.starts_with("bg_load"),
            "{name}: nothing was fetched"
        );
    }
    bucket.reset_timings();
    assert!(bucket.timings().named().iter().all(|(_, histogram)| histogram.is_empty()));
}

#[test]
fn warmup_ends_and_a_purge_is_scheduled_again() {
    let disk = MemoryStore::new().medium();
    let bucket = open(Arc::new(MemoryStore::on(disk.clone())));
    done(bucket.store(VB, key("k"), &set("1"), NOW));
    bucket.flush_step().unwrap();
    let store = Arc::new(MemoryStore::on(disk));
    let bucket = Bucket::open(config(), store, entropy(), false).unwrap();
    assert_eq!(task(&bucket, "warmup").state, TaskState::Snoozed);
    while !matches!(bucket.warmup_step_timed(&ticking(NOW)), WarmupStep::Done) {}
    let warmup = task(&bucket, "warmup");
    assert_eq!((warmup.state, warmup.runs), (TaskState::Dead, 1));
    assert_eq!(warmup.total_runtime_us, 1000);

    let scope = || "s".to_owned();
    bucket.update_manifest(&ManifestChange::CreateScope { name: scope() }).unwrap();
    bucket.flush_step().unwrap();
    assert_eq!(task(&bucket, "collection_purge").runs, 0);
    let name = || "c".to_owned();
    let create = ManifestChange::CreateCollection { scope: scope(), name: name(), max_ttl_s: None };
    bucket.update_manifest(&create).unwrap();
    let dropping = ManifestChange::DropCollection { scope: scope(), name: name() };
    bucket.update_manifest(&dropping).unwrap();
    bucket.flush_step().unwrap();
    assert_eq!(task(&bucket, "collection_purge").runs, 1);
}

#[test]
fn queue_and_table_of_one_vbucket() {
    let bucket = open(Arc::new(MemoryStore::new()));
    for n in 0..1000 {
        done(bucket.store(VB, key(&format!("k{n}")), &set("1"), NOW));
    }
    done(bucket.delete(VB, key("k0"), Cas(0), NOW));
    let vbucket = bucket.vbucket(VB).unwrap().stats();
    let queue = bucket.vbucket(VB).unwrap().checkpoint_stats();
    assert_eq!((queue.items, queue.open_items, queue.open_checkpoint_id), (1000, 1000, 1));
    assert_eq!(queue.queue_bytes + queue.item_bytes, vbucket.queue_bytes);
    let [cursor] = &queue.cursors[..] else { panic!("{queue:?}") };
    assert_eq!((&*cursor.name, cursor.remaining, cursor.seqno), ("persistence", 1000, Seqno(0)));
    let table = bucket.vbucket(VB).unwrap().hash_table_stats();
    assert_eq!((table.items, table.tombstones, table.item_bytes), (999, 1, vbucket.item_bytes));
    assert_eq!((table.mem_bytes, table.groups * 7), (vbucket.table_bytes, table.slots));
    assert!(table.resizes >= 7 && table.sampled > 0 && table.min_probes >= 1);
    assert_eq!(table.probe_histogram.iter().sum::<u64>(), table.sampled as u64);
    bucket.flush_step().unwrap();
    let queue = bucket.vbucket(VB).unwrap().checkpoint_stats();
    assert_eq!((queue.items, queue.cursors[0].visits), (0, 1));
    assert_eq!(queue.cursors[0].seqno, Seqno(1001));
    assert!(bucket.vbucket(Vbid(4)).is_none());
}
