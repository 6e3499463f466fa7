//! A whole primary key: its cells find the tablet, and its encoding finds the row.
//!
//! Invariants: keys of usual size are held in place, without an allocation. The encoding has every
//! key column. [`LookupKey::successor`] is the least encoded key above it, so exactly one row fits
//! between the two.

use smallvec::SmallVec;

use crate::error::Error;
use crate::key_encoding::{KeyCells, encode_key_cell, encode_least};
use crate::scan_error::ScanError;
use crate::schema::{ColumnSchema, DataType, Schema, Value};

/// Bytes of cells, and of an encoded key, that are held in place: a few numbers, or one text.
const INLINE_BYTES: usize = 32;
/// Key columns whose offsets are held in place.
const INLINE_COLUMNS: usize = 4;

/// A primary key with a value for every column.
#[derive(Clone, Debug)]
pub(super) struct LookupKey {
    cells: SmallVec<[u8; INLINE_BYTES]>,
    cell_ends: SmallVec<[u32; INLINE_COLUMNS]>,
    encoded: Vec<u8>,
    /// Where each column begins in `encoded`.
    starts: SmallVec<[u32; INLINE_COLUMNS]>,
}

impl LookupKey {
    pub(super) fn new(schema: &Schema, values: &[Value<'_>]) -> Result<LookupKey, Error> {
        let columns = schema.key_columns();
        if values.len() != columns.len() {
            return Err(
                ScanError::KeyLength { values: values.len(), key_columns: columns.len() }.into()
            );
        }
        let mut key = LookupKey {
            cells: SmallVec::new(),
            cell_ends: SmallVec::new(),
            encoded: Vec::with_capacity(INLINE_BYTES),
            starts: SmallVec::new(),
        };
        for (index, (value, column)) in values.iter().zip(columns).enumerate() {
            let cell_start = key.cells.len();
            append_cell(value, column, &mut key.cells)?;
            key.cell_ends.push(key.cells.len() as u32);
            key.starts.push(key.encoded.len() as u32);
            let is_last = index + 1 == columns.len();
            encode_key_cell(
                &key.cells[cell_start..],
                column.data_type(),
                is_last,
                &mut key.encoded,
            );
        }
        Ok(key)
    }

    /// The key in the order-preserving encoding.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    /// The least encoded key above this one; `None` if it is the greatest of all.
    ///
    /// The last column counts up by one. On overflow, it restarts at its least value and the column
    /// before it counts up.
    pub(super) fn successor(&self, schema: &Schema) -> Option<Vec<u8>> {
        let columns = schema.key_columns();
        for index in (0..columns.len()).rev() {
            let is_last = index + 1 == columns.len();
            let end = self.starts.get(index + 1).map_or(self.encoded.len(), |end| *end as usize);
            let mut next = self.encoded[..end].to_vec();
            let begins = self.starts[index] as usize;
            if !count_up(&mut next, begins, columns[index].data_type(), is_last) {
                continue;
            }
            for (later, column) in columns.iter().enumerate().skip(index + 1) {
                encode_least(column.data_type(), later + 1 == columns.len(), &mut next);
            }
            return Some(next);
        }
        None
    }
}

impl KeyCells for LookupKey {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        let end = *self.cell_ends.get(column)? as usize;
        let start = column.checked_sub(1).map_or(0, |before| self.cell_ends[before] as usize);
        self.cells.get(start..end)
    }
}

/// Appends the bytes of a cell. Integers and texts, which most keys consist of, need no allocation.
fn append_cell(
    value: &Value<'_>,
    column: &ColumnSchema,
    cells: &mut SmallVec<[u8; INLINE_BYTES]>,
) -> Result<(), Error> {
    match (value, column.data_type()) {
        (Value::Int64(value), DataType::Int64) => cells.extend_from_slice(&value.to_le_bytes()),
        (Value::Int32(value), DataType::Int32) => cells.extend_from_slice(&value.to_le_bytes()),
        (Value::String(value), DataType::String) => cells.extend_from_slice(value.as_bytes()),
        // To Kudu a string is bytes, so some keys are not valid text.
        (Value::Binary(value), DataType::Binary | DataType::String) => {
            cells.extend_from_slice(value)
        }
        _ => cells.extend_from_slice(&value.to_cell(column)?),
    }
    Ok(())
}

/// Turns the column at the end of an encoded key into its successor; false if it is the greatest
/// value of its type.
fn count_up(key: &mut Vec<u8>, begins: usize, data_type: DataType, is_last: bool) -> bool {
    if data_type.is_variable_length() {
        // The least greater text has one more zero byte. Before other columns that byte is encoded
        // as two bytes, in front of the two that end the text.
        match is_last {
            true => key.push(0),
            false => {
                key.truncate(key.len().saturating_sub(2));
                key.extend_from_slice(&[0, 1, 0, 0]);
            }
        }
        return true;
    }
    for byte in key[begins..].iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return true;
        }
    }
    false
}
