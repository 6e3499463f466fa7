//! Tests every opcode over the in-memory harness: the client's bytes and the server's answers.

mod access;
mod bad_input;
mod collections;
mod dcp;
mod documents;
mod durability;
mod fetches;
mod handshake;
mod locks;
mod memcached;
mod memory;
mod meta;
mod observing;
mod privileges;
mod quiet;
mod raised;
mod range_scan;
mod replicas;
mod stats;
mod stream;
mod text;
mod tracing;
mod with_meta;

use std::sync::Arc;

use oribi_auth::{Access, Identity};
use oribi_protocol::frame::{DecodedFrame, decode};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{CounterExtras, RequestParts, SetExtras, encode_request};
use oribi_protocol::status::Status;
use oribi_types::Vbid;

use crate::harness::{ConnectionHarness, HARNESS_VBUCKETS};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HandlerReply {
    pub(super) opcode: u8,
    pub(super) status: Status,
    pub(super) opaque: u32,
    pub(super) cas: u64,
    pub(super) datatype: u8,
    pub(super) extras: Vec<u8>,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
}

/// Decodes a whole output; anything other than complete answers is a failure.
fn replies(mut output: &[u8]) -> Vec<HandlerReply> {
    let mut replies = Vec::new();
    while !output.is_empty() {
        let Ok(DecodedFrame::Complete { frame, consumed }) = decode(output) else {
            panic!("the output is not a list of complete frames");
        };
        replies.push(HandlerReply {
            opcode: frame.header.opcode,
            status: Status::from_u16(frame.header.vbucket_or_status).unwrap(),
            opaque: frame.header.opaque,
            cas: frame.header.cas,
            datatype: frame.header.datatype,
            extras: frame.extras.to_vec(),
            key: frame.key.to_vec(),
            value: frame.value.to_vec(),
        });
        output = &output[consumed..];
    }
    replies
}

/// One request as bytes.
fn bytes(parts: &RequestParts<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&mut out, parts);
    out
}

/// A request about a document of the default collection, with the vbucket that clients compute for
/// it.
pub(super) fn about<'a>(opcode: Opcode, key: &'a [u8]) -> RequestParts<'a> {
    let vbid = vbucket_of(key, HARNESS_VBUCKETS);
    RequestParts { vbid, key, opaque: 0x0102_0304, ..RequestParts::new(opcode) }
}

/// A client that talks to one harness.
pub(super) struct Client {
    pub(super) harness: ConnectionHarness,
}

/// All features that this server grants, except collections.
pub(super) const MODERN: [u16; 23] = [
    3, 4, 6, 7, 8, 0x0a, 0x0b, 0x0c, 0x0e, 0x10, 0x11, 0x13, 0x14, 0x15, 0x17, 0x18, 0x19, 0x1c,
    0x1d, 0x1e, 0x20, 0x21, 0x22,
];

pub(super) const SET_EXTRAS: [u8; 8] = [0, 0, 0, 7, 0, 0, 0, 0];

impl Client {
    /// A memcached client: no HELLO, no authentication.
    fn legacy() -> Client {
        Client { harness: ConnectionHarness::new() }
    }

    /// A client library: features negotiated, user authenticated, bucket selected.
    fn with_features(codes: &[u16]) -> Client {
        Client::on(ConnectionHarness::new(), codes)
    }

    /// The same on the caller's harness.
    pub(super) fn on(harness: ConnectionHarness, codes: &[u16]) -> Client {
        let mut client = Client { harness };
        client.hello(codes);
        let plain = RequestParts {
            key: b"PLAIN",
            value: b"\0Administrator\0password",
            ..RequestParts::new(Opcode::SaslAuth)
        };
        assert_eq!(client.ask(&plain).status, Status::Success);
        let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
        assert_eq!(client.ask(&select).status, Status::Success);
        client
    }

    /// All features that this server grants, except collections.
    pub(super) fn modern() -> Client {
        Client::with_features(&MODERN)
    }

    /// Another client of the same server, whose user has these roles.
    pub(super) fn beside(&self, roles: &[&str]) -> Client {
        self.beside_with(roles, &MODERN)
    }

    /// The same with other features.
    pub(super) fn beside_with(&self, roles: &[&str], features: &[u16]) -> Client {
        let mut client = Client { harness: self.harness.beside() };
        client.hello(features);
        let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
        let identity = Identity {
            name: "ann".to_owned(),
            access: Access::new(roles),
            bucket: None,
            collection: None,
        };
        client.harness.log_in(Arc::new(identity));
        let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
        assert_eq!(client.ask(&select).status, Status::Success);
        client
    }

    fn hello(&mut self, codes: &[u16]) -> HandlerReply {
        let value: Vec<u8> = codes.iter().flat_map(|code| code.to_be_bytes()).collect();
        self.ask(&RequestParts { key: b"test", value: &value, ..RequestParts::new(Opcode::Hello) })
    }

    /// Sends a request and returns all answers.
    fn send(&mut self, parts: &RequestParts<'_>) -> Vec<HandlerReply> {
        replies(&self.harness.feed(&bytes(parts)))
    }

    /// Sends a request that has exactly one answer.
    pub(super) fn ask(&mut self, parts: &RequestParts<'_>) -> HandlerReply {
        let mut replies = self.send(parts);
        assert_eq!(replies.len(), 1, "{parts:?} has {replies:?}");
        let reply = replies.remove(0);
        assert_eq!((reply.opcode, reply.opaque), (parts.opcode as u8, parts.opaque));
        reply
    }

    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> HandlerReply {
        self.ask(&RequestParts { extras: &SET_EXTRAS, value, ..about(Opcode::Set, key) })
    }

    pub(super) fn get(&mut self, key: &[u8]) -> HandlerReply {
        self.ask(&about(Opcode::Get, key))
    }

    pub(super) fn store(&mut self, opcode: Opcode, key: &[u8], value: &[u8]) -> HandlerReply {
        self.ask(&RequestParts { extras: &SET_EXTRAS, value, ..about(opcode, key) })
    }
}

pub(super) fn set_extras(flags: u32, expiry: u32) -> [u8; 8] {
    SetExtras { flags, expiry }.encode()
}

pub(super) fn counter_extras(delta: u64, initial: u64, expiry: u32) -> [u8; 20] {
    CounterExtras { delta, initial, expiry }.encode()
}

fn outside() -> Vbid {
    Vbid(HARNESS_VBUCKETS)
}
