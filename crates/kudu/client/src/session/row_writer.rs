//! The row that a program fills in, cell by cell.
//!
//! A writer holds the session's buffers from the first cell to the end of the row, and encodes each
//! cell at once. The key determines the tablet; from then on strings go straight into that tablet's
//! request. A dropped writer leaves nothing behind. This file has only the setters; the work is in
//! `filling` and in `row_operation`.

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::row_operation::{RowError, RowOperation};
use crate::schema::{DataType, Schema, Value};

use super::error::SessionError;
use super::filling::Filling;
use super::shared::SessionShared;

/// One row in progress.
#[must_use = "a row is written by `apply`"]
pub struct RowWriter<'s> {
    shared: &'s Arc<SessionShared>,
    filling: MutexGuard<'s, Filling>,
    operation: RowOperation,
}

/// A column, by its index in the schema (faster) or by its name.
pub trait ColumnReference {
    /// The column's index in the schema.
    fn index(&self, schema: &Schema) -> Result<usize, RowError>;
}

impl ColumnReference for usize {
    #[inline]
    fn index(&self, _schema: &Schema) -> Result<usize, RowError> {
        Ok(*self)
    }
}

impl ColumnReference for &str {
    fn index(&self, schema: &Schema) -> Result<usize, RowError> {
        schema
            .column_index(self)
            .ok_or_else(|| RowError::UnknownColumn { column: (*self).to_owned() })
    }
}

impl<'s> RowWriter<'s> {
    #[inline]
    pub(super) fn new(shared: &'s Arc<SessionShared>, operation: RowOperation) -> RowWriter<'s> {
        let mut filling = shared.filling.lock();
        filling.begin();
        RowWriter { shared, filling, operation }
    }

    /// Sets a boolean.
    #[inline]
    pub fn set_bool(
        &mut self,
        column: impl ColumnReference,
        value: bool,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Bool, [u8::from(value)])
    }

    /// Sets an 8-bit integer.
    #[inline]
    pub fn set_i8(
        &mut self,
        column: impl ColumnReference,
        value: i8,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Int8, value.to_le_bytes())
    }

    /// Sets a 16-bit integer.
    #[inline]
    pub fn set_i16(
        &mut self,
        column: impl ColumnReference,
        value: i16,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Int16, value.to_le_bytes())
    }

    /// Sets a 32-bit integer.
    #[inline]
    pub fn set_i32(
        &mut self,
        column: impl ColumnReference,
        value: i32,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Int32, value.to_le_bytes())
    }

    /// Sets a 64-bit integer.
    #[inline]
    pub fn set_i64(
        &mut self,
        column: impl ColumnReference,
        value: i64,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Int64, value.to_le_bytes())
    }

    /// Sets a 32-bit float.
    #[inline]
    pub fn set_f32(
        &mut self,
        column: impl ColumnReference,
        value: f32,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Float, value.to_le_bytes())
    }

    /// Sets a 64-bit float.
    #[inline]
    pub fn set_f64(
        &mut self,
        column: impl ColumnReference,
        value: f64,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::Double, value.to_le_bytes())
    }

    /// Sets a point in time, in microseconds since 1970-01-01T00:00:00Z.
    #[inline]
    pub fn set_unixtime_micros(
        &mut self,
        column: impl ColumnReference,
        micros: i64,
    ) -> Result<&mut Self, RowError> {
        self.fixed(column, DataType::UnixtimeMicros, micros.to_le_bytes())
    }

    /// Sets a date, in days since 1970-01-01.
    pub fn set_date(
        &mut self,
        column: impl ColumnReference,
        days: i32,
    ) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        self.filling.put_with(|encoder, _| encoder.put_date(column, days))?;
        Ok(self)
    }

    /// Sets a decimal from its digits without the point: 1.23 of scale 2 is 123.
    pub fn set_decimal(
        &mut self,
        column: impl ColumnReference,
        digits: i128,
    ) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        self.filling.put_with(|encoder, _| encoder.put_decimal(column, digits))?;
        Ok(self)
    }

    /// Sets a string or varchar. It truncates a varchar with too many characters, like Kudu's other
    /// clients.
    #[inline]
    pub fn set_string(
        &mut self,
        column: impl ColumnReference,
        text: &str,
    ) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        self.filling.put_with(|encoder, indirect| encoder.put_text(column, text, indirect))?;
        Ok(self)
    }

    /// Sets a binary cell.
    #[inline]
    pub fn set_binary(
        &mut self,
        column: impl ColumnReference,
        bytes: &[u8],
    ) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        self.filling.put_with(|encoder, indirect| encoder.put_binary(column, bytes, indirect))?;
        Ok(self)
    }

    /// Sets a string or binary cell from raw bytes: to Kudu a string is bytes, whatever a reader
    /// makes of them.
    #[inline]
    pub fn set_bytes(
        &mut self,
        column: impl ColumnReference,
        bytes: &[u8],
    ) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        self.filling.put_with(|encoder, indirect| encoder.put_bytes(column, bytes, indirect))?;
        Ok(self)
    }

    /// Sets a cell to NULL.
    pub fn set_null(&mut self, column: impl ColumnReference) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        self.filling.put_with(|encoder, _| encoder.put_null(column))?;
        Ok(self)
    }

    /// Sets a cell from a value whose type is known only at run time.
    pub fn set<'v>(
        &mut self,
        column: impl ColumnReference,
        value: impl Into<Value<'v>>,
    ) -> Result<&mut Self, RowError> {
        let column = column.index(self.schema())?;
        let value = value.into();
        self.filling.put_with(|encoder, indirect| encoder.put_value(column, value, indirect))?;
        Ok(self)
    }

    /// The row's operation.
    pub fn operation(&self) -> RowOperation {
        self.operation
    }

    /// Hands the row to the session. In the buffering modes it returns at once while there is
    /// space. After the first poll, dropping the future does not take the row back.
    ///
    /// On an error the session did not take the row, with one exception:
    /// [`SessionError::RowsFailed`] of a session that sends each row at once means that the server
    /// refused the row.
    #[inline]
    pub async fn apply(self) -> Result<(), SessionError> {
        let RowWriter { shared, filling, operation } = self;
        match shared.take(filling, operation)? {
            None => Ok(()),
            // This case is rare and large; a boxed future keeps the usual one small.
            Some(after) => Box::pin(shared.follow_up(after)).await,
        }
    }

    /// The columns of the table.
    pub(crate) fn schema(&self) -> &Schema {
        &self.shared.writing.layout.schema
    }

    /// The type of a column, if there is one at this place.
    #[inline]
    pub(crate) fn data_type(&self, column: usize) -> Option<DataType> {
        self.shared.writing.layout.columns.get(column).map(|column| column.data_type)
    }

    #[inline]
    fn fixed<const N: usize>(
        &mut self,
        column: impl ColumnReference,
        data_type: DataType,
        cell: [u8; N],
    ) -> Result<&mut Self, RowError> {
        let column = column.index(&self.shared.writing.layout.schema)?;
        self.filling.encoder.put_fixed(column, data_type, cell)?;
        self.filling.settle();
        Ok(self)
    }
}

impl std::fmt::Debug for RowWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowWriter").field("operation", &self.operation).finish_non_exhaustive()
    }
}
