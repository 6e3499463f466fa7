//! Frames that no node sends end the connection with a reason, and change nothing.

use std::sync::Arc;

use oribi_protocol::dcp::item::MutationExtras;
use oribi_protocol::dcp::marker::{MarkerFlags, SnapshotMarker};
use oribi_protocol::dcp::{MessageHead, StreamHead, write_head};
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::opcode::Opcode;
use oribi_storage::SeededRandom;
use oribi_types::{CollectionId, RevSeqno, Seqno, Vbid};

use super::pair::Pair;
use crate::replication::consumer::stream::CopyStream;
use crate::replication::failure::LinkFailure;

/// A stream that was accepted, and the pair that it belongs to.
fn stream() -> (Pair, CopyStream) {
    let pair = Pair::new();
    let stream = accepted(&pair);
    (pair, stream)
}

fn accepted(pair: &Pair) -> CopyStream {
    let mut stream = CopyStream::new(Arc::clone(&pair.copies[0]));
    assert!(stream.request(9, &mut Vec::new()));
    stream.accepted(&answer(1)).unwrap();
    stream
}

/// An accepted request: the high seqno, and one history that began at 0 in this epoch.
fn answer(epoch: u64) -> Vec<u8> {
    [3, 7, 0, epoch].iter().flat_map(|number: &u64| number.to_be_bytes()).collect()
}

const HEAD: StreamHead = StreamHead { opaque: 9, vbid: Vbid(0), stream_id: None };

fn marker(start: u64, end: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let (start, end, flags) = (Seqno(start), Seqno(end), MarkerFlags::MEMORY);
    SnapshotMarker { start, end, flags, ..SnapshotMarker::default() }.write(&mut out, HEAD);
    out
}

struct MutationFields<'a> {
    seqno: u64,
    cas: u64,
    rev_seqno: u64,
    datatype: u8,
    collection: u32,
    key: &'a [u8],
    value: &'a [u8],
}

const GOOD: MutationFields<'_> = MutationFields {
    seqno: 1,
    cas: 1,
    rev_seqno: 1,
    datatype: 0,
    collection: 0,
    key: b"k",
    value: b"v",
};

fn mutation(sent: &MutationFields<'_>) -> Vec<u8> {
    let (by_seqno, rev_seqno) = (Seqno(sent.seqno), RevSeqno(sent.rev_seqno));
    let extras = MutationExtras { by_seqno, rev_seqno, ..MutationExtras::default() }.encode();
    let head = MessageHead {
        cas: sent.cas,
        datatype: sent.datatype,
        extras: &extras,
        collection: Some(CollectionId(sent.collection)),
        key: sent.key,
        ..MessageHead::new(Opcode::DcpMutation, HEAD)
    };
    let mut out = Vec::new();
    write_head(&mut out, &head, sent.value.len());
    out.extend_from_slice(sent.value);
    out
}

/// Gives frames to a stream, and applies what may be.
fn give(pair: &Pair, stream: &mut CopyStream, frames: &[Vec<u8>]) -> Result<(), LinkFailure> {
    for bytes in frames {
        let Ok(DecodedFrame::Complete { frame, consumed }) = decode(bytes) else {
            panic!("a test builds whole frames")
        };
        let (_, message) = oribi_protocol::dcp::message::decode(&frame)
            .map_err(|_| LinkFailure::Protocol("a malformed message"))?;
        stream.take(&message, consumed, None, pair.now())?;
        stream.apply(false, pair.now())?;
    }
    Ok(())
}

#[test]
fn messages_out_of_order_are_refused() {
    let cases: [(&str, Vec<Vec<u8>>); 14] = [
        ("outside of a snapshot", vec![mutation(&GOOD)]),
        ("goes back", vec![marker(2, 1)]),
        ("goes back", vec![marker(0, 0)]),
        ("goes back", vec![marker(1, u64::MAX)]),
        ("goes back", vec![marker(1, 1), mutation(&GOOD), marker(1, 1)]),
        ("out of order", vec![marker(1, 3), mutation(&MutationFields { seqno: 4, ..GOOD })]),
        ("out of order", vec![marker(1, 3), mutation(&GOOD), mutation(&GOOD)]),
        ("out of order", vec![marker(1, 3), mutation(&MutationFields { seqno: 0, ..GOOD })]),
        ("outside of a snapshot", vec![marker(1, 1), mutation(&GOOD), mutation(&GOOD)]),
        ("without CAS", vec![marker(1, 3), mutation(&MutationFields { cas: 0, ..GOOD })]),
        ("without CAS", vec![marker(1, 3), mutation(&MutationFields { rev_seqno: 0, ..GOOD })]),
        ("malformed key", vec![marker(1, 3), mutation(&MutationFields { collection: 3, ..GOOD })]),
        (
            "malformed prepare",
            vec![marker(1, 3), mutation(&MutationFields { collection: 2, ..GOOD })],
        ),
        (
            "malformed key",
            vec![marker(1, 3), mutation(&MutationFields { key: &[b'k'; 252], ..GOOD })],
        ),
    ];
    for (expected, frames) in cases {
        let (pair, mut stream) = stream();
        let failure = give(&pair, &mut stream, &frames).unwrap_err();
        assert!(failure.to_string().contains(expected), "{failure} instead of {expected}");
    }
}

#[test]
fn malformed_documents_are_refused() {
    for (datatype, value) in [
        (8, &b"v"[..]),
        (0x80, b"v"),
        (6, b"\0\0\0\0"),
        (4, b""),
        (4, b"\0\0\0\x09short"),
        (4, b"\xff\xff\xff\xff"),
        (4, b"\0\0\0\x04\0\0\0\0"),
    ] {
        let (pair, mut stream) = stream();
        let sent = mutation(&MutationFields { datatype, value, ..GOOD });
        let failure = give(&pair, &mut stream, &[marker(1, 1), sent]).unwrap_err();
        assert!(matches!(failure, LinkFailure::Protocol(_)), "{failure}");
    }
    let (pair, mut stream) = stream();
    let sent = mutation(&MutationFields { collection: 99, ..GOOD });
    let failure = give(&pair, &mut stream, &[marker(1, 1), sent]).unwrap_err();
    assert!(failure.to_string().contains("unknown collection"), "{failure}");
    assert!(pair.replica.stored().is_empty(), "nothing was applied");
}

// The document of a prepare was taken as it came, and written by its commit.
#[test]
fn documents_of_prepares_are_checked() {
    let prepare = |datatype: u8, value: &[u8]| [&[1, 0, datatype][..], &[0; 9], value].concat();
    let key_of =
        |collection: u8, bytes: usize| [&[0, 0, 0, collection], &vec![b'k'; bytes][..]].concat();
    let cases = [
        (None, key_of(0, 250), prepare(0, b"v")),
        (None, key_of(0, 1), prepare(4, b"\0\0\0\0body")),
        (None, key_of(8, 246), prepare(1, b"{}")),
        (Some("malformed prepare"), key_of(0, 251), prepare(0, b"v")),
        (Some("malformed prepare"), key_of(8, 247), prepare(0, b"v")),
        (Some("malformed prepare"), key_of(0, 1), prepare(8, b"v")),
        (Some("extended attributes"), key_of(0, 1), prepare(4, b"\0\0\0\x09short")),
    ];
    for (expected, key, value) in cases {
        let (pair, mut stream) = stream();
        // The first of two changes of a snapshot is taken, and not applied yet.
        let sent = mutation(&MutationFields { collection: 2, key: &key, value: &value, ..GOOD });
        let given = give(&pair, &mut stream, &[marker(1, 2), sent]);
        match (expected, given) {
            (None, given) => given.expect("it is taken"),
            (Some(expected), given) => {
                let failure = given.unwrap_err().to_string();
                assert!(failure.contains(expected), "{failure} instead of {expected}");
            }
        }
    }
}

#[test]
fn failover_logs_are_checked() {
    let (good, other) = (answer(1), answer(2));
    let without = &good[..8];
    for (log, is_good) in
        [(&good[..], true), (&other, false), (&good[..23], false), (without, false), (&[], false)]
    {
        let pair = Pair::new();
        let mut stream = CopyStream::new(Arc::clone(&pair.copies[0]));
        assert!(stream.request(9, &mut Vec::new()));
        assert_eq!(stream.accepted(log).is_ok(), is_good, "{log:?}");
    }
}

#[test]
fn a_rollback_goes_back() {
    let pair = Pair::new();
    let mut stream = CopyStream::new(Arc::clone(&pair.copies[0]));
    assert!(stream.request(9, &mut Vec::new()));
    assert!(stream.roll_back(Seqno(0)).is_err(), "an empty copy has nothing to forget");
    let (_pair, mut open) = self::stream();
    assert!(open.roll_back(Seqno(0)).is_err(), "the stream was accepted");
}

#[test]
fn random_bytes_end_a_link_or_do_nothing() {
    let pair = Pair::new();
    for seed in 1..=300 {
        let mut random = SeededRandom::new(seed);
        pair.replica.bucket.bucket().empty_replica(Vbid(0)).unwrap();
        let mut stream = accepted(&pair);
        let mut frames =
            vec![marker(1, 5), mutation(&GOOD), mutation(&MutationFields { seqno: 5, ..GOOD })];
        for _ in 0..=random.below(4) {
            let at = random.below(frames.len() as u64) as usize;
            // Lengths stay: the frame reader checks those.
            let from = 24 + random.below(frames[at].len() as u64 - 24) as usize;
            frames[at][from] ^= 1 << random.below(8);
        }
        // Any outcome will do but a panic.
        let _ = give(&pair, &mut stream, &frames);
        pair.replica.stored();
    }
}
