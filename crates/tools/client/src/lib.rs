//! A fast client for servers that speak the memcached binary protocol as Couchbase extends it.
//!
//! [`Client`] routes operations over the nodes of a cluster, reconnects, and repeats what can do no
//! harm. [`Pipeline`] keeps thousands of operations in flight from one task. [`Connection`] is one
//! socket that one task owns, without routing or retries.
//!
//! Invariants: every request is answered exactly once, by its response or by an error, also when
//! the connection breaks. No operation takes longer than its timeout. No byte from a server makes
//! the client panic. Callers bound the memory that requests in flight hold ([`PipelineOptions`]).
//! Large values are sent from where they are, never copied. The crate knows nothing of the
//! engine: it works against any server of this protocol.
//!
//! # Guide
//!
//! 1. [Connect and authenticate](#connect-and-authenticate)
//! 2. [Documents](#documents)
//! 3. [Counters](#counters)
//! 4. [Parts of documents](#parts-of-documents)
//! 5. [Collections](#collections)
//! 6. [Durability](#durability)
//! 7. [Many operations at once](#many-operations-at-once)
//! 8. [Several nodes](#several-nodes)
//! 9. [TLS](#tls)
//! 10. [Range scans](#range-scans)
//! 11. [Change streams](#change-streams)
//! 12. [A connection of your own](#a-connection-of-your-own)
//! 13. [Errors and retries](#errors-and-retries)
//! 14. [Timeouts](#timeouts)
//!
//! Some examples run as tests against a scripted server, which is not shown; `options` is then what
//! [`ConnectOptions::new`] gives, with that server's port. The others compile.
//!
//! ## Connect and authenticate
//!
//! [`ConnectOptions`] says where to connect, as whom and to which bucket. The password never leaves
//! the client: [`Mechanism::ScramSha512`], the default, also makes the server prove that it knows
//! the password. [`Mechanism::Plain`] sends it and belongs inside [TLS](#tls). The client runs on
//! Tokio.
//!
//! ```no_run
//! use oribi_client::{Client, ConnectOptions};
//!
//! # async fn example() -> Result<(), oribi_client::ClientError> {
//! let options = ConnectOptions::new("alice", "secret", "shop").host("db.example.com");
//! let client = Client::connect(options).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Share a [`Client`] by reference or in an `Arc`: requests of all tasks travel together.
//!
//! ## Documents
//!
//! A document has a key, a value of up to 20 MiB, [flags](WriteOptions::flags), an
//! [expiry](WriteOptions::expiry) and a [`Cas`] that changes with every write. A write with
//! [`WriteOptions::cas`] succeeds only if no other write came in between.
//!
//! ```standalone_crate
//! # #[path = "../tests/support/mod.rs"] mod support;
//! use oribi_client::{Bytes, Client, ClientError, RejectionKind, WriteOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let options = support::serve_documents();
//! let client = Client::connect(options).await?;
//! let users = client.default_collection();
//!
//! let value = Bytes::from_static(b"{}");
//! let written = client.upsert(users, b"user:1", value, &WriteOptions::json()).await?;
//! let user = client.get(users, b"user:1").await?.expect("it was just written");
//! assert_eq!((&user.value[..], user.cas), (&b"{}"[..], written.cas));
//!
//! // A miss is no error for a read. A request that the server rejects is, and says why.
//! assert_eq!(client.get(users, b"user:2").await?, None);
//! match client.add(users, b"user:1", Bytes::new(), &WriteOptions::json()).await {
//!     Err(ClientError::Rejected(RejectionKind::Exists)) => {}
//!     other => panic!("{other:?}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client::get_and_lock`] takes a document for one writer, [`Client::get_and_touch`] sets its
//! expiry, and [`Client::get_meta`] reads what is known about it without its value.
//!
//! ## Counters
//!
//! A counter is a document whose value is a decimal number. The server changes it in one step.
//!
//! ```no_run
//! # async fn example(client: oribi_client::Client) -> Result<(), oribi_client::ClientError> {
//! use oribi_client::CounterOptions;
//!
//! let visit = CounterOptions::increment(1).initial(1).expiry(3600);
//! let visits = client.counter(client.default_collection(), b"visits", &visit).await?;
//! println!("visit {}", visits.value);
//! # Ok(())
//! # }
//! ```
//!
//! ## Parts of documents
//!
//! [`Client::lookup_in`] reads up to [`PATHS_MAX`] paths of a JSON document, each with its own
//! outcome. [`Client::mutate_in`] changes all of its paths or none. Extended attributes are JSON
//! next to the document.
//!
//! ```no_run
//! # async fn example(client: oribi_client::Client) -> Result<(), oribi_client::ClientError> {
//! use oribi_client::{Lookup, LookupInOptions, MutateInOptions, PathMutation};
//!
//! let users = client.default_collection();
//! let changes = [
//!     PathMutation::upsert("source", br#""signup""#).xattr(),
//!     PathMutation::upsert("address.city", br#""Kyoto""#).create_path(),
//!     PathMutation::counter("visits", 1),
//! ];
//! client.mutate_in(users, b"user:1", &changes, &MutateInOptions::new()).await?;
//!
//! let paths = [Lookup::get("address.city"), Lookup::exists("phone")];
//! if let Some(found) = client.lookup_in(users, b"user:1", &paths, &LookupInOptions::new()).await? {
//!     assert_eq!(found.values[0].as_deref(), Ok(&br#""Kyoto""#[..]));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Collections
//!
//! [`Client::collection`] looks a path up once. A collection that was dropped and created anew gets
//! another id; the client notices and looks it up again.
//!
//! ```no_run
//! # async fn example(client: oribi_client::Client) -> Result<(), oribi_client::ClientError> {
//! let orders = client.collection("shop.orders").await?;
//! let order = client.get(&orders, b"order:1").await?;
//! for scope in client.collections_manifest().await?.scopes {
//!     println!("{} has {} collections", scope.name, scope.collections.len());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Durability
//!
//! A write is answered once it is in memory, or once it is as durable as
//! [`WriteOptions::durability`] asks. [`Client::persistence`] tells later what became of a write.
//!
//! ```no_run
//! # async fn example(client: oribi_client::Client) -> Result<(), oribi_client::ClientError> {
//! use oribi_client::{Bytes, DurabilityLevel, Persistence, WriteOptions};
//!
//! let users = client.default_collection();
//! let durable = WriteOptions::json().durability(DurabilityLevel::PersistToMajority);
//! client.upsert(users, b"user:1", Bytes::from_static(b"{}"), &durable).await?;
//!
//! let written = client.upsert(users, b"user:2", Bytes::new(), &WriteOptions::new()).await?;
//! if let Some(mutation) = written.mutation {
//!     let is_on_disk = client.persistence(&mutation).await? == Persistence::Persisted;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Many operations at once
//!
//! A [`Pipeline`] sends without waiting and yields results in the order of the operations, whatever
//! order the servers answered in. A write costs no allocation, a read one: its value. See
//! [`Pipeline`] for an example. The client itself may also be shared by many tasks.
//!
//! ## Several nodes
//!
//! [`ConnectOptions::host`] and [`ConnectOptions::seed`] only say where to ask first. The cluster
//! map names the nodes, and each operation goes to the node that is active for its key's vbucket.
//! When a node refuses because the vbucket has moved, the client takes the newer map and tries
//! there. Servers also announce new maps. [`Client::config`] shows the present one.
//!
//! ```no_run
//! # async fn example() -> Result<(), oribi_client::ClientError> {
//! use oribi_client::{Client, ConnectOptions};
//!
//! let options = ConnectOptions::new("alice", "secret", "shop")
//!     .host("db1.example.com")
//!     .seed("db2.example.com", 11210)
//!     .connections_per_node(2);
//! let client = Client::connect(options).await?;
//! let map = client.config();
//! let node = map.active_node(map.vbucket_of(b"user:1"));
//! # Ok(())
//! # }
//! ```
//!
//! ## TLS
//!
//! [`TlsOptions`] names the authority to trust and, if the client has one, its certificate. A
//! server has to prove to be [`ConnectOptions::host`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use oribi_client::{Client, ConnectOptions, ClientTls, TlsOptions};
//!
//! let tls = ClientTls::load(&TlsOptions::new().ca("ca.pem").identity("alice.pem", "alice.key"))?;
//! let options = ConnectOptions::new("alice", "", "shop").host("db.example.com").port(11207).tls(tls);
//! let client = Client::connect(options).await?;
//! # Ok(())
//! # }
//! ```
//!
//! ## Range scans
//!
//! [`Connection::scan`] reads the documents of a collection in one vbucket, as they are on disk, in
//! the order of their keys. Scans of all vbuckets read a whole collection.
//!
//! ```no_run
//! # async fn example(client: oribi_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use oribi_client::{ScanRange, Vbid};
//!
//! let map = client.config();
//! for vbid in (0..map.vbucket_count()).map(Vbid) {
//!     let node = map.active_node(vbid).ok_or("no node serves the vbucket")?;
//!     let last = client.last_mutation(vbid).await?;
//!     let range = ScanRange::new(vbid, client.default_collection().id());
//!     let range = range.persisted(last, Duration::from_secs(5));
//!     let mut connection = client.open_connection(node).await?;
//!     let Some(mut scan) = connection.scan(&range).await? else { continue };
//!     while let Some(page) = scan.next_page().await? {
//!         for document in page.documents() {
//!             println!("{}", String::from_utf8_lossy(document?.key));
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Change streams
//!
//! [`Client::dcp_stream`] streams every change of a bucket, or of some collections: from now on,
//! from the beginning, or from a token. Changes of a vbucket come in their order. The stream
//! connects again by itself and follows vbuckets to other nodes.
//!
//! ```no_run
//! # async fn example(client: oribi_client::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use oribi_client::{DcpEvent, DcpStreamOptions, ChangeToken};
//!
//! let saved: ChangeToken = std::fs::read_to_string("orders.token")?.parse()?;
//! let options = DcpStreamOptions::new().collection("shop.orders").resume(saved);
//! let mut changes = client.dcp_stream(&options).await?;
//! while let Some(event) = changes.next().await? {
//!     match event {
//!         DcpEvent::Change(change) => {
//!             println!("{:?} {:?}: {:?}", change.kind, change.key, change.value()?);
//!         }
//!         // What was derived from this vbucket is consistent here: a good place to save.
//!         DcpEvent::SnapshotEnd(_) => {
//!             std::fs::write("orders.token", changes.token().to_string())?;
//!         }
//!         // The server crashed and lost its last changes: read again what came after `to`.
//!         DcpEvent::Rollback(rollback) => eprintln!("back to {}", rollback.to),
//!         _ => {}
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`DcpStream::token`] covers exactly the events that [`DcpStream::next`] gave. It is text:
//! for each vbucket the history it belongs to, the last seqno, and the snapshot that this is in;
//! and the version of the collections manifest. A consumer that saves it after its own work sees
//! some changes twice after a crash, and misses none.
//!
//! The server sends at most [`DcpStreamOptions::window_bytes`] ahead of the application. So a
//! slow application bounds memory on both sides, and loses nothing: its stream continues from disk.
//! A key may change several times and come once, with its last version.
//!
//! ## A connection of your own
//!
//! [`Connection`] has no routing and no retries: frames in, frames out, borrowed from the receive
//! buffer. Statistics of any size ([`Connection::stats`]), range scans and load generators use it.
//! The wire's vocabulary is in [`protocol`].
//!
//! ## Errors and retries
//!
//! [`ClientError`] tells what a caller can do about it:
//!
//! | error | what happened | what to do |
//! |---|---|---|
//! | [`ClientError::Rejected`] | the server decided against it | see [`RejectionKind`]; the client already repeated what may pass, until the timeout |
//! | [`ClientError::NotSent`] | it never reached the server | repeat it, whatever it is |
//! | [`ClientError::Timeout`], [`ClientError::Closed`] | the server may have executed it or not | the client repeats reads where it can; of a write, read what became of it |
//! | [`ClientError::Protocol`] | the answer makes no sense | report it; the text names server and operation |
//! | [`ClientError::Authentication`] | name or password are wrong, also after a reconnect | do not repeat it |
//!
//! The client repeats a read whose connection ended, but never a write that was in flight: it
//! cannot know whether the server executed it. A pipeline repeats nothing; its caller still has key
//! and value. Connections that end are opened again with growing pauses, and operations wait for
//! that.
//!
//! ## Timeouts
//!
//! No operation takes longer than [`ConnectOptions::operation_timeout`], whatever servers do.
//! [`Client::run_within`] gives its own operation a timeout. Connecting, and each step of the
//! handshake, have [`ConnectOptions::connect_timeout`].
//!
//! ```standalone_crate
//! # #[path = "../tests/support/mod.rs"] mod support;
//! use std::time::Duration;
//! use oribi_client::{Client, ClientError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let options = support::serve_nothing();
//! // Once a client is connected, this server falls silent.
//! let timeout = Duration::from_millis(50);
//! let client = Client::connect(options.operation_timeout(timeout)).await?;
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
//! # Types of other crates
//!
//! The interface names types of this crate, of the standard library, of `oribi-types` and
//! `oribi-protocol`, which are released together with it, and [`Bytes`]. `bytes` 1.x is stable, and
//! a value has to be shared without a copy; the crate re-exports it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
mod bootstrap;
mod client;
mod cluster;
mod collection;
mod compression;
mod config;
mod config_watch;
mod connection;
mod dcp;
mod documents;
mod error;
mod features;
mod frame_reader;
mod multiplexer;
mod node;
mod operation;
mod options;
mod outbound;
mod path_outcome;
mod persistence;
mod pipeline;
mod range_scan;
mod reply;
mod response;
mod retry;
mod sasl;
mod socket;
mod stats;
mod subdocument;
mod tls;
mod version;
mod write_options;

pub use bytes::Bytes;
pub use oribi_protocol as protocol;
pub use oribi_protocol::change_token::{ChangeToken, InvalidToken, Position, Rest};
pub use oribi_protocol::request::ConfigVersion;
pub use oribi_types::{
    Cas, CollectionId, Datatype, DurabilityLevel, ManifestUid, RevSeqno, ScopeId, Seqno, VbUuid,
    Vbid,
};

pub use client::Client;
pub use collection::{Collection, CollectionsManifest, ManifestCollection, ManifestScope};
pub use config::{ClusterMap, KvNode};
pub use connection::Connection;
#[cfg(any(test, feature = "harness"))]
pub use dcp::harness;
pub use dcp::{
    Attribute, BorrowedChange, BorrowedEvent, ChangeKind, CollectionNames, DcpChange, DcpEvent,
    DcpStream, DcpStreamOptions, DcpSystemEvent, DcpSystemEventKind, Disconnection, Rollback,
};
pub use error::{ClientError, MalformedResponse, PathError, RejectionKind, Site};
pub use operation::Operation;
pub use options::ConnectOptions;
pub use persistence::{ObservedSeqno, Persistence};
pub use pipeline::{Completion, Pipeline, PipelineOptions};
pub use range_scan::{RangeScan, ScanPage, ScanRange, ScannedDocument};
pub use reply::{CounterReply, Document, DocumentMeta, MutationToken, Reply, WriteReply};
pub use response::Response;
pub use sasl::Mechanism;
pub use stats::{NamedStat, Stat, StatStream};
pub use subdocument::{
    DocumentPolicy, Lookup, LookupInOptions, LookupInReply, MutateInOptions, MutateInReply,
    PATH_BYTES_MAX, PATHS_MAX, PathMutation, PathValue,
};
pub use tls::{ClientTls, TlsError, TlsOptions};
pub use version::{DocumentVersion, ResolutionMode, VersionKind};
pub use write_options::{CounterOptions, FLAGS_JSON, WriteOptions};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
