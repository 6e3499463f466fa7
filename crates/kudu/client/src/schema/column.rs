//! One column of a table.
//!
//! Invariants: a built `ColumnSchema` has a type with all required attributes, and defaults that
//! its type can hold. The schema, which knows the column's position, decides whether it may be a
//! key column. The schema calls it. The id is the server's, and the client never sends it in a
//! Write or a scan.

use bytes::Bytes;

use crate::proto::common::{ColumnSchemaPb, ColumnTypeAttributesPb};

use super::data_type::{ColumnTypeAttributes, Compression, DataType, Encoding};
use super::error::SchemaError;
use super::value::Value;

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
    pub(super) read_default: Option<Bytes>,
    pub(super) write_default: Option<Bytes>,
    pub(super) encoding: Encoding,
    pub(super) compression: Compression,
    pub(super) block_bytes: u32,
    pub(super) type_attributes: ColumnTypeAttributes,
    pub(super) comment: String,
}

impl ColumnSchema {
    /// The server's number of this column, which a rename does not change. `None` before the table
    /// exists.
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

    /// Whether updates must not change it.
    pub fn is_immutable(&self) -> bool {
        self.is_immutable
    }

    /// Whether the server assigns its values, to make a non-unique key unique.
    pub fn is_auto_incrementing(&self) -> bool {
        self.is_auto_incrementing
    }

    /// Its encoding on disk.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Its compression on disk.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Size of its blocks on disk, in bytes; 0 lets the server choose.
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

    /// The default value of rows inserted without this column.
    pub fn default_value(&self) -> Option<Value<'_>> {
        self.write_default.as_deref().and_then(|cell| Value::from_cell(self.data_type, cell))
    }

    /// The value that rows show if they were inserted before this column was added.
    pub fn read_default_value(&self) -> Option<Value<'_>> {
        self.read_default.as_deref().and_then(|cell| Value::from_cell(self.data_type, cell))
    }

    /// Whether a row may be inserted without this column.
    pub(crate) fn is_optional(&self) -> bool {
        self.is_nullable || self.write_default.is_some() || self.is_auto_incrementing
    }

    /// The column in a request: without its id, which the server would refuse.
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
        let unsupported =
            || SchemaError::UnsupportedType { column: pb.name.clone(), number: pb.r#type };
        let data_type = DataType::from_pb(pb.r#type).ok_or_else(unsupported)?;
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

    /// Refuses a type with missing or wrong attributes.
    pub(super) fn check_attributes(&self) -> Result<(), SchemaError> {
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
    // The server sends zeros for attributes that have no meaning for the type.
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
