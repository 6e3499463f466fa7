//! Buckets on disk: what survives, what the server cleans up, and what it never touches.

use std::path::Path;

use oribi_config::BucketStorage;
use oribi_config::Settings;
use oribi_engine::{GetOutcome, MutationOutcome, StoreCondition, StoreRequest};
use oribi_system::data_file::DataFileError;
use oribi_types::{Cas, CollectionId, DocKey, Timestamp, Vbid};

use super::file::BUCKET_FILE;
use super::handle::CLEAN_SHUTDOWN_FILE;
use super::{BucketError, BucketOptions, Buckets, DELETED_PREFIX};

fn open(data_dir: &Path) -> Result<Buckets, BucketError> {
    Buckets::open_all(data_dir, &Settings::default())
}

fn stop(buckets: &Buckets) {
    buckets.stop_all().expect("an empty bucket flushes");
}

#[test]
fn a_bucket_keeps_its_uuid_a_deleted_one_is_gone() {
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

/// Writes documents, restarts, and returns the number of documents afterwards.
fn documents_after_a_restart(storage: BucketStorage) -> u32 {
    const NOW: Timestamp = Timestamp::from_unix_s(1_700_000_000);
    let scratch = tempfile::tempdir().unwrap();
    let settings = Settings { storage: storage.clone(), vbuckets: 4, ..Settings::default() };
    let buckets = Buckets::open_all(scratch.path(), &settings).unwrap();
    let handle = buckets.get("default").unwrap();
    for number in 0..500 {
        let (name, vbid) = (document(number), Vbid((number % 4) as u16));
        let request = StoreRequest {
            mode: StoreCondition::Set,
            value: name.as_bytes(),
            is_compressed: false,
            flags: number,
            expiry: 0,
            cas: Cas(0),
            preserve_expiry: false,
        };
        let vbucket = handle.bucket().vbucket(vbid).unwrap();
        let outcome = vbucket.store(&handle.bucket().context(NOW), key(&name), &request);
        assert!(matches!(outcome, MutationOutcome::Done(_)), "{outcome:?}");
    }
    stop(&buckets);
    drop((handle, buckets));

    // The current settings apply to new buckets only.
    let buckets = open(scratch.path()).unwrap();
    let handle = buckets.get("default").unwrap();
    assert_eq!(*handle.storage(), storage);
    wait_until(|| handle.bucket().stats().warmup.done);
    let found = (0..500).filter(|number| {
        let (name, vbid) = (document(*number), Vbid((number % 4) as u16));
        let vbucket = handle.bucket().vbucket(vbid).unwrap();
        match vbucket.get(&handle.bucket().context(NOW), key(&name)) {
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

/// Waits until a condition holds, for a minute at most.
fn wait_until(holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 60, "it never came true");
        std::thread::yield_now();
    }
}

#[test]
fn documents_survive_a_restart_in_log_buckets_only() {
    assert_eq!(documents_after_a_restart(BucketStorage::Log), 500);
    assert_eq!(documents_after_a_restart(BucketStorage::Memory), 0);
}

// Compat (Differences): Storage
/// A bucket with the sorted tables of early builds is refused with the reason, and left unchanged.
#[test]
fn a_bucket_of_a_storage_that_is_gone_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    stop(&open(scratch.path()).unwrap());
    let path = scratch.path().join("buckets/default").join(BUCKET_FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    let gone = text.replace("\"log\"", "\"embedded\"");
    assert_ne!(gone, text, "the file names the storage");
    std::fs::write(&path, &gone).unwrap();
    let error = open(scratch.path()).err().expect("the bucket cannot be opened").to_string();
    assert!(error.contains("\"embedded\" is not one of log, memory"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), gone);
}

/// Regression 2: a start took a bucket without `bucket.json` for an interrupted deletion and
/// cleared it, documents included.
#[test]
fn a_store_without_bucket_file_is_reported_and_kept() {
    let scratch = tempfile::tempdir().unwrap();
    stop(&open(scratch.path()).unwrap());
    let directory = scratch.path().join("buckets/default");
    std::fs::remove_file(directory.join(BUCKET_FILE)).unwrap();
    let count = || std::fs::read_dir(directory.join("store")).unwrap().count();
    let before = count();
    let error = open(scratch.path()).err().expect("the bucket cannot be opened");
    assert!(matches!(error, BucketError::File(DataFileError::Corrupt { .. })), "{error}");
    assert_eq!(count(), before);
}

#[test]
fn rests_of_a_deletion_are_removed_at_start() {
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
fn an_unreadable_bucket_file_is_reported_and_kept() {
    let scratch = tempfile::tempdir().unwrap();
    stop(&open(scratch.path()).unwrap());
    let path = scratch.path().join("buckets/default").join(BUCKET_FILE);
    let good = std::fs::read_to_string(&path).unwrap();
    let other_version = good.replace("\"version\": 1", "\"version\": 9");
    let other_name = good.replace("\"default\"", "\"else\"");
    for bad in ["", "{}", "garbage", &other_version, &other_name] {
        std::fs::write(&path, bad).unwrap();
        assert!(
            matches!(open(scratch.path()), Err(BucketError::File(DataFileError::Corrupt { .. }))),
            "{bad:?}"
        );
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
