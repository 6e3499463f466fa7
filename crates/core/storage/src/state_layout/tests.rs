//! The layout against its document, and decoding of whatever bytes.

use oribi_types::{Cas, RevSeqno, Seqno, VbUuid};
use proptest::prelude::*;

use super::{
    STATE_FAILOVER_AT, STATE_FAILOVER_COUNT_AT, STATE_HIGH_SEQNO_AT, STATE_MAX_CAS_AT,
    STATE_MAX_DELETED_REV_SEQNO_AT, STATE_PHASE_AT, STATE_PURGE_SEQNO_AT, STATE_VERSION_AT,
    decode_state, encode_state,
};
use crate::{FailoverEntry, VbucketPhase, VbucketState};

const DOCUMENT: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/storage-format.md"));

fn state(failover_entries: usize) -> VbucketState {
    VbucketState {
        phase: VbucketPhase::Replica,
        high_seqno: Seqno(1),
        max_cas: Cas(2),
        max_deleted_rev_seqno: RevSeqno(3),
        purge_seqno: Seqno(4),
        failover_table: vec![FailoverEntry { uuid: VbUuid(5), seqno: Seqno(6) }; failover_entries],
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
        ("STATE_FAILOVER_COUNT_AT", STATE_FAILOVER_COUNT_AT),
        ("STATE_FAILOVER_AT", STATE_FAILOVER_AT),
    ];
    for (name, offset) in offsets {
        assert!(DOCUMENT.contains(&format!("| `{name}` | {offset} |")), "{name} at {offset}");
    }
}

/// The bytes of one state, written down: a change of them is a change of format.
#[test]
fn the_bytes_are_those_of_version_one() {
    let expected = b"\x01\x02\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
                     \x04\0\0\0\0\0\0\0\x01\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0";
    assert_eq!(encode_state(&state(1)), expected);
}

proptest! {
    #[test]
    fn whatever_bytes_never_panic(value in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(state) = decode_state(&value) {
            prop_assert_eq!(encode_state(&state), value);
        }
    }

    /// Flips bytes of what is almost right, where random bytes would never get.
    #[test]
    fn damaged_states_never_panic(at in 0usize..67, byte in any::<u8>(), length in 0usize..70) {
        let mut value = encode_state(&state(2));
        value[at] = byte;
        value.truncate(length);
        if let Ok(state) = decode_state(&value) {
            prop_assert_eq!(encode_state(&state), value);
        }
    }
}
