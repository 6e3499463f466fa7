//! The transport matrix: every operation on documents over every way a connection can speak
//! (extended attributes, JSON, Snappy, collections, TLS; each negotiated or not), and values at the
//! limit.
//!
//! The operations are one table, and a row says what a client sees whatever it negotiated; what
//! depends on the transport (datatype bits, key prefix, whether attributes may be named) follows
//! from it by rule.

// What sets a test up and fails, fails its test, which is all that `unwrap` does.
#![allow(clippy::unwrap_used)]

mod connection;
mod sizes;

use std::collections::BTreeSet;

use oribi_protocol::opcode::Opcode::{self, *};
use oribi_protocol::request::{CounterExtras, RequestParts};
use oribi_protocol::status::Status;

use connection::{Connection, Fixture, Transport, compressed};

const JSON: u8 = 1;
const SNAPPY: u8 = 2;
const XATTR: u8 = 4;
const XATTR_PATH: u8 = 4;

const SET_EXTRAS: &[u8] = &[0; 8];

/// The part of the answer that a row checks.
enum ExpectedReply {
    Status(Status),
    /// A document that is stored as it was sent, with or without the JSON bit.
    Document(&'static str, u8),
    /// A document that the server has put together.
    Joined(&'static str, u8),
    /// A value that is no document.
    Value(&'static [u8]),
}

/// One row: what is sent, and what is seen.
struct Row(Opcode, Extras, &'static str, ExpectedReply);

enum Extras {
    Bytes(&'static [u8]),
    Counter,
    /// Flags of the path, which is so long.
    Path(u8, u8),
}

use ExpectedReply::{Document, Joined, Value};
use Extras::{Bytes, Counter, Path};

/// A text that shrinks when it is compressed.
macro_rules! text {
    () => {
        "text text text text text text text text text text text text text text "
    };
}

const NONE: Extras = Bytes(&[]);
const RECORD: &str = r#"{"name":"name name name name name name name","n":1,"list":[1,2,3],"more":"name name name name name"}"#;
const UPDATED: &str = r#"{"name":"name name name name name name name","n":2,"list":[1,2,3],"more":"name name name name name"}"#;
const TEXT: &str = text!();
const JOINED: &str = concat!(text!(), text!(), text!());

const fn status(status: Status) -> ExpectedReply {
    ExpectedReply::Status(status)
}

const DONE: ExpectedReply = status(Status::Success);

/// In this order on one document. Rows of attributes are in [`ATTRIBUTE_ROWS`].
const ROWS: [Row; 33] = [
    Row(Get, NONE, "", status(Status::KeyEnoent)),
    Row(Replace, Bytes(SET_EXTRAS), RECORD, status(Status::KeyEnoent)),
    Row(Add, Bytes(SET_EXTRAS), RECORD, DONE),
    Row(Add, Bytes(SET_EXTRAS), RECORD, status(Status::KeyEexists)),
    Row(Get, NONE, "", Document(RECORD, JSON)),
    Row(Getk, NONE, "", Document(RECORD, JSON)),
    Row(SubdocGet, Path(0, 4), "list", Value(b"[1,2,3]")),
    Row(SubdocExists, Path(0, 1), "n", DONE),
    Row(SubdocGetCount, Path(0, 4), "list", Value(b"3")),
    Row(SubdocMultiLookup, NONE, "\u{5}", status(Status::Einval)),
    Row(Touch, Bytes(&[0, 0, 1, 0]), "", DONE),
    Row(Gat, Bytes(&[0, 0, 2, 0]), "", Document(RECORD, JSON)),
    Row(SubdocReplace, Path(0, 1), "n2", DONE),
    Row(Get, NONE, "", Joined(UPDATED, JSON)),
    Row(Replace, Bytes(SET_EXTRAS), TEXT, DONE),
    Row(Get, NONE, "", Document(TEXT, 0)),
    Row(SubdocGet, Path(0, 1), "n", status(Status::SubdocDocNotJson)),
    Row(Append, NONE, TEXT, DONE),
    Row(Prepend, NONE, TEXT, DONE),
    Row(Get, NONE, "", Joined(JOINED, 0)),
    Row(GetMeta, NONE, "", DONE),
    Row(Increment, Counter, "", status(Status::DeltaBadval)),
    Row(Set, Bytes(SET_EXTRAS), "41", DONE),
    Row(Increment, Counter, "", Value(&[0, 0, 0, 0, 0, 0, 0, 42])),
    Row(Decrement, Counter, "", Value(&[0, 0, 0, 0, 0, 0, 0, 41])),
    Row(Get, NONE, "", Joined("41", JSON)),
    Row(Set, Bytes(SET_EXTRAS), RECORD, DONE),
    Row(SubdocDictUpsert, Path(0, 1), "n2", DONE),
    Row(SubdocCounter, Path(0, 1), "n5", Value(b"7")),
    Row(SubdocDelete, Path(0, 1), "n", DONE),
    Row(Delete, NONE, "", DONE),
    Row(Delete, NONE, "", status(Status::KeyEnoent)),
    Row(Get, NONE, "", status(Status::KeyEnoent)),
];

/// With attributes; refused as a whole by a connection that did not ask for them.
const ATTRIBUTE_ROWS: [Row; 7] = [
    Row(Set, Bytes(SET_EXTRAS), TEXT, DONE),
    Row(SubdocDictUpsert, Path(XATTR_PATH, 1), "a[1,2]", DONE),
    Row(SubdocGet, Path(XATTR_PATH, 4), "a[1]", Value(b"2")),
    Row(Get, NONE, "", Document(TEXT, 0)),
    Row(Set, Bytes(SET_EXTRAS), RECORD, DONE),
    Row(SubdocGet, Path(XATTR_PATH, 4), "a[0]", Value(b"1")),
    Row(Get, NONE, "", Document(RECORD, JSON)),
];

fn run(connection: &mut Connection, transport: Transport, key: &str, row: &Row) {
    let Row(opcode, extras, value, sees) = row;
    let counter = CounterExtras { delta: 1, initial: 0, expiry: 0 }.encode();
    let path;
    let extras: &[u8] = match extras {
        Bytes(bytes) => bytes,
        Counter => &counter,
        Path(flags, bytes) => {
            path = [0, *bytes, *flags];
            &path
        }
    };
    let is_value = matches!(opcode, Set | Add | Replace | Append | Prepend);
    let json = if transport.json && is_value { JSON } else { 0 };
    let (sent, datatype) = match is_value && transport.snappy {
        true => (compressed(value.as_bytes()), SNAPPY | json),
        false => (value.as_bytes().to_vec(), json),
    };
    let parts = RequestParts { extras, value: &sent, datatype, ..RequestParts::new(*opcode) };
    let reply = connection.document(key, &parts);
    let context = format!("{opcode:?} {value:?} over {transport:?}");
    let names_attribute = extras.len() == 3 && extras[2] & XATTR_PATH != 0;
    if names_attribute && !transport.xattr {
        return assert_eq!(reply.status, Status::NotSupported, "{context}");
    }
    let (wanted, wanted_datatype) = match sees {
        ExpectedReply::Status(status) => return assert_eq!(reply.status, *status, "{context}"),
        Document(text, json) => (text.as_bytes(), *json | SNAPPY),
        Joined(text, json) => (text.as_bytes(), *json),
        Value(bytes) => (*bytes, reply.datatype),
    };
    assert_eq!(reply.status, Status::Success, "{context}");
    assert_eq!(reply.value, wanted, "{context}");
    let shown = datatype_of(transport.json, transport.snappy);
    assert_eq!(reply.datatype, wanted_datatype & shown, "{context}");
    let key = if *opcode == Getk { connection.key_field(key) } else { Vec::new() };
    assert_eq!(reply.key, key, "{context}");
}

/// Datatypes that no client may send, and datatypes that need negotiation.
fn check_datatypes(connection: &mut Connection, transport: Transport) {
    let text = compressed(TEXT.as_bytes());
    for (datatype, value, is_negotiated) in [
        (JSON, TEXT.as_bytes(), transport.json),
        (SNAPPY, &text, transport.snappy),
        (SNAPPY | JSON, &text, transport.snappy && transport.json),
        // Not a stream; attributes in a plain store; no such bit.
        (SNAPPY, TEXT.as_bytes(), false),
        (XATTR, b"\0\0\0\0body", false),
        (0x08, TEXT.as_bytes(), false),
    ] {
        let extras = SET_EXTRAS;
        let parts = RequestParts { extras, value, datatype, ..RequestParts::new(Set) };
        let status = connection.document("datatypes", &parts).status;
        let wanted = if is_negotiated { Status::Success } else { Status::Einval };
        assert_eq!(status, wanted, "datatype {datatype} over {transport:?}");
    }
}

#[test]
fn every_operation_over_every_transport() {
    let fixture = Fixture::start();
    for (number, transport) in Transport::all().enumerate() {
        let mut connection = fixture.connect(transport);
        let key = format!("document {number}");
        for row in ROWS.iter().chain(&ATTRIBUTE_ROWS) {
            run(&mut connection, transport, &key, row);
        }
        check_datatypes(&mut connection, transport);
        connection.assert_usable();
    }
}

#[test]
fn each_transport_reads_what_another_stores() {
    let fixture = Fixture::start();
    let mut seen = BTreeSet::new();
    for writer in Transport::all() {
        run(
            &mut fixture.connect(writer),
            writer,
            "shared",
            &Row(Set, Bytes(SET_EXTRAS), RECORD, DONE),
        );
        for reader in [writer, opposite(writer)] {
            let parts = RequestParts::new(Get);
            let reply = fixture.connect(reader).document("shared", &parts);
            assert_eq!(reply.value, RECORD.as_bytes(), "{writer:?} to {reader:?}");
            let is_compressed = writer.snappy && reader.snappy;
            let datatype = datatype_of(reader.json, is_compressed);
            assert_eq!(reply.datatype, datatype, "{writer:?} to {reader:?}");
            seen.insert(datatype);
        }
    }
    assert_eq!(seen.len(), 4, "each datatype was shown to somebody");
}

fn datatype_of(json: bool, snappy: bool) -> u8 {
    let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
    bit(json, JSON) | bit(snappy, SNAPPY)
}

fn opposite(transport: Transport) -> Transport {
    let Transport { tls, collections, xattr, json, snappy } = transport;
    Transport { tls: !tls, collections: !collections, xattr: !xattr, json: !json, snappy: !snappy }
}
