//! SQL++ over JSON documents, as version 7.6 of the reference understands it.
//!
//! A statement goes through `lexer`, `parser` (syntax tree), `compile` (names become slots)
//! and `exec` (rows are pushed from sources to the sink). Values are spans of the stored JSON
//! text until a statement needs their parts.
//!
//! The crate knows neither sockets nor the storage engine. Documents come through [`Datastore`],
//! memory through [`MemoryBudget`], and rows leave through [`RowSink`].
//!
//! Invariants: no statement and no document makes code here panic or overflow the stack; nesting
//! is bounded by `limits::NESTING_MAX`, and chains of operators are lists
//! (`tests/random.rs`). A statement reserves memory before it keeps values; a refusal is error
//! 5500. Every loop polls the deadline, the compiler's loops too (`tests/hostile.rs`). A construct
//! that is not implemented is error 3000, which names it.

#![deny(unsafe_code)]

mod aggregates;
mod ast;
mod bindings;
mod catalog;
mod compile;
mod compiled;
mod consistency;
mod context;
mod datastore;
mod entries;
mod error;
mod eval;
mod exec;
mod explain;
mod functions;
#[cfg(any(test, feature = "harness"))]
pub mod harness;
mod index;
mod indexes;
mod infer;
mod lexer;
mod like;
mod limits;
mod memory_budget;
mod operators;
mod parser;
mod plan;
mod prepared;
mod printer;
mod request;
mod runtime;
mod scan_hints;
mod service;
mod signature;
pub mod statement_text;
pub mod stored;
mod value;
mod windows;

pub use consistency::Consistency;
pub use datastore::{
    Datastore, DocumentMutation, IndexChange, IndexDefinition, IndexSize, IndexedDocument,
    KeyRange, Keyspace, KeyspaceIndex, KeyspaceName, Precondition, QueryDocument,
};
pub use entries::block::IndexEntry;
pub use entries::sorted::{EntryRange, IndexSnapshot};
pub use error::{QueryError, Result};
pub use index::document_index::DocumentIndex;
pub use index::encoded_keys::{IndexableDocument, InsertRejection};
pub use memory_budget::MemoryBudget;
pub use request::QueryRequest;
pub use scan_hints::{FieldCondition, FieldOperator, FieldValue, ScanHints};
pub use service::{
    Metrics, ResponseHead, RowSink, RunControl, RunOutcome, RunStatus, Service, SinkError,
};
