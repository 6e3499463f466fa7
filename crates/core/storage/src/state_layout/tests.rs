//! The layout against its document, and decoding of whatever bytes.

use oribi_types::{Cas, CopiesEpoch, RevSeqno, Seqno, VbUuid};
use proptest::prelude::*;

use super::{
    FAILOVER_ENTRY_BYTES, STATE_FAILOVER_AT, STATE_FAILOVER_COUNT_AT, STATE_HIGH_COMPLETED_AT,
    STATE_HIGH_PREPARED_AT, STATE_HIGH_SEQNO_AT, STATE_MARKS_AT, STATE_MAX_CAS_AT,
    STATE_MAX_DELETED_REV_SEQNO_AT, STATE_MAX_VISIBLE_AT, STATE_PHASE_AT, STATE_PROMISED_EPOCH_AT,
    STATE_PURGE_SEQNO_AT, STATE_RECORDED_EPOCH_AT, STATE_SNAPSHOT_END_AT, STATE_SNAPSHOT_START_AT,
    STATE_VERSION_AT, decode_state, encode_state,
};
use crate::{FailoverEntry, StoreError, VbucketPhase, VbucketState};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/storage-format.md"));

fn state(failover_entries: usize) -> VbucketState {
    VbucketState {
        phase: VbucketPhase::Replica,
        high_seqno: Seqno(1),
        max_cas: Cas(2),
        max_deleted_rev_seqno: RevSeqno(3),
        purge_seqno: Seqno(4),
        snapshot_start: Seqno(5),
        snapshot_end: Seqno(6),
        high_prepared_seqno: Seqno(7),
        high_completed_seqno: Seqno(8),
        max_visible_seqno: Seqno(9),
        promised_epoch: CopiesEpoch(10),
        recorded_epoch: CopiesEpoch(11),
        stopped_cleanly: true,
        is_intact: false,
        is_rewound: true,
        failover_table: vec![
            FailoverEntry {
                uuid: VbUuid(12),
                seqno: Seqno(13),
                epoch: CopiesEpoch(14)
            };
            failover_entries
        ],
    }
}

#[test]
fn the_document_says_what_the_constants_are() {
    let offsets = [
        ("STATE_VERSION_AT", STATE_VERSION_AT),
        ("STATE_PHASE_AT", STATE_PHASE_AT),
        ("STATE_HIGH_SEQNO_AT", STATE_HIGH_SEQNO_AT),
        ("STATE_MAX_CAS_AT", STATE_MAX_CAS_AT),
        ("STATE_MAX_DELETED_REV_SEQNO_AT", STATE_MAX_DELETED_REV_SEQNO_AT),
        ("STATE_PURGE_SEQNO_AT", STATE_PURGE_SEQNO_AT),
        ("STATE_SNAPSHOT_START_AT", STATE_SNAPSHOT_START_AT),
        ("STATE_SNAPSHOT_END_AT", STATE_SNAPSHOT_END_AT),
        ("STATE_HIGH_PREPARED_AT", STATE_HIGH_PREPARED_AT),
        ("STATE_HIGH_COMPLETED_AT", STATE_HIGH_COMPLETED_AT),
        ("STATE_MAX_VISIBLE_AT", STATE_MAX_VISIBLE_AT),
        ("STATE_PROMISED_EPOCH_AT", STATE_PROMISED_EPOCH_AT),
        ("STATE_RECORDED_EPOCH_AT", STATE_RECORDED_EPOCH_AT),
        ("STATE_MARKS_AT", STATE_MARKS_AT),
        ("STATE_FAILOVER_COUNT_AT", STATE_FAILOVER_COUNT_AT),
        ("STATE_FAILOVER_AT", STATE_FAILOVER_AT),
    ];
    for (name, offset) in offsets {
        assert!(DOCUMENT.contains(&format!("| `{name}` | {offset} |")), "{name} at {offset}");
    }
}

/// The bytes of one state, written down: a change of them is a change of format.
#[test]
fn the_bytes_are_those_of_version_two() {
    let expected = b"\x02\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
                     \x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\
                     \x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\
                     \x0a\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0\x05\x01\
                     \x0c\0\0\0\0\0\0\0\x0d\0\0\0\0\0\0\0\x0e\0\0\0\0\0\0\0";
    assert_eq!(encode_state(&state(1)), expected);
    assert_eq!(decode_state(expected).expect("it is whole"), state(1));
}

/// The stored form of earlier releases.
#[test]
fn version_one_is_read_as_a_single_copy() {
    let stored = b"\x01\x01\x09\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
                   \x04\0\0\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
    let entry = FailoverEntry { uuid: VbUuid(5), seqno: Seqno(6), epoch: CopiesEpoch(0) };
    let expected = VbucketState {
        phase: VbucketPhase::Active,
        high_seqno: Seqno(9),
        max_cas: Cas(2),
        max_deleted_rev_seqno: RevSeqno(3),
        purge_seqno: Seqno(4),
        snapshot_start: Seqno(9),
        snapshot_end: Seqno(9),
        high_prepared_seqno: Seqno(0),
        high_completed_seqno: Seqno(0),
        max_visible_seqno: Seqno(9),
        promised_epoch: CopiesEpoch(0),
        recorded_epoch: CopiesEpoch(0),
        stopped_cleanly: false,
        is_intact: true,
        is_rewound: false,
        failover_table: vec![entry],
    };
    let read = decode_state(stored).expect("version 1 is read");
    assert_eq!(read, expected);
    assert_eq!(decode_state(&encode_state(&read)).expect("it is version 2 now"), expected);
    for length in 0..stored.len() {
        decode_state(&stored[..length]).expect_err("a part is no state");
    }
}

#[test]
fn a_later_version_is_refused_by_name() {
    let mut stored = encode_state(&state(1));
    stored[STATE_VERSION_AT] = 3;
    let StoreError::Foreign(text) = decode_state(&stored).expect_err("it is unknown") else {
        panic!("another kind of error")
    };
    assert!(text.contains("format version 3"), "{text}");
}

#[test]
fn unknown_marks_are_corrupt() {
    let mut stored = encode_state(&state(0));
    stored[STATE_MARKS_AT] |= 0x08;
    assert!(matches!(decode_state(&stored), Err(StoreError::Corrupt(_))));
}

#[test]
fn complete_end_excludes_a_part_of_a_snapshot() {
    let partial = VbucketState { high_seqno: Seqno(5), ..state(0) };
    assert_eq!(partial.complete_end(), Seqno(5));
    let partial = VbucketState { snapshot_start: Seqno(3), ..partial };
    assert_eq!(partial.complete_end(), Seqno(3));
    assert_eq!(partial.complete_at(Seqno(8)).complete_end(), Seqno(8));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..100)) {
        check_decoding(value)?;
    }

    /// Flips bytes of what is almost right, where random bytes would never get.
    #[test]
    fn damaged_states_never_panic(at in 0usize..STATE_FAILOVER_AT + 2 * FAILOVER_ENTRY_BYTES, byte in any::<u8>(), length in 0usize..150) {
        let mut value = encode_state(&state(2));
        value[at] = byte;
        value.truncate(length);
        check_decoding(value)?;
    }
}

/// A state that is read is written as it was, or as the same one of version 2.
fn check_decoding(mut value: Vec<u8>) -> Result<(), TestCaseError> {
    let Ok(state) = decode_state(&value) else { return Ok(()) };
    if value[STATE_VERSION_AT] == 1 {
        value = encode_state(&state);
        prop_assert_eq!(decode_state(&value).ok(), Some(state.clone()));
    }
    prop_assert_eq!(encode_state(&state), value);
    Ok(())
}
