//! A [`KvStore`](oribi_storage::KvStore) whose bytes are in one table of an Apache Kudu cluster.
//!
//! Owns: the table's layout, the mapping of records and vbucket states to rows, the fence that keeps earlier owners
//! from writing, and waiting while Kudu is away. Invariants: one vbucket lives in one tablet, because the table is
//! range-partitioned by vbucket alone, so a batch with its state is one Write and thus atomic; one Write is under
//! way per tablet; every Write names the column of the owner's epoch, so that a later owner makes it fail as a whole
//! by dropping that column; nothing is acknowledged before Kudu has acknowledged it.
//! Callers: the server, which opens it by URL, and the engine through the trait. It knows nothing of clients, and
//! the Kudu client knows nothing of documents. `docs/kudu-bucket.md` has the mapping as a table.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod block_on;
mod chunk_index;
mod epoch;
mod failure;
mod fence;
mod layout;
mod local_document;
mod owned_record;
mod patience;
mod pieces;
mod reader;
mod removal;
mod rows;
mod scan;
mod store;
mod url;
mod writer;

pub use store::KuduStore;
pub use url::{KuduUrl, KuduUrlError};
