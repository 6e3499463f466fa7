//! The columns of a table, in the order in which rows are encoded.
//!
//! It owns the rules that a schema must satisfy before a server sees it, and its wire forms.
//! Invariants: key columns come first and cannot be NULL; names are unique. A `Schema` is a shared
//! immutable value, cheap to clone; a table, its sessions and its scanners share one. Tables,
//! sessions and scanners call it. `row_operation` lays out its rows.

mod cell;
mod column;
mod column_builder;
mod data_type;
mod error;
#[cfg(test)]
mod tests;
mod value;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use cell::{check_date, check_decimal, truncate_to_characters};
pub use column::ColumnSchema;
pub use column_builder::ColumnSchemaBuilder;
pub use data_type::{ColumnTypeAttributes, Compression, DataType, Encoding};
pub use error::SchemaError;
pub use value::{Value, ValueError};

use crate::proto::common::SchemaPb;

/// The columns of a table.
#[derive(Clone)]
pub struct Schema {
    shared: Arc<Shared>,
}

struct Shared {
    columns: Box<[ColumnSchema]>,
    key_columns: usize,
    index_by_name: HashMap<Box<str>, usize>,
}

impl Schema {
    /// Starts a schema without columns.
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder { columns: Vec::new() }
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[ColumnSchema] {
        &self.shared.columns
    }

    /// How many columns, counted from the first, make up the primary key.
    pub fn num_key_columns(&self) -> usize {
        self.shared.key_columns
    }

    /// The columns of the primary key.
    pub fn key_columns(&self) -> &[ColumnSchema] {
        &self.shared.columns[..self.shared.key_columns]
    }

    /// The index of the column with this name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.shared.index_by_name.get(name).copied()
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.column_index(name).map(|index| &self.shared.columns[index])
    }

    /// The index of the column with this id.
    pub(crate) fn column_index_of_id(&self, id: u32) -> Option<usize> {
        self.shared.columns.iter().position(|column| column.id() == Some(id))
    }

    /// The schema in a request, without ids.
    pub(crate) fn to_pb(&self) -> SchemaPb {
        SchemaPb { columns: self.shared.columns.iter().map(ColumnSchema::to_pb).collect() }
    }

    pub(crate) fn from_pb(pb: &SchemaPb) -> Result<Schema, SchemaError> {
        let columns =
            pb.columns.iter().map(ColumnSchema::from_pb).collect::<Result<Vec<_>, _>>()?;
        Schema::new(columns)
    }

    fn new(columns: Vec<ColumnSchema>) -> Result<Schema, SchemaError> {
        let key_columns = columns.iter().take_while(|column| column.is_key()).count();
        if key_columns == 0 {
            return Err(SchemaError::NoKey);
        }
        let mut index_by_name = HashMap::with_capacity(columns.len());
        for (index, column) in columns.iter().enumerate() {
            if index_by_name.insert(column.name().into(), index).is_some() {
                return Err(SchemaError::DuplicateColumn { column: column.name().to_owned() });
            }
            check_position(column, index, key_columns)?;
        }
        Ok(Schema {
            shared: Arc::new(Shared { columns: columns.into(), key_columns, index_by_name }),
        })
    }
}

/// Checks the rules that depend on a column's position.
fn check_position(
    column: &ColumnSchema,
    index: usize,
    key_columns: usize,
) -> Result<(), SchemaError> {
    let name = || column.name().to_owned();
    if column.is_auto_incrementing()
        && (column.data_type() != DataType::Int64
            || index + 1 != key_columns
            || column.is_nullable()
            || column.default_value().is_some())
    {
        return Err(SchemaError::BadAutoIncrementing { column: name() });
    }
    if !column.is_key() {
        return Ok(());
    }
    if index >= key_columns {
        return Err(SchemaError::KeyNotFirst { column: name() });
    }
    let reason = if column.is_nullable() {
        "it can be NULL"
    } else if column.is_immutable() {
        "it is marked immutable, which keys are anyway"
    } else if !column.data_type().is_allowed_in_key() {
        "keys cannot have its type"
    } else {
        return Ok(());
    };
    Err(SchemaError::BadKey { column: name(), reason })
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) || self.shared.columns == other.shared.columns
    }
}

impl Eq for Schema {}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.shared.columns.iter()).finish()
    }
}

/// Collects the columns of a new table.
#[derive(Clone, Debug)]
pub struct SchemaBuilder {
    columns: Vec<ColumnSchemaBuilder>,
}

impl SchemaBuilder {
    /// Adds a column after the existing ones. Key columns come first.
    pub fn column(mut self, column: ColumnSchemaBuilder) -> Self {
        self.columns.push(column);
        self
    }

    /// Completes a key that is not unique with an auto-incrementing column, under the name that
    /// Kudu's other clients give it. Call it after the last key column.
    pub fn non_unique_key(self) -> Self {
        self.column(
            ColumnSchema::builder("auto_incrementing_id", DataType::Int64).auto_incrementing(),
        )
    }

    /// Builds the schema, or returns the first error in it.
    pub fn build(self) -> Result<Schema, SchemaError> {
        Schema::new(
            self.columns
                .into_iter()
                .map(ColumnSchemaBuilder::build)
                .collect::<Result<Vec<_>, _>>()?,
        )
    }
}
