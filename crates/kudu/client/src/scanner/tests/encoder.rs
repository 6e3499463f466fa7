//! Rows of any schema, and the tablet server's encoding in either layout.
//!
//! It is written from the description of the layouts and not from the decoders, so that the two can
//! disagree.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::super::projection::Projection;
use crate::proto::common::{ColumnarColumnPb, ColumnarRowBlockPb, RowwiseRowBlockPb};
use crate::schema::{ColumnSchema, ColumnTypeAttributes, DataType};

/// Columns and rows; a cell is its bytes, or `None` for NULL.
#[derive(Clone, Debug)]
pub(crate) struct RowsModel {
    pub columns: Vec<(DataType, bool)>,
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
}

const ALL_TYPES: [DataType; 15] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::String,
    DataType::Bool,
    DataType::Float,
    DataType::Double,
    DataType::Binary,
    DataType::UnixtimeMicros,
    DataType::Decimal32,
    DataType::Decimal64,
    DataType::Decimal128,
    DataType::Varchar,
    DataType::Date,
];

/// A projection of columns `c0`, `c1`, ...
pub(crate) fn projection_of(columns: &[(DataType, bool)]) -> Arc<Projection> {
    let column = |(index, (data_type, is_nullable)): (usize, &(DataType, bool))| {
        let attributes = match data_type {
            DataType::Decimal32 => {
                ColumnTypeAttributes { precision: Some(9), scale: Some(2), length: None }
            }
            DataType::Decimal64 => {
                ColumnTypeAttributes { precision: Some(18), scale: Some(4), length: None }
            }
            DataType::Decimal128 => {
                ColumnTypeAttributes { precision: Some(38), scale: Some(0), length: None }
            }
            DataType::Varchar => {
                ColumnTypeAttributes { precision: None, scale: None, length: Some(100) }
            }
            _ => ColumnTypeAttributes::default(),
        };
        ColumnSchema::builder(format!("c{index}"), *data_type)
            .type_attributes(attributes)
            .nullable(*is_nullable)
            .build()
            .expect("the attributes fit the types")
    };
    Arc::new(Projection::new(columns.iter().enumerate().map(column)))
}

impl RowsModel {
    /// Up to 12 columns and 40 rows, so that bitmaps have one byte or two.
    pub(crate) fn any() -> impl Strategy<Value = RowsModel> {
        let column = (prop::sample::select(&ALL_TYPES[..]), any::<bool>());
        prop::collection::vec(column, 0..12).prop_flat_map(|columns| {
            let row: Vec<_> = columns
                .iter()
                .map(|(data_type, is_nullable)| any_cell(*data_type, *is_nullable))
                .collect();
            prop::collection::vec(row, 0..40)
                .prop_map(move |rows| RowsModel { columns: columns.clone(), rows })
        })
    }

    fn has_nullable(&self) -> bool {
        self.columns.iter().any(|(_, is_nullable)| *is_nullable)
    }

    pub(crate) fn encode_rowwise(&self) -> (RowwiseRowBlockPb, Vec<Bytes>) {
        let (mut rows, mut indirect) = (Vec::new(), Vec::new());
        for row in &self.rows {
            let mut bitmap = vec![0_u8; self.columns.len().div_ceil(8)];
            for (index, (cell, (data_type, _))) in row.iter().zip(&self.columns).enumerate() {
                match cell {
                    // The server leaves whatever was there in a cell that is NULL.
                    None => {
                        bitmap[index / 8] |= 1 << (index % 8);
                        rows.resize(rows.len() + data_type.size(), 0xa5);
                    }
                    Some(bytes) if data_type.is_variable_length() => {
                        rows.extend((indirect.len() as u64).to_le_bytes());
                        rows.extend((bytes.len() as u64).to_le_bytes());
                        indirect.extend_from_slice(bytes);
                    }
                    Some(bytes) => rows.extend_from_slice(bytes),
                }
            }
            if self.has_nullable() {
                rows.extend(bitmap);
            }
        }
        let message = RowwiseRowBlockPb {
            num_rows: Some(self.rows.len() as i32),
            rows_sidecar: Some(0),
            indirect_data_sidecar: Some(1),
        };
        (message, vec![Bytes::from(rows), Bytes::from(indirect)])
    }

    pub(crate) fn encode_columnar(&self) -> (ColumnarRowBlockPb, Vec<Bytes>) {
        let mut sidecars = Vec::new();
        let mut add = |bytes: Vec<u8>| {
            sidecars.push(Bytes::from(bytes));
            Some(sidecars.len() as i32 - 1)
        };
        let mut columns = Vec::new();
        for (index, (data_type, is_nullable)) in self.columns.iter().enumerate() {
            let (mut data, mut content) = (Vec::new(), Vec::new());
            let mut bitmap = vec![0_u8; self.rows.len().div_ceil(8)];
            if data_type.is_variable_length() {
                data.extend(0_u32.to_le_bytes());
            }
            for (at, row) in self.rows.iter().enumerate() {
                let cell = row[index].as_deref();
                if cell.is_some() {
                    bitmap[at / 8] |= 1 << (at % 8);
                }
                if data_type.is_variable_length() {
                    content.extend_from_slice(cell.unwrap_or_default());
                    data.extend((content.len() as u32).to_le_bytes());
                } else {
                    data.extend_from_slice(cell.unwrap_or(&[0; 16][..data_type.size()]));
                }
            }
            columns.push(ColumnarColumnPb {
                data_sidecar: add(data),
                varlen_data_sidecar: if data_type.is_variable_length() {
                    add(content)
                } else {
                    None
                },
                non_null_bitmap_sidecar: if *is_nullable { add(bitmap) } else { None },
            });
        }
        (ColumnarRowBlockPb { columns, num_rows: Some(self.rows.len() as i64) }, sidecars)
    }
}

fn any_cell(data_type: DataType, is_nullable: bool) -> BoxedStrategy<Option<Vec<u8>>> {
    let bytes: BoxedStrategy<Vec<u8>> = match data_type {
        DataType::String | DataType::Varchar => "\\PC{0,12}".prop_map(String::into_bytes).boxed(),
        DataType::Binary => prop::collection::vec(any::<u8>(), 0..20).boxed(),
        DataType::Bool => any::<bool>().prop_map(|value| vec![u8::from(value)]).boxed(),
        // Not NaN, so that values can be compared.
        DataType::Float => {
            prop::num::f32::NORMAL.prop_map(|value| value.to_le_bytes().to_vec()).boxed()
        }
        DataType::Double => {
            prop::num::f64::NORMAL.prop_map(|value| value.to_le_bytes().to_vec()).boxed()
        }
        _ => prop::collection::vec(any::<u8>(), data_type.size()).boxed(),
    };
    match is_nullable {
        true => prop::option::of(bytes).boxed(),
        false => bytes.prop_map(Some).boxed(),
    }
}
