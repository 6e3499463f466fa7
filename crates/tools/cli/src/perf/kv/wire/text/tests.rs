//! Answers belong to their operations however they are torn, and strange ones are errors.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::thread::JoinHandle;

use super::*;
use crate::perf::kv::value::{KvValueForm, KvValues, ValueIdentity};

/// Answers with `answers`, in pieces of `piece` bytes, whatever is asked; returns what was sent.
fn serve(answers: &str, piece: usize) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let bytes = format!("VERSION 1\r\n{answers}").into_bytes();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in bytes.chunks(piece) {
            // A client that has found an error is gone.
            if stream.write_all(piece).is_err() {
                break;
            }
        }
        stream.shutdown(Shutdown::Write).unwrap_or_default();
        let mut sent = Vec::new();
        // The connection may end with a reset, after everything was read.
        let _ = stream.read_to_end(&mut sent);
        String::from_utf8_lossy(&sent).into_owned()
    });
    (port, server)
}

fn read(index: u64) -> KvOperation {
    let kind = OperationKind::Get;
    KvOperation { index, due_ns: 0, value_bytes: 0, version: 0, collection: 0, attempts: 0, kind }
}

/// Opaque, status and text of each answer.
type Answers = Vec<(u32, u16, String)>;

/// Commands, operations, what the server answers, status and text of each answer, and what is sent.
type Case = (
    TextCommands,
    &'static [OperationKind],
    &'static str,
    &'static [(Status, &'static str)],
    &'static [&'static str],
);

/// Results of the operations `kinds`, on the documents 0, 1, ..., and what was sent.
fn outcome(
    commands: TextCommands,
    kinds: &[OperationKind],
    answers: &str,
    piece: usize,
) -> (anyhow::Result<Answers>, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (port, server) = serve(answers, piece);
    let found = runtime.block_on(async {
        let options = ConnectOptions::new("", "", "").port(port);
        let mut keys = KeyField::new("", None, "k", 1, 10);
        let mut wire = TextWire::open(&options, false, commands, keys.clone()).await?;
        let mut values = KvValues::new(KvValueForm::Binary, 2..=2, false, 0);
        for (index, kind) in kinds.iter().enumerate() {
            let operation = KvOperation { kind: *kind, ..read(index as u64) };
            let opaque = 100 + index as u32;
            let key = keys.set(operation.index);
            match kind {
                OperationKind::Get => wire.push_get(&operation, key, opaque),
                OperationKind::Set => {
                    let identity = ValueIdentity { index: operation.index, seed: 0 };
                    wire.push_set(&operation, key, opaque, (5, 0), &values.compose(identity, 0, 2));
                }
            }
        }
        wire.flush().await?;
        let mut found = Vec::new();
        for _ in kinds {
            let answer = wire.next().await?;
            let text = if answer.line.is_empty() { answer.value } else { answer.line };
            found.push((answer.opaque, answer.status, String::from_utf8_lossy(text).into_owned()));
        }
        Ok(found)
    });
    (found, server.join().unwrap())
}

const GET: OperationKind = OperationKind::Get;
const SET: OperationKind = OperationKind::Set;
const OK: Status = Status::Success;
const MISS: Status = Status::KeyEnoent;
const SINGLE: TextCommands = TextCommands::Text { keys_per_get: 1 };
const MULTI: TextCommands = TextCommands::Text { keys_per_get: 3 };

/// A set and its value, which the test does not look at, in the words of `sent`.
fn without_values(sent: &str) -> Vec<&str> {
    let lines: Vec<&str> = sent.split("\r\n").collect();
    lines.into_iter().filter(|line| line.contains(' ')).collect()
}

#[test]
fn torn_answers_match_their_operations() {
    let cases: &[Case] = &[
        (
            SINGLE,
            &[GET, SET, GET],
            "VALUE k0 0 4\r\n\r\nEN\r\nEND\r\nSTORED\r\nEND\r\n",
            &[(OK, "\r\nEN"), (OK, "STORED"), (MISS, "")],
            &["get k0", "set k1 5 0 2", "get k2"],
        ),
        (
            MULTI,
            &[GET, GET, GET, GET, GET],
            "VALUE k1 0 0\r\n\r\nEND\r\nVALUE k3 9 1\r\na\r\nVALUE k4 0 1\r\nb\r\nEND\r\n",
            &[(MISS, ""), (OK, ""), (MISS, ""), (OK, "a"), (OK, "b")],
            &["get k0 k1 k2", "get k3 k4"],
        ),
        // A write between reads ends their command.
        (
            MULTI,
            &[GET, GET, SET, GET],
            "END\r\nNOT_STORED\r\nVALUE k3 0 1\r\nc\r\nEND\r\n",
            &[(MISS, ""), (MISS, ""), (Status::NotStored, "NOT_STORED"), (OK, "c")],
            &["get k0 k1", "set k2 5 0 2", "get k3"],
        ),
        // A refusal is one for the rest of its command.
        (
            MULTI,
            &[GET, GET, GET, GET],
            "VALUE k0 0 1\r\nd\r\nSERVER_ERROR out of memory\r\nEND\r\n",
            &[
                (OK, "d"),
                (Status::Enomem, "SERVER_ERROR out of memory"),
                (Status::Enomem, "SERVER_ERROR out of memory"),
                (MISS, ""),
            ],
            &["get k0 k1 k2", "get k3"],
        ),
        (
            TextCommands::Meta,
            &[GET, SET, GET, GET],
            "VA 3 O100\r\nabc\r\nHD O101\r\nEN\r\nEN O103\r\n",
            &[(OK, "abc"), (OK, "HD O101"), (MISS, "EN"), (MISS, "EN O103")],
            &["mg k0 v O100", "ms k1 2 O101 F5", "mg k2 v O102", "mg k3 v O103"],
        ),
    ];
    for (commands, kinds, answers, expected, lines) in cases {
        for piece in [1, 2, 3, 5, 1000] {
            let (found, sent) = outcome(*commands, kinds, answers, piece);
            let expected: Vec<_> = (100..)
                .zip(*expected)
                .map(|(opaque, (status, text))| (opaque, status.code(), (*text).to_owned()))
                .collect();
            assert_eq!(found.unwrap(), expected, "{answers:?} in pieces of {piece}");
            assert_eq!(without_values(&sent), *lines);
        }
    }
}

#[test]
fn strange_answers_are_errors() {
    let long = "x".repeat(5000);
    let cases: &[(TextCommands, &[OperationKind], &str, &str)] = &[
        (SINGLE, &[GET], "VALUE k1 0 1\r\na\r\nEND\r\n", "not asked for: \"k1\""),
        (SINGLE, &[GET], "VALUE k0 0 1\r\nab\r\nEND\r\n", "without its end"),
        (SINGLE, &[GET], "VALUE k0 0 1\r\na\r\nVALUE k0 0 1\r\n", "without its end"),
        (SINGLE, &[GET], "VALUE k0 0 99999999999\r\n", "no answer"),
        (SINGLE, &[GET], "STORED\r\n", "another request"),
        (SINGLE, &[GET], "VA 1 O100\r\na\r\n", "another request"),
        (SINGLE, &[SET], "END\r\n", "another request"),
        (SINGLE, &[SET], &long, "without an end"),
        (SINGLE, &[SET], "hello\r\n", "no answer: \"hello\""),
        (SINGLE, &[SET], "", "closed the connection"),
        (
            MULTI,
            &[GET, GET, GET],
            "VALUE k1 0 1\r\na\r\nVALUE k0 0 1\r\nb\r\nEND\r\n",
            "not asked for",
        ),
        (
            TextCommands::Meta,
            &[GET, GET],
            "VA 1 O101\r\na\r\nVA 1 O100\r\nb\r\n",
            "opaque of another",
        ),
        (TextCommands::Meta, &[GET], "VA 1\r\na\r\n", "opaque of another"),
        (TextCommands::Meta, &[SET], "HD O7\r\n", "another request"),
        (TextCommands::Meta, &[GET], "HD O100\r\n", "another request"),
    ];
    for (commands, kinds, answers, reason) in cases {
        let (found, _) = outcome(*commands, kinds, answers, 1000);
        let error = format!("{:#}", found.expect_err(answers));
        assert!(error.contains(reason), "{answers:?}: {error}");
    }
}
