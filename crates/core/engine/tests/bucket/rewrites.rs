//! Rewrites of whole versions: tombstones that others stage concurrently, and tombstones in memory.

use std::cell::Cell;
use std::sync::Arc;

use oribi_engine::{
    Bucket, BucketConfig, CurrentVersion, EvictionPolicy, NextVersion, OperationRejection,
    ReadTarget, RewriteOutcome, Storage, Upkeep, VersionFields, VersionOutcome,
};
use oribi_storage::MemoryStore;
use oribi_types::{Cas, Datatype, Timestamp};

use crate::operations_by_vbid::OperationsByVbid;
use crate::{NOW, VB, config, done, entropy, key, open, set};

/// A tombstone with the attribute `_t`, whose value is one digit.
fn staged(digit: u8) -> NextVersion {
    let fields =
        VersionFields { deleted: true, datatype: Datatype::XATTR, ..VersionFields::default() };
    let attributes = [b"\0\0\0\x09\0\0\0\x05_t\0", &[digit][..], b"\0"].concat();
    NextVersion::new(key("k"), fields, &[&attributes], NOW)
}

/// Stages a tombstone unless something is there.
fn stage(bucket: &Bucket, digit: u8, meanwhile: impl Fn()) -> RewriteOutcome<&'static str> {
    bucket.rewrite(
        VB,
        key("k"),
        ReadTarget::Tombstone,
        (0, Cas(0)),
        NOW,
        |current: CurrentVersion<'_>| match current.version {
            Some(_) => Err("there is one"),
            None => {
                meanwhile();
                Ok(staged(digit))
            }
        },
    )
}

fn staged_digit(bucket: &Bucket) -> Option<u8> {
    match bucket.read_version(VB, key("k"), ReadTarget::Tombstone, NOW) {
        VersionOutcome::Found(item, _) => item.value().get(11).copied(),
        VersionOutcome::Miss => None,
        VersionOutcome::Refused(refused) => panic!("{refused:?}"),
    }
}

#[test]
fn a_staged_item_flushed_since_is_not_overwritten() {
    // Regression: the tombstone had left memory again, so the write found as little as the look-up
    // before it.
    let bucket = open(Arc::new(MemoryStore::new()));
    let has_staged = Cell::new(false);
    let outcome = stage(&bucket, b'1', || {
        if !has_staged.replace(true) {
            assert!(matches!(stage(&bucket, b'2', || {}), RewriteOutcome::Done(_)));
            bucket.flush_step().unwrap();
            assert_eq!(bucket.vbucket(VB).unwrap().stats().tombstones, 0, "only in the store");
        }
    });
    assert!(
        matches!(outcome, RewriteOutcome::Refused(OperationRejection::NeedsFetch)),
        "{outcome:?}"
    );
}

#[test]
fn writes_of_other_documents_are_no_reason_to_refuse() {
    let bucket = open(Arc::new(MemoryStore::new()));
    let has_written = Cell::new(false);
    let outcome = stage(&bucket, b'1', || {
        if !has_written.replace(true) {
            done(bucket.store(VB, key("other"), &set("value"), NOW));
        }
    });
    assert!(matches!(outcome, RewriteOutcome::Done(_)), "{outcome:?}");
    assert_eq!(staged_digit(&bucket), Some(b'1'));
}

#[test]
fn staged_items_of_a_memory_bucket_are_kept_until_old() {
    // Regression: a staged insert was gone at once, and two transactions could stage the same
    // document.
    let upkeep = Upkeep { tombstone_purge_age_s: 1000, ..Upkeep::default() };
    let config = BucketConfig {
        storage: Storage::Memory,
        eviction: EvictionPolicy::None,
        upkeep,
        ..config()
    };
    let bucket = Bucket::open(config, Arc::new(MemoryStore::new()), entropy(), true).unwrap();
    assert!(matches!(stage(&bucket, b'1', || {}), RewriteOutcome::Done(_)));
    assert!(matches!(stage(&bucket, b'2', || {}), RewriteOutcome::Rejected("there is one")));
    done(bucket.store(VB, key("plain"), &set("value"), NOW));
    done(bucket.delete(VB, key("plain"), Cas(0), NOW));
    let tombstones = || bucket.vbucket(VB).unwrap().stats().tombstones;
    assert_eq!((staged_digit(&bucket), tombstones()), (Some(b'1'), 1));
    let purge_at = |age_s: u32| {
        let now = Timestamp::from_unix_s(NOW.unix_s() + age_s);
        while bucket.purge_tombstones_step(&|| now).unwrap().more {}
    };
    purge_at(0);
    purge_at(900);
    assert_eq!(tombstones(), 1, "it is too young");
    purge_at(1200);
    assert_eq!((staged_digit(&bucket), tombstones()), (None, 0));
    assert!(bucket.vbucket(VB).unwrap().stats().purge_seqno.0 > 0);
}
