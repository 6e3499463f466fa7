//! One column of a table, and the builder that describes a new one.
//!
//! Invariants: a `ColumnSchema` that was built has a type whose attributes are there and fit, and defaults
//! that its type can hold. Whether it may stand in a key is the schema's business, which knows where it
//! stands. Called by the schema; the id is the server's and is never sent back in a Write or a scan.

use bytes::Bytes;

use crate::proto::common::{ColumnSchemaPb, ColumnTypeAttributesPb};

use super::{ColumnTypeAttributes, Compression, DataType, Encoding, SchemaError, Value};

/// Longest varchar, in characters.
const VARCHAR_LENGTH_MAX: u16 = 65_535;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSchema {
    pub(super) id: Option<u32>,
    pub(super) name: String,
    pub(super) data_type: DataType,
    pub(super) is_key: bool,
    pub(super) is_nullable: bool,
    pub(super) is_immutable: bool,
    pub(super) is_auto_incrementing: bool,
    read_default: Option<Bytes>,
    write_default: Option<Bytes>,
    encoding: Encoding,
    compression: Compression,
    block_bytes: u32,
    type_attributes: ColumnTypeAttributes,
    comment: String,
}

impl ColumnSchema {
    /// Starts the description of a column. It is nullable and not part of the key unless said otherwise.
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

    /// The server's number of this column, which a rename does not change. None before the table exists.
    pub fn id(&self) -> Option<u32> {
        self.id
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its cells.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Whether it is part of the primary key.
    pub fn is_key(&self) -> bool {
        self.is_key
    }

    /// Whether it can be NULL.
    pub fn is_nullable(&self) -> bool {
        self.is_nullable
    }

    /// Whether updates must leave it as it was inserted.
    pub fn is_immutable(&self) -> bool {
        self.is_immutable
    }

    /// Whether the server numbers the rows in it, to make a key unique that is not.
    pub fn is_auto_incrementing(&self) -> bool {
        self.is_auto_incrementing
    }

    /// How it is encoded on disk.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// How it is compressed on disk.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Size of its blocks on disk, in bytes; 0 leaves the choice to the server.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Precision and scale of a decimal, length of a varchar.
    pub fn type_attributes(&self) -> ColumnTypeAttributes {
        self.type_attributes
    }

    /// The comment, empty if there is none.
    pub fn comment(&self) -> &str {
        &self.comment
    }

    /// What a row gets that is inserted without this column.
    pub fn default_value(&self) -> Option<Value<'_>> {
        self.write_default.as_deref().and_then(|cell| Value::from_cell(self.data_type, cell))
    }

    /// What rows show that were inserted before this column was added.
    pub fn read_default_value(&self) -> Option<Value<'_>> {
        self.read_default.as_deref().and_then(|cell| Value::from_cell(self.data_type, cell))
    }

    /// Whether a row can be inserted without naming this column.
    pub(crate) fn is_optional(&self) -> bool {
        self.is_nullable || self.write_default.is_some() || self.is_auto_incrementing
    }

    /// The column as requests send it: without its id, which the server refuses.
    pub(crate) fn to_pb(&self) -> ColumnSchemaPb {
        let attributes = self.type_attributes;
        ColumnSchemaPb {
            id: None,
            name: self.name.clone(),
            r#type: self.data_type.to_pb().into(),
            is_key: Some(self.is_key),
            is_nullable: Some(self.is_nullable),
            read_default_value: self.read_default.clone(),
            write_default_value: self.write_default.clone(),
            encoding: Some(self.encoding.to_pb().into()),
            compression: Some(self.compression.to_pb().into()),
            cfile_block_size: Some(i32::try_from(self.block_bytes).unwrap_or(i32::MAX)),
            type_attributes: (attributes != ColumnTypeAttributes::default()).then(|| {
                ColumnTypeAttributesPb {
                    precision: attributes.precision.map(i32::from),
                    scale: attributes.scale.map(i32::from),
                    length: attributes.length.map(i32::from),
                }
            }),
            comment: (!self.comment.is_empty()).then(|| self.comment.clone()),
            immutable: self.is_immutable.then_some(true),
            is_auto_incrementing: self.is_auto_incrementing.then_some(true),
        }
    }

    pub(crate) fn from_pb(pb: &ColumnSchemaPb) -> Result<ColumnSchema, SchemaError> {
        let data_type = DataType::from_pb(pb.r#type, &pb.name)?;
        let column = ColumnSchema {
            id: pb.id,
            name: pb.name.clone(),
            data_type,
            is_key: pb.is_key.unwrap_or(false),
            is_nullable: pb.is_nullable.unwrap_or(false),
            is_immutable: pb.immutable.unwrap_or(false),
            is_auto_incrementing: pb.is_auto_incrementing.unwrap_or(false),
            read_default: pb.read_default_value.clone(),
            write_default: pb.write_default_value.clone(),
            encoding: pb.encoding.map_or(Encoding::Auto, Encoding::from_pb),
            compression: pb.compression.map_or(Compression::Default, Compression::from_pb),
            block_bytes: pb
                .cfile_block_size
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(0),
            type_attributes: attributes_from_pb(pb)?,
            comment: pb.comment.clone().unwrap_or_default(),
        };
        column.check_attributes()?;
        Ok(column)
    }

    fn check_attributes(&self) -> Result<(), SchemaError> {
        let bad =
            |reason: String| Err(SchemaError::BadAttributes { column: self.name.clone(), reason });
        let ColumnTypeAttributes { precision, scale, length } = self.type_attributes;
        if self.data_type.is_decimal() {
            let Some(precision) = precision else {
                return bad("a decimal needs a precision".to_owned());
            };
            if DataType::decimal(precision)
                .is_none_or(|smallest| smallest.size() > self.data_type.size())
            {
                return bad(format!("{:?} has no room for {precision} digits", self.data_type));
            }
            if scale.unwrap_or(0) > precision {
                return bad(format!(
                    "{} of {precision} digits cannot be behind the point",
                    scale.unwrap_or(0)
                ));
            }
        }
        if self.data_type == DataType::Varchar && length.is_none_or(|length| length == 0) {
            return bad(format!("a varchar needs a length from 1 to {VARCHAR_LENGTH_MAX}"));
        }
        Ok(())
    }
}

fn attributes_from_pb(pb: &ColumnSchemaPb) -> Result<ColumnTypeAttributes, SchemaError> {
    let Some(attributes) = &pb.type_attributes else { return Ok(ColumnTypeAttributes::default()) };
    let bad = |what: &str, value: i32| SchemaError::BadAttributes {
        column: pb.name.clone(),
        reason: format!("{what} {value} is out of range"),
    };
    // The server sends zeros where an attribute has no meaning for the type.
    let digits = |what: &str, value: Option<i32>| {
        value.map(|value| u8::try_from(value).map_err(|_| bad(what, value))).transpose()
    };
    Ok(ColumnTypeAttributes {
        precision: digits("precision", attributes.precision)?,
        scale: digits("scale", attributes.scale)?,
        length: attributes
            .length
            .map(|value| u16::try_from(value).map_err(|_| bad("length", value)))
            .transpose()?,
    })
}

/// Describes a column. The first thing that is wrong is reported when the schema is built.
#[derive(Clone, Debug)]
pub struct ColumnSchemaBuilder {
    column: ColumnSchema,
    problem: Option<SchemaError>,
}

impl ColumnSchemaBuilder {
    /// A column of exact numbers with `precision` digits, `scale` of them behind the point.
    pub fn decimal(name: impl Into<String>, precision: u8, scale: u8) -> ColumnSchemaBuilder {
        let data_type = DataType::decimal(precision).unwrap_or(DataType::Decimal128);
        ColumnSchema::builder(name, data_type).type_attributes(ColumnTypeAttributes {
            precision: Some(precision),
            scale: Some(scale),
            length: None,
        })
    }

    /// A column of text with at most `length` characters.
    pub fn varchar(name: impl Into<String>, length: u16) -> ColumnSchemaBuilder {
        ColumnSchema::builder(name, DataType::Varchar).type_attributes(ColumnTypeAttributes {
            precision: None,
            scale: None,
            length: Some(length),
        })
    }

    /// Makes it part of the primary key, and therefore not nullable.
    pub fn key(mut self) -> Self {
        self.column.is_key = true;
        self.column.is_nullable = false;
        self
    }

    /// Whether it can be NULL. True if not said.
    pub fn nullable(mut self, nullable: bool) -> Self {
        self.column.is_nullable = nullable;
        self
    }

    /// Whether updates must leave it as it was inserted.
    pub fn immutable(mut self, immutable: bool) -> Self {
        self.column.is_immutable = immutable;
        self
    }

    /// How the server encodes it on disk.
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.column.encoding = encoding;
        self
    }

    /// How the server compresses it on disk.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.column.compression = compression;
        self
    }

    /// Size of its blocks on disk, in bytes; 0 leaves the choice to the server.
    pub fn block_bytes(mut self, bytes: u32) -> Self {
        self.column.block_bytes = bytes;
        self
    }

    /// Precision and scale of a decimal, length of a varchar.
    pub fn type_attributes(mut self, attributes: ColumnTypeAttributes) -> Self {
        self.column.type_attributes = attributes;
        self
    }

    /// What a row gets that does not name this column.
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

    /// A remark that the server keeps.
    pub fn comment(mut self, comment: impl Into<String>) -> Self {
        self.column.comment = comment.into();
        self
    }

    /// Lets the server number the rows in this column, so that the other key columns need not be unique.
    /// It must be the last key column and a 64-bit integer.
    pub fn auto_incrementing(mut self) -> Self {
        self.column.is_auto_incrementing = true;
        self.key()
    }

    /// The column, or the first thing that is wrong with it.
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
