//! A native client for Apache Kudu: tables, write sessions and scanners over Kudu's own RPC protocol,
//! asynchronous and without the C++ client library.
//!
//! Owns: the RPC codec and connections, authentication, the cache of tablet locations, retries, the
//! encoding of rows into tablet buffers, and the decoding of scan results. Invariants: a row is encoded
//! once, straight into the buffer that is sent; at most one Write is in flight per tablet of a session,
//! because Kudu does not apply concurrent Writes in the order in which they were sent; bytes from the
//! network never panic. It is a general client and knows nothing of key-value or of the rest of Oribi.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod error;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod locate;
mod lookup;
mod master;
mod meta_cache;
mod partition;
mod proto;
mod retry;
mod row_operation;
mod rpc;
mod scanner;
mod schema;
mod session;
mod table;
mod types;

pub use client::{Client, ClientBuilder};
pub use error::{
    Error, MasterErrorCode, Operation, RpcErrorCode, StatusCode, TabletServerErrorCode,
};
pub use lookup::{FoundRow, PointLookup, PointLookupBuilder};
pub use retry::ReplicaSelection;
pub use row_operation::{RowError, RowOperation};
pub use rpc::EncryptionPolicy;
pub use scanner::{
    BlockFault, BlockPart, BloomFilter, Cell, CellError, FromCell, Layout, Operand, OperandError,
    Predicate, ProjectedColumn, Projection, ReadMode, Row, ScanBatch, ScanError, ScanMetrics,
    ScanToken, Scanner, ScannerBuilder, TokenOptions,
};
pub use schema::{
    ColumnSchema, ColumnSchemaBuilder, ColumnTypeAttributes, Compression, DataType, Encoding,
    Schema, SchemaBuilder, SchemaError, Value, ValueError,
};
pub use session::{
    ColumnReference, FailedRow, FlushMode, FlushSummary, RowErrors, RowFailure, RowWriter,
    SchemaChange, Session, SessionError, SessionOptions, SessionStatistics, WriteObserver,
    WriteReport,
};
pub use table::{
    ColumnChange, HashPartition, RangePartition, Table, TableAlterer, TableCreator,
    TableStatistics, TableSummary, TabletServer,
};
pub use types::{HostPort, HostPortError};
