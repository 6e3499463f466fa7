//! Client for servers that speak the Couchbase key-value protocol.
//!
//! Owns: connections (reading, writing, matching answers to requests), the handshake, authentication,
//! cluster maps and routing by them, reconnecting, collection ids, typed operations and pipelined
//! batches of them.
//!
//! Invariants: every request is answered exactly once, by its response or by an error, also when the
//! connection breaks; no operation takes longer than its timeout; no byte from a server makes the
//! client panic; memory held for requests in flight is bounded by what callers ask for ([`pipeline`]).
//! Large values are sent from where they are, never copied.
//!
//! Used by the binary's client subcommands and by tests. Knows no engine: it works against any server
//! of this protocol.
//!
//! # Guide
//!
//! The examples on this page run as tests, against a scripted server that stands in for a real one. It
//! is not shown; `options` is what [`ConnectOptions::new`] gives for a server on this machine, with
//! another port.
//!
//! ## Documents
//!
//! ```standalone_crate
//! # #[path = "../tests/support/mod.rs"] mod support;
//! use bytes::Bytes;
//! use oribi_client::{Client, ClientError, FLAGS_JSON, Refused, WriteOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let options = support::serve_documents();
//! let client = Client::connect(options).await?;
//! let users = client.collection("shop.users").await?;
//!
//! let json = WriteOptions { flags: FLAGS_JSON, ..WriteOptions::default() };
//! let (cas, _) = client.upsert(&users, b"user:1", Bytes::from_static(b"{}"), &json).await?;
//! let user = client.get(&users, b"user:1").await?.expect("it was just written");
//! assert_eq!((&user.value[..], user.cas), (&b"{}"[..], cas));
//!
//! // A miss is no error for a read; what a server decides against is, and says why.
//! assert_eq!(client.get(&users, b"user:2").await?, None);
//! match client.add(&users, b"user:1", Bytes::new(), &json).await {
//!     Err(ClientError::Refused(Refused::Exists)) => {}
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## What can go wrong
//!
//! [`ClientError`] tells what a caller can do about it:
//!
//! | error | what happened | what to do |
//! |---|---|---|
//! | [`ClientError::Refused`] | the server decided against it | see [`Refused`]; what may pass by itself was tried again until the timeout |
//! | [`ClientError::NotSent`] | it never reached the server | anything may be tried again |
//! | [`ClientError::Timeout`], [`ClientError::Closed`] | it may or may not have been carried out | reads were tried again where that is possible; of a write, read what became of it |
//! | [`ClientError::Protocol`] | the answer makes no sense | report it; the text names server and operation |
//! | [`ClientError::Authentication`] | name or password are wrong, also after a reconnect | not solved by trying again |
//!
//! No operation takes longer than [`ConnectOptions::operation_timeout`], whatever servers do.
//! Connections that end are opened again with growing pauses; operations wait for that.
//!
//! ```standalone_crate
//! # #[path = "../tests/support/mod.rs"] mod support;
//! use std::time::Duration;
//! use oribi_client::{Client, ClientError, ConnectOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let options = support::serve_nothing();
//! // This server says nothing any more once a client is connected.
//! let timeout = Duration::from_millis(50);
//! let client = Client::connect(ConnectOptions { operation_timeout: timeout, ..options }).await?;
//! match client.get(client.default_collection(), b"user:1").await {
//!     Err(ClientError::Timeout { at, after }) => {
//!         assert_eq!((at.operation, after), ("Get", timeout));
//!     }
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Many operations at once
//!
//! A [`pipeline`] keeps thousands of operations in flight from one task and yields their results in
//! order. [`Client`] may also be shared by any number of tasks, whose requests then travel together.
//!
//! ## Several nodes
//!
//! [`ConnectOptions::host`] and [`ConnectOptions::seeds`] only say where to ask first. The cluster map
//! names the nodes, and every operation goes to the one that its key's vbucket is on. A node that
//! refuses because the vbucket has moved makes the client take the newer map and try there; servers
//! that announce new maps are listened to. [`Client::config`] shows the present map.
//!
//! ## A connection of one's own
//!
//! [`Connection`] is one socket, one task, no routing and no retries: frames in, frames out, borrowed
//! from the receive buffer. Statistics of any size ([`Connection::stats`]), range scans ([`Connection::scan`]) and load
//! generators use it.

#![forbid(unsafe_code)]

mod batch;
mod bootstrap;
mod client;
mod cluster;
mod collection;
mod compression;
mod config;
mod config_watch;
mod connection;
mod documents;
mod error;
pub mod frame_reader;
mod multiplexer;
mod node;
mod operation;
mod persistence;
pub mod pipeline;
mod range_scan;
mod reply;
mod response;
mod retry;
mod sasl;
mod socket;
mod stats;
mod subdocument;
mod tls;

pub use bootstrap::ConnectOptions;
pub use client::Client;
pub use collection::{Collection, CollectionsManifest, ManifestCollection, ManifestScope};
pub use config::{ClusterConfig, KvNode};
pub use connection::Connection;
pub use error::{ClientError, Malformed, PathError, Refused, Site};
pub use operation::{CounterOptions, FLAGS_JSON, Operation, WriteOptions};
pub use persistence::ObservedSeqno;
pub use range_scan::{DocumentScan, ScanPage, ScanRange, ScannedDocument};
pub use reply::{Document, DocumentMeta, MutationToken, Reply};
pub use response::Response;
pub use sasl::Mechanism;
pub use stats::{Stat, StatStream};
pub use subdocument::{
    DocumentPolicy, Lookup, LookupInOptions, LookupInReply, MutateInOptions, MutateInReply,
    PATH_BYTES_MAX, PATHS_MAX, PathMutation,
};
pub use tls::{Tls, TlsFileError, TlsOptions};
