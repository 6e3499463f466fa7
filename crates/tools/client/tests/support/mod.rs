//! A scripted server: real sockets, canned behaviour.
//!
//! It does the handshake by itself (PLAIN, or SCRAM as far as a test wants) and hands every other
//! request to the test's closure, which appends answers. One thread a connection; the closure is
//! shared. Tests that have to break the protocol itself take the streams.

// Each file of tests is its own program and uses another part of this.
#![allow(dead_code)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use oribi_client::{ConnectOptions, Mechanism};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::{self, DecodedFrame, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

/// The server's action after a request.
pub enum ServerAction {
    /// Sends what was appended so far, once no whole request is waiting.
    GoOn,
    /// Sends what was appended and closes.
    Close,
    /// Sends what was appended and leaves the connection to whoever called.
    HandOver,
}

/// A port of the loopback interface, taken before a script runs that has to know it.
pub fn bind() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

/// Options that lead to a server of this module.
pub fn options_for(port: u16) -> ConnectOptions {
    ConnectOptions::new("user", "secret", "default").port(port).mechanism(Mechanism::Plain)
}

/// Starts a server on a free port and returns options that lead to it.
pub fn serve<F>(script: F) -> ConnectOptions
where
    F: FnMut(&Frame<'_>, &mut Vec<u8>) -> ServerAction + Send + 'static,
{
    let (listener, port) = bind();
    serve_on(listener, script);
    options_for(port)
}

/// Starts a server on a listener.
pub fn serve_on<F>(listener: TcpListener, script: F)
where
    F: FnMut(&Frame<'_>, &mut Vec<u8>) -> ServerAction + Send + 'static,
{
    let script = Arc::new(Mutex::new(script));
    serve_streams(listener, move |mut stream, _| serve_one(&mut stream, &*script));
}

/// Starts a server that hands each connection, with its number from 0, to its own thread.
pub fn serve_streams<F>(listener: TcpListener, serve: F)
where
    F: Fn(TcpStream, usize) + Send + Sync + 'static,
{
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(stream) = stream else { return };
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream, number));
        }
    });
}

/// Answers requests until the peer or the script ends the connection.
pub fn serve_one<F>(stream: &mut TcpStream, script: &Mutex<F>)
where
    F: FnMut(&Frame<'_>, &mut Vec<u8>) -> ServerAction,
{
    let mut received = Vec::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let mut answers = Vec::new();
        let mut after = ServerAction::GoOn;
        let mut consumed_bytes = 0;
        while let Ok(DecodedFrame::Complete { frame, consumed }) =
            frame::decode(&received[consumed_bytes..])
        {
            let mut script = script.lock().expect("no script panics and goes on");
            after = script(&frame, &mut answers);
            consumed_bytes += consumed;
            if !matches!(after, ServerAction::GoOn) {
                break;
            }
        }
        received.drain(..consumed_bytes);
        if stream.write_all(&answers).is_err() || matches!(after, ServerAction::Close) {
            return;
        }
        if matches!(after, ServerAction::HandOver) {
            return;
        }
        match stream.read(&mut block) {
            Ok(0) | Err(_) => return,
            Ok(bytes) => received.extend_from_slice(&block[..bytes]),
        }
    }
}

/// Does the handshake and the first request for the cluster map, and leaves everything after it.
/// Only the first connection of a client asks for the map.
pub fn shake_hands(stream: &mut TcpStream) {
    let script = Mutex::new(|frame: &Frame<'_>, out: &mut Vec<u8>| {
        assert!(handshake(out, frame));
        match opcode(frame) {
            Opcode::GetClusterConfig => ServerAction::HandOver,
            _ => ServerAction::GoOn,
        }
    });
    serve_one(stream, &script);
}

/// A request's opcode.
pub fn opcode(frame: &Frame<'_>) -> Opcode {
    Opcode::from_u8(frame.header.opcode).expect("the client sends known opcodes")
}

/// Appends an answer to `frame`.
pub fn answer(out: &mut Vec<u8>, frame: &Frame<'_>, status: Status, extras: &[u8], value: &[u8]) {
    let parts = ResponseParts {
        extras,
        value,
        ..ResponseParts::new(frame.header.opcode, status, frame.header.opaque)
    };
    write_response(out, &parts);
}

/// Appends an answer to `frame` that succeeds with a CAS.
pub fn answer_with_cas(
    out: &mut Vec<u8>,
    frame: &Frame<'_>,
    cas: u64,
    extras: &[u8],
    value: &[u8],
) {
    let parts = ResponseParts {
        cas,
        extras,
        value,
        ..ResponseParts::new(frame.header.opcode, Status::Success, frame.header.opaque)
    };
    write_response(out, &parts);
}

/// Answers the requests of a handshake; false when `frame` is none.
pub fn handshake(out: &mut Vec<u8>, frame: &Frame<'_>) -> bool {
    let value = match Opcode::from_u8(frame.header.opcode) {
        Some(Opcode::Hello) => frame.value.to_vec(),
        Some(Opcode::SaslAuth) => {
            assert_eq!((frame.key, frame.value), (&b"PLAIN"[..], &b"\0user\0secret"[..]));
            Vec::new()
        }
        Some(Opcode::SelectBucket) => {
            assert_eq!(frame.key, b"default");
            Vec::new()
        }
        Some(Opcode::GetClusterConfig) => cluster_map(1, 64),
        _ => return false,
    };
    answer(out, frame, Status::Success, &[], &value);
    true
}

/// As [`handshake`], with only some features granted.
pub fn handshake_with(out: &mut Vec<u8>, frame: &Frame<'_>, features: &[Feature]) -> bool {
    if frame.header.opcode != Opcode::Hello as u8 {
        return handshake(out, frame);
    }
    let codes: Vec<u8> = features.iter().flat_map(|feature| feature.code().to_be_bytes()).collect();
    answer(out, frame, Status::Success, &[], &codes);
    true
}

/// A cluster map of one node.
pub fn cluster_map(revision: u32, vbuckets: usize) -> Vec<u8> {
    let map = vec!["[0]"; vbuckets].join(",");
    format!(
        r#"{{"rev":{revision},"revEpoch":1,"nodesExt":[{{"services":{{"kv":11210}}}}],
           "vBucketServerMap":{{"vBucketMap":[{map}]}}}}"#
    )
    .into_bytes()
}

/// A cluster map of nodes on these ports of the loopback interface. `active` has the position of
/// each vbucket's node.
pub fn cluster_map_of(revision: u32, ports: &[u16], active: &[i32]) -> Vec<u8> {
    let nodes = ports.iter().map(|port| {
        format!(r#"{{"hostname":"127.0.0.1","services":{{"kv":{port},"mgmt":8091}}}}"#)
    });
    let nodes = nodes.collect::<Vec<_>>().join(",");
    let map = active.iter().map(|node| format!("[{node}]")).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"rev":{revision},"revEpoch":1,"nodesExt":[{nodes}],
           "vBucketServerMap":{{"vBucketMap":[{map}]}}}}"#
    )
    .into_bytes()
}

/// A key of each of `vbuckets` vbuckets, at the position of its number.
pub fn key_per_vbucket(vbuckets: u16) -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new(); usize::from(vbuckets)];
    for number in 0.. {
        let key = format!("key{number}").into_bytes();
        let vbid = oribi_protocol::hash::vbucket_of(&key, vbuckets);
        keys[usize::from(vbid.0)] = key;
        if keys.iter().all(|key| !key.is_empty()) {
            return keys;
        }
    }
    unreachable!("numbers do not end")
}

/// Starts a server that does the handshake and then says nothing any more.
pub fn serve_nothing() -> ConnectOptions {
    serve(|frame, out| {
        handshake(out, frame);
        ServerAction::GoOn
    })
}

/// Starts a server that keeps documents in a map, with one collection besides the default one:
/// `shop.users`. For the examples of the documentation.
pub fn serve_documents() -> ConnectOptions {
    let mut documents: HashMap<Vec<u8>, (Vec<u8>, u64)> = HashMap::new();
    let mut last_cas = 0;
    serve(move |frame, out| {
        if handshake(out, frame) {
            return ServerAction::GoOn;
        }
        let known = documents.get(frame.key).cloned();
        match (opcode(frame), known) {
            (Opcode::CollectionsGetId, _) => {
                assert_eq!(frame.value, b"shop.users");
                let id = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8];
                answer(out, frame, Status::Success, &id, b"");
            }
            (Opcode::Add, Some(_)) => answer(out, frame, Status::KeyEexists, &[], b""),
            (Opcode::Set | Opcode::Add, _) => {
                last_cas += 1;
                documents.insert(frame.key.to_vec(), (frame.value.to_vec(), last_cas));
                answer_with_cas(out, frame, last_cas, &[], b"");
            }
            (Opcode::Get, Some((value, cas))) => {
                answer_with_cas(out, frame, cas, b"\0\0\0\0", &value);
            }
            (Opcode::Delete, Some(_)) => {
                documents.remove(frame.key);
                answer(out, frame, Status::Success, &[], b"");
            }
            _ => answer(out, frame, Status::KeyEnoent, &[], b""),
        }
        ServerAction::GoOn
    })
}
