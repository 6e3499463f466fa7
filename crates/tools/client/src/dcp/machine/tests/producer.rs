//! A model of a producer with one vbucket, and what may happen to it.
//!
//! It keeps every version, so it knows the vbucket's state at every seqno. It sends snapshots with
//! only the newest version of a key in each, in portions, as servers do. It answers stream requests
//! by the rule that the protocol gives for rollbacks.

use std::collections::BTreeMap;

use oribi_protocol::dcp::end_reason::EndReason;
use oribi_protocol::dcp::item::{DeletionExtras, DeletionLayout, MutationExtras};
use oribi_protocol::dcp::marker::{MarkerFlags, SnapshotMarker};
use oribi_protocol::dcp::stream_request::{FailoverLog, StreamRequestExtras};
use oribi_protocol::dcp::{MessageHead, StreamHead, write_head};
use oribi_protocol::frame::{self, DecodedFrame, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, RevSeqno, Seqno, VbUuid, Vbid};
use proptest::prelude::*;

/// Something that happens.
#[derive(Clone, Debug)]
pub enum ProducerStep {
    Write {
        key: u8,
        value: Option<u8>,
    },
    Persist,
    /// Sends at most so many items.
    Send {
        items: usize,
    },
    Disconnect,
    /// Loses what was not persisted.
    Crash,
    /// The application starts again from its token.
    Restart,
}

pub fn steps() -> impl Strategy<Value = ProducerStep> {
    let write = (0..6_u8, proptest::option::weighted(0.8, any::<u8>()));
    prop_oneof![
        8 => write.prop_map(|(key, value)| ProducerStep::Write { key, value }),
        2 => Just(ProducerStep::Persist),
        6 => (1..6_usize).prop_map(|items| ProducerStep::Send { items }),
        1 => Just(ProducerStep::Disconnect),
        1 => Just(ProducerStep::Crash),
        1 => Just(ProducerStep::Restart),
    ]
}

/// Key and value of a version; no value for a deletion.
type Version = (u8, Option<u8>);

struct Stream {
    head: StreamHead,
    last: Seqno,
    end: Seqno,
    /// The unsent rest of the current snapshot.
    left: Vec<(Seqno, Version)>,
}

pub struct ProducerModel {
    versions: BTreeMap<Seqno, Version>,
    high: Seqno,
    persisted: Seqno,
    /// Newest first.
    failover: Vec<(VbUuid, Seqno)>,
    stream: Option<Stream>,
    head: StreamHead,
    ignored: Seqno,
}

impl ProducerModel {
    pub fn new() -> ProducerModel {
        ProducerModel {
            versions: BTreeMap::new(),
            high: Seqno(0),
            persisted: Seqno(0),
            failover: vec![(VbUuid(0x100), Seqno(0))],
            stream: None,
            head: StreamHead { opaque: 0, vbid: Vbid(0), stream_id: None },
            ignored: Seqno(0),
        }
    }

    pub fn write(&mut self, key: u8, value: Option<u8>) {
        self.high.0 += 1;
        self.versions.insert(self.high, (key, value));
    }

    pub fn persist(&mut self) {
        self.persisted = self.high;
    }

    pub fn crash(&mut self) {
        self.stream = None;
        self.high = self.persisted;
        self.versions.retain(|seqno, _| *seqno <= self.persisted);
        let uuid = VbUuid(0x100 + self.failover.len() as u64);
        self.failover.insert(0, (uuid, self.high));
    }

    pub fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Head of the last stream's messages.
    pub fn stream(&self) -> StreamHead {
        self.head
    }

    /// A consumer that starts now does not know what was before.
    pub fn ignore_before_now(&mut self) {
        self.ignored = self.high;
    }

    pub fn ignore_nothing(&mut self) {
        self.ignored = Seqno(0);
    }

    /// Documents as of `seqno`.
    pub fn state_at(&self, seqno: Seqno) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut state = BTreeMap::new();
        let known = self.versions.iter().filter(|(at, _)| **at > self.ignored);
        for (_, (key, value)) in known.take_while(|(at, _)| **at <= seqno) {
            match value {
                Some(value) => drop(state.insert(vec![*key], vec![*value])),
                None => drop(state.remove(&vec![*key])),
            }
        }
        state
    }

    /// Answers requests.
    pub fn answer(&mut self, mut requests: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while let Ok(DecodedFrame::Complete { frame, consumed }) = frame::decode(requests) {
            match Opcode::from_u8(frame.header.opcode) {
                Some(Opcode::DcpGetFailoverLog) => respond(&mut out, &frame, &self.log()),
                Some(Opcode::ObserveSeqno) => {
                    let mut value = vec![0, 0, 0];
                    for number in [self.failover[0].0.0, self.persisted.0, self.high.0] {
                        value.extend_from_slice(&number.to_be_bytes());
                    }
                    respond(&mut out, &frame, &value);
                }
                Some(Opcode::DcpStreamReq) => self.open(&mut out, &frame),
                other => panic!("{other:?}"),
            }
            requests = &requests[consumed..];
        }
        out
    }

    fn log(&self) -> Vec<u8> {
        let mut log = Vec::new();
        for (uuid, seqno) in &self.failover {
            FailoverLog::write_entry(&mut log, *uuid, *seqno);
        }
        log
    }

    fn open(&mut self, out: &mut Vec<u8>, frame: &Frame<'_>) {
        let request = StreamRequestExtras::decode(frame.extras).expect("a request's extras");
        assert!(request.snapshot_start <= request.start && request.start <= request.snapshot_end);
        if let Some(to) = self.rollback(&request) {
            assert!(to < request.start, "the model follows the rule");
            let opaque = frame.header.opaque;
            let head = ResponseParts::new(frame.header.opcode, Status::Rollback, opaque);
            return write_response(out, &ResponseParts { value: &to.0.to_be_bytes(), ..head });
        }
        assert!(request.start <= self.high);
        self.head = StreamHead { opaque: frame.header.opaque, ..self.head };
        let (head, last, end) = (self.head, request.start, request.end);
        self.stream = Some(Stream { head, last, end, left: Vec::new() });
        respond(out, frame, &self.log());
    }

    /// The rule of the protocol.
    fn rollback(&self, request: &StreamRequestExtras) -> Option<Seqno> {
        let StreamRequestExtras { start, vb_uuid, .. } = *request;
        let (mut first, mut last) = (request.snapshot_start, request.snapshot_end);
        if start == Seqno(0) {
            return None;
        }
        let Some(index) = self.failover.iter().position(|(known, _)| *known == vb_uuid) else {
            return Some(Seqno(0));
        };
        let upper = match index {
            0 => self.high,
            index => self.failover[index - 1].1,
        };
        if start == first {
            last = start;
        }
        if last <= upper {
            return None;
        }
        if start == last {
            first = start;
        }
        Some(if upper < first { upper } else { first })
    }

    /// The next messages: a snapshot begins when the one before is complete.
    pub fn send(&mut self, items: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let high = self.high;
        let Some(stream) = &mut self.stream else { return out };
        if stream.left.is_empty() && stream.last < high {
            let mut newest = BTreeMap::new();
            for (seqno, version) in self.versions.range(Seqno(stream.last.0 + 1)..) {
                newest.insert(version.0, (*seqno, *version));
            }
            stream.left = newest.into_values().collect();
            stream.left.sort();
            let start = Seqno(stream.last.0 + 1);
            let flags = MarkerFlags::MEMORY;
            let marker = SnapshotMarker { start, end: high, flags, ..SnapshotMarker::default() };
            marker.write(&mut out, stream.head);
        }
        let count = items.min(stream.left.len());
        for (seqno, version) in stream.left.drain(..count) {
            write_version(&mut out, stream.head, seqno, version);
            stream.last = seqno;
        }
        if stream.left.is_empty() && stream.last >= stream.end {
            EndReason::Ok.write(&mut out, stream.head);
            self.stream = None;
        }
        out
    }
}

fn write_version(out: &mut Vec<u8>, stream: StreamHead, seqno: Seqno, (key, value): Version) {
    let (by_seqno, rev_seqno) = (seqno, RevSeqno(1));
    let key = [key];
    let head = |opcode| MessageHead {
        cas: seqno.0,
        collection: Some(CollectionId::DEFAULT),
        ..MessageHead::new(opcode, stream)
    };
    match value {
        Some(value) => {
            let extras = MutationExtras { by_seqno, rev_seqno, flags: 0, expiry: 0 }.encode();
            let head = MessageHead { extras: &extras, key: &key, ..head(Opcode::DcpMutation) };
            write_head(out, &head, 1);
            out.push(value);
        }
        None => {
            let extras = DeletionExtras { by_seqno, rev_seqno, delete_time: Some(1) };
            let (extras, used) = extras.encode(DeletionLayout::DeletionV2);
            let extras = &extras[..used];
            let head = MessageHead { extras, key: &key, ..head(Opcode::DcpDeletion) };
            write_head(out, &head, 0);
        }
    }
}

fn respond(out: &mut Vec<u8>, frame: &Frame<'_>, value: &[u8]) {
    let parts = ResponseParts::new(frame.header.opcode, Status::Success, frame.header.opaque);
    write_response(out, &ResponseParts { value, ..parts });
}

/// An answer to the only request in `requests`.
pub fn response(requests: &[u8], status: Status, value: &[u8]) -> Vec<u8> {
    let Ok(DecodedFrame::Complete { frame, .. }) = frame::decode(requests) else {
        panic!("a request")
    };
    let mut out = Vec::new();
    let parts = ResponseParts::new(frame.header.opcode, status, frame.header.opaque);
    write_response(&mut out, &ResponseParts { value, ..parts });
    out
}
