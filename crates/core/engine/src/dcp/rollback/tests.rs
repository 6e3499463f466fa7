//! The rule as a table: requests against one vbucket's histories.

use oribi_storage::FailoverEntry;
use oribi_types::{CopiesEpoch, Seqno, VbUuid, Vbid};

use super::{KnownHistory, rollback};
use crate::dcp::{StreamFilter, StreamOptions, StreamRequest};

const NONE: u64 = 0;
const OLD: u64 = 11;
const MIDDLE: u64 = 22;
const NEW: u64 = 33;
const UNKNOWN: u64 = 99;
const HIGH: u64 = 100;
const PURGED: u64 = 10;

/// Three histories: from 0, from 40 and from 70 on; the last seqno is 100.
fn table() -> [FailoverEntry; 3] {
    let entry = |uuid, seqno| FailoverEntry {
        uuid: VbUuid(uuid),
        seqno: Seqno(seqno),
        epoch: CopiesEpoch(0),
    };
    [entry(NEW, 70), entry(MIDDLE, 40), entry(OLD, 0)]
}

fn request(uuid: u64, start: u64, snapshot: (u64, u64)) -> StreamRequest {
    StreamRequest {
        vbid: Vbid(0),
        start: Seqno(start),
        end: Seqno(u64::MAX),
        uuid: VbUuid(uuid),
        snapshot: (Seqno(snapshot.0), Seqno(snapshot.1)),
        client_purge_seqno: None,
        flags: StreamOptions::default(),
        filter: StreamFilter::All,
    }
}

fn decide(request: &StreamRequest, purged: u64, filtered_high: Option<u64>) -> Option<u64> {
    let table = table();
    let known = KnownHistory {
        failover_table: &table,
        high_seqno: Seqno(HIGH),
        purge_seqno: Seqno(purged),
        filtered_high_seqno: filtered_high.map(Seqno),
    };
    rollback(request, known).map(|seqno| seqno.0)
}

// Invariant: A reader rolls back exactly as far as it must, and every rollback makes progress.
#[test]
fn each_reader_goes_back_as_far_as_it_must() {
    for (what, uuid, start, snapshot, expected) in [
        ("from 0 without a history", NONE, 0, (0, 0), None),
        ("from 0 with any history", UNKNOWN, 0, (0, 0), None),
        ("no history", NONE, 50, (50, 50), Some(0)),
        ("unknown history", UNKNOWN, 50, (50, 50), Some(0)),
        ("newest history", NEW, 90, (90, 90), None),
        ("newest history, at its end", NEW, 100, (100, 100), None),
        ("newest history, inside a snapshot", NEW, 90, (80, 95), None),
        ("ahead of the newest history", NEW, 120, (120, 120), Some(100)),
        ("ahead of it, inside a snapshot", NEW, 120, (110, 130), Some(100)),
        ("snapshot that reaches beyond it", NEW, 95, (90, 130), Some(90)),
        ("all of a snapshot that reaches beyond", NEW, 130, (90, 130), Some(100)),
        ("nothing of a snapshot that reaches beyond", NEW, 95, (95, 130), None),
        ("middle history, before its end", MIDDLE, 60, (60, 60), None),
        ("middle history, at its end", MIDDLE, 70, (70, 70), None),
        ("middle history, beyond its end", MIDDLE, 75, (75, 75), Some(70)),
        ("middle history, a snapshot over its end", MIDDLE, 65, (60, 75), Some(60)),
        ("middle history, nothing of that snapshot", MIDDLE, 60, (60, 75), None),
        ("middle history, all of that snapshot", MIDDLE, 75, (60, 75), Some(70)),
        ("old history, long beyond its end", OLD, 90, (80, 90), Some(40)),
        ("old history, before its end", OLD, 30, (20, 40), None),
    ] {
        let found = decide(&request(uuid, start, snapshot), 0, None);
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn purged_tombstones_roll_a_reader_back_to_0() {
    let plain = request(OLD, 5, (5, 5));
    let told = |purged| StreamRequest { client_purge_seqno: Some(Seqno(purged)), ..plain.clone() };
    let flags = StreamOptions { ignore_purged: true, ..StreamOptions::default() };
    let indifferent = StreamRequest { flags, ..plain.clone() };
    for (what, request, filtered_high, expected) in [
        ("before the purge seqno", plain.clone(), None, Some(0)),
        ("from 0", request(OLD, 0, (0, 0)), None, None),
        ("at the purge seqno, snapshot before it", request(OLD, 10, (4, 12)), None, None),
        ("just before the purge seqno", request(OLD, 9, (9, 9)), None, Some(0)),
        ("knows this purge", told(PURGED), None, None),
        ("knows another purge", told(PURGED - 1), None, Some(0)),
        ("does not care", indifferent, None, None),
        ("has all of its collections", plain.clone(), Some(5), None),
        ("lacks some of its collections", plain.clone(), Some(6), Some(0)),
        ("its collections go beyond the purge", plain.clone(), Some(11), Some(0)),
    ] {
        assert_eq!(decide(&request, PURGED, filtered_high), expected, "{what}");
    }
}

#[test]
fn a_strict_reader_from_0_must_name_the_right_history() {
    let flags = StreamOptions { strict_uuid: true, ..StreamOptions::default() };
    for (what, uuid, expected) in
        [("none", NONE, None), ("unknown", UNKNOWN, Some(0)), ("known", OLD, None)]
    {
        let request = StreamRequest { flags, ..request(uuid, 0, (0, 0)) };
        assert_eq!(decide(&request, PURGED, None), expected, "{what}");
    }
}

// Invariant: A reader rolls back exactly as far as it must, and every rollback makes progress.
#[test]
fn a_rollback_always_makes_progress() {
    for uuid in [NONE, UNKNOWN, OLD, MIDDLE, NEW] {
        for start in 1..130 {
            for before in 0..=start {
                for behind in [0, 1, 7, 50] {
                    let asked = request(uuid, start, (before, start + behind));
                    for purged in [0, PURGED, HIGH] {
                        if let Some(back) = decide(&asked, purged, None) {
                            assert!(back < start, "{asked:?} goes back to {back}");
                        }
                    }
                }
            }
        }
    }
}
