//! The protobuf messages of Kudu's RPC, as hand-written prost derives: one file per area of Kudu's own
//! definitions, only the messages and fields that this client sends or reads.
//!
//! Invariants: a field number here is the number in Kudu's definition; every name carries the suffix
//! `Pb`, so that a message cannot be mistaken for the client's own type of the same meaning; enumerations
//! are read as plain integers, because a newer server may send a value that this client does not know.
//! Kudu uses proto2: a `required` field is always written, and a missing one is read as its default, so
//! that whoever needs the difference checks the value. Byte fields are [`bytes::Bytes`], which a message
//! decoded from a received block shares with the block. Called by everything that talks to a server.
//! It deliberately does not convert: each owner of a client type does that next to the type.

pub(crate) mod client;
pub(crate) mod common;
pub(crate) mod master;
pub(crate) mod rpc;
pub(crate) mod tserver;
