//! SQL over documents.
//!
//! It owns SQLite: a database in memory whose tables are virtual ([`mod@source`] is the seam to
//! where their rows come from), the planning of scans, the guard that keeps statements of strangers
//! to reading, and the forms of values in JSON. [`documents`] makes a table of any source of
//! documents, with the same columns everywhere: Kudu, a client of a running server, the engine in
//! the server's own process, a data directory. Rows stream: a scan holds one batch, plus what
//! SQLite itself needs to sort or group.
//!
//! Callers: `oribi sql`, and the server's `POST /query/sql`. It knows no socket, file or thread.

// The virtual tables implement unsafe traits, and `heap` makes system calls. No other module may
// use `unsafe`.
#![deny(unsafe_code)]

pub mod batch;
pub mod catalog;
pub mod columns;
pub mod database;
pub mod document_cells;
pub mod documents;
mod guard;
#[allow(unsafe_code, reason = "system calls")]
mod heap;
mod json_path;
pub mod json_value;
pub mod key_filter;
mod plan;
mod row_numbers;
pub mod source;
#[allow(unsafe_code, reason = "the traits of virtual tables are unsafe to implement")]
mod virtual_table;

pub use heap::trim as trim_heap;
pub use rusqlite::InterruptHandle;
pub use rusqlite::types::{Value, ValueRef};
