//! Buckets on disk: what survives, what is cleaned up, and what is never touched.

use std::path::Path;

use super::{
    BUCKET_FILE, BucketError, BucketOptions, Buckets, CLEAN_SHUTDOWN_FILE, DELETED_PREFIX,
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
