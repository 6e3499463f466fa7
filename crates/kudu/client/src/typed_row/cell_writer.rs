//! Writes the fields of a struct into a row.

use crate::row_operation::{RowError, RowOperation};
use crate::schema::{DataType, Value};
use crate::session::RowWriter;

use crate::field_columns::FieldColumns;

/// The cells of a row, by the fields of a struct. Derived code calls it.
#[derive(Debug)]
pub struct CellWriter<'w, 's> {
    row: &'w mut RowWriter<'s>,
    columns: &'w FieldColumns,
    /// Columns from this index on are left out.
    columns_end: usize,
}

impl<'w, 's> CellWriter<'w, 's> {
    #[inline]
    pub(super) fn new(
        row: &'w mut RowWriter<'s>,
        columns: &'w FieldColumns,
        operation: RowOperation,
    ) -> CellWriter<'w, 's> {
        let columns_end = match operation {
            // Key columns come first.
            RowOperation::Delete | RowOperation::DeleteIgnore => row.schema().key_columns().len(),
            _ => usize::MAX,
        };
        CellWriter { row, columns, columns_end }
    }

    /// Sets the cell of the field with this number, counted from 0.
    ///
    /// # Panics
    ///
    /// If the struct has fewer fields.
    #[inline]
    pub fn put<T: ToCell + ?Sized>(&mut self, field: usize, value: &T) -> Result<(), RowError> {
        let column = self.columns.column(field);
        if column < self.columns_end { value.put(self.row, column) } else { Ok(()) }
    }
}

/// A Rust type to write as a cell.
///
/// | type | columns |
/// |---|---|
/// | `i8`, `i16` | INT8, INT16 |
/// | `i32` | INT32; DATE as days since 1970-01-01; unscaled DECIMAL |
/// | `i64` | INT64; UNIXTIME_MICROS as microseconds since 1970-01-01 UTC; unscaled DECIMAL |
/// | `i128` | unscaled DECIMAL: 1.50 with a scale of 2 is 150 |
/// | `f32`, `f64`, `bool` | FLOAT, DOUBLE, BOOL |
/// | `&str`, `String` | STRING, VARCHAR |
/// | `&[u8]`, `Vec<u8>` | BINARY |
/// | [`Value`] | all, with [`Value::Null`] as NULL |
/// | `Option<T>` | as `T`, with `None` as NULL |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the cell of a row",
    note = "cells are numbers, `bool`, `String`, `&str`, `Vec<u8>`, `&[u8]`, `Value`, or an `Option` of these"
)]
pub trait ToCell {
    /// Sets the cell of the column at this index.
    fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError>;
}

impl<T: ToCell> ToCell for Option<T> {
    #[inline]
    fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError> {
        match self {
            Some(value) => value.put(row, column),
            None => row.set_null(column).map(drop),
        }
    }
}

impl<T: ToCell + ?Sized> ToCell for &T {
    #[inline]
    fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError> {
        (**self).put(row, column)
    }
}

impl ToCell for i32 {
    #[inline]
    fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError> {
        match row.data_type(column) {
            Some(DataType::Date) => row.set_date(column, *self),
            Some(decimal) if decimal.is_decimal() => row.set_decimal(column, (*self).into()),
            _ => row.set_i32(column, *self),
        }
        .map(drop)
    }
}

impl ToCell for i64 {
    #[inline]
    fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError> {
        match row.data_type(column) {
            Some(DataType::UnixtimeMicros) => row.set_unixtime_micros(column, *self),
            Some(decimal) if decimal.is_decimal() => row.set_decimal(column, (*self).into()),
            _ => row.set_i64(column, *self),
        }
        .map(drop)
    }
}

impl ToCell for Value<'_> {
    #[inline]
    fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError> {
        row.set(column, *self).map(drop)
    }
}

/// Types with their own setter.
macro_rules! set_by {
    ($($type:ty: $setter:ident($($value:tt)+),)*) => {
        $(impl ToCell for $type {
            #[inline]
            fn put(&self, row: &mut RowWriter<'_>, column: usize) -> Result<(), RowError> {
                row.$setter(column, $($value)+self).map(drop)
            }
        })*
    };
}

set_by! {
    bool: set_bool(*),
    i8: set_i8(*),
    i16: set_i16(*),
    i128: set_decimal(*),
    f32: set_f32(*),
    f64: set_f64(*),
    str: set_string(&*),
    String: set_string(&*),
    [u8]: set_binary(&*),
    Vec<u8>: set_binary(&*),
}
