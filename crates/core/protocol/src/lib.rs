//! Sans-I/O codec for the memcached binary protocol as Couchbase clients speak it, and for
//! memcached's text protocol ([`text`]).
//!
//! It owns every fact about bytes on the wire: header layout, opcodes, statuses, HELLO features,
//! frame infos, collection prefixes, extras, the key hash and limits. It also owns the buffers for
//! reading and writing frames.
//!
//! Invariants: no function here does I/O. Decoding borrows from its input and never allocates. No
//! input makes a function here panic. Encoders append to the caller's buffer.
//!
//! The server and the client use it. Other crates decide what an operation means, its permissions,
//! and which status answers which outcome.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod change_cursor;
pub mod change_line;
pub mod change_token;
pub mod dcp;
pub mod feature;
pub mod frame;
pub mod frame_info;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
pub mod hash;
pub mod leb128;
pub mod limits;
pub mod magic;
pub mod opcode;
pub mod proxy_header;
pub mod read_buffer;
pub mod request;
pub mod response;
pub mod status;
pub mod sub_document;
pub mod text;
pub mod write_buffer;

/// The README's example runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
