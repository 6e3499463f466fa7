//! A [`KvStore`](oribi_storage::KvStore) whose bytes are in one table of an Apache Kudu cluster.
//!
//! Owns: the table's layout, the mapping of records and vbucket states to rows, the fence against
//! writes of earlier owners, and waiting while Kudu is unreachable. Invariants:
//! - One vbucket lives in one tablet, because the table is range-partitioned by vbucket alone. So a
//!   batch with its state is one Write and thus atomic.
//! - One Write is in flight per tablet.
//! - Every Write names the column of the owner's epoch, so a later owner makes it fail as a whole
//!   by dropping that column.
//! - The store acknowledges a write only after Kudu has acknowledged it.
//!
//! Callers: the server, which opens it by URL, and the engine through the trait. This crate knows
//! nothing of clients, and the Kudu client knows nothing of documents. `docs/kudu-bucket.md` has
//! the mapping as a table.

#![forbid(unsafe_code)]

mod block_on;
mod chunk_index;
mod epoch;
mod failure;
mod fence;
mod key_scan;
mod layout;
mod local_document;
mod lookups;
mod patience;
mod pieces;
mod readable;
mod reader;
mod removal;
mod rows;
mod scan;
mod seqno_scan;
mod shared;
mod store;
mod take_over;
mod url;
mod writer;

pub use store::KuduStore;
pub use url::{KuduUrl, KuduUrlError};
