//! Canaries: each way to break a promise is planted once, and the oracle must name it.

use oribi_types::{Cas, Seqno, VbUuid, Vbid};

use super::{AckLog, Acknowledgement, Ending, Found};

const VB: Vbid = Vbid(7);

fn ack(seqno: u64, persisted: bool) -> Acknowledgement {
    ack_in(1, seqno, persisted)
}

fn ack_in(uuid: u64, seqno: u64, persisted: bool) -> Acknowledgement {
    Acknowledgement { cas: Cas(seqno * 100), seqno: Seqno(seqno), vb_uuid: VbUuid(uuid), persisted }
}

/// Writes `value` to `key` and acknowledges it.
fn write(log: &mut AckLog, key: &str, value: &str, answer: Acknowledgement) {
    let attempt = log.attempt(VB, key.as_bytes(), Some(value.as_bytes()));
    log.acknowledged(&attempt, answer);
}

fn document(value: &str, seqno: u64) -> Found {
    Some((value.as_bytes().to_vec(), Cas(seqno * 100)))
}

/// Verifies against the given documents; keys that are not listed are not there.
fn verify(log: &mut AckLog, ending: Ending, documents: &[(&str, Found)]) -> Result<(), String> {
    let found = log.verify(ending, |vbid, key| {
        assert_eq!(vbid, VB);
        documents
            .iter()
            .find(|(name, _)| name.as_bytes() == key)
            .and_then(|(_, found)| found.clone())
    });
    match found {
        Ok(_) => Ok(()),
        Err(violations) => {
            Err(violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
    }
}

#[track_caller]
fn assert_names(result: Result<(), String>, text: &str) {
    let message = result.expect_err("the planted violation was not noticed");
    assert!(message.contains(text), "{message:?} does not say {text:?}");
}

#[test]
fn a_lost_persisted_write_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, true));
    assert_names(verify(&mut log, Ending::Crash, &[]), "state 0 of 1");
}

#[test]
fn an_older_version_than_the_persisted_one_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, true));
    write(&mut log, "a", "two", ack(2, true));
    write(&mut log, "a", "three", ack(3, false));
    assert_names(
        verify(&mut log, Ending::Crash, &[("a", document("one", 1))]),
        "state 2 was promised",
    );
}

#[test]
fn a_value_that_nobody_wrote_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, false));
    assert_names(
        verify(&mut log, Ending::Crash, &[("a", document("two", 1))]),
        "no attempt explains",
    );
}

#[test]
fn another_cas_than_the_acknowledged_one_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, true));
    assert_names(verify(&mut log, Ending::Crash, &[("a", document("one", 9))]), "with CAS 900");
}

#[test]
fn a_refused_write_that_is_there_is_named() {
    let mut log = AckLog::new();
    let attempt = log.attempt(VB, b"a", Some(b"one"));
    log.refused(&attempt);
    assert_names(
        verify(&mut log, Ending::Crash, &[("a", document("one", 1))]),
        "no attempt explains",
    );
}

#[test]
fn a_deletion_that_came_back_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, true));
    let attempt = log.attempt(VB, b"a", None);
    log.acknowledged(&attempt, ack(2, true));
    assert_names(
        verify(&mut log, Ending::Crash, &[("a", document("one", 1))]),
        "state 2 was promised",
    );
}

#[test]
fn a_hole_in_a_vbucket_is_named() {
    // Seqno 2 survived, so seqno 1 must have survived as well, persisted or not.
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, false));
    write(&mut log, "b", "one", ack(2, false));
    assert_names(verify(&mut log, Ending::Crash, &[("b", document("one", 2))]), "key a");
}

#[test]
fn any_loss_over_a_clean_stop_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, false));
    assert_names(verify(&mut log, Ending::CleanStop, &[]), "state 1 was promised");
}

#[test]
fn writes_in_doubt_and_unpersisted_losses_are_fine() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, true));
    write(&mut log, "a", "two", ack(2, false));
    log.attempt(VB, b"a", Some(b"three"));
    log.attempt(VB, b"b", Some(b"one"));
    for state in [("one", 1), ("two", 2), ("three", 5)] {
        let mut log = AckLog { keys: log.keys.clone(), ..AckLog::new() };
        assert_eq!(verify(&mut log, Ending::Crash, &[("a", document(state.0, state.1))]), Ok(()));
    }
}

#[test]
fn what_a_check_found_is_on_disk_from_then_on() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, false));
    assert_eq!(verify(&mut log, Ending::Crash, &[("a", document("one", 1))]), Ok(()));
    assert_names(verify(&mut log, Ending::Crash, &[]), "no attempt explains");
}

#[test]
fn seqno_and_cas_going_back_after_a_restart_are_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(5, true));
    assert_eq!(verify(&mut log, Ending::Crash, &[("a", document("one", 5))]), Ok(()));
    write(&mut log, "a", "two", ack_in(2, 5, true));
    let result = verify(&mut log, Ending::Crash, &[("a", document("two", 5))]);
    assert_names(result.clone(), "seqno 5 is not above 5");
    assert_names(result, "CAS 500 is not above 500");
}

#[test]
fn a_seqno_given_twice_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack(1, false));
    write(&mut log, "b", "one", ack(1, false));
    let documents = [("a", document("one", 1)), ("b", document("one", 1))];
    assert_names(verify(&mut log, Ending::Crash, &documents), "given twice");
}

#[test]
fn the_vbucket_uuid_has_to_change_over_a_crash_and_only_then() {
    let life = |ending, next_uuid| {
        let mut log = AckLog::new();
        write(&mut log, "a", "one", ack_in(1, 1, true));
        assert_eq!(verify(&mut log, ending, &[("a", document("one", 1))]), Ok(()));
        write(&mut log, "a", "two", ack_in(next_uuid, 2, true));
        verify(&mut log, ending, &[("a", document("two", 2))])
    };
    assert_names(life(Ending::Crash, 1), "same after a crash");
    assert_eq!(life(Ending::Crash, 2), Ok(()));
    assert_names(life(Ending::CleanStop, 2), "changed over a clean stop");
    assert_eq!(life(Ending::CleanStop, 1), Ok(()));
}

#[test]
fn the_uuid_changing_in_one_life_is_named() {
    let mut log = AckLog::new();
    write(&mut log, "a", "one", ack_in(1, 1, true));
    write(&mut log, "a", "two", ack_in(2, 2, true));
    assert_names(
        verify(&mut log, Ending::Crash, &[("a", document("two", 2))]),
        "while the server ran",
    );
}
