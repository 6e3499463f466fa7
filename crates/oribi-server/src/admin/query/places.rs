//! How many statements run at once, and what one of them occupies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::admin::admission::{Connection, StreamPlace};
use crate::limits::SQL_STATEMENTS_MAX;
use crate::sql::memory::Turn;

/// The statements that run.
#[derive(Default)]
pub(in crate::admin) struct Statements(Arc<AtomicUsize>, Arc<Turn>);

impl Statements {
    /// A place for one more.
    pub fn begin(&self) -> Option<Running> {
        let one_more = |running: usize| (running < SQL_STATEMENTS_MAX).then_some(running + 1);
        let begun = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        begun.ok().map(|_| Running(Arc::clone(&self.0)))
    }

    /// The turn of those with large documents.
    pub fn turn(&self) -> Arc<Turn> {
        Arc::clone(&self.1)
    }
}

/// The place of a statement.
pub(in crate::admin) struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a statement occupies until its client is told how it ended. A client that has its answer
/// can therefore begin another one.
pub(super) struct Occupied {
    _running: Running,
    stream: StreamPlace,
}

impl Occupied {
    pub fn new(running: Running, stream: StreamPlace) -> Occupied {
        Occupied { _running: running, stream }
    }

    /// The client's connection, which outlasts this.
    pub fn connection(&self) -> Connection {
        self.stream.connection()
    }
}
