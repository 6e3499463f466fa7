//! The order-preserving encoding of key cells. Kudu compares primary keys and ranges in it, and
//! hashes it.
//!
//! An integer is big-endian with its sign bit flipped, so bytes compare like numbers. A string at
//! the end of its group of columns is unchanged. Before other columns its zero bytes become `00 01`
//! and `00 00` ends it, so a shorter string still comes first. An absent cell is the least value of
//! its type. Partition keys use the encoding here; the scanner uses it for bounds and lookups.

use crate::schema::DataType;

/// The source of key cells: the row in progress, or the caller's values.
pub(crate) trait KeyCells {
    /// The bytes of a column's cell: little-endian fixed width, or a string's bytes. `None` if it
    /// is not set.
    fn cell(&self, column: usize) -> Option<&[u8]>;
}

/// Appends a cell's encoding. Every source has checked that `cell` has the width of its type; a
/// cell of another width counts as absent.
#[inline]
pub(crate) fn encode_key_cell(cell: &[u8], data_type: DataType, is_last: bool, key: &mut Vec<u8>) {
    if data_type.is_variable_length() {
        encode_string(cell, is_last, key);
        return;
    }
    match data_type.size() {
        8 if cell.len() == 8 => key.extend_from_slice(&order_preserving::<8>(first_chunk(cell))),
        4 if cell.len() == 4 => key.extend_from_slice(&order_preserving::<4>(first_chunk(cell))),
        1 if cell.len() == 1 => key.extend_from_slice(&order_preserving::<1>(first_chunk(cell))),
        2 if cell.len() == 2 => key.extend_from_slice(&order_preserving::<2>(first_chunk(cell))),
        16 if cell.len() == 16 => key.extend_from_slice(&order_preserving::<16>(first_chunk(cell))),
        _ => encode_least(data_type, is_last, key),
    }
}

/// Appends the encoding of a type's least value, which stands for an absent cell.
pub(crate) fn encode_least(data_type: DataType, is_last: bool, key: &mut Vec<u8>) {
    if data_type.is_variable_length() {
        encode_string(&[], is_last, key);
    } else {
        key.resize(key.len() + data_type.size(), 0);
    }
}

/// Reverses the bytes of a little-endian signed integer and flips its sign bit.
#[inline]
pub(crate) fn order_preserving<const N: usize>(mut cell: [u8; N]) -> [u8; N] {
    cell.reverse();
    cell[0] ^= 0x80;
    cell
}

fn first_chunk<const N: usize>(cell: &[u8]) -> [u8; N] {
    *cell.first_chunk().expect("the caller compared the length")
}

fn encode_string(cell: &[u8], is_last: bool, key: &mut Vec<u8>) {
    if is_last {
        key.extend_from_slice(cell);
        return;
    }
    let mut parts = cell.split(|byte| *byte == 0);
    key.extend_from_slice(parts.next().unwrap_or_default());
    for part in parts {
        key.extend_from_slice(&[0, 1]);
        key.extend_from_slice(part);
    }
    key.extend_from_slice(&[0, 0]);
}
