//! Known bytes of each layout, and every message comes back as it was written.

use oribi_types::Vbid;
use proptest::prelude::*;

use super::super::marker::{MarkerFlags, ReplicaSeqnos, SnapshotMarker};
use super::*;
use crate::limits::HEADER_BYTES;

const STREAM: StreamHead = StreamHead { opaque: 0x8000_0001, vbid: Vbid(5), stream_id: None };

const PREPARE: PrepareExtras = PrepareExtras {
    by_seqno: Seqno(1),
    rev_seqno: RevSeqno(2),
    flags: 3,
    expiry: 4,
    frequency: 5,
    deleted: true,
    level: DurabilityLevel::PersistToMajority,
};

fn frame(opcode: Opcode, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = MessageHead { cas: 9, extras, key, ..MessageHead::new(opcode, STREAM) };
    let frame_bytes = write_head(&mut bytes, &head, value.len());
    bytes.extend_from_slice(value);
    assert_eq!(frame_bytes, bytes.len());
    bytes
}

fn decoded(bytes: &[u8]) -> Result<(StreamHead, DurableMessage<'_>), MessageError> {
    decode(&Frame::whole(bytes).expect("a complete frame"))
}

#[test]
fn a_prepare_byte_by_byte() {
    assert_eq!(
        PREPARE.encode(),
        *b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\0\x05\x01\x03"
    );
    assert_eq!(frame(Opcode::DcpPrepare, &PREPARE.encode(), b"", b"").len(), 55);
}

#[test]
fn a_prepare_with_an_unknown_level_is_malformed() {
    for (at, byte) in [(30, 0), (30, 4), (29, 2)] {
        let mut extras = PREPARE.encode();
        extras[at] = byte;
        let bytes = frame(Opcode::DcpPrepare, &extras, b"k", b"v");
        assert_eq!(decoded(&bytes), Err(MessageError::Malformed));
    }
}

#[test]
fn an_acknowledgement_byte_by_byte() {
    let mut bytes = Vec::new();
    assert_eq!(write_seqno_acknowledged(&mut bytes, STREAM, Seqno(0x0102)), 32);
    assert_eq!(bytes[..12], *b"\x80\x61\0\0\x08\0\0\x05\0\0\0\x08");
    assert_eq!(bytes[HEADER_BYTES..], *b"\0\0\0\0\0\0\x01\x02");
    assert_eq!(decode_seqno_acknowledged(&bytes[HEADER_BYTES..]), Some(Seqno(0x0102)));
    for length in (0..20).filter(|length| *length != 8) {
        assert_eq!(decode_seqno_acknowledged(&vec![0; length]), None);
    }
}

#[test]
fn completions_byte_by_byte() {
    let extras = CompletionExtras { prepared_seqno: Seqno(7), by_seqno: Seqno(9) };
    assert_eq!(extras.encode(), *b"\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x09");
    let commit = frame(Opcode::DcpCommit, &extras.encode(), b"k", b"");
    assert_eq!(commit.len(), 40 + 1);
    let completion = Completion { extras, key: b"k" };
    assert_eq!(decoded(&commit), Ok((STREAM, DurableMessage::Commit(completion))));
    let abort = frame(Opcode::DcpAbort, &extras.encode(), b"k", b"");
    assert_eq!(decoded(&abort), Ok((STREAM, DurableMessage::Abort(completion))));
    for (key, value) in [(&b""[..], &b""[..]), (b"k", b"v")] {
        let bytes = frame(Opcode::DcpCommit, &extras.encode(), key, value);
        assert_eq!(decoded(&bytes), Err(MessageError::Malformed));
    }
}

#[test]
fn a_plain_consumer_rejects_durable_writes() {
    let bytes = frame(Opcode::DcpPrepare, &PREPARE.encode(), b"k", b"v");
    let frame = Frame::whole(&bytes).expect("a complete frame");
    assert_eq!(message::decode(&frame), Err(MessageError::NotDcp));
}

#[test]
fn markers_for_replicas_byte_by_byte() {
    let replica =
        ReplicaSeqnos { max_visible: Seqno(6), high_completed: Seqno(5), high_prepared: None };
    let marker = SnapshotMarker {
        start: Seqno(1),
        end: Seqno(7),
        flags: MarkerFlags::DISK,
        purge_seqno: None,
        replica: Some(replica),
    };
    let mut bytes = Vec::new();
    assert_eq!(marker.write(&mut bytes, STREAM), 24 + 37);
    assert_eq!(
        bytes[HEADER_BYTES..],
        *b"\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x07\0\0\0\x02\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x05"
    );
    let newer = SnapshotMarker {
        purge_seqno: Some(Seqno(3)),
        replica: Some(ReplicaSeqnos { high_prepared: Some(Seqno(4)), ..replica }),
        ..marker
    };
    bytes.clear();
    assert_eq!(newer.write(&mut bytes, STREAM), 24 + 53);
    assert_eq!(bytes[HEADER_BYTES], 2);
    assert_eq!(bytes[HEADER_BYTES + 37..], *b"\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04");
    // A version with the length of another is no marker.
    assert_eq!(SnapshotMarker::decode(b"\x02", &[0; 36]), None);
    assert_eq!(SnapshotMarker::decode(b"\x00", &[0; 52]), None);
    assert_eq!(SnapshotMarker::decode(b"\x01", &[0; 36]), None);
}

proptest! {
    #[test]
    fn prepares_come_back(
        (by_seqno, rev_seqno, flags, expiry) in any::<(u64, u64, u32, u32)>(),
        (frequency, deleted) in any::<(u8, bool)>(),
        level in prop::sample::select(vec![
            DurabilityLevel::Majority,
            DurabilityLevel::MajorityAndPersistOnMaster,
            DurabilityLevel::PersistToMajority,
        ]),
        key in prop::collection::vec(any::<u8>(), 1..240),
        value in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (by_seqno, rev_seqno) = (Seqno(by_seqno), RevSeqno(rev_seqno));
        let extras =
            PrepareExtras { by_seqno, rev_seqno, flags, expiry, frequency, deleted, level };
        let bytes = frame(Opcode::DcpPrepare, &extras.encode(), &key, &value);
        let document = DcpDocument { extras, key: &key, cas: 9, datatype: 0, value: &value };
        prop_assert_eq!(decoded(&bytes), Ok((STREAM, DurableMessage::Prepare(document))));
    }
}
