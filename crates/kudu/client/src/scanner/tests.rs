//! Decoding of scan results: by hand, against an encoder that lays rows out like a server, and
//! against invalid bytes.

mod encoder;
#[cfg(feature = "derive")]
mod typed_rows;

use bytes::Bytes;
use proptest::prelude::*;

use super::batch::{BatchBlock, ScanBatch};
use super::cell::Cell;
use super::columnar::ColumnarBlock;
use super::rowwise::RowwiseBlock;
use crate::proto::common::{ColumnarColumnPb, ColumnarRowBlockPb, RowwiseRowBlockPb};
use crate::scan_error::CellError;
use crate::scan_error::{BlockFault, BlockPart};
use crate::schema::{DataType, Value};
pub(crate) use encoder::{RowsModel, projection_of};

fn rowwise(num_rows: i32, rows: &[u8], indirect: &[u8]) -> (RowwiseRowBlockPb, Vec<Bytes>) {
    let message = RowwiseRowBlockPb {
        num_rows: Some(num_rows),
        rows_sidecar: Some(0),
        indirect_data_sidecar: Some(1),
    };
    (message, vec![Bytes::copy_from_slice(rows), Bytes::copy_from_slice(indirect)])
}

fn decode_rowwise(
    columns: &[(DataType, bool)],
    (message, sidecars): (RowwiseRowBlockPb, Vec<Bytes>),
) -> Result<ScanBatch, BlockFault> {
    let projection = projection_of(columns);
    let block = RowwiseBlock::decode(&message, &sidecars, &projection)?;
    Ok(ScanBatch::new(projection, BatchBlock::Rowwise(block)))
}

fn decode_columnar(
    columns: &[(DataType, bool)],
    num_rows: i64,
    pieces: Vec<ColumnarColumnPb>,
    sidecars: &[&'static [u8]],
) -> Result<ScanBatch, BlockFault> {
    let projection = projection_of(columns);
    let message = ColumnarRowBlockPb { columns: pieces, num_rows: Some(num_rows) };
    let sidecars: Vec<Bytes> = sidecars.iter().map(|bytes| Bytes::from_static(bytes)).collect();
    let block = ColumnarBlock::decode(&message, &sidecars, &projection)?;
    Ok(ScanBatch::new(projection, BatchBlock::Columnar(block)))
}

fn pieces(data: i32, content: Option<i32>, bitmap: Option<i32>) -> ColumnarColumnPb {
    ColumnarColumnPb {
        data_sidecar: Some(data),
        varlen_data_sidecar: content,
        non_null_bitmap_sidecar: bitmap,
    }
}

const KEY_AND_TEXT: [(DataType, bool); 2] = [(DataType::Int32, false), (DataType::String, true)];

#[test]
fn a_rowwise_block_by_hand() {
    // Two rows of a 4-byte number, a reference of 16 bytes and a bitmap of one byte; the second
    // text is NULL.
    let mut rows = vec![7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0b00];
    rows.extend([0xff; 4]);
    rows.extend([0; 16]);
    rows.push(0b10);
    let batch = decode_rowwise(&KEY_AND_TEXT, rowwise(2, &rows, b"xhi")).unwrap();
    let first = batch.row(0).unwrap();
    assert_eq!(first.get::<i32>(0), Ok(7));
    assert_eq!(first.get::<&str>(1), Ok("hi"));
    assert_eq!(first.get::<Option<&[u8]>>(1), Ok(Some(&b"hi"[..])));
    let second = batch.row(1).unwrap();
    assert_eq!(second.get::<i128>(0), Ok(-1));
    assert_eq!(second.get::<Option<&str>>(1), Ok(None));
    assert_eq!(second.get::<&str>(1), Err(CellError::Null));
    assert_eq!(second.get::<Value<'_>>(1), Ok(Value::Null));
    assert!(second.is_null(1).unwrap() && !second.is_null(0).unwrap());
    assert_eq!(
        second.get::<i64>(0),
        Err(CellError::WrongType { data_type: DataType::Int32, asked: "i64" })
    );
    assert_eq!(second.get::<i32>(2), Err(CellError::NoSuchColumn { index: 2 }));
    assert!(batch.row(2).is_none());
}

#[test]
fn a_columnar_block_by_hand() {
    let batch = decode_columnar(
        &KEY_AND_TEXT,
        2,
        vec![pieces(0, None, None), pieces(1, Some(2), Some(3))],
        &[
            &[7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            &[0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0],
            b"hi",
            &[0b01],
        ],
    )
    .unwrap();
    assert_eq!(batch.row(0).unwrap().get::<&str>(1), Ok("hi"));
    assert_eq!(batch.row(1).unwrap().get::<i32>(0), Ok(-1));
    assert_eq!(batch.row(1).unwrap().get::<Option<&str>>(1), Ok(None));
    assert_eq!(batch.rows().len(), 2);
}

#[test]
fn an_empty_answer_has_no_sidecars() {
    let nothing = (RowwiseRowBlockPb::default(), Vec::new());
    assert_eq!(decode_rowwise(&KEY_AND_TEXT, nothing).unwrap().num_rows(), 0);
    assert_eq!(decode_columnar(&KEY_AND_TEXT, 0, Vec::new(), &[]).unwrap().num_rows(), 0);
}

#[test]
fn an_empty_projection_only_counts() {
    let message =
        RowwiseRowBlockPb { num_rows: Some(5), rows_sidecar: None, indirect_data_sidecar: None };
    assert_eq!(decode_rowwise(&[], (message, Vec::new())).unwrap().num_rows(), 5);
    assert_eq!(decode_columnar(&[], 5, Vec::new(), &[]).unwrap().rows().count(), 5);
}

#[test]
fn wrong_lengths_and_numbers_of_rows_are_faults() {
    let fault = |block| decode_rowwise(&KEY_AND_TEXT, block).unwrap_err();
    let wrong = |bytes, rows| BlockFault::WrongLength {
        part: BlockPart::Rows,
        rows,
        bytes,
        bytes_expected: rows * 21,
    };
    assert_eq!(fault(rowwise(1, &[0; 20], b"")), wrong(20, 1));
    assert_eq!(fault(rowwise(1, &[0; 22], b"")), wrong(22, 1));
    assert_eq!(fault(rowwise(i32::MAX, &[0; 21], b"")), wrong(21, i32::MAX as usize));
    assert_eq!(fault(rowwise(-1, &[0; 21], b"")), BlockFault::RowCount { rows: -1 });
    let (mut message, sidecars) = rowwise(1, &[0; 21], b"");
    message.indirect_data_sidecar = Some(2);
    let missing = BlockFault::NoSuchSidecar { index: 2, sidecars: 2 };
    assert_eq!(fault((message, sidecars.clone())), missing);
    message.rows_sidecar = None;
    assert_eq!(fault((message, sidecars)), BlockFault::UnnamedSidecar { part: BlockPart::Rows });
}

#[test]
fn columns_that_do_not_fit_the_projection_are_faults() {
    let fault = |num_rows, columns, sidecars: &[&'static [u8]]| {
        decode_columnar(&KEY_AND_TEXT, num_rows, columns, sidecars).unwrap_err()
    };
    let sidecars: &[&'static [u8]] = &[&[0; 4], &[0; 8], b"", &[0b1]];
    assert_eq!(
        fault(1, vec![pieces(0, None, None)], sidecars),
        BlockFault::ColumnCount { columns: 1, columns_expected: 2 }
    );
    assert_eq!(
        fault(1, vec![pieces(0, None, None), pieces(1, None, Some(3))], sidecars),
        BlockFault::UnnamedSidecar { part: BlockPart::Content }
    );
    assert_eq!(
        fault(1, vec![pieces(-1, None, None), pieces(1, Some(2), Some(3))], sidecars),
        BlockFault::NoSuchSidecar { index: -1, sidecars: 4 }
    );
    assert_eq!(
        fault(1, vec![pieces(0, None, None), pieces(0, Some(2), Some(3))], sidecars),
        BlockFault::WrongLength { part: BlockPart::Offsets, rows: 2, bytes: 4, bytes_expected: 8 }
    );
    assert_eq!(
        fault(1, vec![pieces(0, None, None), pieces(1, Some(2), Some(0))], sidecars),
        BlockFault::WrongLength {
            part: BlockPart::NonNullBitmap,
            rows: 1,
            bytes: 4,
            bytes_expected: 1
        }
    );
    assert_eq!(
        fault(i64::MAX, vec![pieces(0, None, None), pieces(1, Some(2), Some(3))], sidecars),
        BlockFault::RowCount { rows: i64::MAX }
    );
}

#[test]
fn references_outside_the_data_are_errors_of_the_cell() {
    for (offset, length) in
        [(0, 4), (4, 0), (3, 1), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)]
    {
        let mut rows = vec![0; 4];
        rows.extend(u64::to_le_bytes(offset));
        rows.extend(u64::to_le_bytes(length));
        rows.push(0);
        let batch = decode_rowwise(&KEY_AND_TEXT, rowwise(1, &rows, b"abc")).unwrap();
        assert_eq!(
            batch.row(0).unwrap().get::<&[u8]>(1),
            Err(CellError::OutOfBlock),
            "{offset} {length}"
        );
    }
    let columns = [(DataType::Binary, false)];
    for offsets in [&[1, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 4, 0, 0, 0], &[4, 0, 0, 0, 4, 0, 0, 0]]
    {
        let batch =
            decode_columnar(&columns, 1, vec![pieces(0, Some(1), None)], &[offsets, b"abc"])
                .unwrap();
        assert_eq!(
            batch.row(0).unwrap().get::<&[u8]>(0),
            Err(CellError::OutOfBlock),
            "{offsets:?}"
        );
        #[cfg(feature = "arrow")]
        assert!(batch.to_record_batch().is_err(), "{offsets:?}");
    }
}

#[test]
fn text_that_is_not_utf8_can_be_read_as_bytes() {
    let columns = [(DataType::String, false)];
    let sidecars: &[&'static [u8]] = &[&[0, 0, 0, 0, 1, 0, 0, 0], &[0xff]];
    let batch = decode_columnar(&columns, 1, vec![pieces(0, Some(1), None)], sidecars).unwrap();
    let row = batch.row(0).unwrap();
    assert_eq!(row.get::<&str>(0), Err(CellError::NotUtf8));
    assert_eq!(row.get::<&[u8]>(0), Ok(&[0xff_u8][..]));
    #[cfg(feature = "arrow")]
    assert_eq!(batch.to_record_batch(), Err(BlockFault::NotUtf8 { column: 0 }.into()));
}

/// Reads every cell, and checks the batch against the model if it should be right.
fn read_all(batch: &ScanBatch, model: Option<&RowsModel>) {
    for (index, row) in batch.rows().enumerate() {
        for column in 0..batch.projection().columns().len() {
            let cell = row.get::<Option<Cell<'_>>>(column);
            let Some(model) = model else { continue };
            let expected = model.rows[index][column].as_deref();
            assert_eq!(
                cell.unwrap().map(|cell| cell.bytes()),
                expected,
                "row {index}, column {column}"
            );
            if let Some(expected) = expected {
                let value = Value::from_cell(model.columns[column].0, expected).unwrap();
                assert_eq!(row.get::<Value<'_>>(column), Ok(value));
            }
        }
    }
}

proptest! {
    #[test]
    fn server_encodings_are_decoded(model in RowsModel::any()) {
        let projection = projection_of(&model.columns);
        let (message, sidecars) = model.encode_rowwise();
        let block = RowwiseBlock::decode(&message, &sidecars, &projection).unwrap();
        prop_assert_eq!(block.num_rows(), model.rows.len());
        let rowwise = ScanBatch::new(projection.clone(), BatchBlock::Rowwise(block));
        read_all(&rowwise, Some(&model));
        let (message, sidecars) = model.encode_columnar();
        let block = ColumnarBlock::decode(&message, &sidecars, &projection).unwrap();
        prop_assert_eq!(block.num_rows(), model.rows.len());
        let columnar = ScanBatch::new(projection, BatchBlock::Columnar(block));
        read_all(&columnar, Some(&model));
        #[cfg(feature = "arrow")]
        super::arrow::tests::check_arrow(&model, &rowwise, &columnar);
    }

    #[test]
    fn damaged_answers_never_panic(
        model in RowsModel::any(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
        extra_rows in -2_i32..3,
    ) {
        let projection = projection_of(&model.columns);
        let damaged = |sidecars: Vec<Bytes>| -> Vec<Bytes> {
            let mut sidecars: Vec<Vec<u8>> = sidecars.into_iter().map(|bytes| bytes.to_vec()).collect();
            if sidecars.is_empty() {
                return Vec::new();
            }
            for (sidecar, at, byte) in &damage {
                let sidecar = sidecar.get_mut(&mut sidecars);
                if !sidecar.is_empty() {
                    *at.get_mut(sidecar) = *byte;
                }
            }
            if let Some((sidecar, at)) = &cut {
                let sidecar = sidecar.get_mut(&mut sidecars);
                sidecar.truncate(at.index(sidecar.len() + 1));
            }
            sidecars.into_iter().map(Bytes::from).collect()
        };
        let (mut message, sidecars) = model.encode_rowwise();
        message.num_rows = message.num_rows.map(|rows| rows + extra_rows);
        if let Ok(block) = RowwiseBlock::decode(&message, &damaged(sidecars), &projection) {
            let batch = ScanBatch::new(projection.clone(), BatchBlock::Rowwise(block));
            read_all(&batch, None);
            #[cfg(feature = "arrow")]
            let _ = batch.to_record_batch();
        }
        let (mut message, sidecars) = model.encode_columnar();
        message.num_rows = message.num_rows.map(|rows| rows + i64::from(extra_rows));
        if let Ok(block) = ColumnarBlock::decode(&message, &damaged(sidecars), &projection) {
            let batch = ScanBatch::new(projection, BatchBlock::Columnar(block));
            read_all(&batch, None);
            #[cfg(feature = "arrow")]
            let _ = batch.to_record_batch();
        }
    }
}
