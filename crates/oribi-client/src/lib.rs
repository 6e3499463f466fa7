//! Client for servers that speak the Couchbase key-value protocol.
//!
//! Owns: connections (reading, writing, matching answers to requests), the handshake, authentication,
//! cluster maps, collection ids, typed operations and pipelined batches of them.
//!
//! Invariants: every request is answered exactly once, by its response or by an error, also when the
//! connection breaks; no byte from a server makes the client panic; memory held for requests in
//! flight is bounded by what callers ask for ([`pipeline`]). Large values are sent from where they
//! are, never copied.
//!
//! Used by the binary's `doc` subcommands and by tests. Knows no engine: it works against any server
//! of this protocol. One node and one connection per [`Client`]; it does not reconnect.

#![forbid(unsafe_code)]

mod bootstrap;
mod client;
mod config;
mod connection;
mod error;
pub mod frame_reader;
mod multiplexer;
mod operation;
pub mod pipeline;
mod response;
mod sasl;
mod stats;

pub use bootstrap::ConnectOptions;
pub use client::{Client, Collection};
pub use config::{ClusterConfig, KvNode};
pub use connection::Connection;
pub use error::{ClientError, Malformed, Refused, Site};
pub use operation::{
    CounterOptions, Document, FLAGS_JSON, MutationToken, Operation, Reply, WriteOptions,
};
pub use response::Response;
pub use sasl::Mechanism;
pub use stats::{Stat, StatStream};
