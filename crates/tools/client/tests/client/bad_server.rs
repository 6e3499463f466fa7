//! The client against servers that break the protocol, fall silent or never stop talking: every
//! operation ends in time with an error that says where and what, and the others are not harmed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use oribi_client::{
    Client, ClientError, ConnectOptions, Connection, Operation, PipelineOptions, WriteOptions,
};
use oribi_protocol::frame::Frame;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ConfigVersion, RequestParts};
use oribi_protocol::response::{ResponseParts, write_clustermap_notification, write_response};
use oribi_protocol::status::Status;

use crate::support::{
    ServerAction, answer, bind, handshake, options_for, serve, serve_one, serve_streams,
    shake_hands,
};

async fn connect(options: ConnectOptions) -> Client {
    Client::connect(options).await.expect("the handshake succeeds")
}

/// Answers one good read and then does something that no server may.
type FrameDamage = fn(&Frame<'_>, &mut Vec<u8>) -> ServerAction;

const BREAKS: [(&str, FrameDamage); 7] = [
    ("closed the connection", |_, _| ServerAction::Close),
    ("closed the connection", |frame, out| {
        answer(out, frame, Status::Success, b"\0\0\0\0", b"cut off");
        out.truncate(out.len() - 3);
        ServerAction::Close
    }),
    ("unknown magic 0x48", |_, out| {
        out.extend_from_slice(b"HTTP/1.1 400");
        ServerAction::GoOn
    }),
    ("a request that was not sent", |frame, out| {
        let opaque = frame.header.opaque + 1000;
        write_response(out, &ResponseParts::new(frame.header.opcode, Status::Success, opaque));
        ServerAction::GoOn
    }),
    ("with another opcode", |frame, out| {
        let opcode = Opcode::Noop as u8;
        write_response(out, &ResponseParts::new(opcode, Status::Success, frame.header.opaque));
        ServerAction::GoOn
    }),
    ("was announced", |frame, out| {
        answer(out, frame, Status::Success, &[], b"");
        let body = out.len() - 24 + 8;
        out[body..body + 4].fill(0xff);
        ServerAction::GoOn
    }),
    ("that only clients send", |frame, out| {
        answer(out, frame, Status::Success, &[], b"");
        let magic = out.len() - 24;
        out[magic] = 0x80;
        ServerAction::GoOn
    }),
];

/// Earlier answers stand; each other request in flight fails with the reason.
#[tokio::test]
async fn a_broken_connection_fails_what_is_in_flight() {
    for (reason, break_it) in BREAKS {
        let mut reads = 0;
        let options = serve(move |frame, out| {
            if handshake(out, frame) {
                return ServerAction::GoOn;
            }
            reads += 1;
            match reads {
                1 => answer(out, frame, Status::Success, b"\0\0\0\0", b"good"),
                4 => return break_it(frame, out),
                _ => {}
            }
            ServerAction::GoOn
        });
        let peer = format!("Get at 127.0.0.1:{}", options.port);
        let client = connect(options).await;
        let mut pipeline = client.pipeline(PipelineOptions::default());
        for _ in 0..4 {
            pipeline.queue(client.default_collection(), &Operation::get(b"k")).unwrap();
        }
        let first = pipeline.next().await.expect("four results").result;
        assert_eq!(first.unwrap().value, "good", "{reason}");
        for number in 1..4 {
            let completed = pipeline.next().await.expect("four results");
            let error = completed.result.unwrap_err();
            assert_eq!(completed.number, number);
            assert!(matches!(&error, ClientError::Closed { .. }), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.to_string().contains(&peer), "{error}");
        }
        assert!(pipeline.next().await.is_none());
    }
}

/// A server that never behaves: reads are repeated, and end at their deadline with the reason.
#[tokio::test]
async fn retries_of_reads_end_at_the_deadline() {
    let timeout = Duration::from_millis(150);
    for (reason, break_it) in BREAKS {
        let options = serve(move |frame, out| match handshake(out, frame) {
            true => ServerAction::GoOn,
            false => break_it(frame, out),
        });
        let client = connect(options.operation_timeout(timeout)).await;
        let started = Instant::now();
        let error = client.get(client.default_collection(), b"k").await.unwrap_err();
        // On a slow machine the deadline may come while a read is in flight.
        if !matches!(error, ClientError::Timeout { .. }) {
            assert!(error.was_interrupted() || error.was_not_sent(), "{error}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(started.elapsed() < Duration::from_secs(3), "{reason}");
    }
}

#[tokio::test]
async fn a_stalled_server_holds_no_call_past_its_deadline() {
    let options = serve(|frame, out| {
        handshake(out, frame);
        ServerAction::GoOn
    });
    let peer = format!("127.0.0.1:{}", options.port);
    let timeout = Duration::from_millis(100);
    let client = connect(options.operation_timeout(timeout)).await;
    let collection = client.default_collection();
    let started = Instant::now();
    let error = client.get(collection, b"k").await.unwrap_err();
    assert_eq!(error.to_string(), format!("Get at {peer}: no answer within {timeout:?}"));
    let write = WriteOptions::default();
    let error = client.upsert(collection, b"k", Bytes::new(), &write).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    let error = client.collection("a.b").await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    let mut pipeline = client.pipeline(PipelineOptions::default());
    for _ in 0..100 {
        pipeline.queue(collection, &Operation::get(b"k")).unwrap();
    }
    for _ in 0..100 {
        let result = pipeline.next().await.expect("a hundred results").result;
        let error = result.unwrap_err();
        assert_eq!(error.to_string(), format!("Get at {peer}: no answer within {timeout:?}"));
    }
    // Four deadlines one after the other, and patience for a busy machine.
    assert!(started.elapsed() < 4 * timeout + Duration::from_secs(3), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_handshake_that_stalls_ends_at_the_deadline() {
    let steps = [Opcode::Hello, Opcode::SaslAuth, Opcode::SelectBucket, Opcode::GetClusterConfig];
    // Long enough for the steps before on a slow machine, and all at once.
    let timeout = Duration::from_secs(1);
    let attempts = steps.map(|stall_at| {
        let options = serve(move |frame, out| {
            if crate::support::opcode(frame) != stall_at {
                assert!(handshake(out, frame));
            }
            ServerAction::GoOn
        });
        let options = options.connect_timeout(timeout).operation_timeout(timeout);
        (stall_at, tokio::spawn(Client::connect(options)))
    });
    for (stall_at, attempt) in attempts {
        let error = attempt.await.expect("no panic").err().expect("no answer");
        let ClientError::Timeout { at, .. } = error else { panic!("{error}") };
        assert_eq!(at.operation, stall_at.name());
    }
}

/// A connection on which nothing comes any more is given up, and the next operation gets a new one.
#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let mut connections = 0;
    let options = serve(move |frame, out| {
        connections += usize::from(crate::support::opcode(frame) == Opcode::Hello);
        if !handshake(out, frame) && connections > 1 {
            answer(out, frame, Status::Success, b"\0\0\0\0", b"fresh");
        }
        ServerAction::GoOn
    });
    let client = connect(options).await;
    // Nothing is going to happen but the passing of time.
    tokio::time::pause();
    let error = client.get(client.default_collection(), b"k").await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { .. }), "{error}");
    tokio::time::resume();
    let document = client.get(client.default_collection(), b"k").await.unwrap().expect("a hit");
    assert_eq!(document.value, "fresh");
}

#[tokio::test]
async fn answers_may_drip() {
    let (listener, port) = bind();
    serve_streams(listener, |mut stream, _| {
        stream.set_nodelay(true).expect("it is a socket");
        shake_hands(&mut stream);
        let mut request = [0; 24 + 2];
        while stream.read_exact(&mut request).is_ok() {
            let mut out = Vec::new();
            let opaque = u32::from_be_bytes([12, 13, 14, 15].map(|at: usize| request[at]));
            let parts = ResponseParts {
                extras: b"\0\0\0\0",
                value: b"drop by drop",
                ..ResponseParts::new(request[1], Status::Success, opaque)
            };
            write_response(&mut out, &parts);
            for byte in out {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
            }
        }
    });
    let client = connect(options_for(port)).await;
    for _ in 0..20 {
        let document = client.get(client.default_collection(), b"k").await.unwrap();
        assert_eq!(document.expect("a hit").value, "drop by drop");
    }
}

/// Requests of the server in any number are skipped; a map that is announced and never given does
/// not keep the client busy.
#[tokio::test]
async fn floods_of_server_requests_are_skipped() {
    let fetches = Arc::new(AtomicUsize::new(0));
    let counted = fetches.clone();
    let options = serve(move |frame, out| {
        if crate::support::opcode(frame) == Opcode::GetClusterConfig {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        for revision in 0..50_000 {
            let version = ConfigVersion { epoch: 1, revision };
            write_clustermap_notification(out, b"default", version, b"", 0);
        }
        answer(out, frame, Status::Success, b"\0\0\0\0", b"after the flood");
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let document = client.get(client.default_collection(), b"k").await.unwrap().expect("a hit");
    assert_eq!(document.value, "after the flood");
    let fetches = fetches.load(Ordering::Relaxed);
    assert!((1..100).contains(&fetches), "{fetches} times the map was fetched");
}

/// A server that answers without having been asked loses its connection, not our memory.
#[tokio::test]
async fn floods_of_answers_end_the_connection() {
    let (listener, port) = bind();
    serve_streams(listener, |mut stream: TcpStream, number| {
        if number == 0 {
            shake_hands(&mut stream);
            let mut flood = Vec::new();
            for opaque in 1000..100_000 {
                let parts = ResponseParts::new(Opcode::Get as u8, Status::Success, opaque);
                write_response(&mut flood, &parts);
            }
            // Until the client has had enough.
            while stream.write_all(&flood).is_ok() {}
            return;
        }
        let script = Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
            if !handshake(out, frame) {
                answer(out, frame, Status::Success, b"\0\0\0\0", b"calm");
            }
            ServerAction::GoOn
        });
        serve_one(&mut stream, &script);
    });
    let client = connect(options_for(port)).await;
    let document = client.get(client.default_collection(), b"k").await.unwrap().expect("a hit");
    assert_eq!(document.value, "calm");
}

#[tokio::test]
async fn values_over_the_limit_are_not_sent() {
    let options = serve(|frame, out| {
        assert!(handshake(out, frame), "nothing but the handshake is sent");
        ServerAction::GoOn
    });
    let client = connect(options).await;
    let value = Bytes::from(vec![0; VALUE_BYTES_MAX + 1]);
    let collection = client.default_collection();
    let write = WriteOptions::default();
    let error = client.upsert(collection, b"k", value.clone(), &write).await.unwrap_err();
    let ClientError::ValueTooLarge { len, max } = error else { panic!("{error}") };
    assert_eq!((len, max), (VALUE_BYTES_MAX + 1, VALUE_BYTES_MAX));
    let mut pipeline = client.pipeline(PipelineOptions::default());
    let operation = Operation::upsert(b"k", value, &write);
    pipeline.queue(collection, &operation).unwrap_err();
    assert_eq!(pipeline.in_flight(), 0);
}

/// An answer that is well framed and means nothing is an error of its operation alone.
#[tokio::test]
async fn senseless_answers_fail_their_operation_only() {
    let options = serve(|frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        match crate::support::opcode(frame) {
            Opcode::Increment => answer(out, frame, Status::Success, &[], b"short"),
            Opcode::GetMeta => answer(out, frame, Status::Success, b"short", b""),
            Opcode::SubdocGet => answer(out, frame, Status::Success, &[], b"7"),
            Opcode::SubdocMultiLookup => answer(out, frame, Status::Success, &[], b"\0\0\0"),
            Opcode::CollectionsGetManifest => answer(out, frame, Status::Success, &[], b"{}"),
            _ => {
                let parts = ResponseParts {
                    extras: b"\0\0\0\0",
                    datatype: 0x02,
                    value: b"\xff\xff\xff\xff\x0fnot compressed",
                    ..ResponseParts::new(frame.header.opcode, Status::Success, frame.header.opaque)
                };
                write_response(out, &parts);
            }
        }
        ServerAction::GoOn
    });
    let peer = format!("at 127.0.0.1:{}: protocol error", options.port);
    let client = connect(options).await;
    let collection = client.default_collection();
    let counter = oribi_client::CounterOptions::increment(1);
    let paths = [oribi_client::Lookup::get("a"), oribi_client::Lookup::get("b")];
    let lookup = oribi_client::LookupInOptions::default();
    let errors = [
        client.get(collection, b"k").await.unwrap_err(),
        client.counter(collection, b"k", &counter).await.unwrap_err(),
        client.get_meta(collection, b"k").await.unwrap_err(),
        client.lookup_in(collection, b"k", &paths, &lookup).await.unwrap_err(),
        client.collections_manifest().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
        assert!(error.to_string().contains(&peer), "{error}");
    }
    let one = client.lookup_in(collection, b"k", &paths[..1], &lookup).await.unwrap();
    assert_eq!(one.expect("the connection is fine").values, [Ok(Bytes::from_static(b"7"))]);
}

/// A server that takes only continues talking does not keep a sender waiting.
#[tokio::test]
async fn talking_does_not_move_the_deadline_of_sending() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client connects");
        stream.set_nodelay(true).expect("sockets can be set so");
        let mut frame = Vec::new();
        write_response(&mut frame, &ResponseParts::new(0, Status::Success, 0));
        // A byte at a time, until the client goes away.
        while frame.iter().all(|byte| stream.write_all(&[*byte]).is_ok()) {}
    });
    let timeout = Duration::from_millis(200);
    let mut connection = Connection::open_plain("127.0.0.1", port, timeout).await.unwrap();
    let value = Bytes::from(vec![0; VALUE_BYTES_MAX]);
    // More than any socket buffers hold.
    (0..8).for_each(|_| connection.push_value(&RequestParts::new(Opcode::Set), &value));
    let error = connection.flush().await.unwrap_err();
    assert!(
        matches!(&error, ClientError::Timeout { at, .. } if at.operation == "flush"),
        "{error}"
    );
    let error = connection.flush().await.unwrap_err();
    assert!(matches!(&error, ClientError::Closed { .. }), "nothing more can be done: {error}");
    drop(connection);
    server.join().expect("the server does not panic");
}
