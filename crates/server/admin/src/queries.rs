//! State that all statements of SQL++ share: places, prepared statements, indexes, memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use oribi_query::Service;

use crate::query_indexes::QueryIndexes;
use crate::statement_places::Statements;
use crate::statement_threads::StatementThreads;

/// State that all statements share.
#[derive(Default)]
pub(crate) struct Queries {
    pub(super) running: Arc<Statements>,
    pub(super) threads: StatementThreads,
    pub(super) service: Arc<Service>,
    pub(super) indexes: Arc<QueryIndexes>,
    /// Bytes that statements keep, of the heap that they share.
    pub(super) kept_bytes: Arc<AtomicU64>,
}
