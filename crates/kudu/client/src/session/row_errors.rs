//! The failed rows and their causes.
//!
//! A batch that failed as a whole is kept unchanged; of a partly failed batch only the failed rows
//! are copied. Rows are decoded only when the program looks at them. Invariant: the kept rows stay
//! within the session's limit in bytes. Further rows are counted and lost, as in Kudu's other
//! clients.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, StatusCode};
use crate::row_operation::{EncodedRow, EncodedRows, RowLayout, RowOperation};
use crate::schema::{Schema, Value};

use super::recode::Recoder;
use super::row_buffers::RowBuffers;

/// Rows that failed since the program last took the errors.
#[derive(Debug, Default)]
pub struct RowErrors {
    batches: Vec<FailedBatch>,
    bytes: usize,
    rows: u64,
    lost: u64,
}

#[derive(Debug)]
struct FailedBatch {
    layout: Arc<RowLayout>,
    buffers: Arc<RowBuffers>,
    causes: Causes,
}

#[derive(Debug)]
enum Causes {
    /// All rows have the same cause.
    Whole(RowFailure),
    /// A cause for each row.
    Each(Vec<RowFailure>),
}

/// Why a row failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RowFailure {
    /// The tablet server refused the row but took the others of its batch.
    Refused {
        /// The server's code: already present, not found, ...
        code: StatusCode,
        /// The server's message.
        message: String,
    },
    /// The whole batch failed. After a timeout the server may still have written it.
    Batch(Error),
    /// The row has a cell for a column that the table no longer has. The session did not send it.
    ColumnDropped {
        /// Name of the column.
        column: String,
    },
}

/// A row that failed.
#[derive(Clone, Copy)]
pub struct FailedRow<'a> {
    row: EncodedRow<'a>,
    layout: &'a RowLayout,
    failure: &'a RowFailure,
}

impl RowErrors {
    /// How many rows failed, including lost ones.
    pub fn len(&self) -> u64 {
        self.rows
    }

    /// Whether no row failed.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// How many failed rows were not kept because there was no space.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The failed rows. Those of one tablet are in the order of `apply`.
    pub fn iter(&self) -> impl Iterator<Item = FailedRow<'_>> {
        self.batches.iter().flat_map(FailedBatch::rows)
    }

    /// Adds a batch that failed as a whole.
    pub(super) fn push_batch(
        &mut self,
        layout: &Arc<RowLayout>,
        buffers: Arc<RowBuffers>,
        failure: RowFailure,
        bytes_max: usize,
    ) {
        self.rows += buffers.row_count as u64;
        self.keep(
            FailedBatch { layout: layout.clone(), buffers, causes: Causes::Whole(failure) },
            bytes_max,
        );
    }

    /// Adds some rows of a batch, each with its number there.
    pub(super) fn push_rows(
        &mut self,
        layout: &Arc<RowLayout>,
        batch: &RowBuffers,
        mut failures: Vec<(usize, RowFailure)>,
        bytes_max: usize,
    ) {
        failures.sort_by_key(|(number, _)| *number);
        self.rows += failures.len() as u64;
        let mut recoder = Recoder::identity(layout);
        let mut buffers = RowBuffers::default();
        let mut causes = Vec::with_capacity(failures.len());
        let mut failures = failures.into_iter().peekable();
        let rows = EncodedRows::new(layout, &batch.rows, &batch.indirect).map_while(Result::ok);
        for (number, row) in rows.enumerate() {
            let Some((_, failure)) = failures.next_if(|(wanted, _)| *wanted == number) else {
                continue;
            };
            match recoder.row(&row, &mut buffers) {
                Ok(()) => causes.push(failure),
                // A row of a session never is that way, but the counts must be right even then.
                Err(_) => self.lost += 1,
            }
        }
        let causes = Causes::Each(causes);
        self.keep(
            FailedBatch { layout: layout.clone(), buffers: Arc::new(buffers), causes },
            bytes_max,
        );
    }

    /// The first failure, in words.
    pub(super) fn first_message(&self) -> String {
        match self.iter().next() {
            Some(row) => row.to_string(),
            None => "lost, because there was no room to keep it".to_owned(),
        }
    }

    fn keep(&mut self, batch: FailedBatch, bytes_max: usize) {
        let bytes = batch.buffers.capacity();
        if self.bytes.saturating_add(bytes) > bytes_max {
            self.lost += batch.buffers.row_count as u64;
            return;
        }
        self.bytes += bytes;
        self.batches.push(batch);
    }
}

impl FailedBatch {
    fn rows(&self) -> impl Iterator<Item = FailedRow<'_>> {
        let rows = EncodedRows::new(&self.layout, &self.buffers.rows, &self.buffers.indirect);
        rows.map_while(Result::ok).enumerate().filter_map(|(number, row)| {
            let failure = match &self.causes {
                Causes::Whole(failure) => failure,
                Causes::Each(failures) => failures.get(number)?,
            };
            Some(FailedRow { row, layout: &self.layout, failure })
        })
    }
}

impl<'a> FailedRow<'a> {
    /// The row's operation.
    pub fn operation(&self) -> Option<RowOperation> {
        RowOperation::from_wire(self.row.operation())
    }

    /// Why it failed.
    pub fn failure(&self) -> &'a RowFailure {
        self.failure
    }

    /// The schema to which the columns of [`FailedRow::cell`] belong.
    pub fn schema(&self) -> &'a Schema {
        &self.layout.schema
    }

    /// The cell of a column; `None` if the row does not set it.
    pub fn cell(&self, column: usize) -> Option<Value<'a>> {
        let data_type = self.layout.columns.get(column)?.data_type;
        match self.row.cell(column)? {
            Some(cell) => Value::from_cell(data_type, cell),
            None => Some(Value::Null),
        }
    }

    /// The key cells that the row sets.
    pub fn key(&self) -> impl Iterator<Item = Value<'a>> {
        let row = *self;
        (0..self.layout.schema.num_key_columns()).filter_map(move |column| row.cell(column))
    }
}

impl fmt::Display for RowFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowFailure::Refused { code, message } => write!(f, "{code:?}: {message}"),
            RowFailure::Batch(error) => error.fmt(f),
            RowFailure::ColumnDropped { column } => {
                write!(f, "the table has no column {column:?} any more")
            }
        }
    }
}

impl fmt::Display for FailedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation().map_or("row", RowOperation::name);
        write!(f, "{operation} of ({}): {}", Keys(*self), self.failure)
    }
}

impl fmt::Debug for FailedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A row's key for messages.
struct Keys<'a>(FailedRow<'a>);

impl fmt::Display for Keys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.schema().key_columns().iter().enumerate();
        for (index, column) in columns {
            let separator = if index == 0 { "" } else { ", " };
            match self.0.cell(index) {
                Some(value) => write!(f, "{separator}{} = {value:?}", column.name())?,
                None => write!(f, "{separator}{} not set", column.name())?,
            }
        }
        Ok(())
    }
}
