//! Range bounds: rows in which only range columns are set.
//!
//! A table's creator sends them in pairs, lower before upper, and servers return them with the hash
//! schemas of single ranges. A missing column counts as the least value of its type; a bound
//! without columns is no bound. The creation and alteration of tables and the partition schema call
//! it.

use std::sync::Arc;

use bytes::Bytes;

use crate::key_encoding::KeyCells;
use crate::proto::common::{RowOperationTypePb, RowOperationsPb};
use crate::schema::{Schema, Value};

use super::{EncodedRows, RowEncoder, RowError, RowLayout};

/// The side of a range that a bound is on, and whether the range includes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BoundKind {
    InclusiveLower,
    ExclusiveLower,
    InclusiveUpper,
    ExclusiveUpper,
    /// A value that splits a range in two.
    Split,
}

/// A decoded bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RangeBound {
    pub kind: BoundKind,
    /// By column; `None` is not set.
    cells: Vec<Option<Box<[u8]>>>,
}

impl BoundKind {
    const ALL: [BoundKind; 5] = [
        BoundKind::InclusiveLower,
        BoundKind::ExclusiveLower,
        BoundKind::InclusiveUpper,
        BoundKind::ExclusiveUpper,
        BoundKind::Split,
    ];

    const fn wire(self) -> u8 {
        let number = match self {
            BoundKind::InclusiveLower => RowOperationTypePb::RangeLowerBound,
            BoundKind::ExclusiveLower => RowOperationTypePb::ExclusiveRangeLowerBound,
            BoundKind::InclusiveUpper => RowOperationTypePb::InclusiveRangeUpperBound,
            BoundKind::ExclusiveUpper => RowOperationTypePb::RangeUpperBound,
            BoundKind::Split => RowOperationTypePb::SplitRow,
        };
        number as u8
    }
}

impl KeyCells for RangeBound {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        self.cells.get(column)?.as_deref()
    }
}

/// Encodes bounds, each a kind and the columns that it sets.
pub(crate) fn encode_bounds(
    schema: &Schema,
    bounds: &[(BoundKind, &[(usize, Value<'_>)])],
) -> Result<RowOperationsPb, RowError> {
    let layout = Arc::new(RowLayout::new(schema.clone()));
    // A bound is a key, whose length the server limits; no cell of it can be too large here.
    let mut encoder = RowEncoder::new(layout, [], usize::MAX);
    let (mut rows, mut indirect) = (Vec::new(), Vec::new());
    for (kind, cells) in bounds {
        encoder.clear();
        for (column, value) in *cells {
            encoder.put_value(*column, *value, Some(&mut indirect))?;
        }
        encoder.finish(kind.wire(), &mut rows);
    }
    Ok(RowOperationsPb {
        rows: Some(Bytes::from(rows)),
        indirect_data: Some(Bytes::from(indirect)),
    })
}

/// Decodes a server's bounds; `None` when they are not bounds of this schema.
pub(crate) fn decode_bounds(schema: &Schema, pb: &RowOperationsPb) -> Option<Vec<RangeBound>> {
    let layout = RowLayout::new(schema.clone());
    let rows = pb.rows.as_deref().unwrap_or_default();
    let indirect = pb.indirect_data.as_deref().unwrap_or_default();
    EncodedRows::new(&layout, rows, indirect)
        .map(|row| {
            let row = row.ok()?;
            let kind = BoundKind::ALL.into_iter().find(|kind| kind.wire() == row.operation())?;
            let mut cells = vec![None; layout.columns.len()];
            for cell in row.cells() {
                let (column, cell) = cell.ok()?;
                cells[column] = cell.map(Box::from);
            }
            Some(RangeBound { kind, cells })
        })
        .collect()
}
