//! The protobuf messages of Kudu's RPC, as hand-written prost derives: one file per area of Kudu's
//! own definitions, with only the messages and fields that this client sends or reads.
//!
//! Invariants: a field number here is the number in Kudu's definition. Every name has the suffix
//! `Pb`, to distinguish a message from the client's own type of the same meaning. Enumerations are
//! read as plain integers, because a newer server may send an unknown value. Kudu uses proto2: a
//! `required` field is always written, and a missing one is read as its default. Code that needs
//! the difference checks the value. Byte fields are [`bytes::Bytes`]; a message decoded from a
//! received block shares them with the block. All code that talks to a server uses these messages.
//! They deliberately contain no conversions: each owner of a client type converts next to the type.

pub(crate) mod client;
pub(crate) mod common;
pub(crate) mod master;
pub(crate) mod rpc;
pub(crate) mod tserver;
