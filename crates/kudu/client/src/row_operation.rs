//! Rows in the tablet servers' format: encoded once, end to end, with the bytes of strings apart.
//!
//! Layout of a row: one byte with the operation. Then a bit per column of the schema: whether the
//! row has a cell for it. If any column is nullable, another bit per column: whether that cell is
//! NULL. Then the present cells that are not NULL, without padding, little-endian. A string's cell
//! is its offset in the indirect data and its length, eight bytes each.
//!
//! It owns the precomputed layout of a schema's rows, the encoder, range bounds, and the decoder
//! from bytes to cells (for failed rows, and for range bounds from a server). It does not know
//! tablets and does no I/O; the session selects a row's buffers.

mod bounds;
mod encoder;
mod error;
mod layout;
mod reader;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use bounds::{BoundKind, RangeBound, decode_bounds, encode_bounds};
pub(crate) use encoder::RowEncoder;
pub use error::RowError;
pub(crate) use layout::{ColumnPlan, RowLayout};
pub(crate) use reader::{EncodedRow, EncodedRows};

use crate::proto::common::RowOperationTypePb;

/// The operation of a row on a tablet server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RowOperation {
    /// Add the row; its key must be new.
    Insert,
    /// Add the row, unless its key exists.
    InsertIgnore,
    /// Add the row, or change the given cells.
    Upsert,
    /// The same, but leave immutable cells unchanged without an error.
    UpsertIgnore,
    /// Change the given cells; the key must exist.
    Update,
    /// Change the given cells, if the key exists.
    UpdateIgnore,
    /// Remove the row; its key must exist.
    Delete,
    /// Remove the row, if its key exists.
    DeleteIgnore,
}

impl RowOperation {
    /// Every operation.
    pub const ALL: [RowOperation; 8] = [
        RowOperation::Insert,
        RowOperation::InsertIgnore,
        RowOperation::Upsert,
        RowOperation::UpsertIgnore,
        RowOperation::Update,
        RowOperation::UpdateIgnore,
        RowOperation::Delete,
        RowOperation::DeleteIgnore,
    ];

    /// The name in Kudu's documentation.
    pub const fn name(self) -> &'static str {
        match self {
            RowOperation::Insert => "INSERT",
            RowOperation::InsertIgnore => "INSERT_IGNORE",
            RowOperation::Upsert => "UPSERT",
            RowOperation::UpsertIgnore => "UPSERT_IGNORE",
            RowOperation::Update => "UPDATE",
            RowOperation::UpdateIgnore => "UPDATE_IGNORE",
            RowOperation::Delete => "DELETE",
            RowOperation::DeleteIgnore => "DELETE_IGNORE",
        }
    }

    /// The first byte of a row.
    pub(crate) const fn wire(self) -> u8 {
        let number = match self {
            RowOperation::Insert => RowOperationTypePb::Insert,
            RowOperation::InsertIgnore => RowOperationTypePb::InsertIgnore,
            RowOperation::Upsert => RowOperationTypePb::Upsert,
            RowOperation::UpsertIgnore => RowOperationTypePb::UpsertIgnore,
            RowOperation::Update => RowOperationTypePb::Update,
            RowOperation::UpdateIgnore => RowOperationTypePb::UpdateIgnore,
            RowOperation::Delete => RowOperationTypePb::Delete,
            RowOperation::DeleteIgnore => RowOperationTypePb::DeleteIgnore,
        };
        number as u8
    }

    pub(crate) fn from_wire(byte: u8) -> Option<RowOperation> {
        RowOperation::ALL.into_iter().find(|operation| operation.wire() == byte)
    }
}

impl fmt::Display for RowOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
