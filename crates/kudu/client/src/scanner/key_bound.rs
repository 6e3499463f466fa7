//! A bound of the primary key: the first values of a key, and their encoding.
//!
//! Key columns without a value count as the least value of their type, so a bound of fewer columns
//! sorts before all keys with that prefix. Invariant: the encoding has all key columns, as servers
//! require. The builder calls it. Pruning uses the cells, because range partitions have another
//! encoding.

use bytes::Bytes;

use crate::key_encoding::{KeyCells, encode_key_cell, encode_least};
use crate::schema::Schema;

use super::operand::Operand;
use crate::scan_error::ScanError;

/// A place in the order of primary keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyBound {
    /// Cells of the first key columns, as on the wire.
    cells: Vec<Bytes>,
    encoded: Bytes,
}

impl KeyBound {
    /// The bound that starts with these values.
    pub(crate) fn new(schema: &Schema, values: &[Operand]) -> Result<KeyBound, ScanError> {
        let key_columns = schema.key_columns();
        if values.len() > key_columns.len() {
            return Err(ScanError::KeyLength {
                values: values.len(),
                key_columns: key_columns.len(),
            });
        }
        let mut cells = Vec::with_capacity(values.len());
        for (value, column) in values.iter().zip(key_columns) {
            let data_type = column.data_type();
            value.check(data_type).map_err(|source| ScanError::Operand {
                column: column.name().to_owned(),
                source,
            })?;
            cells.push(value.to_wire(data_type));
        }
        let mut encoded = Vec::new();
        for (index, column) in key_columns.iter().enumerate() {
            let is_last = index + 1 == key_columns.len();
            match cells.get(index) {
                Some(cell) => encode_key_cell(cell, column.data_type(), is_last, &mut encoded),
                None => encode_least(column.data_type(), is_last, &mut encoded),
            }
        }
        Ok(KeyBound { cells, encoded: Bytes::from(encoded) })
    }

    /// The whole key in the order-preserving encoding.
    pub(crate) fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// How many key columns have a value.
    pub(crate) fn num_values(&self) -> usize {
        self.cells.len()
    }
}

impl KeyCells for KeyBound {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        self.cells.get(column).map(|cell| &cell[..])
    }
}
