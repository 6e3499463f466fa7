//! Buckets on disk: what survives, what is cleaned up, and what is never touched.

use std::path::Path;

use oribi_engine::{GetOutcome, MutationOutcome, StoreMode, StoreRequest};
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use super::file::BUCKET_FILE;
use super::{
    BucketError, BucketOptions, BucketStorage, Buckets, CLEAN_SHUTDOWN_FILE, DELETED_PREFIX,
};
use crate::config::Settings;

fn open(data_dir: &Path) -> Result<Buckets, BucketError> {
    Buckets::open_all(data_dir, &Settings::default())
}

fn stop(buckets: &Buckets) {
    buckets.stop_all().expect("an empty bucket flushes");
}

#[test]
fn a_bucket_keeps_its_identity_and_a_deleted_one_is_gone() {
    let scratch = tempfile::tempdir().unwrap();
    let buckets = open(scratch.path()).unwrap();
    let options =
        BucketOptions { vbuckets: 16, ..BucketOptions::from_settings(&Settings::default()) };
    let made = buckets.create("made", &options).unwrap().bucket().config().clone();
    assert!(matches!(buckets.create("made", &options), Err(BucketError::Exists(_))));
    assert!(matches!(buckets.create("../up", &options), Err(BucketError::BadName(_))));
    stop(&buckets);
    drop(buckets);

    let buckets = open(scratch.path()).unwrap();
    let again = buckets.get("made").unwrap();
    assert_eq!((again.vbuckets(), &again.bucket().config().uuid), (16, &made.uuid));
    drop(again);
    buckets.delete("made").unwrap();
    assert!(matches!(buckets.delete("made"), Err(BucketError::Unknown(_))));
    stop(&buckets);
    drop(buckets);
    let names: Vec<_> = std::fs::read_dir(scratch.path().join("buckets"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["default"]);
}

fn document(number: u32) -> String {
    format!("document-{number}")
}

fn key(name: &str) -> DocKey<'_> {
    DocKey { collection: CollectionId::DEFAULT, key: name.as_bytes() }
}

/// Writes documents, restarts, and returns how many are there afterwards. `meanwhile` is done to the
/// directory of the bucket.
fn documents_after_a_restart(storage: BucketStorage, meanwhile: fn(&Path)) -> u32 {
    const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
    let scratch = tempfile::tempdir().unwrap();
    let settings = Settings { storage: storage.clone(), vbuckets: 4, ..Settings::default() };
    let buckets = Buckets::open_all(scratch.path(), &settings).unwrap();
    let handle = buckets.get("default").unwrap();
    for number in 0..500 {
        let (name, vbid) = (document(number), Vbid((number % 4) as u16));
        let request = StoreRequest {
            mode: StoreMode::Set,
            value: name.as_bytes(),
            is_compressed: false,
            flags: number,
            expiry: 0,
            cas: Cas(0),
            preserve_expiry: false,
        };
        let outcome = handle.bucket().store(vbid, key(&name), &request, NOW);
        assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
    }
    stop(&buckets);
    drop((handle, buckets));
    meanwhile(&scratch.path().join("buckets/default"));

    // What the settings say now is for new buckets.
    let buckets = open(scratch.path()).unwrap();
    let handle = buckets.get("default").unwrap();
    assert_eq!(*handle.storage(), storage);
    wait_until(|| handle.bucket().stats().warmup.done);
    let found = (0..500).filter(|number| {
        let (name, vbid) = (document(*number), Vbid((number % 4) as u16));
        match handle.bucket().get(vbid, key(&name), NOW) {
            GetOutcome::Hit(item) | GetOutcome::HitLocked(item) => {
                assert_eq!((item.value(), item.flags()), (name.as_bytes(), *number));
                true
            }
            _ => false,
        }
    });
    let found = found.count() as u32;
    stop(&buckets);
    found
}

/// Waits until something holds, for a minute at most.
fn wait_until(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 60, "it never came true");
        std::thread::yield_now();
    }
}

#[test]
fn documents_survive_a_restart_in_either_store_and_not_in_memory() {
    assert_eq!(documents_after_a_restart(BucketStorage::Embedded, |_| {}), 500);
    assert_eq!(documents_after_a_restart(BucketStorage::Log, |_| {}), 500);
    assert_eq!(documents_after_a_restart(BucketStorage::Memory, |_| {}), 0);
}

/// Buckets of the first release do not say what they are, and are not what a new bucket is.
#[test]
fn a_bucket_without_a_kind_of_storage_is_one_of_sorted_tables() {
    assert_eq!(BucketStorage::default(), BucketStorage::Log);
    let forget_the_kind = |directory: &Path| {
        let path = directory.join(BUCKET_FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().filter(|line| !line.contains("\"storage\""));
        let shorter: String = lines.collect::<Vec<_>>().join("\n");
        assert_ne!(shorter, text.trim_end(), "the line was there");
        std::fs::write(&path, shorter).unwrap();
    };
    assert_eq!(documents_after_a_restart(BucketStorage::Embedded, forget_the_kind), 500);
}

/// Regression 2: a start used to take a bucket without `bucket.json` for an interrupted deletion
/// and cleared it, documents and all.
#[test]
fn a_store_without_its_bucket_file_is_reported_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    stop(&open(scratch.path()).unwrap());
    let directory = scratch.path().join("buckets/default");
    std::fs::remove_file(directory.join(BUCKET_FILE)).unwrap();
    let count = || std::fs::read_dir(directory.join("store")).unwrap().count();
    let before = count();
    let error = open(scratch.path()).err().expect("the bucket cannot be opened");
    assert!(matches!(error, BucketError::Corrupt { .. }), "{error}");
    assert_eq!(count(), before);
}

#[test]
fn what_an_interrupted_deletion_left_is_removed_at_start() {
    let scratch = tempfile::tempdir().unwrap();
    let left = scratch.path().join(format!("buckets/{DELETED_PREFIX}old-1"));
    std::fs::create_dir_all(left.join("store")).unwrap();
    stop(&open(scratch.path()).unwrap());
    assert!(!left.exists());
}

#[test]
fn the_marker_is_there_only_after_a_clean_stop() {
    let scratch = tempfile::tempdir().unwrap();
    let marker = scratch.path().join("buckets/default").join(CLEAN_SHUTDOWN_FILE);
    let buckets = open(scratch.path()).unwrap();
    assert!(!marker.exists());
    stop(&buckets);
    assert!(marker.exists());
    drop(buckets);
    let buckets = open(scratch.path()).unwrap();
    assert!(!marker.exists());
    stop(&buckets);
}

#[test]
fn a_bucket_file_that_cannot_be_understood_is_reported_and_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    stop(&open(scratch.path()).unwrap());
    let path = scratch.path().join("buckets/default").join(BUCKET_FILE);
    let good = std::fs::read_to_string(&path).unwrap();
    let other_version = good.replace("\"version\": 1", "\"version\": 9");
    let other_name = good.replace("\"default\"", "\"else\"");
    for bad in ["", "{}", "garbage", &other_version, &other_name] {
        std::fs::write(&path, bad).unwrap();
        assert!(matches!(open(scratch.path()), Err(BucketError::Corrupt { .. })), "{bad:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), bad);
    }
}

#[test]
fn names_that_no_client_could_select_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let buckets = open(scratch.path()).unwrap();
    let options = BucketOptions::from_settings(&Settings::default());
    for name in ["", ".hidden", "a/b", "..", "with space", &"x".repeat(101)] {
        assert!(matches!(buckets.create(name, &options), Err(BucketError::BadName(_))), "{name:?}");
    }
    stop(&buckets);
}
