//! Finds the tablet that holds the row with a key, for operators and for tests.
//!
//! The answer is that of `kudu table locate_row`. Sessions, scans and lookups find their tablets on
//! their own.

use tokio::time::Instant;

use crate::error::Error;
use crate::key_encoding::KeyCells;
use crate::partition::TabletMap;
use crate::row_operation::RowError;
use crate::schema::Value;
use crate::table::Table;

impl Table {
    /// The id of the tablet that holds the row with this primary key, if it exists: 32 hexadecimal
    /// digits.
    ///
    /// It fails with [`Error::NonCoveredRange`] when no partition covers the key, and when the key
    /// does not match the table.
    pub async fn tablet_id_of(&self, key: &[Value<'_>]) -> Result<String, Error> {
        let columns = self.schema().key_columns();
        if key.len() != columns.len() {
            return Err(RowError::NoSuchColumn { index: key.len(), columns: columns.len() }.into());
        }
        let cells = key.iter().zip(columns).map(|(value, column)| value.to_cell(column));
        let cells = Cells(cells.collect::<Result<_, _>>()?);
        let tablets = self.snapshot(Instant::now() + self.client().rpc_timeout()).await?;
        let map = TabletMap::new(
            self.partition_schema(),
            tablets.iter().map(|tablet| tablet.partition()),
        );
        match map.locate(&cells, &mut Vec::new()) {
            Some(number) => Ok(tablets[number].id().to_owned()),
            None => Err(Error::NonCoveredRange { table: self.name().to_owned() }),
        }
    }
}

/// The cells of a key, by column.
struct Cells(Vec<Vec<u8>>);

impl KeyCells for Cells {
    fn cell(&self, column: usize) -> Option<&[u8]> {
        self.0.get(column).map(Vec::as_slice)
    }
}
