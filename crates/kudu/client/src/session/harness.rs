//! Checks a tablet server's answer about rows; see the crate's `harness`.

use std::sync::Arc;

use super::recode::Recoder;
use super::row_buffers::RowBuffers;
use super::row_errors::RowErrors;
use super::writing::WriteResult;
use crate::proto::tserver::WriteResponsePb;
use crate::row_operation::{EncodedRows, RowLayout};

/// Takes an answer about a batch of rows and looks at every row that failed.
///
/// # Panics
/// When more rows failed than there are, or when one is not in the batch.
pub(crate) fn check_row_errors(
    layout: &Arc<RowLayout>,
    rows: &[u8],
    indirect: &[u8],
    answer: WriteResponsePb,
) {
    // A session's own rows are all well formed.
    let row_count = EncodedRows::new(layout, rows, indirect).count();
    if EncodedRows::new(layout, rows, indirect)
        .any(|row| row.map_or(true, |row| row.cells().any(|cell| cell.is_err())))
    {
        return;
    }
    let batch = RowBuffers { rows: rows.to_vec(), indirect: indirect.to_vec(), row_count };
    let written = WriteResult::new(answer, |number| (number < row_count).then_some(number));
    let failed = written.failures.len();
    assert!(failed <= row_count, "{failed} of {row_count} rows failed");
    let mut errors = RowErrors::default();
    errors.push_rows(layout, &batch, written.failures, usize::MAX);
    let (found, lost) = (errors.iter().count(), errors.lost() as usize);
    assert_eq!(found + lost, failed, "every failed row is found again, or counted");
    let encoded = Recoder::identity(layout).batch(layout, &batch).row_numbers.len();
    assert!(lost == 0 || encoded < row_count, "a row that can be encoded is found again");
    for row in errors.iter() {
        assert!(!row.to_string().is_empty());
    }
}
