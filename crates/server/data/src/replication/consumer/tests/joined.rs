//! What clients write at the active reaches the replica, whatever happens to the link.

use std::sync::Arc;

use oribi_engine::collections::ManifestChange;
use oribi_engine::compression::with_compressed;
use oribi_protocol::dcp::stream_request::FailoverLog;
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_protocol::status::Status;
use oribi_storage::SeededRandom;
use oribi_types::{CollectionId, CopiesEpoch, Vbid};

use super::pair::{Pair, set, vbids};
use crate::replication::ReplicaPhase;

#[test]
fn documents_of_all_kinds_reach_the_replica() {
    let mut pair = Pair::new();
    let manifest = pair.active.bucket.bucket();
    let scope = "_default".to_owned();
    let name = "orders".to_owned();
    let create =
        ManifestChange::CreateCollection { scope: scope.clone(), name, max_ttl_s: Some(5000) };
    manifest.update_manifest(&create).unwrap();
    let dropped = "dropped".to_owned();
    let name = dropped.clone();
    let create = ManifestChange::CreateCollection { scope: scope.clone(), name, max_ttl_s: None };
    manifest.update_manifest(&create).unwrap();
    pair.set(0, b"json", b"{\"a\":1}");
    pair.set(0, b"binary", &[0xff; 300]);
    let text = "compress ".repeat(400);
    let sent = with_compressed(text.as_bytes(), |compressed| {
        let datatype = 2;
        let parts = RequestParts { key: b"\0snappy", extras: &[0; 8], datatype, ..set() };
        pair.ask(&RequestParts { value: compressed, ..parts })
    });
    assert_eq!(sent, Some(Status::Success));
    // Flags, and an expiry.
    let extras = [0, 0, 0, 7, 0, 0, 0, 2];
    for (vbid, key) in [(1, b"\0expires"), (2, b"\x08orders1")] {
        let vbid = Vbid(vbid);
        let parts = RequestParts { vbid, key, value: b"x", extras: &extras, ..set() };
        assert_eq!(pair.ask(&parts), Status::Success);
    }
    let parts = RequestParts { key: b"\x09gone", value: b"x", extras: &[0; 8], ..set() };
    assert_eq!(pair.ask(&parts), Status::Success);
    // An attribute, of a document that is deleted then, and of one that stays.
    for key in [&b"\0deleted"[..], b"\0stays"] {
        let parts = RequestParts {
            key,
            extras: &[0, 5, 0x05, 0x01],
            value: b"_meta{\"b\":2}",
            ..RequestParts::new(Opcode::SubdocDictUpsert)
        };
        assert_eq!(pair.ask(&parts), Status::Success);
    }
    pair.set(0, b"plain", b"1");
    for key in [&b"\0deleted"[..], b"\0plain"] {
        let parts = RequestParts { key, ..RequestParts::new(Opcode::Delete) };
        assert_eq!(pair.ask(&parts), Status::Success);
    }
    pair.set(3, b"large", &vec![b'v'; 20 << 20]);
    pair.settle();
    pair.assert_equal();
    // The document has expired.
    pair.client.advance_ms(10_000);
    pair.now_ms += 10_000;
    let get = RequestParts { vbid: Vbid(1), key: b"\0expires", ..RequestParts::new(Opcode::Get) };
    assert_eq!(pair.ask(&get), Status::KeyEnoent);
    let drop = ManifestChange::DropCollection { scope, name: dropped };
    pair.active.bucket.bucket().update_manifest(&drop).unwrap();
    pair.set(0, b"last", b"1");
    pair.settle();
    let expired = pair.replica.stored();
    assert_eq!(pair.active.stored().keys().count(), expired.len());
    pair.assert_equal();
    let (here, there) =
        (pair.active.bucket.bucket().manifest(), pair.replica.bucket.bucket().manifest());
    assert_eq!(here.uid(), there.uid());
    assert!(there.contains(CollectionId(8)) && !there.contains(CollectionId(9)));
}

#[test]
fn a_replica_resumes_where_it_was() {
    let mut pair = Pair::new();
    for number in 0..50_u32 {
        pair.set(1, &number.to_be_bytes(), b"before");
    }
    pair.settle();
    let status = pair.copies[1].status();
    assert_eq!((status.phase, status.lag()), (ReplicaPhase::Streaming, 0));
    pair.cut();
    pair.set(1, b"after", b"1");
    pair.settle();
    pair.assert_equal();
    // Only the change since was sent.
    let producers = pair.active.bucket.producers().list();
    let sent: u64 = producers.iter().map(|record| record.items_sent.get()).sum();
    assert_eq!(sent, 1, "a replica repeats nothing");
}

/// A record of the cluster may change while a copy notes that it has caught up. The stream of the
/// earlier copy stayed open then, and the active rejected every other one.
#[test]
fn a_copy_that_records_can_follow_anew() {
    let mut pair = Pair::new();
    pair.set(1, b"one", b"1");
    pair.holds_work = true;
    pair.settle();
    let copy = std::sync::Arc::clone(pair.replica.bucket.bucket());
    let standing = copy.vbucket(Vbid(1)).unwrap().copy_standing();
    assert!(standing.recorded < CopiesEpoch(1), "the work is held");
    pair.follow_on_the_link(1);
    pair.holds_work = false;
    pair.set(1, b"two", b"2");
    pair.settle();
    pair.assert_equal();
}

#[test]
fn the_active_knows_how_far_a_replica_is() {
    let mut pair = Pair::new();
    pair.set(2, b"one", b"1");
    pair.settle();
    let high = pair.active.bucket.bucket().vbucket(Vbid(2)).unwrap().stats().high_seqno;
    pair.step(usize::MAX).unwrap();
    let bucket = std::sync::Arc::clone(&pair.active.bucket);
    let figures = pair.published();
    let stream = figures.streams.iter().find(|stream| stream.head.vbid == Vbid(2)).unwrap();
    assert_eq!(stream.acknowledged_seqno, Some(high));
    assert_eq!(stream.replica_lag(bucket.bucket()), Some(0));
    pair.set(2, b"two", b"2");
    assert_eq!(stream.replica_lag(bucket.bucket()), Some(1));
}

#[test]
fn another_epoch_gets_no_stream() {
    let mut pair = Pair::new();
    pair.set(0, b"one", b"1");
    pair.follow(2);
    pair.settle();
    assert!(pair.replica.stored().is_empty(), "the active is that of epoch 1");
    let bucket = std::sync::Arc::clone(pair.active.bucket.bucket());
    for vbid in vbids() {
        bucket.become_replica(vbid).unwrap();
        bucket.promote(vbid, CopiesEpoch(2)).unwrap();
    }
    pair.settle();
    pair.assert_equal();
}

/// A stream of an epoch that has ended brings changes of the next one until its copy follows anew.
#[test]
fn the_next_epoch_copies_nothing_afresh() {
    let mut pair = Pair::new();
    pair.set(1, b"before", b"1");
    pair.settle();
    let bucket = Arc::clone(pair.active.bucket.bucket());
    for epoch in 2..=4 {
        for vbid in vbids() {
            bucket.continue_in_epoch(vbid, CopiesEpoch(epoch)).unwrap();
        }
        pair.set(1, &epoch.to_be_bytes(), b"after");
        pair.settle();
        let ends = [&pair.active, &pair.replica].map(|node| node.stored().len());
        assert_eq!(ends[0], ends[1], "the copy has the change");
        pair.follow(epoch);
        pair.settle();
        pair.assert_equal();
    }
    let producers = pair.active.bucket.producers().list();
    let sent: u64 = producers.iter().map(|record| record.items_sent.get()).sum();
    assert_eq!((pair.emptied, sent), (0, 0), "a copy gets nothing again");
    let parts = RequestParts { vbid: Vbid(1), ..RequestParts::new(Opcode::GetFailoverLog) };
    let mut request = Vec::new();
    encode_request(&mut request, &parts);
    let answer = pair.client.feed(&request);
    let Ok(DecodedFrame::Complete { frame, .. }) = decode(&answer) else { panic!("no answer") };
    let log = FailoverLog::decode(frame.value).unwrap();
    // The history of an empty bucket, and that of epoch 1.
    assert_eq!(log.entries().count(), 2, "readers know of no other history");
}

#[test]
fn a_replica_with_other_changes_begins_afresh() {
    let mut pair = Pair::new();
    pair.set(0, b"one", b"1");
    pair.settle();
    pair.assert_equal();
    // Changes that the active never had: the replica was active itself.
    let replica = std::sync::Arc::clone(pair.replica.bucket.bucket());
    replica.promote(Vbid(0), CopiesEpoch(7)).unwrap();
    let now = pair.now();
    let key = oribi_types::DocKey { collection: CollectionId::DEFAULT, key: b"other" };
    let request = oribi_engine::StoreRequest::set(b"x");
    let outcome = replica.vbucket(Vbid(0)).unwrap().store(&replica.context(now), key, &request);
    assert!(matches!(outcome, oribi_engine::MutationOutcome::Done(_)), "{outcome:?}");
    replica.become_replica(Vbid(0)).unwrap();
    pair.follow(1);
    pair.set(0, b"two", b"2");
    pair.settle();
    pair.assert_equal();
}

/// Cuts, restarts with and without a clean stop on both sides, flushes and rollbacks.
#[test]
fn seeded_histories_end_equal() {
    for seed in 1..=8 {
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::new();
        let (mut epoch, mut crashes) = (1, 0);
        for _ in 0..300 {
            let vbid = Vbid(random.below(4) as u16);
            let key = [0, b'a' + random.below(12) as u8];
            match random.below(60) {
                0..=29 => {
                    let value = vec![b'0' + random.below(10) as u8; random.below(900) as usize];
                    pair.set(vbid.0, &key[1..], &value);
                }
                30..=37 => {
                    let opcode = RequestParts::new(Opcode::Delete);
                    pair.ask(&RequestParts { vbid, key: &key, ..opcode });
                }
                38..=51 => {
                    let bytes = random.below(2000) as usize;
                    pair.step(bytes).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
                }
                52 | 53 => pair.active.flush(),
                54 => pair.replica.flush(),
                55 => pair.cut(),
                56 => pair.now_ms += random.below(200),
                57 => {
                    // Another epoch of the same active.
                    epoch += 1;
                    for vbid in vbids() {
                        let bucket = pair.active.bucket.bucket();
                        bucket.continue_in_epoch(vbid, CopiesEpoch(epoch)).unwrap();
                    }
                    pair.follow(epoch);
                }
                58 => pair.restart_replica(epoch, random.below(2) == 0),
                _ => {
                    epoch += 1;
                    crashes += 1;
                    pair.crash_active(epoch);
                }
            }
        }
        pair.settle();
        pair.assert_equal();
        assert!(
            pair.emptied <= crashes * vbids().count(),
            "seed {seed}: only a crash loses changes"
        );
    }
}
