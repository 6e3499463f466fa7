//! Describes a new column, step by step.

use bytes::Bytes;

use super::column::ColumnSchema;
use super::data_type::{ColumnTypeAttributes, Compression, DataType, Encoding};
use super::error::SchemaError;
use super::value::Value;

impl ColumnSchema {
    /// Starts the description of a column. By default it is nullable and not part of the key.
    pub fn builder(name: impl Into<String>, data_type: DataType) -> ColumnSchemaBuilder {
        ColumnSchemaBuilder {
            column: ColumnSchema {
                id: None,
                name: name.into(),
                data_type,
                is_key: false,
                is_nullable: true,
                is_immutable: false,
                is_auto_incrementing: false,
                read_default: None,
                write_default: None,
                encoding: Encoding::Auto,
                compression: Compression::Default,
                block_bytes: 0,
                type_attributes: ColumnTypeAttributes::default(),
                comment: String::new(),
            },
            problem: None,
        }
    }
}

/// Describes a column. Building the schema reports the first error.
#[derive(Clone, Debug)]
pub struct ColumnSchemaBuilder {
    column: ColumnSchema,
    problem: Option<SchemaError>,
}

impl ColumnSchemaBuilder {
    /// A column of exact numbers with `precision` digits, `scale` of them after the decimal point.
    pub fn decimal(name: impl Into<String>, precision: u8, scale: u8) -> ColumnSchemaBuilder {
        let data_type = DataType::decimal(precision).unwrap_or(DataType::Decimal128);
        ColumnSchema::builder(name, data_type)
            .type_attributes(ColumnTypeAttributes::decimal(precision, scale))
    }

    /// A column of text with at most `length` characters.
    pub fn varchar(name: impl Into<String>, length: u16) -> ColumnSchemaBuilder {
        ColumnSchema::builder(name, DataType::Varchar)
            .type_attributes(ColumnTypeAttributes::varchar(length))
    }

    /// Makes it a primary key column, and therefore not nullable.
    pub fn key(mut self) -> Self {
        self.column.is_key = true;
        self.column.is_nullable = false;
        self
    }

    /// Whether it can be NULL; true by default.
    pub fn nullable(mut self, nullable: bool) -> Self {
        self.column.is_nullable = nullable;
        self
    }

    /// Whether updates must not change it.
    pub fn immutable(mut self, immutable: bool) -> Self {
        self.column.is_immutable = immutable;
        self
    }

    /// Its encoding on disk.
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.column.encoding = encoding;
        self
    }

    /// Its compression on disk.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.column.compression = compression;
        self
    }

    /// Size of its blocks on disk, in bytes; 0 lets the server choose.
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.column.block_bytes = bytes;
        self
    }

    /// Precision and scale of a decimal, length of a varchar.
    pub fn type_attributes(mut self, attributes: ColumnTypeAttributes) -> Self {
        self.column.type_attributes = attributes;
        self
    }

    /// The default value of rows that do not set this column.
    pub fn default_value(mut self, value: Value<'_>) -> Self {
        match value.to_cell(&self.column) {
            Ok(cell) => {
                let cell = Bytes::from(cell);
                self.column.read_default = Some(cell.clone());
                self.column.write_default = Some(cell);
            }
            Err(error) => {
                self.problem.get_or_insert(SchemaError::BadDefault(error));
            }
        }
        self
    }

    /// A comment that the server keeps.
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.column.comment = comment.into();
        self
    }

    /// Makes the server assign this column's values, so that the other key columns need not be
    /// unique. It must be the last key column and a 64-bit integer.
    pub fn auto_incrementing(mut self) -> Self {
        self.column.is_auto_incrementing = true;
        self.key()
    }

    /// Builds the column, or returns the first error in it.
    pub fn build(self) -> Result<ColumnSchema, SchemaError> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        if self.column.name.is_empty() {
            return Err(SchemaError::EmptyName);
        }
        self.column.check_attributes()?;
        Ok(self.column)
    }
}
