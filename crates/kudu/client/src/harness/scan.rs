//! The rows of a scan: sidecars in both layouts, read cell by cell and as Arrow.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::input::Input;
use crate::proto::common::{ColumnarColumnPb, ColumnarRowBlockPb, RowwiseRowBlockPb};
use crate::proto::tserver::ScanResponsePb;
use crate::scanner::harness::{BatchBlock, ColumnarBlock, RowwiseBlock};
use crate::scanner::{Projection, ScanBatch, ScanToken};
use crate::schema::Schema;

/// Rows to read of a batch that claims more: without columns it may have billions.
const ROWS_READ_MAX: usize = 300;

/// Checks that rows are refused or readable. The input is a schema, the answer's message, and
/// sidecars.
///
/// # Panics
/// When an invariant is violated.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let Ok(schema) = Schema::from_pb(&input.schema_pb()) else { return };
    let columns = usize::from(input.u8()) % (schema.columns().len() + 1);
    let projection = Arc::new(Projection::new(schema.columns()[..columns].iter().cloned()));
    let message = if input.bool() {
        let bytes = input.piece();
        let _ = ScanToken::deserialize(&bytes);
        let Ok(message) = ScanResponsePb::decode(bytes) else { return };
        message
    } else {
        plausible(&mut input, columns)
    };
    let mut sidecars = Vec::new();
    while !input.is_empty() {
        sidecars.push(input.piece());
    }
    check_blocks(&message, &sidecars, &projection);
}

/// An answer of valid form, so that the check reaches deeper into arbitrary sidecars.
fn plausible(input: &mut Input<'_>, columns: usize) -> ScanResponsePb {
    let num_rows = input.u8() % 9;
    let mut sidecar = 0..;
    let mut next = |is_there: bool| if is_there { sidecar.next() } else { None };
    let columns = (0..columns)
        .map(|_| ColumnarColumnPb {
            data_sidecar: next(true),
            varlen_data_sidecar: next(true),
            non_null_bitmap_sidecar: next(true),
        })
        .collect();
    ScanResponsePb {
        data: Some(RowwiseRowBlockPb {
            num_rows: Some(num_rows.into()),
            rows_sidecar: Some(0),
            indirect_data_sidecar: Some(1),
        }),
        columnar_data: Some(ColumnarRowBlockPb { columns, num_rows: Some(num_rows.into()) }),
        ..ScanResponsePb::default()
    }
}

fn check_blocks(message: &ScanResponsePb, sidecars: &[Bytes], projection: &Arc<Projection>) {
    if let Some(data) = &message.data
        && let Ok(block) = RowwiseBlock::decode(data, sidecars, projection)
    {
        check_batch(ScanBatch::new(projection.clone(), BatchBlock::Rowwise(block)));
    }
    if let Some(data) = &message.columnar_data
        && let Ok(block) = ColumnarBlock::decode(data, sidecars, projection)
    {
        check_batch(ScanBatch::new(projection.clone(), BatchBlock::Columnar(block)));
    }
}

fn check_batch(batch: ScanBatch) {
    let columns = batch.projection().columns().len();
    for row in batch.rows().take(ROWS_READ_MAX) {
        for column in 0..=columns {
            let value = row.get::<Option<crate::Cell<'_>>>(column);
            assert!(column < columns || value.is_err(), "there is no column {column}");
            let _ = row.is_null(column);
        }
    }
    assert!(batch.row(batch.num_rows()).is_none());
    #[cfg(feature = "arrow")]
    if let Ok(arrow) = batch.to_record_batch() {
        assert_eq!(arrow.num_rows(), batch.num_rows());
        assert_eq!(arrow.num_columns(), columns);
    }
}
