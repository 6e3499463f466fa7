//! The corpus of the fuzz target, noise, and a stream with damage in it.

use std::path::Path;

use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::item::MutationExtras;
use oribi_protocol::dcp::marker::{MarkerFlags, SnapshotMarker};
use oribi_protocol::dcp::system_event::{EventChange, SystemEvent};
use oribi_protocol::dcp::{MessageHead, StreamHead, write_head, write_noop, write_seqno_advanced};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_types::{ManifestUid, RevSeqno, ScopeId};
use proptest::prelude::*;

use super::*;

/// Where the target's corpus is.
fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/change_stream")
}

/// A good server's messages for the first vbucket of a stream from the beginning.
fn good_stream() -> Vec<u8> {
    let stream = StreamHead { opaque: 0x1_0000, vbid: Vbid(0), stream_id: None };
    let mut out = vec![0x05];
    let log = [0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
    let accepted = ResponseParts::new(Opcode::DcpStreamReq as u8, Status::Success, stream.opaque);
    write_response(&mut out, &ResponseParts { value: &log, ..accepted });
    let marker = |start, end| SnapshotMarker {
        start: Seqno(start),
        end: Seqno(end),
        flags: MarkerFlags::MEMORY,
        ..SnapshotMarker::default()
    };
    marker(0, 4).write(&mut out, stream);
    let created = SystemEvent {
        by_seqno: Seqno(2),
        manifest_uid: ManifestUid(1),
        scope: ScopeId(0),
        change: EventChange::CollectionBegin {
            collection: CollectionId(9),
            name: b"orders",
            max_ttl: None,
        },
    };
    created.write(&mut out, stream);
    let extras = MutationExtras { by_seqno: Seqno(3), rev_seqno: RevSeqno(1), flags: 2, expiry: 0 };
    let extras = extras.encode();
    let head = MessageHead {
        datatype: 0x01,
        extras: &extras,
        collection: Some(CollectionId(9)),
        key: b"order:1",
        ..MessageHead::new(Opcode::DcpMutation, stream)
    };
    write_head(&mut out, &head, 2);
    out.extend_from_slice(b"{}");
    write_noop(&mut out, 77);
    write_seqno_advanced(&mut out, stream, Seqno(4));
    marker(5, 9).write(&mut out, stream);
    EndReason::StateChanged.write(&mut out, stream);
    out
}

#[test]
fn the_corpus_of_the_fuzz_target_holds() {
    let files = std::fs::read_dir(corpus()).expect("the corpus is part of the repository");
    let mut count = 0;
    for file in files {
        check(&std::fs::read(file.expect("a file").path()).expect("a readable file"));
        count += 1;
    }
    assert!(count > 5, "the corpus has {count} files");
}

/// The seed of the corpus is a stream that is understood, not one that is refused at once.
#[test]
fn the_corpus_has_a_good_stream() {
    let file = corpus().join("good-stream");
    assert_eq!(std::fs::read(file).expect("the seed is there"), good_stream());
}

proptest! {
    #[test]
    fn noise(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    /// A byte of a good stream changes, and pieces of it retry.
    #[test]
    fn damage(
        seed in any::<u8>(),
        at in any::<proptest::sample::Index>(),
        byte in any::<u8>(),
        again in any::<proptest::sample::Index>(),
    ) {
        let mut stream = good_stream();
        stream[0] = seed;
        let at = at.index(stream.len());
        stream[at] = byte;
        let again = again.index(stream.len());
        let tail = stream[again..].to_vec();
        stream.extend_from_slice(&tail);
        check(&stream);
    }
}
