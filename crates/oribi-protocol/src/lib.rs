//! Sans-I/O codec for the memcached binary protocol as Couchbase clients speak it.
//!
//! Owns: every fact about bytes on the wire, that is header layout, opcodes, statuses, HELLO features,
//! frame infos, collection prefixes, extras, the key hash, limits, and the buffers that frames are
//! read from and written to.
//!
//! Invariants: no function here does I/O; decoding borrows from its input and never allocates;
//! no sequence of input bytes makes anything here panic. Encoders append to a buffer of the caller.
//!
//! Used by the server and by the client. What an operation means, who may do it and which status
//! answers which outcome is decided elsewhere.

#![forbid(unsafe_code)]

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
pub mod read_buffer;
pub mod request;
pub mod response;
pub mod status;
pub mod sub_document;
pub mod write_buffer;
