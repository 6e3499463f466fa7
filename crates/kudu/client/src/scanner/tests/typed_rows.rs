//! Rows that are read as structs, and what does not fit the scan.

use super::*;
use crate::KuduRow;
use crate::scan_error::ScanError;

fn model() -> RowsModel {
    let cell = |bytes: &[u8]| Some(bytes.to_vec());
    RowsModel {
        columns: vec![
            (DataType::Int64, false),
            (DataType::String, true),
            (DataType::Binary, true),
            (DataType::Date, true),
        ],
        rows: vec![
            vec![cell(&1_i64.to_le_bytes()), cell(b"one"), cell(b"\xff"), None],
            vec![cell(&2_i64.to_le_bytes()), None, cell(b""), cell(&9_i32.to_le_bytes())],
        ],
    }
}

fn batch() -> ScanBatch {
    let model = model();
    decode_rowwise(&model.columns, model.encode_rowwise()).unwrap()
}

/// The fields are in another order than the columns, and one column is left out.
#[derive(Debug, PartialEq, KuduRow)]
struct BorrowedRow<'a> {
    #[kudu(column = "c2")]
    raw: &'a [u8],
    #[kudu(column = "c1")]
    text: Option<&'a str>,
    #[kudu(column = "c0")]
    id: i64,
}

#[derive(Debug, PartialEq, KuduRow)]
struct OwnedRow<T> {
    c0: T,
    c1: Option<String>,
    c3: Option<i32>,
}

#[test]
fn rows_are_structs_that_borrow_or_own() {
    let batch = batch();
    let rows: Vec<BorrowedRow<'_>> = batch.rows_as().unwrap().map(Result::unwrap).collect();
    assert_eq!(
        rows,
        [
            BorrowedRow { raw: b"\xff", text: Some("one"), id: 1 },
            BorrowedRow { raw: b"", text: None, id: 2 }
        ]
    );
    let rows: Vec<OwnedRow<i128>> = batch.rows_as().unwrap().map(Result::unwrap).collect();
    drop(batch);
    assert_eq!(rows[0], OwnedRow { c0: 1, c1: Some("one".to_owned()), c3: None });
    assert_eq!(rows[1], OwnedRow { c0: 2, c1: None, c3: Some(9) });
}

#[derive(Debug, KuduRow)]
struct MissingColumn {
    c0: i64,
    c4: i64,
}

#[derive(Debug, KuduRow)]
struct RequiredColumn {
    c0: i64,
    c1: String,
}

#[derive(Debug, KuduRow)]
struct WrongType {
    c1: Option<f64>,
}

#[test]
fn an_unfit_struct_is_rejected_by_column_name() {
    let batch = batch();
    let missing = batch.rows_as::<MissingColumn>().err();
    assert_eq!(missing, Some(ScanError::UnknownColumn { column: "c4".to_owned() }));
    let mut rows = batch.rows_as::<RequiredColumn>().unwrap();
    let first = rows.next().unwrap().unwrap();
    assert_eq!((first.c0, first.c1.as_str()), (1, "one"));
    assert_eq!(rows.next().unwrap().unwrap_err().to_string(), "column \"c1\": the cell is NULL");
    let mut rows = batch.rows_as::<WrongType>().unwrap();
    assert_eq!(
        rows.next().unwrap().unwrap_err().to_string(),
        "column \"c1\": a column of type STRING cannot be read as f64"
    );
    assert!(rows.next().unwrap().unwrap().c1.is_none(), "NULL is of every type");
    let unread = MissingColumn { c0: 0, c4: 0 };
    assert_eq!(unread.c0, unread.c4);
}
