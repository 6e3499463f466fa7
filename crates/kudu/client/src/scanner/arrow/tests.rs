//! Record batches against their rows, and the promise of zero copies.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType as ArrowType;
use bytes::Bytes;

use crate::scanner::batch::{BatchBlock, ScanBatch};
use crate::scanner::columnar::ColumnarBlock;
use crate::scanner::tests::{RowsModel, projection_of};
use crate::schema::DataType;

/// The bytes of a cell of a record batch, `None` for NULL.
fn cell_of(batch: &RecordBatch, column: usize, row: usize) -> Option<Vec<u8>> {
    let array = batch.column(column);
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        ArrowType::Int8 => array.as_primitive::<Int8Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Int16 => array.as_primitive::<Int16Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Int32 => array.as_primitive::<Int32Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Int64 => array.as_primitive::<Int64Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Float32 => array.as_primitive::<Float32Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Float64 => array.as_primitive::<Float64Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Boolean => vec![u8::from(array.as_boolean().value(row))],
        ArrowType::Date32 => array.as_primitive::<Date32Type>().value(row).to_le_bytes().to_vec(),
        ArrowType::Timestamp(..) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes().to_vec()
        }
        ArrowType::Decimal32(..) => {
            array.as_primitive::<Decimal32Type>().value(row).to_le_bytes().to_vec()
        }
        ArrowType::Decimal64(..) => {
            array.as_primitive::<Decimal64Type>().value(row).to_le_bytes().to_vec()
        }
        ArrowType::Decimal128(..) => {
            array.as_primitive::<Decimal128Type>().value(row).to_le_bytes().to_vec()
        }
        ArrowType::Utf8 => array.as_string::<i32>().value(row).as_bytes().to_vec(),
        ArrowType::Binary => array.as_binary::<i32>().value(row).to_vec(),
        other => panic!("no column becomes {other}"),
    })
}

/// Both layouts give record batches with the rows of the model.
pub(crate) fn check_arrow(model: &RowsModel, rowwise: &ScanBatch, columnar: &ScanBatch) {
    for batch in [rowwise, columnar] {
        let batch = batch.to_record_batch().expect("the rows are right");
        assert_eq!(batch.num_rows(), model.rows.len());
        assert_eq!(batch.num_columns(), model.columns.len());
        for (index, row) in model.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                assert_eq!(cell_of(&batch, column, index), *cell, "row {index}, column {column}");
            }
        }
    }
}

/// A batch whose sidecars lie in one block at this distance from an aligned address, as in a frame.
fn batch_in_frame(model: &RowsModel, distance: usize) -> (ScanBatch, Bytes) {
    let (message, sidecars) = model.encode_columnar();
    let bytes: usize = sidecars.iter().map(|sidecar| sidecar.len().next_multiple_of(8)).sum();
    let mut frame = vec![0_u8; bytes + 16];
    let mut end = frame.as_ptr().align_offset(8) + distance;
    let mut starts = Vec::new();
    for sidecar in &sidecars {
        frame[end..end + sidecar.len()].copy_from_slice(sidecar);
        starts.push(end);
        end += sidecar.len().next_multiple_of(8);
    }
    let frame = Bytes::from(frame);
    let pieces: Vec<Bytes> = starts
        .iter()
        .zip(&sidecars)
        .map(|(start, sidecar)| frame.slice(*start..start + sidecar.len()))
        .collect();
    let projection = projection_of(&model.columns);
    let block =
        ColumnarBlock::decode(&message, &pieces, &projection).expect("the encoder is right");
    (ScanBatch::new(projection, BatchBlock::Columnar(block)), frame)
}

fn numbers_and_texts() -> RowsModel {
    let columns = vec![
        (DataType::Int64, false),
        (DataType::Int32, true),
        (DataType::String, true),
        (DataType::Decimal32, false),
    ];
    let rows = (0..100_i64)
        .map(|row| {
            let mut text = String::new();
            write!(text, "row {row}").expect("memory");
            vec![
                Some(row.to_le_bytes().to_vec()),
                (row % 3 != 0).then(|| (row as i32).to_le_bytes().to_vec()),
                (row % 2 == 0).then(|| text.into_bytes()),
                Some((row as i32).to_le_bytes().to_vec()),
            ]
        })
        .collect();
    RowsModel { columns, rows }
}

/// Whether all buffers of all arrays, bitmaps too, point into the frame.
fn buffers_outside(batch: &RecordBatch, frame: &Bytes) -> usize {
    let frame = frame.as_ptr_range();
    let outside = |pointer: *const u8| usize::from(!frame.contains(&pointer));
    batch
        .columns()
        .iter()
        .map(|array| {
            let data = array.to_data();
            let nulls = data.nulls().map_or(0, |nulls| outside(nulls.buffer().as_ptr()));
            nulls + data.buffers().iter().map(|buffer| outside(buffer.as_ptr())).sum::<usize>()
        })
        .sum()
}

#[test]
fn arrays_lie_in_the_frame() {
    let model = numbers_and_texts();
    let (batch, frame) = batch_in_frame(&model, 0);
    let record_batch = batch.to_record_batch().unwrap();
    assert_eq!(buffers_outside(&record_batch, &frame), 0);
    drop(batch);
    assert_eq!(record_batch.column(2).as_string::<i32>().value(98), "row 98");
}

#[test]
fn pieces_at_odd_addresses_are_copied_and_right() {
    let model = numbers_and_texts();
    let (batch, frame) = batch_in_frame(&model, 1);
    let record_batch = batch.to_record_batch().unwrap();
    // Three arrays of numbers and the offsets of the texts move; two bitmaps and the content stay.
    assert_eq!(buffers_outside(&record_batch, &frame), 4);
    for (index, row) in model.rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            assert_eq!(cell_of(&record_batch, column, index), *cell);
        }
    }
}

#[test]
fn decimals_keep_precision_and_scale() {
    let model = numbers_and_texts();
    let (batch, _frame) = batch_in_frame(&model, 0);
    let record_batch = batch.to_record_batch().unwrap();
    let decimals = record_batch.column(3).as_primitive::<Decimal32Type>();
    assert_eq!((decimals.precision(), decimals.scale()), (9, 2));
    assert_eq!(decimals.value_as_string(99), "0.99");
}

#[test]
fn a_batch_without_rows_has_the_columns() {
    let columns = [(DataType::Int64, false), (DataType::UnixtimeMicros, true)];
    let model = RowsModel { columns: columns.to_vec(), rows: Vec::new() };
    let (batch, _frame) = batch_in_frame(&model, 0);
    let record_batch = batch.to_record_batch().unwrap();
    assert_eq!((record_batch.num_rows(), record_batch.num_columns()), (0, 2));
    assert!(record_batch.schema().field(1).is_nullable());
}
