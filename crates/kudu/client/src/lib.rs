//! A native client for Apache Kudu: tables, write sessions and scanners over Kudu's own RPC
//! protocol, asynchronous and without the C++ client library.
//!
//! # Connect
//!
//! A [`Client`] finds the leading master and keeps one connection per server. Cloning it is cheap
//! and gives the same client. It needs a Tokio runtime, which must live as long as the client is in
//! use.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use oribi_kudu::ClientBuilder;
//!
//! let client = ClientBuilder::from_addresses("master-1:7051,master-2:7051,master-3:7051")?
//!     .rpc_timeout(Duration::from_secs(30))
//!     .build()
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Create and open tables
//!
//! The first columns are the primary key. Partitioning is decided when the table is created, and
//! hash partitions cannot change later. A [`HashPartition`] spreads load. A [`RangePartition`]
//! keeps neighbours together, and a [`TableAlterer`] can add and drop it.
//!
//! ```no_run
//! # async fn example(client: oribi_kudu::Client) -> Result<(), oribi_kudu::Error> {
//! use oribi_kudu::{ColumnSchema, ColumnSchemaBuilder, DataType, HashPartition, Schema, TableCreator};
//!
//! let schema = Schema::builder()
//!     .column(ColumnSchema::builder("id", DataType::Int64).key())
//!     .column(ColumnSchema::builder("name", DataType::String).nullable(false))
//!     .column(ColumnSchemaBuilder::decimal("price", 9, 2))
//!     .build()?;
//! let creator = TableCreator::new("goods", schema)
//!     .hash_partition(HashPartition::new(["id"], 8))
//!     .num_replicas(3);
//! let created = client.create_table(creator).await?;
//! let opened = client.open_table("goods").await?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Table`] is a snapshot of the table at the time of opening. Open it again after a column was
//! dropped or renamed.
//!
//! # Structs as rows
//!
//! With `#[derive(KuduRow)]` the client writes and reads a struct as a row; see [`KuduRow`] for the
//! types of fields. It resolves columns by name once per session and per batch, so a struct is as
//! fast as setters by number.
//!
//! # Write
//!
//! A [`Session`] encodes each cell once, into the request of the row's tablet. A million buffered
//! rows take as many bytes as on the wire, and freeing them means freeing a few buffers.
//!
//! ```no_run
//! # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
//! use oribi_kudu::{KuduRow, Session, SessionError, SessionOptions};
//!
//! #[derive(KuduRow)]
//! struct Good<'a> {
//!     id: i64,
//!     name: &'a str,
//!     /// In cents, because the column has two decimal places.
//!     price: Option<i64>,
//! }
//!
//! let mut session = Session::new(&table, SessionOptions::new());
//! session.upsert_row(&Good { id: 1, name: "bread", price: Some(249) }).await?;
//! // Without a struct, columns are named by number or by name.
//! let mut row = session.upsert();
//! row.set_i64(0, 2)?.set_string("name", "butter")?;
//! row.apply().await?;
//!
//! match session.flush().await {
//!     Err(SessionError::RowsFailed { .. }) => {
//!         for failed in session.take_errors().iter() {
//!             eprintln!("{failed}");
//!         }
//!     }
//!     flushed => println!("{} rows", flushed?.rows),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | [`FlushMode`] | `apply` | use it for |
//! |---|---|---|
//! | `Background` (default) | takes the row; waits only while the buffer is full | loading: a hundred times faster than `Sync` |
//! | `Manual` | takes the row, or says that the buffer is full | batches that mean something to you: you call `flush` |
//! | `Sync` | ends when the row is written or refused | single rows whose fate must be known |
//!
//! - **Errors come later.** In the buffering modes a row that a server refuses does not fail its
//!   `apply`. `flush` says how many rows failed, and [`Session::take_errors`] returns them with
//!   operation, cells and reason. A session that is dropped loses its buffered rows, so flush
//!   first.
//! - **Order.** The server applies rows with the same key in the order of your `apply` calls. Two
//!   sessions are independent of each other.
//! - **Threads.** A session serves one task; use more sessions for more tasks. For the least CPU
//!   time give each thread a current-thread runtime and its own client.
//! - **Limits.** A cell has at most 64 KiB and an encoded primary key at most 16 KiB, unless the
//!   servers are configured otherwise. `apply` refuses a row that is too large, and the session
//!   continues.
//!
//! # Scan
//!
//! Servers evaluate projections and predicates, and the client prunes tablets that cannot have a
//! matching row.
//!
//! ```no_run
//! # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
//! use oribi_kudu::{Predicate, ReadMode};
//!
//! let mut scanner = table
//!     .scan()
//!     .columns(["id", "name"])
//!     .filter(Predicate::range("id", 100, 200))
//!     .read_mode(ReadMode::YourWrites)
//!     .build()?;
//! while let Some(batch) = scanner.next_batch().await? {
//!     for row in batch.rows() {
//!         println!("{} {}", row.get::<i64>(0)?, row.get::<&str>(1)?);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - **Consistency.** [`ReadMode::Latest`] returns what the replica has, and a follower may lag
//!   behind. `YourWrites` includes every write that this client has seen acknowledged. `AtSnapshot`
//!   reads the whole table at one moment.
//! - **By key.** [`Table::point_lookup`] takes one round trip, and asks the leader by default. A
//!   list of keys as a predicate would read every row between the least and the greatest of them.
//!   [`PointLookup::get_many`] asks for each key, with many lookups in flight.
//! - **Large scans.** A [`ScannerBuilder::fault_tolerant`] scan continues on another replica when a
//!   server fails. An idle scanner expires after a minute, unless you call [`Scanner::keep_alive`].
//! - **Arrow.** [`Layout::Columnar`] and [`ScanBatch::to_record_batch`] give record batches over
//!   the bytes that the server sent.
//!
//! # Tokens: one scan, many tasks or machines
//!
//! ```no_run
//! # async fn example(table: oribi_kudu::Table) -> Result<(), Box<dyn std::error::Error>> {
//! use oribi_kudu::TokenOptions;
//!
//! let mut tasks = Vec::new();
//! for token in table.scan().into_tokens(TokenOptions::new().split_bytes(64 << 20)).await? {
//!     let client = table.client();
//!     tasks.push(tokio::spawn(async move { token.into_scanner(&client).await?.count().await }));
//! }
//! for task in tasks {
//!     println!("{} rows", task.await??);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`ScanToken::serialize`] gives the bytes for another process, in the format of Kudu's own
//! clients.
//!
//! # TLS and authentication
//!
//! [`EncryptionPolicy`] says when connections are encrypted. By default the client encrypts on the
//! network whenever the server supports it, and on the loopback interface only when the server
//! requires it. [`ClientBuilder::user`] names the user. The master gives the client tokens and the
//! cluster's certificate authority, and the client renews tokens before they expire. A connection
//! that authenticates by token checks the server's certificate against that authority. The first
//! connection to a master cannot: it is encrypted, but does not prove the identity of the master.
//! The client never checks host names, like Kudu's own clients. Kerberos is not supported.
//!
//! # Errors and retries
//!
//! The client retries what is retryable until the deadline, before you see an [`Error`].
//! [`Error::is_retryable`] says whether waiting helps. The client repeats a write whose answer was
//! lost with the same identity, so the server applies it once. An error names its operation,
//! server, table and tablet. Codes and options are `#[non_exhaustive]`, so matches on them need a
//! `_` arm.
//!
//! # Inside
//!
//! This crate owns the RPC codec and connections, authentication, the cache of tablet locations and
//! retries. It also owns the encoding of rows into tablet buffers and the decoding of scan results.
//! Invariants: the client encodes a row once, straight into the buffer that it sends. At most one
//! Write is in flight per tablet of a session, because Kudu may apply concurrent Writes out of
//! order. Bytes from the network never panic. The crate is a general client and does not depend on
//! the rest of Oribi.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backoff;
mod client;
mod error;
mod field_columns;
#[cfg(any(test, feature = "harness"))]
#[doc(hidden)]
pub mod harness;
mod key_encoding;
mod locate;
mod lookup;
mod master;
mod meta_cache;
mod partition;
mod proto;
mod request_tracker;
mod retry;
mod row_operation;
mod rpc;
mod scan_error;
mod scanner;
mod schema;
mod session;
mod table;
mod typed_row;
mod types;

// Derived code names this crate, also inside it.
extern crate self as oribi_kudu;

pub use client::{Client, ClientBuilder};
pub use error::{
    Error, MasterErrorCode, Operation, RpcErrorCode, StatusCode, TabletServerErrorCode,
};
pub use lookup::{FoundRow, FoundRows, PointLookup, PointLookupBuilder};
#[cfg(feature = "derive")]
pub use oribi_kudu_derive::KuduRow;
pub use retry::ReplicaSelection;
pub use row_operation::{RowError, RowOperation};
pub use rpc::EncryptionPolicy;
pub use scan_error::{BlockFault, BlockPart, CellError, OperandError, ScanError};
pub use scanner::{
    Cell, FromCell, Layout, Operand, Predicate, ProjectedColumn, Projection, ReadMode, Row,
    ScanBatch, ScanMetrics, ScanToken, Scanner, ScannerBuilder, TokenOptions,
};
pub use schema::{
    ColumnSchema, ColumnSchemaBuilder, ColumnTypeAttributes, Compression, DataType, Encoding,
    Schema, SchemaBuilder, SchemaError, Value, ValueError,
};
pub use session::{
    ColumnReference, FailedRow, FlushMode, FlushSummary, RowErrors, RowFailure, RowWriter,
    SchemaChange, Session, SessionError, SessionOptions, SessionStatistics, WriteReport,
};
pub use table::{
    ColumnChange, HashPartition, RangePartition, Table, TableAlterer, TableCreator,
    TableStatistics, TableSummary, TabletServer,
};
pub use typed_row::{CellReader, CellWriter, KuduRow, ToCell};
pub use types::{HostPort, HostPortError};

/// The programs in the README compile.
#[cfg(all(doctest, feature = "derive"))]
#[doc = include_str!("../README.md")]
struct Readme;
