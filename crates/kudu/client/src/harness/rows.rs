//! Reads encoded rows back, with a tablet server's answer about them.

use std::sync::Arc;

use prost::Message;

use super::input::Input;
use crate::proto::common::RowOperationsPb;
use crate::proto::tserver::WriteResponsePb;
use crate::row_operation::{EncodedRows, RowLayout, decode_bounds};
use crate::schema::Schema;
use crate::session;

/// Checks that rows are refused or readable, and that a server's errors refer to existing rows or
/// to none. The input is a schema, rows, their indirect data and an answer.
///
/// # Panics
/// When an invariant is violated.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let Ok(schema) = Schema::from_pb(&input.schema_pb()) else { return };
    let (rows, indirect) = (input.piece(), input.piece());
    let layout = Arc::new(RowLayout::new(schema.clone()));
    let mut rows_bytes = 0;
    for row in EncodedRows::new(&layout, &rows, &indirect).map_while(Result::ok) {
        rows_bytes += row.bytes.len();
        for cell in row.cells().map_while(Result::ok) {
            assert!(cell.0 < schema.columns().len(), "a cell belongs to a column");
        }
    }
    assert!(rows_bytes <= rows.len(), "no row is longer than all of them");
    let bounds =
        RowOperationsPb { rows: Some(rows.clone()), indirect_data: Some(indirect.clone()) };
    let _ = decode_bounds(&schema, &bounds);
    if let Ok(answer) = WriteResponsePb::decode(input.rest()) {
        session::harness::check_row_errors(&layout, &rows, &indirect, answer);
    }
}
