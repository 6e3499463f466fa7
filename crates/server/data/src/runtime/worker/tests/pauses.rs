//! Change streams of a busy bucket: a consumer that pauses between two looks gets everything.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use oribi_protocol::dcp::stream_request::{StreamFlags, StreamRequestExtras};
use oribi_types::{Seqno, VbUuid, Vbid};

use super::*;
use crate::limits::CHANGES_WITHOUT_PAUSE_MAX;

/// A stream of all that comes, for a consumer that knows no collections.
pub(super) const EVERYTHING: StreamRequestExtras = StreamRequestExtras {
    flags: StreamFlags(0),
    start: Seqno(0),
    end: Seqno(u64::MAX),
    vb_uuid: VbUuid(0),
    snapshot_start: Seqno(0),
    snapshot_end: Seqno(0),
};

/// The requests of a user who may have streams.
pub(super) fn login() -> [Vec<u8>; 2] {
    let plain = RequestParts {
        key: b"PLAIN",
        value: b"\0Administrator\0password",
        ..RequestParts::new(Opcode::SaslAuth)
    };
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    [plain, select].map(|parts| request(&parts))
}

/// The requests that open a consumer with a stream of every vbucket.
fn opening() -> Vec<u8> {
    let mut requests = login().concat();
    let extras = [0, 0, 0, 0, 0, 0, 0, 1];
    let open = RequestParts { key: b"busy", extras: &extras, ..RequestParts::new(Opcode::DcpOpen) };
    requests.extend(request(&open));
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

/// A consumer with a stream of every vbucket.
struct Consumer {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Consumer {
    fn of(fixture: &Fixture) -> Consumer {
        let mut socket = fixture.connect();
        socket.write_all(&opening()).unwrap();
        let answers = read_frames(&mut socket, 3 + usize::from(HARNESS_VBUCKETS));
        assert!(answers.iter().all(|(status, _)| *status == 0), "{answers:?}");
        Consumer { socket, unread: Vec::new() }
    }

    /// The key of the next mutation.
    fn next(&mut self) -> Vec<u8> {
        let mut piece = vec![0; 64 * 1024];
        loop {
            while let Ok(DecodedFrame::Complete { frame, consumed }) = decode(&self.unread) {
                let is_mutation = frame.header.opcode == Opcode::DcpMutation as u8;
                let key = is_mutation.then(|| frame.key.to_vec());
                self.unread.drain(..consumed);
                if let Some(key) = key {
                    return key;
                }
            }
            let received = self.socket.read(&mut piece).unwrap();
            assert_ne!(received, 0, "closed in mid-stream");
            self.unread.extend_from_slice(&piece[..received]);
        }
    }
}

#[test]
fn a_busy_consumer_gets_every_change_and_the_last() {
    let fixture = Fixture::start(LIMITS);
    let mut consumer = Consumer::of(&fixture);
    let mut writer = fixture.connect();
    let batch = 2 * CHANGES_WITHOUT_PAUSE_MAX;
    for round in 0..50 {
        let key = |number: usize| format!("key-{round}-{number}").into_bytes();
        let requests: Vec<u8> = (0..batch).flat_map(|number| set(&key(number), b"v")).collect();
        writer.write_all(&requests).unwrap();
        assert!(read_frames(&mut writer, batch).iter().all(|(status, _)| *status == 0));
        // The worker has nothing else to do now, so only the end of the pause can send the rest.
        let expected: BTreeSet<Vec<u8>> = (0..batch).map(key).collect();
        let found: BTreeSet<Vec<u8>> = (0..batch).map(|_| consumer.next()).collect();
        assert_eq!(found, expected, "each change comes once");
    }
}

#[test]
fn a_rare_change_comes_while_another_vbucket_is_busy() {
    let fixture = Fixture::start(LIMITS);
    let mut consumer = Consumer::of(&fixture);
    let (mut busy, mut rare) = (fixture.connect(), fixture.connect());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let batch = 8 * CHANGES_WITHOUT_PAUSE_MAX;
            let keys = (0..batch).map(|number| format!("busy-{number}").into_bytes());
            let requests: Vec<u8> = keys.flat_map(|key| set(&key, b"v")).collect();
            while !is_over.load(Ordering::Relaxed) {
                busy.write_all(&requests).unwrap();
                read_frames(&mut busy, batch);
            }
        });
        for round in 0..50 {
            let key = format!("rare-{round}").into_bytes();
            let (extras, vbid) = (&[0; 8], Vbid(1));
            let parts = RequestParts { vbid, key: &key, extras, ..RequestParts::new(Opcode::Set) };
            rare.write_all(&request(&parts)).unwrap();
            assert_eq!(read_frames(&mut rare, 1)[0].0, 0);
            while consumer.next() != key {}
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
