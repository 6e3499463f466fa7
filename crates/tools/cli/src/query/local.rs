//! Statements that this program runs itself, over documents that it reads.
//!
//! Owns: the engine, the memory that a statement may keep, and its interruption. Statements only
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use oribi_query::{
    Datastore, MemoryBudget, QueryError, QueryRequest, ResponseHead, RowSink, RunControl,
    RunStatus, Service, SinkError,
};
use serde_json::{Map, Value};

use super::source::{ResultSink, ServiceError, StatementFailure, Summary};

/// Most memory that a statement keeps for groups, sorts and joins.
const MEMORY_BYTES: usize = 4 << 30;

/// See the module text.
#[derive(Default)]
pub struct LocalEngine {
    service: Service,
    cancelled: Arc<AtomicBool>,
}

impl LocalEngine {
    /// Set while a statement has to end, for scans that find no document.
    pub fn cancelled(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancelled)
    }

    pub fn interrupt(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub fn is_interrupted(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub fn begin_statement(&self) {
        self.cancelled.store(false, Ordering::Relaxed);
    }

    /// Runs a statement on this thread.
    ///
    /// # Errors
    /// When it fails, or a row cannot be printed.
    pub fn run(
        &self,
        store: &dyn Datastore,
        request: &Map<String, Value>,
        sink: &mut dyn ResultSink,
    ) -> Result<Summary> {
        let body = serde_json::to_vec(request).context("the request")?;
        let mut request = QueryRequest::from_json(&body).map_err(|error| failure(&[*error]))?;
        request.readonly = true;
        let memory = LocalMemory::default();
        let control =
            RunControl { memory: &memory, cancelled: Some(&self.cancelled), timeout: None };
        let mut rows = LocalRows { sink, row: Vec::new(), failed: None };
        let outcome = self.service.run(store, &request, &control, &mut rows);
        if let Some(error) = rows.failed {
            return Err(error);
        }
        if outcome.status != RunStatus::Success {
            return Err(failure(&outcome.errors).into());
        }
        Ok(Summary { rows: outcome.metrics.result_count, changes: outcome.metrics.mutation_count })
    }
}

/// The end of a scan whose statement was interrupted.
pub fn interrupted() -> Box<QueryError> {
    QueryError::datastore(1181, "interrupted")
}

fn failure(errors: &[QueryError]) -> StatementFailure {
    let error = |error: &QueryError| ServiceError {
        code: error.code.into(),
        text: error.msg.clone(),
        position: error.position,
    };
    StatementFailure { errors: errors.iter().map(error).collect() }
}

/// Hands rows to the sink, and keeps its error.
struct LocalRows<'s> {
    sink: &'s mut dyn ResultSink,
    row: Vec<u8>,
    failed: Option<anyhow::Error>,
}

impl LocalRows<'_> {
    fn check(&mut self, outcome: Result<()>) -> Result<(), SinkError> {
        outcome.map_err(|error| {
            self.failed = Some(error);
            SinkError::Closed
        })
    }
}

impl RowSink for LocalRows<'_> {
    fn start(&mut self, head: &ResponseHead) -> Result<(), SinkError> {
        let outcome = self.sink.begin(&head.signature);
        self.check(outcome)
    }

    fn row(&mut self, json: &[u8]) -> Result<(), SinkError> {
        let outcome = match memchr::memchr2(b'\n', b'\r', json) {
            None => self.sink.row(json),
            // Stored JSON may have several lines, and a row is one.
            Some(_) => {
                self.row.clear();
                let blank = |byte: &u8| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte };
                self.row.extend(json.iter().map(blank));
                self.sink.row(&self.row)
            }
        };
        self.check(outcome)
    }
}

/// Memory that a statement keeps.
#[derive(Default)]
struct LocalMemory {
    bytes: AtomicUsize,
}

impl MemoryBudget for LocalMemory {
    fn reserve(&self, bytes: usize) -> bool {
        let grown = |kept: usize| kept.checked_add(bytes).filter(|kept| *kept <= MEMORY_BYTES);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
