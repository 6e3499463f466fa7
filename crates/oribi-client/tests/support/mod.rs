//! A scripted server: real sockets, canned behaviour.
//!
//! It does the handshake by itself (PLAIN, or SCRAM as far as a test wants) and hands every other
//! request to the test's closure, which appends answers. One thread a connection; the closure is shared.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use oribi_client::{ConnectOptions, Mechanism};
use oribi_protocol::feature::Feature;
use oribi_protocol::frame::{self, Decoded, Frame};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::response::{ResponseParts, write_response};
use oribi_protocol::status::Status;

/// What the server does after a request.
pub enum Then {
    /// Sends what was appended so far, once no whole request is waiting.
    GoOn,
    /// Sends what was appended and closes.
    Close,
}

/// Starts a server on a free port and returns options that lead to it.
pub fn serve<F>(script: F) -> ConnectOptions
where
    F: FnMut(&Frame<'_>, &mut Vec<u8>) -> Then + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let port = listener.local_addr().expect("it is bound").port();
    let script = Arc::new(Mutex::new(script));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("connections are accepted");
            let script = script.clone();
            std::thread::spawn(move || serve_one(stream, &script));
        }
    });
    ConnectOptions {
        port,
        mechanism: Mechanism::Plain,
        ..ConnectOptions::new("user", "secret", "default")
    }
}

fn serve_one<F>(mut stream: std::net::TcpStream, script: &Mutex<F>)
where
    F: FnMut(&Frame<'_>, &mut Vec<u8>) -> Then,
{
    let mut received = Vec::new();
    let mut block = vec![0; 1 << 16];
    loop {
        let mut answers = Vec::new();
        let mut closing = false;
        while let Ok(Decoded::Complete { frame, consumed }) = frame::decode(&received) {
            let mut script = script.lock().expect("no script panics and goes on");
            closing |= matches!(script(&frame, &mut answers), Then::Close);
            received.drain(..consumed);
        }
        if stream.write_all(&answers).is_err() || closing {
            return;
        }
        match stream.read(&mut block) {
            Ok(0) | Err(_) => return,
            Ok(bytes) => received.extend_from_slice(&block[..bytes]),
        }
    }
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
