//! SQL over the documents of this process.
//!
//! Owns: the tables that a user may read, how their rows are read from the engine, and why a
//! statement ends early. The parts: [`catalog`] knows tables, [`documents`] is the source of one
//! table's rows, [`reader`] has what both ways to them share: [`snapshot_scans`] scans vbuckets,
//! [`lookup`] reads single documents; [`memory`] counts what documents hold; and [`control`] ends
//! statements. SQLite itself is `oribi_sql`'s.
//!
//! Invariants:
//! - a statement sees what its user may read in each collection, checked when a table is named,
//!   when a scan begins, and again whenever the users change;
//! - a scan shows each vbucket at one moment, which includes every write that was acknowledged
//!   before the scan began;
//! - no worker's thread runs any of this, and no lock of the engine is held between two batches;
//! - every wait ends with the statement's time, its client, or the server.
//!
//! Caller: `admin::query`, which owns the threads, memory and answers.

pub(crate) mod catalog;
pub(crate) mod control;
pub(crate) mod documents;
mod lookup;
pub(crate) mod memory;
mod reader;
mod snapshot_scans;
