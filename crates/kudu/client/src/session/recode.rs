//! Encodes rows again: for a schema that changed under the session, or to keep only some rows of a
//! batch.
//!
//! It matches columns by the server's ids. A renamed column keeps its cells, and a column that was
//! dropped and added again under the same name does not get the old cells. It runs only on error
//! paths, so it may allocate freely.

use std::sync::Arc;

use crate::row_operation::{EncodedRow, EncodedRows, RowEncoder, RowLayout};

use super::row_buffers::RowBuffers;

/// Turns rows of one layout into rows of another.
pub(super) struct Recoder {
    encoder: RowEncoder,
    /// For each column of the old layout its index in the new one, if it exists there.
    columns: Vec<Option<usize>>,
}

/// Rows of a batch in another layout.
#[derive(Debug, Default)]
pub(super) struct Recoded {
    pub buffers: RowBuffers,
    /// For each row its number in the old batch.
    pub row_numbers: Vec<usize>,
    /// Rows left out because they have a cell for a dropped column: number and column.
    pub rejected: Vec<(usize, usize)>,
}

impl Recoder {
    /// Maps a layout to itself, to copy single rows.
    pub(super) fn identity(layout: &Arc<RowLayout>) -> Recoder {
        Recoder {
            encoder: RowEncoder::new(layout.clone(), [], usize::MAX),
            columns: (0..layout.columns.len()).map(Some).collect(),
        }
    }

    pub(super) fn between(old: &RowLayout, new: &Arc<RowLayout>) -> Recoder {
        let place = |index: usize| {
            let column = &old.schema.columns()[index];
            let found = match column.id() {
                Some(id) => new.schema.column_index_of_id(id),
                None => new.schema.column_index(column.name()),
            };
            found.filter(|found| new.columns[*found].data_type == column.data_type())
        };
        Recoder {
            encoder: RowEncoder::new(new.clone(), [], usize::MAX),
            columns: (0..old.columns.len()).map(place).collect(),
        }
    }

    /// Encodes a whole batch.
    pub(super) fn batch(&mut self, layout: &RowLayout, batch: &RowBuffers) -> Recoded {
        let mut recoded = Recoded::default();
        let rows = EncodedRows::new(layout, &batch.rows, &batch.indirect).map_while(Result::ok);
        for (number, row) in rows.enumerate() {
            match self.row(&row, &mut recoded.buffers) {
                Ok(()) => recoded.row_numbers.push(number),
                Err(column) => recoded.rejected.push((number, column)),
            }
        }
        recoded
    }

    /// Encodes one row. It fails with the column that no longer exists, or that no longer accepts
    /// the cell.
    pub(super) fn row(
        &mut self,
        row: &EncodedRow<'_>,
        target: &mut RowBuffers,
    ) -> Result<(), usize> {
        let indirect_start = target.indirect.len();
        self.encoder.clear();
        for (column, cell) in row.cells().map_while(Result::ok) {
            let placed = self.columns[column].and_then(|place| {
                self.encoder.put_cell(place, cell, Some(&mut target.indirect)).ok()
            });
            if placed.is_none() {
                target.indirect.truncate(indirect_start);
                return Err(column);
            }
        }
        self.encoder.finish(row.operation(), &mut target.rows);
        target.row_count += 1;
        Ok(())
    }
}
