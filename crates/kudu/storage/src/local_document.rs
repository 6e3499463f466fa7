//! Documents of the bucket itself, such as its manifest, by name.
//!
//! Owns: reading all rows of one, and replacing them in one Write. Invariant: a version is written
//! only after the Write of the previous one is decided, so that its number of rows is known.
//! Callers: the store's methods.

use oribi_kudu::Row;
use oribi_storage::StoreError;
use tokio::time::Instant;

use crate::failure::of_cell;
use crate::layout::{COLUMNS, column};
use crate::patience::{Attempts, WaitResult};
use crate::pieces::corrupt;
use crate::rows::{Unit, rows_max};
use crate::scan::Bounds;
use crate::shared::StoreState;
use crate::writer::Writer;

impl StoreState {
    /// Reads a local document: all its rows, at one moment. While Kudu is unreachable it waits like
    /// `attempts`.
    pub(crate) async fn get_local(
        &self,
        name: &str,
        attempts: Attempts,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let bounds = Bounds::local(name);
        let columns = [COLUMNS[column::BODY_BYTES], COLUMNS[column::BODY]];
        let read = |row: &Row<'_>| {
            let body: &[u8] = row.get(1).map_err(of_cell)?;
            Ok((row.get::<i64>(0).map_err(of_cell)?, body.to_vec()))
        };
        let rows = self.scan_rows(&bounds, &[], &columns, (usize::MAX, attempts), read).await?;
        let Some((bytes, _)) = rows.first() else { return Ok(None) };
        let bytes = usize::try_from(*bytes).unwrap_or(usize::MAX);
        let value: Vec<u8> = rows.iter().flat_map(|(_, piece)| piece).copied().collect();
        if value.len() != bytes {
            return Err(corrupt("a local document of another length than it says"));
        }
        Ok(Some(value))
    }

    /// Creates or replaces a local document. After the limit it is unknown whether the write has
    /// happened, or will.
    pub(crate) async fn put_local(
        &self,
        writer: &mut Writer,
        (name, value): (&str, &[u8]),
        limit: Option<Instant>,
    ) -> Result<(), StoreError> {
        self.settle_undecided(writer, limit).await?;
        let read = self.get_local(name, Attempts::until(limit));
        let before = match self.patience.wait("a local document is to be read", limit, read).await {
            WaitResult::Done(before) => before?,
            WaitResult::TimeIsUp | WaitResult::Closed => {
                return Err(StoreError::Io("Kudu: no answer in time; nothing was sent".into()));
            }
        };
        let rows_before = before.map_or(0, |before| rows_max(before.len()));
        self.write(writer, &[Unit::Local { name, value, rows_before }], limit).await
    }
}
