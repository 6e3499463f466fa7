//! Change streams of a busy bucket: a consumer that pauses between two looks gets everything.

use std::io::{Read, Write};

use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras};
use oribi_types::{Seqno, VbUuid, Vbid};

use super::*;
use crate::limits::CHANGES_WITHOUT_PAUSE_MAX;

/// A stream of all that comes, for a consumer that knows no collections.
const EVERYTHING: StreamRequestExtras = StreamRequestExtras {
    flags: StreamFlags(0),
    start: Seqno(0),
    end: Seqno(u64::MAX),
    vb_uuid: VbUuid(0),
    snapshot_start: Seqno(0),
    snapshot_end: Seqno(0),
};

/// The requests that open a consumer with a stream of every vbucket.
fn opening() -> Vec<u8> {
    let plain = RequestParts {
        key: b"PLAIN",
        value: b"\0Administrator\0password",
        ..RequestParts::new(Opcode::SaslAuth)
    };
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    let extras = [0, 0, 0, 0, 0, 0, 0, 1];
    let open = RequestParts { key: b"busy", extras: &extras, ..RequestParts::new(Opcode::DcpOpen) };
    let mut requests: Vec<u8> = [plain, select, open].iter().flat_map(request).collect();
    for vbid in 0..HARNESS_VBUCKETS {
        let extras = EVERYTHING.encode();
        let stream = RequestParts {
            vbid: Vbid(vbid),
            extras: &extras,
            ..RequestParts::new(Opcode::DcpStreamReq)
        };
        requests.extend(request(&stream));
    }
    requests
}

/// Reads until there were so many mutations.
fn read_mutations(stream: &mut TcpStream, count: usize) {
    let (mut buffer, mut piece, mut mutations) = (Vec::new(), vec![0; 64 * 1024], 0);
    while mutations < count {
        let received = stream.read(&mut piece).unwrap();
        assert_ne!(received, 0, "closed after {mutations} of {count} mutations");
        buffer.extend_from_slice(&piece[..received]);
        let mut start = 0;
        while let Ok(Decoded::Complete { frame, consumed }) = decode(&buffer[start..]) {
            mutations += usize::from(frame.header.opcode == Opcode::DcpMutation as u8);
            start += consumed;
        }
        buffer.drain(..start);
    }
    assert_eq!(mutations, count, "each change comes once");
}

#[test]
fn a_busy_consumer_gets_everything_and_the_last_change_without_another() {
    let fixture = Fixture::start(LIMITS);
    let mut consumer = fixture.connect();
    consumer.write_all(&opening()).unwrap();
    let answers = read_frames(&mut consumer, 3 + usize::from(HARNESS_VBUCKETS));
    assert!(answers.iter().all(|(status, _)| *status == 0), "{answers:?}");
    let mut writer = fixture.connect();
    let batch = 2 * CHANGES_WITHOUT_PAUSE_MAX;
    for round in 0..50 {
        let key = |number: usize| format!("key-{round}-{number}").into_bytes();
        let requests: Vec<u8> = (0..batch).flat_map(|number| set(&key(number), b"v")).collect();
        writer.write_all(&requests).unwrap();
        assert!(read_frames(&mut writer, batch).iter().all(|(status, _)| *status == 0));
        // The worker has nothing else to do now, so only the end of the pause can send the rest.
        read_mutations(&mut consumer, batch);
    }
}
