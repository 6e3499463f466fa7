//! Canaries: each way to break a promise is planted once, and the oracle must name it.

use std::collections::BTreeMap;

use oribi_types::{Cas, Seqno, VbUuid, Vbid};

use super::{AckLog, Acknowledgement, ReadResult, RunEnd, VbucketReport};

const VB: Vbid = Vbid(7);
const CRASH: RunEnd = RunEnd::Crash { starts: 1 };
const CLEAN: RunEnd = RunEnd::CleanStop { killed_starts: 0 };

fn ack(seqno: u64, persisted: bool) -> Acknowledgement {
    ack_in(1, seqno, persisted)
}

fn ack_in(uuid: u64, seqno: u64, persisted: bool) -> Acknowledgement {
    Acknowledgement { cas: Cas(seqno * 100), seqno: Seqno(seqno), vb_uuid: VbUuid(uuid), persisted }
}

/// A record of a server whose vbucket began history 1.
fn log() -> AckLog {
    let mut log = AckLog::new();
    restart(&mut log, CLEAN, 0, &[(1, 0)]);
    log
}

/// Writes `value` to `key` and acknowledges it.
fn write(log: &mut AckLog, key: &str, value: &str, answer: Acknowledgement) {
    let attempt = log.attempt(VB, key.as_bytes(), Some(value.as_bytes()));
    log.acknowledged(&attempt, answer);
}

fn try_write(log: &mut AckLog, key: &str, value: &str) {
    log.attempt(VB, key.as_bytes(), Some(value.as_bytes()));
}

fn document(value: &str, seqno: u64) -> ReadResult {
    Some((value.as_bytes().to_vec(), Cas(seqno * 100)))
}

fn restart(log: &mut AckLog, ending: RunEnd, high: u64, histories: &[(u64, u64)]) {
    let histories = histories.iter().map(|(uuid, seqno)| (VbUuid(*uuid), Seqno(*seqno))).collect();
    let recovered = VbucketReport { high_seqno: Seqno(high), histories };
    log.restarted(ending, &BTreeMap::from([(VB, recovered)]));
}

/// A crash from which everything up to `high` came back.
fn crash(log: &mut AckLog, high: u64) {
    restart(log, CRASH, high, &[(2, high), (1, 0)]);
}

fn violations(log: &mut AckLog) -> String {
    let all = log.take_violations();
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn assert_names(log: &mut AckLog, text: &str) {
    let found = violations(log);
    assert!(found.contains(text), "{found:?} does not say {text:?}");
}

#[track_caller]
fn assert_sound(log: &mut AckLog) {
    assert_eq!(violations(log), "");
}

#[test]
fn a_lost_persisted_write_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, true));
    crash(&mut log, 0);
    assert_names(&mut log, "came back up to seqno 0, promised was 1");
}

#[test]
fn a_lost_seqno_that_was_shown_as_persisted_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, false));
    write(&mut log, "a", "two", ack(2, false));
    log.shown_as_persisted(VB, Seqno(2));
    crash(&mut log, 1);
    assert_names(&mut log, "promised was 2");
}

#[test]
fn another_version_than_the_recovered_one_is_named() {
    for (found, high) in [("one", 1), ("three", 3)] {
        let mut log = log();
        write(&mut log, "a", "one", ack(1, true));
        write(&mut log, "a", "two", ack(2, false));
        write(&mut log, "a", "three", ack(3, false));
        crash(&mut log, 2);
        assert_sound(&mut log);
        log.read(VB, b"a", &document(found, high));
        assert_names(&mut log, "found");
    }
}

#[test]
fn a_value_that_nobody_wrote_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, false));
    crash(&mut log, 1);
    log.read(VB, b"a", &document("two", 1));
    assert_names(&mut log, "no attempt explains");
}

#[test]
fn another_cas_than_the_acknowledged_one_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, true));
    log.read(VB, b"a", &document("one", 9));
    assert_names(&mut log, "with CAS 900");
}

#[test]
fn a_refused_write_that_is_there_is_named() {
    let mut log = log();
    let attempt = log.attempt(VB, b"a", Some(b"one"));
    log.refused(&attempt);
    log.read(VB, b"a", &document("one", 1));
    assert_names(&mut log, "attempt 0 of 1 would look like that (NotDone)");
}

#[test]
fn a_deletion_that_came_back_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, true));
    let attempt = log.attempt(VB, b"a", None);
    log.acknowledged(&attempt, ack(2, true));
    crash(&mut log, 2);
    log.read(VB, b"a", &document("one", 1));
    assert_names(&mut log, "promised was no document");
}

#[test]
fn a_hole_in_a_vbucket_is_named() {
    // Seqno 2 survived, so seqno 1 must have survived as well, persisted or not.
    let mut log = log();
    write(&mut log, "a", "one", ack(1, false));
    write(&mut log, "b", "one", ack(2, false));
    crash(&mut log, 2);
    log.read(VB, b"b", &document("one", 2));
    log.read(VB, b"a", &None);
    assert_names(&mut log, "document a");
}

#[test]
fn a_seqno_that_no_write_explains_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, false));
    try_write(&mut log, "b", "one");
    crash(&mut log, 2);
    assert_sound(&mut log);
    try_write(&mut log, "c", "one");
    restart(&mut log, CRASH, 4, &[(3, 4), (2, 2), (1, 0)]);
    assert_names(&mut log, "only 1 writes since 2");
}

#[test]
fn any_loss_over_a_clean_stop_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, false));
    restart(&mut log, CLEAN, 0, &[(1, 0)]);
    assert_names(&mut log, "promised was 1");
}

#[test]
fn writes_in_doubt_and_unpersisted_losses_are_fine() {
    for (value, seqno, high) in [("one", 1, 1), ("two", 2, 2), ("three", 3, 3)] {
        let mut log = log();
        write(&mut log, "a", "one", ack(1, true));
        write(&mut log, "a", "two", ack(2, false));
        try_write(&mut log, "a", "three");
        try_write(&mut log, "b", "one");
        crash(&mut log, high);
        assert_eq!(log.certain(VB, b"a"), None);
        log.read(VB, b"a", &document(value, seqno));
        log.read(VB, b"b", &None);
        assert_eq!(log.certain(VB, b"a"), Some(Some(value.as_bytes())));
        assert_sound(&mut log);
    }
}

#[test]
fn a_version_that_was_read_is_certain() {
    let mut log = log();
    try_write(&mut log, "a", "one");
    crash(&mut log, 1);
    log.read(VB, b"a", &document("one", 1));
    assert_sound(&mut log);
    log.read(VB, b"a", &None);
    assert_names(&mut log, "found no document");
}

#[test]
fn a_crash_can_lose_a_version_that_was_read() {
    // The first soak found this: after a read of a write that was not persisted yet, the oracle
    // expected it back.
    let mut log = log();
    write(&mut log, "a", "one", ack(1, true));
    write(&mut log, "a", "two", ack(2, false));
    log.read(VB, b"a", &document("two", 2));
    try_write(&mut log, "a", "three");
    log.read(VB, b"a", &document("three", 3));
    assert_eq!(log.certain(VB, b"a"), Some(Some(&b"three"[..])));
    crash(&mut log, 1);
    log.read(VB, b"a", &document("one", 1));
    assert_sound(&mut log);
}

#[test]
fn lives_can_be_chained_without_reading_back() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, true));
    write(&mut log, "a", "two", ack(2, false));
    crash(&mut log, 1);
    try_write(&mut log, "a", "three");
    restart(&mut log, RunEnd::Crash { starts: 2 }, 2, &[(4, 2), (3, 2), (2, 1), (1, 0)]);
    assert_sound(&mut log);
    log.read(VB, b"a", &document("two", 2));
    assert_names(&mut log, "found \"two\"");
}

#[test]
fn seqno_and_cas_going_back_after_a_restart_are_named() {
    let mut log = log();
    for (name, seqno) in [("a", 1), ("b", 2), ("c", 3)] {
        write(&mut log, name, "one", ack(seqno, true));
    }
    crash(&mut log, 3);
    write(&mut log, "a", "two", ack_in(2, 3, true));
    let found = violations(&mut log);
    assert!(found.contains("seqno 3 is not above 3"), "{found}");
    assert!(found.contains("CAS 300 is not above 300"), "{found}");
}

#[test]
fn the_oracle_names_a_shortened_vbucket() {
    let mut log = log();
    write(&mut log, "a", "one", ack(1, false));
    crash(&mut log, 1);
    restart(&mut log, CRASH, 0, &[(3, 0), (2, 1), (1, 0)]);
    assert_names(&mut log, "in the life before up to 1");
}

#[test]
fn a_seqno_given_twice_and_cas_out_of_order_are_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack(2, false));
    write(&mut log, "b", "one", ack(2, false));
    assert_names(&mut log, "given twice");
    let attempt = log.attempt(VB, b"c", Some(b"one"));
    log.acknowledged(&attempt, Acknowledgement { cas: Cas(150), ..ack(3, false) });
    assert_names(&mut log, "out of the order");
}

#[test]
fn only_a_crash_grows_the_failover_table() {
    let life = |ending, histories: &[(u64, u64)]| {
        let mut log = log();
        write(&mut log, "a", "one", ack(1, true));
        restart(&mut log, ending, 1, histories);
        violations(&mut log)
    };
    let bad = "did not grow as it must";
    assert!(life(CRASH, &[(1, 0)]).contains(bad), "no new history");
    assert!(life(CRASH, &[(2, 0), (1, 0)]).contains(bad), "begins too early");
    assert!(life(CRASH, &[(2, 1)]).contains(bad), "forgets the one before");
    assert!(life(CRASH, &[(1, 1), (1, 0)]).contains(bad), "the same identity");
    assert!(life(CRASH, &[(3, 1), (2, 1), (1, 0)]).contains(bad), "two new ones");
    assert!(life(CLEAN, &[(2, 1), (1, 0)]).contains(bad), "grows over a clean stop");
    assert_eq!(life(CRASH, &[(2, 1), (1, 0)]), "");
    assert_eq!(life(CLEAN, &[(1, 0)]), "");
    assert_eq!(life(RunEnd::Crash { starts: 3 }, &[(3, 1), (2, 1), (1, 0)]), "");
}

/// A kill right after a collection was created: its events are in the manifest's file and not in
/// the store, so the next start gives them seqnos after the beginning of its history.
#[test]
fn events_lost_in_a_crash_follow_the_history_start() {
    let life = |given: u64, high: u64, histories: &[(u64, u64)]| {
        let mut log = AckLog::new();
        restart(&mut log, CLEAN, 2, &[(1, 0)]);
        write(&mut log, "a", "one", ack(given, false));
        restart(&mut log, CRASH, high, histories);
        violations(&mut log)
    };
    let bad = "did not grow as it must";
    assert_eq!(life(3, 2, &[(2, 0), (1, 0)]), "");
    assert_eq!(life(3, 2, &[(2, 1), (1, 0)]), "");
    assert_eq!(life(3, 3, &[(2, 3), (1, 0)]), "");
    assert!(life(3, 3, &[(2, 1), (1, 0)]).contains(bad), "a write is before the beginning");
    assert!(life(4, 3, &[(2, 0), (1, 0)]).contains(bad), "more than the events");
}

#[test]
fn the_uuid_changing_in_one_life_is_named() {
    let mut log = log();
    write(&mut log, "a", "one", ack_in(2, 1, true));
    assert_names(&mut log, "while the server ran");
}

fn settled(log: &mut AckLog, histories: &[(u64, u64)]) -> String {
    let table = histories.iter().map(|(uuid, seqno)| (VbUuid(*uuid), Seqno(*seqno))).collect();
    log.settled(&BTreeMap::from([(VB, table)]));
    violations(log)
}

#[test]
fn only_the_final_state_of_a_history_continues() {
    let mut log = AckLog::of_cluster();
    assert_eq!(settled(&mut log, &[(1, 0)]), "");
    write(&mut log, "a", "one", ack_in(1, 1, true));
    write(&mut log, "a", "two", ack_in(1, 2, false));
    // Another server has taken the persisted writes over, and gives the same seqno.
    write(&mut log, "b", "one", ack_in(2, 2, true));
    assert_eq!(settled(&mut log, &[(2, 1), (1, 0)]), "");
    log.read(VB, b"a", &document("one", 1));
    log.read(VB, b"b", &document("one", 2));
    assert_sound(&mut log);
    assert_eq!(log.tally().lost, 1);
    log.read(VB, b"a", &document("two", 2));
    assert_names(&mut log, "found");
}

#[test]
fn a_persisted_write_that_a_hand_over_lost_is_named() {
    let lives: [&[(u64, u64)]; 3] = [&[(2, 1), (1, 0)], &[(2, 0)], &[(3, 2), (2, 1), (1, 0)]];
    for table in lives {
        let mut log = AckLog::of_cluster();
        assert_eq!(settled(&mut log, &[(1, 0)]), "");
        write(&mut log, "a", "one", ack_in(1, 1, false));
        write(&mut log, "a", "two", ack_in(1, 2, true));
        assert_ne!(settled(&mut log, table), "", "{table:?}");
    }
}

#[test]
fn a_seqno_given_twice_in_one_history_is_named() {
    let mut log = AckLog::of_cluster();
    write(&mut log, "a", "one", ack_in(1, 2, false));
    write(&mut log, "b", "one", ack_in(1, 2, false));
    assert_names(&mut log, "given twice");
}
