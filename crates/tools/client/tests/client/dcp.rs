//! Change streams over sockets: a scripted producer, slow applications, connections that end.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oribi_client::{
    Client, ClientError, ConnectOptions, DcpChange, DcpEvent, DcpStreamOptions, RejectionKind,
    Seqno,
};
use oribi_protocol::dcp::item::MutationExtras;
use oribi_protocol::dcp::marker::{MarkerFlags, SnapshotMarker};
use oribi_protocol::dcp::stream_request::{FailoverLog, StreamRequestExtras};
use oribi_protocol::dcp::{MessageHead, StreamHead, write_head, write_noop};
use oribi_protocol::frame::{self, DecodedFrame, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_types::{CollectionId, RevSeqno, VbUuid, Vbid};

use crate::support::{
    ServerAction, answer, bind, cluster_map, handshake, opcode, options_for, serve, serve_streams,
};

const PATIENCE: Duration = Duration::from_secs(60);

const MANIFEST: &[u8] = br#"{"uid":"2","scopes":[
    {"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"}]},
    {"name":"shop","uid":"8","collections":[{"name":"orders","uid":"9"}]}]}"#;

/// Answers everything before streams: handshake, manifest, opening, options.
fn prepare(frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
    match opcode(frame) {
        Opcode::GetClusterConfig => {
            answer(out, frame, Status::Success, &[], &cluster_map(1, 2));
        }
        Opcode::CollectionsGetManifest => answer(out, frame, Status::Success, &[], MANIFEST),
        Opcode::DcpOpen | Opcode::DcpControl => answer(out, frame, Status::Success, &[], b""),
        _ => return handshake(out, frame),
    }
    true
}

/// Accepts a request for a stream; returns where it starts and the head of its messages.
fn accept(frame: &Frame<'_>, out: &mut Vec<u8>) -> (StreamRequestExtras, StreamHead) {
    let request = StreamRequestExtras::decode(frame.extras).expect("a request's extras");
    let mut log = Vec::new();
    FailoverLog::write_entry(&mut log, VbUuid(7), Seqno(0));
    answer(out, frame, Status::Success, &[], &log);
    let vbid = Vbid(frame.header.vbucket_or_status);
    (request, StreamHead { opaque: frame.header.opaque, vbid, stream_id: None })
}

fn mark(out: &mut Vec<u8>, stream: StreamHead, start: u64, end: u64) -> usize {
    let (start, end) = (Seqno(start), Seqno(end));
    SnapshotMarker { start, end, flags: MarkerFlags::MEMORY, ..SnapshotMarker::default() }
        .write(out, stream)
}

fn mutate(out: &mut Vec<u8>, stream: StreamHead, seqno: u64, value: &[u8]) -> usize {
    let extras = MutationExtras {
        by_seqno: Seqno(seqno),
        rev_seqno: RevSeqno(1),
        flags: 0x0200_0000,
        expiry: 0,
    };
    let key = format!("k{seqno}");
    let head = MessageHead {
        extras: &extras.encode(),
        cas: 1000 + seqno,
        collection: Some(CollectionId(9)),
        key: key.as_bytes(),
        ..MessageHead::new(Opcode::DcpMutation, stream)
    };
    let bytes = write_head(out, &head, value.len());
    out.extend_from_slice(value);
    bytes
}

async fn connect(options: ConnectOptions) -> Client {
    Client::connect(options).await.expect("the handshake succeeds")
}

async fn next(changes: &mut oribi_client::DcpStream) -> DcpEvent {
    let next = tokio::time::timeout(PATIENCE, changes.next()).await.expect("an event in time");
    next.expect("no error").expect("the stream goes on")
}

async fn next_change(changes: &mut oribi_client::DcpStream) -> DcpChange {
    loop {
        if let DcpEvent::Change(change) = next(changes).await {
            return change;
        }
    }
}

/// Two vbuckets, names of collections, and the end of a stream that ends.
#[tokio::test]
async fn changes_come_with_names_and_the_stream_ends() {
    let options = serve(|frame, out| {
        match opcode(frame) {
            Opcode::DcpGetFailoverLog => {
                let mut log = Vec::new();
                FailoverLog::write_entry(&mut log, VbUuid(7), Seqno(0));
                answer(out, frame, Status::Success, &[], &log);
            }
            Opcode::ObserveSeqno => {
                let mut value = vec![0];
                value.extend_from_slice(&frame.header.vbucket_or_status.to_be_bytes());
                for number in [7_u64, 3, 3] {
                    value.extend_from_slice(&number.to_be_bytes());
                }
                answer(out, frame, Status::Success, &[], &value);
            }
            Opcode::DcpStreamReq => {
                assert!(frame.value.is_empty(), "no filter");
                let (request, stream) = accept(frame, out);
                assert_eq!((request.start, request.end), (Seqno(0), Seqno(3)));
                mark(out, stream, 0, 3);
                mutate(out, stream, 1, b"one");
                mutate(out, stream, 3, b"three");
                oribi_protocol::dcp::end_reason::EndReason::Ok.write(out, stream);
            }
            _ => assert!(prepare(frame, out)),
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let until_now = DcpStreamOptions::new().until_now(true);
    let mut changes = client.dcp_stream(&until_now).await.expect("a stream");
    let (mut seen, mut ends) = (BTreeSet::new(), 0);
    while let Some(event) = tokio::time::timeout(PATIENCE, changes.next()).await.unwrap().unwrap() {
        match event {
            DcpEvent::Change(change) => {
                let path = change.path.clone().expect("the manifest names it");
                assert_eq!((&*path.scope, &*path.collection), ("shop", "orders"));
                assert_eq!((change.flags, change.cas.0), (0x0200_0000, 1000 + change.seqno().0));
                seen.insert((change.vbid(), change.seqno(), change.value().unwrap()));
            }
            DcpEvent::SnapshotEnd(_) => ends += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seen.len(), ends), (4, 2));
    assert_eq!(changes.token().to_string(), "0:7:3,1:7:3");
}

/// A connection that ends in the middle of a snapshot: the next one continues after the last
/// change that the application took, and says in which snapshot that was.
#[tokio::test]
async fn a_stream_goes_on_where_the_application_is() {
    let requests: Arc<Mutex<Vec<StreamRequestExtras>>> = Arc::default();
    let seen = requests.clone();
    let options = serve(move |frame, out| {
        if opcode(frame) != Opcode::DcpStreamReq {
            assert!(prepare(frame, out));
            return ServerAction::GoOn;
        }
        let (request, stream) = accept(frame, out);
        if stream.vbid == Vbid(1) {
            return ServerAction::GoOn;
        }
        let mut requests = seen.lock().unwrap();
        requests.push(request);
        mark(out, stream, request.start.0, 9);
        mutate(out, stream, request.start.0 + 2, b"x");
        match requests.len() {
            1 | 2 => ServerAction::Close,
            _ => ServerAction::GoOn,
        }
    });
    let client = connect(options).await;
    let mut changes = client.dcp_stream(&DcpStreamOptions::new()).await.expect("a stream");
    for seqno in [2, 4, 6] {
        assert_eq!(next_change(&mut changes).await.seqno(), Seqno(seqno));
    }
    let requests = requests.lock().unwrap();
    let places =
        requests.iter().map(|r| [r.vb_uuid.0, r.start.0, r.snapshot_start.0, r.snapshot_end.0]);
    assert_eq!(places.collect::<Vec<_>>(), [[0, 0, 0, 0], [7, 2, 0, 9], [7, 4, 0, 9]]);
}

/// Messages that the producer of the next test has sent and received.
#[derive(Default)]
struct Flow {
    sent_bytes: AtomicU64,
    acknowledged_bytes: AtomicU64,
    noop_answers: AtomicUsize,
}

const WINDOW_BYTES: u32 = 10_000;
const DOCUMENTS: u64 = 300;

/// Sends documents as far as the window allows, and asks at each turn whether the client lives.
fn produce(mut stream: TcpStream, flow: &Flow) {
    stream.set_read_timeout(Some(Duration::from_millis(2))).expect("a timeout");
    let (mut received, mut block) = (Vec::new(), [0; 4096]);
    let mut open: Option<(StreamHead, u64)> = None;
    let mut noops = 0;
    loop {
        let bytes = match stream.read(&mut block) {
            Ok(0) => return,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(_) => 0,
        };
        received.extend_from_slice(&block[..bytes]);
        let mut out = Vec::new();
        while let Ok(DecodedFrame::Complete { frame, consumed }) = frame::decode(&received) {
            match opcode(&frame) {
                Opcode::DcpNoop => {
                    flow.noop_answers.fetch_add(1, Ordering::SeqCst);
                }
                Opcode::DcpBufferAcknowledgement => {
                    let bytes = u32::from_be_bytes(frame.extras.try_into().expect("four bytes"));
                    flow.acknowledged_bytes.fetch_add(u64::from(bytes), Ordering::SeqCst);
                }
                Opcode::DcpStreamReq => {
                    let (_, head) = accept(&frame, &mut out);
                    if head.vbid == Vbid(0) {
                        let bytes = mark(&mut out, head, 0, DOCUMENTS);
                        flow.sent_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
                        open = Some((head, 1));
                    }
                }
                _ => assert!(prepare(&frame, &mut out)),
            }
            received.drain(..consumed);
        }
        if let Some((head, seqno)) = &mut open {
            let in_flight = |flow: &Flow| {
                let acknowledged = flow.acknowledged_bytes.load(Ordering::SeqCst);
                let sent = flow.sent_bytes.load(Ordering::SeqCst);
                assert!(acknowledged <= sent, "more acknowledged than sent");
                sent - acknowledged
            };
            while *seqno <= DOCUMENTS && in_flight(flow) < u64::from(WINDOW_BYTES) {
                let bytes = mutate(&mut out, *head, *seqno, &[b'v'; 400]);
                flow.sent_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
                *seqno += 1;
            }
            noops += 1;
            write_noop(&mut out, noops);
        }
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

// Invariant: The window bounds what a server sends ahead of a slow application.
/// The window bounds what a slow application has in memory; questions are answered concurrently;
/// and as it continues, so does the server.
#[tokio::test]
async fn a_slow_application_bounds_memory_and_answers_noop() {
    let (listener, port): (TcpListener, u16) = bind();
    let flow = Arc::new(Flow::default());
    let for_server = flow.clone();
    serve_streams(listener, move |stream, _| produce(stream, &for_server));
    let client = connect(options_for(port)).await;
    let options = DcpStreamOptions::new().window_bytes(WINDOW_BYTES);
    let mut changes = client.dcp_stream(&options).await.expect("a stream");
    assert_eq!(next_change(&mut changes).await.seqno(), Seqno(1));
    // The application does something else, for as long as many questions take.
    let before = flow.noop_answers.load(Ordering::SeqCst);
    let answered = tokio::time::timeout(PATIENCE, async {
        while flow.noop_answers.load(Ordering::SeqCst) < before + 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    answered.await.expect("the connection's task answers");
    let limit = u64::from(WINDOW_BYTES) + 1000;
    assert!(flow.sent_bytes.load(Ordering::SeqCst) <= limit, "nothing was acknowledged unseen");
    assert!(changes.waiting_bytes() <= limit);
    for seqno in 2..=DOCUMENTS {
        assert_eq!(next_change(&mut changes).await.seqno(), Seqno(seqno));
    }
    assert!(flow.acknowledged_bytes.load(Ordering::SeqCst) > limit);
}

/// A server that breaks the protocol is connected to again; nothing of the bad frame counts.
#[tokio::test]
async fn a_protocol_error_reconnects_and_repeats() {
    let mut requests = 0;
    let options = serve(move |frame, out| {
        if opcode(frame) != Opcode::DcpStreamReq {
            assert!(prepare(frame, out));
            return ServerAction::GoOn;
        }
        let (request, stream) = accept(frame, out);
        if stream.vbid == Vbid(0) {
            requests += 1;
            assert_eq!(request.start, Seqno(0));
            mark(out, stream, 0, 5);
            mutate(out, stream, if requests == 1 { 6 } else { 5 }, b"x");
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let mut changes = client.dcp_stream(&DcpStreamOptions::new()).await.expect("a stream");
    let DcpEvent::Disconnected(lost) = next(&mut changes).await else { panic!("it is told") };
    assert!(lost.reason.contains("outside of its snapshot"), "{}", lost.reason);
    assert_eq!(next_change(&mut changes).await.seqno(), Seqno(5));
}

/// A permanent end of a stream has its reason, and options are checked at once.
#[tokio::test]
async fn a_stream_that_cannot_be_is_an_error() {
    let refusing = |refused: Opcode, status: Status| {
        serve(move |frame, out| {
            match opcode(frame) {
                opcode if opcode == refused => answer(out, frame, status, &[], b""),
                _ => assert!(prepare(frame, out)),
            }
            ServerAction::GoOn
        })
    };
    let client = connect(refusing(Opcode::DcpOpen, Status::NotSupported)).await;
    let mut changes = client.dcp_stream(&DcpStreamOptions::new()).await.expect("a stream");
    let error = changes.next().await.expect_err("no change streams");
    assert!(matches!(error, ClientError::NotOffered("change streams")), "{error}");

    let client = connect(refusing(Opcode::DcpStreamReq, Status::Eaccess)).await;
    let mut changes = client.dcp_stream(&DcpStreamOptions::new()).await.expect("a stream");
    for _ in 0..2 {
        let error = changes.next().await.expect_err("the user may not");
        assert_eq!(error.rejection(), Some(RejectionKind::AccessDenied), "{error}");
    }

    let unknown = DcpStreamOptions::new().collection("shop.carts");
    let error = client.dcp_stream(&unknown).await.err().expect("no such collection");
    assert_eq!(error.rejection(), Some(RejectionKind::UnknownCollection));
    let unknown = DcpStreamOptions::new().scope("store");
    let error = client.dcp_stream(&unknown).await.err().expect("no such scope");
    assert_eq!(error.rejection(), Some(RejectionKind::UnknownScope));
    let token = "5:a:3".parse().expect("a token");
    let too_large = DcpStreamOptions::new().resume(token);
    client.dcp_stream(&too_large).await.err().expect("the bucket has two vbuckets");
}
