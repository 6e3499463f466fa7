//! Connections that end and come back: what is repeated, what is not, and who waits for what.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use oribi_client::{
    Client, ClientError, Completion, ConnectOptions, Operation, PipelineOptions, WriteOptions,
};
use oribi_protocol::frame::Frame;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;

use crate::support::{
    ServerAction, answer, bind, handshake, opcode, options_for, serve, serve_streams, shake_hands,
};

async fn connect(options: ConnectOptions) -> Client {
    Client::connect(options).await.expect("the handshake succeeds")
}

/// A server that closes the connection at the first operation on each of the first `closes` ones.
fn closing_server(closes: usize) -> (ConnectOptions, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let options = serve(move |frame, out| {
        if opcode(frame) == Opcode::Hello {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        if counted.load(Ordering::SeqCst) <= closes {
            return ServerAction::Close;
        }
        answer(out, frame, Status::Success, b"\0\0\0\0", b"back");
        ServerAction::GoOn
    });
    (options, connections)
}

#[tokio::test]
async fn reads_in_flight_are_repeated() {
    let (options, connections) = closing_server(3);
    let client = connect(options).await;
    let document = client.get(client.default_collection(), b"k").await.unwrap().expect("a hit");
    assert_eq!(document.value, "back");
    assert_eq!(connections.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn in_flight_reads_are_repeated_on_one_connection() {
    let (options, connections) = closing_server(1);
    let client = Arc::new(connect(options).await);
    let reads = (0..50).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let key = format!("key{number}").into_bytes();
            client.get(client.default_collection(), &key).await
        })
    });
    for read in reads.collect::<Vec<_>>() {
        let document = read.await.expect("no task panics").unwrap();
        assert_eq!(document.expect("a hit").value, "back");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

// Invariant: The client repeats reads and writes that were never sent, and reports other
// interrupted writes as unknown.
/// No client knows what became of a write that was in flight, so it is the caller's to decide.
#[tokio::test]
async fn writes_in_flight_fail_and_are_not_repeated() {
    let (options, connections) = closing_server(1);
    let client = connect(options).await;
    let collection = client.default_collection();
    let write = WriteOptions::default();
    let error = client.upsert(collection, b"k", Bytes::new(), &write).await.unwrap_err();
    assert!(error.was_interrupted() && !error.was_not_sent(), "{error}");
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    client.upsert(collection, b"k", Bytes::new(), &write).await.unwrap();
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

// Invariant: The client repeats reads and writes that were never sent, and reports other
// interrupted writes as unknown.
/// A server that takes nothing off its socket at first: a value that the socket did not take to its
/// end, and what stood after it, cannot have been carried out, and is sent again.
#[tokio::test]
async fn writes_that_were_never_sent_are_repeated() {
    let (listener, port) = bind();
    let (sender, close) = std::sync::mpsc::channel::<()>();
    let close = std::sync::Mutex::new(close);
    let values = Arc::new(std::sync::Mutex::new(Vec::new()));
    let carried_out = values.clone();
    serve_streams(listener, move |mut stream, number| {
        if number == 0 {
            shake_hands(&mut stream);
            // Until the test says so, nothing is read.
            close.lock().expect("only this thread").recv().expect("the test goes on");
            return;
        }
        let script = std::sync::Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
            if !handshake(out, frame) {
                assert_eq!(opcode(frame), Opcode::Set);
                carried_out.lock().expect("no panic").push(frame.value.len());
                answer(out, frame, Status::Success, &[], b"");
            }
            ServerAction::GoOn
        });
        crate::support::serve_one(&mut stream, &script);
    });
    let client = Arc::new(connect(options_for(port)).await);
    let write = |value: Bytes| {
        let client = client.clone();
        let options = WriteOptions::default();
        async move { client.upsert(client.default_collection(), b"k", value, &options).await }
    };
    let large = tokio::spawn(write(vec![0; 20_000_000].into()));
    let small = tokio::spawn(write(Bytes::from_static(b"small")));
    // Both tasks have run when this one is polled again; the small one stands after the large one.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    sender.send(()).expect("the server waits for it");
    large.await.expect("no panic").unwrap();
    small.await.expect("no panic").unwrap();
    let mut values = values.lock().expect("no panic").clone();
    values.sort_unstable();
    assert_eq!(values, [5, 20_000_000], "each was carried out once");
}

/// Of a pipeline's writes, those that cannot have been sent say so.
#[tokio::test]
async fn a_pipeline_separates_unsent_from_interrupted() {
    let (listener, port) = bind();
    let (sender, close) = std::sync::mpsc::channel::<()>();
    let close = std::sync::Mutex::new(close);
    serve_streams(listener, move |mut stream, number| {
        shake_hands(&mut stream);
        if number == 0 {
            close.lock().expect("only this thread").recv().expect("the test goes on");
        }
    });
    let client = connect(options_for(port)).await;
    let mut pipeline =
        client.pipeline(PipelineOptions::new().operations_max(100).bytes_max(usize::MAX));
    let value = Bytes::from(vec![0; 1_000_000]);
    for _ in 0..60 {
        let operation = Operation::upsert(b"k", value.clone(), &WriteOptions::default());
        pipeline.queue(client.default_collection(), &operation).unwrap();
    }
    let next = tokio::time::timeout(Duration::from_millis(100), pipeline.next()).await;
    assert!(next.is_err(), "the server answers nothing");
    sender.send(()).expect("the server waits for it");
    let mut unsent = Vec::new();
    while let Some(Completion { result, .. }) = pipeline.next().await {
        let error = result.unwrap_err();
        assert!(error.was_interrupted() || error.was_not_sent(), "{error}");
        unsent.push(error.was_not_sent());
    }
    assert_eq!(unsent.len(), 60);
    assert!(!unsent[0] && unsent[59], "{unsent:?}");
    assert!(unsent.is_sorted(), "once one was not sent, none after it was: {unsent:?}");
}

/// A refusal of name and password is final for everything that waits: one attempt, not one each,
/// and none until the deadline.
#[tokio::test]
async fn revoked_authentication_ends_reconnecting() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let options = serve(move |frame, out| {
        let is_authentication = opcode(frame) == Opcode::SaslAuth;
        if is_authentication && counted.fetch_add(1, Ordering::SeqCst) > 0 {
            answer(out, frame, Status::AuthError, &[], b"");
            return ServerAction::GoOn;
        }
        match handshake(out, frame) {
            true => ServerAction::GoOn,
            false => ServerAction::Close,
        }
    });
    let client = Arc::new(connect(options).await);
    let started = Instant::now();
    let operations = (0..20).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let key = format!("key{number}").into_bytes();
            client.get(client.default_collection(), &key).await
        })
    });
    for operation in operations.collect::<Vec<_>>() {
        let error = operation.await.expect("no task panics").unwrap_err();
        assert!(matches!(error, ClientError::Authentication(_)), "{error}");
    }
    let mut pipeline = client.pipeline(PipelineOptions::default());
    pipeline.queue(client.default_collection(), &Operation::get(b"k")).unwrap();
    let result = pipeline.next().await.expect("one result").result;
    assert!(matches!(result, Err(ClientError::Authentication(_))), "{result:?}");
    // Once for the connection at the start and once again; a third time if a second has passed.
    let attempts = attempts.load(Ordering::SeqCst) as u64;
    assert!(attempts <= 2 + started.elapsed().as_secs(), "{attempts} attempts");
}

/// A port on which a server was and is not any more, and a client that was connected to it.
async fn client_of_a_stopped_server(timeout: Duration) -> (Client, u16) {
    let (listener, port) = bind();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        shake_hands(&mut stream);
    });
    let options = options_for(port).operation_timeout(timeout);
    let client = connect(options).await;
    server.join().expect("the server ends");
    (client, port)
}

#[tokio::test]
async fn without_a_server_operations_end_at_their_deadline() {
    let timeout = Duration::from_millis(200);
    let (client, port) = client_of_a_stopped_server(timeout).await;
    let collection = client.default_collection();
    let started = Instant::now();
    let errors = [
        client.get(collection, b"k").await.unwrap_err(),
        client.delete(collection, b"k", &WriteOptions::default()).await.unwrap_err(),
    ];
    let mut pipeline = client.pipeline(PipelineOptions::default());
    pipeline.queue(collection, &Operation::get(b"k")).unwrap();
    let piped = pipeline.next().await.expect("one result").result.unwrap_err();
    assert!(started.elapsed() < 3 * timeout + Duration::from_secs(3));
    for error in errors.into_iter().chain([piped]) {
        let text = error.to_string();
        assert!(error.was_not_sent() || error.was_interrupted(), "{text}");
        assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    }
}

#[tokio::test]
async fn operations_wait_for_a_server_that_comes_back() {
    let (client, port) = client_of_a_stopped_server(Duration::from_secs(20)).await;
    let client = Arc::new(client);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.get(client.default_collection(), b"k").await }
    });
    let mut pipeline = client.pipeline(PipelineOptions::default());
    // The connection's end may not have been noticed yet; what is sent on it is lost and says so.
    let lost = loop {
        pipeline.queue(client.default_collection(), &Operation::get(b"k")).unwrap();
        let patience = Duration::from_millis(50);
        if tokio::time::timeout(patience, pipeline.next()).await.is_err() {
            break pipeline.in_flight();
        }
    };
    assert_eq!(lost, 1, "this one waits");
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free again");
    crate::support::serve_on(listener, |frame, out| {
        if !handshake(out, frame) {
            answer(out, frame, Status::Success, b"\0\0\0\0", b"back");
        }
        ServerAction::GoOn
    });
    let document = waiting.await.expect("no panic").unwrap().expect("a hit");
    assert_eq!(document.value, "back");
    let reply = pipeline.next().await.expect("one result").result;
    assert_eq!(reply.unwrap().value, "back");
}

/// A pipeline may be filled by a thread that no runtime runs on, also when it has to reconnect.
#[test]
fn a_pipeline_is_filled_from_outside_of_the_runtime() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let (options, _) = closing_server(1);
    let client = runtime.block_on(connect(options));
    let mut pipeline = client.pipeline(PipelineOptions::default());
    let mut replies = Vec::new();
    for _ in 0..3 {
        pipeline.queue(client.default_collection(), &Operation::get(b"k")).unwrap();
        let reply = runtime.block_on(pipeline.next()).expect("one result").result;
        replies.push(reply.map(|reply| reply.value));
    }
    assert!(replies[0].as_ref().is_err_and(ClientError::was_interrupted), "{replies:?}");
    assert!(replies[1..].iter().all(|reply| reply.as_ref().is_ok_and(|value| value == "back")));
}

/// Connections that break in the middle of answers, again and again, under many tasks: no client
/// ever gets another one's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_find_their_requests_over_many_connections() {
    let mut requests = 0;
    let options = serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        requests += 1;
        answer(out, frame, Status::Success, b"\0\0\0\0", &frame.key[1..]);
        if requests % 400 == 0 {
            out.truncate(out.len() - 2);
            return ServerAction::Close;
        }
        ServerAction::GoOn
    });
    let client = Arc::new(connect(options).await);
    let readers = (0..8).map(|reader| {
        let client = client.clone();
        tokio::spawn(async move {
            for number in 0..100 {
                let key = format!("key-{reader}-{number}").into_bytes();
                let document = client.get(client.default_collection(), &key).await.expect("a read");
                assert_eq!(document.expect("a hit").value, key);
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let mut pipeline =
        client.pipeline(PipelineOptions::new().operations_max(50).bytes_max(usize::MAX));
    let (mut answered, mut failed) = (0, 0);
    for number in 0..1000 {
        let key = format!("key-{number}");
        pipeline.queue(client.default_collection(), &Operation::get(key.as_bytes())).unwrap();
        if !pipeline.is_full() && number < 999 {
            continue;
        }
        while let Some(Completion { number, result, .. }) = pipeline.next().await {
            match result {
                Ok(reply) => {
                    assert_eq!(reply.value, format!("key-{number}"));
                    answered += 1;
                }
                Err(error) => {
                    assert!(error.was_interrupted() || error.was_not_sent(), "{error}");
                    failed += 1;
                }
            }
        }
    }
    assert_eq!(answered + failed, 1000);
    assert!(answered > failed, "{failed} failed");
    for reader in readers {
        reader.await.expect("no reader panics");
    }
}
