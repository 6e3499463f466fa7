//! Reads the fields of a struct from a row.

use crate::scan_error::ScanError;
use crate::scanner::{FromCell, Row};

use crate::field_columns::FieldColumns;

/// The cells of a row, by the fields of a struct. Derived code calls it.
#[derive(Debug)]
pub struct CellReader<'a, 'c> {
    row: Row<'a>,
    columns: &'c FieldColumns,
}

impl<'a, 'c> CellReader<'a, 'c> {
    pub(super) fn new(row: Row<'a>, columns: &'c FieldColumns) -> CellReader<'a, 'c> {
        CellReader { row, columns }
    }

    /// The cell of the field with this number, counted from 0.
    ///
    /// # Panics
    ///
    /// If the struct has fewer fields.
    #[inline]
    pub fn get<T: FromCell<'a>>(&self, field: usize) -> Result<T, ScanError> {
        self.row.get(self.columns.column(field)).map_err(|source| ScanError::Field {
            column: self.columns.name(field).to_owned(),
            source,
        })
    }
}
