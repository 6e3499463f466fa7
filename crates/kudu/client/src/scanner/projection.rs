//! The columns that a scan returns, and where their cells are in a row.
//!
//! Invariants: the offsets follow from the columns alone, in the order of the projection. Cells
//! come without padding. If and only if a column is nullable, a bitmap with one bit per column
//! follows. The server computes the same from the request's columns, so `is_nullable` must agree on
//! both sides. The builder calls it once per scan, and batches share it.

use std::collections::HashMap;
#[cfg(feature = "arrow")]
use std::sync::OnceLock;

use crate::proto::common::ColumnSchemaPb;
use crate::schema::{ColumnSchema, DataType, Schema};

use crate::scan_error::ScanError;

/// The columns of a scan's rows, in the requested order.
#[derive(Debug)]
pub struct Projection {
    columns: Vec<ProjectedColumn>,
    by_name: HashMap<String, usize>,
    bitmap_offset: usize,
    row_bytes: usize,
    #[cfg(feature = "arrow")]
    pub(crate) arrow_schema: OnceLock<arrow_schema::SchemaRef>,
}

/// One column of a projection.
#[derive(Clone, Debug)]
pub struct ProjectedColumn {
    schema: ColumnSchema,
    /// First byte of the cell in a row of the rowwise layout.
    offset: usize,
}

impl ProjectedColumn {
    /// The column of the table.
    pub fn schema(&self) -> &ColumnSchema {
        &self.schema
    }

    /// Name of the column.
    pub fn name(&self) -> &str {
        self.schema.name()
    }

    /// Type of its cells.
    pub fn data_type(&self) -> DataType {
        self.schema.data_type()
    }

    /// Whether cells may be NULL.
    pub fn is_nullable(&self) -> bool {
        self.schema.is_nullable()
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl Projection {
    /// Lays out these columns.
    pub(crate) fn new(columns: impl IntoIterator<Item = ColumnSchema>) -> Projection {
        let mut offset = 0;
        let mut has_nullable = false;
        let columns: Vec<ProjectedColumn> = columns
            .into_iter()
            .map(|schema| {
                let column = ProjectedColumn { offset, schema };
                offset += column.data_type().size();
                has_nullable |= column.is_nullable();
                column
            })
            .collect();
        let bitmap_bytes = if has_nullable { columns.len().div_ceil(8) } else { 0 };
        let by_name =
            columns.iter().enumerate().map(|(at, column)| (column.name().to_owned(), at)).collect();
        Projection {
            columns,
            by_name,
            bitmap_offset: offset,
            row_bytes: offset + bitmap_bytes,
            #[cfg(feature = "arrow")]
            arrow_schema: OnceLock::new(),
        }
    }

    /// The columns of these names, or all of a table.
    pub(crate) fn of_table(
        schema: &Schema,
        names: Option<&[String]>,
    ) -> Result<Projection, ScanError> {
        let Some(names) = names else {
            return Ok(Projection::new(schema.columns().iter().cloned()));
        };
        let column = |name: &String| {
            schema
                .column(name)
                .cloned()
                .ok_or_else(|| ScanError::UnknownColumn { column: name.clone() })
        };
        let projection = Projection::new(names.iter().map(column).collect::<Result<Vec<_>, _>>()?);
        match projection.duplicate() {
            Some(column) => Err(ScanError::DuplicateColumn { column: column.to_owned() }),
            None => Ok(projection),
        }
    }

    /// The columns in order.
    pub fn columns(&self) -> &[ProjectedColumn] {
        &self.columns
    }

    /// Position of the column of this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The name of two columns, if there is one.
    fn duplicate(&self) -> Option<&str> {
        // The map keeps the last position of a name.
        let is_earlier =
            |(at, column): &(usize, &ProjectedColumn)| self.index_of(column.name()) != Some(*at);
        self.columns.iter().enumerate().find(is_earlier).map(|(_, column)| column.name())
    }

    /// Whether the scan only counts rows.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Bytes of a row in the rowwise layout, with its bitmap.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// First byte of the bitmap of NULLs in a row of the rowwise layout.
    pub(crate) fn bitmap_offset(&self) -> usize {
        self.bitmap_offset
    }

    /// Whether rows have a bitmap.
    pub(crate) fn has_bitmap(&self) -> bool {
        self.row_bytes > self.bitmap_offset
    }

    /// The columns in a scan request. It marks none of them as a key column, because a server
    /// requires those first. It omits how columns are stored.
    pub(crate) fn to_pb(&self) -> Vec<ColumnSchemaPb> {
        let column = |column: &ProjectedColumn| ColumnSchemaPb {
            is_key: Some(false),
            encoding: None,
            compression: None,
            cfile_block_size: None,
            comment: None,
            immutable: None,
            write_default_value: None,
            ..column.schema.to_pb()
        };
        self.columns.iter().map(column).collect()
    }
}
