//! Rows as tablet servers want them: encoded once, end to end, with the bytes of strings apart.
//!
//! Layout of a row: one byte that says what to do; a bit for each column of the schema that says whether the
//! row has a cell for it; a bit for each column that says whether that cell is NULL, only if some column
//! can be; then the cells that are there and not NULL, without padding, little-endian. A string's cell is
//! its offset in the indirect data and its length, eight bytes each.
//!
//! Owns: the precomputed layout of a schema's rows, the encoder, the way back from bytes to cells (for rows
//! that failed, and for range bounds that a server sends), range bounds. It knows no tablets and does no I/O;
//! the session decides into which buffers a row goes.

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

/// What a row asks a tablet server to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowOperation {
    /// Add the row; its key must be new.
    Insert,
    /// Add the row unless its key is there.
    InsertIgnore,
    /// Add the row, or change the cells that are given.
    Upsert,
    /// The same, but cells that must not change are left alone without an error.
    UpsertIgnore,
    /// Change the cells that are given; the key must be there.
    Update,
    /// Change the cells that are given, if the key is there.
    UpdateIgnore,
    /// Remove the row; its key must be there.
    Delete,
    /// Remove the row, if its key is there.
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
