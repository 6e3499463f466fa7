//! The types of cells, and how the server stores a column.
//!
//! It owns the wire numbers of these enums and the size of a cell in an encoded row. The list is
//! that of Kudu's own clients; the unsigned and 128-bit integers inside the server cannot be
//! columns. All code that handles a column calls it.

use std::fmt;

use crate::proto::common::{CompressionTypePb, DataTypePb, EncodingTypePb};

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DataType {
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// UTF-8 text, at most 64 KiB.
    String,
    /// True or false.
    Bool,
    /// IEEE 754, 32 bits.
    Float,
    /// IEEE 754, 64 bits.
    Double,
    /// Bytes, at most 64 KiB.
    Binary,
    /// Microseconds since 1970-01-01T00:00:00Z.
    UnixtimeMicros,
    /// A decimal of at most 9 digits.
    Decimal32,
    /// A decimal of at most 18 digits.
    Decimal64,
    /// A decimal of at most 38 digits.
    Decimal128,
    /// UTF-8 text with a limit in characters.
    Varchar,
    /// Days since 1970-01-01.
    Date,
}

impl DataType {
    /// Bytes of a cell in an encoded row. A string's cell is an offset and a length of 8 bytes
    /// each; its bytes are in the indirect data.
    pub const fn size(self) -> usize {
        match self {
            DataType::Int8 | DataType::Bool => 1,
            DataType::Int16 => 2,
            DataType::Int32 | DataType::Float | DataType::Decimal32 | DataType::Date => 4,
            DataType::Int64 | DataType::Double | DataType::UnixtimeMicros | DataType::Decimal64 => {
                8
            }
            DataType::Decimal128 | DataType::String | DataType::Binary | DataType::Varchar => 16,
        }
    }

    /// Whether a cell's bytes are in the indirect data.
    pub const fn is_variable_length(self) -> bool {
        matches!(self, DataType::String | DataType::Binary | DataType::Varchar)
    }

    /// Whether cells are decimals, which need a precision and a scale.
    pub const fn is_decimal(self) -> bool {
        matches!(self, DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128)
    }

    /// Whether a primary key may contain such a column.
    pub const fn is_allowed_in_key(self) -> bool {
        !matches!(self, DataType::Bool | DataType::Float | DataType::Double)
    }

    /// The smallest decimal type for a number of digits, from 1 to 38.
    pub const fn decimal(precision: u8) -> Option<DataType> {
        match precision {
            1..=9 => Some(DataType::Decimal32),
            10..=18 => Some(DataType::Decimal64),
            19..=38 => Some(DataType::Decimal128),
            _ => None,
        }
    }

    /// The name that Kudu's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            DataType::Int8 => "INT8",
            DataType::Int16 => "INT16",
            DataType::Int32 => "INT32",
            DataType::Int64 => "INT64",
            DataType::String => "STRING",
            DataType::Bool => "BOOL",
            DataType::Float => "FLOAT",
            DataType::Double => "DOUBLE",
            DataType::Binary => "BINARY",
            DataType::UnixtimeMicros => "UNIXTIME_MICROS",
            DataType::Decimal32 | DataType::Decimal64 | DataType::Decimal128 => "DECIMAL",
            DataType::Varchar => "VARCHAR",
            DataType::Date => "DATE",
        }
    }

    pub(crate) const fn to_pb(self) -> DataTypePb {
        match self {
            DataType::Int8 => DataTypePb::Int8,
            DataType::Int16 => DataTypePb::Int16,
            DataType::Int32 => DataTypePb::Int32,
            DataType::Int64 => DataTypePb::Int64,
            DataType::String => DataTypePb::String,
            DataType::Bool => DataTypePb::Bool,
            DataType::Float => DataTypePb::Float,
            DataType::Double => DataTypePb::Double,
            DataType::Binary => DataTypePb::Binary,
            DataType::UnixtimeMicros => DataTypePb::UnixtimeMicros,
            DataType::Decimal32 => DataTypePb::Decimal32,
            DataType::Decimal64 => DataTypePb::Decimal64,
            DataType::Decimal128 => DataTypePb::Decimal128,
            DataType::Varchar => DataTypePb::Varchar,
            DataType::Date => DataTypePb::Date,
        }
    }

    /// The type with this number, if a column can have it.
    pub(crate) fn from_pb(number: i32) -> Option<DataType> {
        Some(match DataTypePb::try_from(number).ok()? {
            DataTypePb::Int8 => DataType::Int8,
            DataTypePb::Int16 => DataType::Int16,
            DataTypePb::Int32 => DataType::Int32,
            DataTypePb::Int64 => DataType::Int64,
            DataTypePb::String => DataType::String,
            DataTypePb::Bool => DataType::Bool,
            DataTypePb::Float => DataType::Float,
            DataTypePb::Double => DataType::Double,
            DataTypePb::Binary => DataType::Binary,
            DataTypePb::UnixtimeMicros => DataType::UnixtimeMicros,
            DataTypePb::Decimal32 => DataType::Decimal32,
            DataTypePb::Decimal64 => DataType::Decimal64,
            DataTypePb::Decimal128 => DataType::Decimal128,
            DataTypePb::Varchar => DataType::Varchar,
            DataTypePb::Date => DataType::Date,
            DataTypePb::Uint8
            | DataTypePb::Uint16
            | DataTypePb::Uint32
            | DataTypePb::Uint64
            | DataTypePb::Int128
            | DataTypePb::IsDeleted
            | DataTypePb::Unknown => return None,
        })
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How the server encodes a column on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// The server's choice for the type.
    #[default]
    Auto,
    /// Plain cells.
    Plain,
    /// Common prefixes of consecutive strings are stored once.
    Prefix,
    /// Run-length encoding.
    RunLength,
    /// Dictionary encoding: each distinct string is stored once.
    Dictionary,
    /// Bitshuffle: transposed bits, compressed with LZ4.
    BitShuffle,
}

impl Encoding {
    pub(crate) const fn to_pb(self) -> EncodingTypePb {
        match self {
            Encoding::Auto => EncodingTypePb::Auto,
            Encoding::Plain => EncodingTypePb::Plain,
            Encoding::Prefix => EncodingTypePb::Prefix,
            Encoding::RunLength => EncodingTypePb::Rle,
            Encoding::Dictionary => EncodingTypePb::Dict,
            Encoding::BitShuffle => EncodingTypePb::BitShuffle,
        }
    }

    /// An unknown encoding counts as the server's choice: it does not affect rows.
    pub(crate) fn from_pb(number: i32) -> Encoding {
        match EncodingTypePb::try_from(number) {
            Ok(EncodingTypePb::Plain) => Encoding::Plain,
            Ok(EncodingTypePb::Prefix) => Encoding::Prefix,
            Ok(EncodingTypePb::Rle) => Encoding::RunLength,
            Ok(EncodingTypePb::Dict) => Encoding::Dictionary,
            Ok(EncodingTypePb::BitShuffle) => Encoding::BitShuffle,
            Ok(EncodingTypePb::Auto | EncodingTypePb::Unknown) | Err(_) => Encoding::Auto,
        }
    }

    /// The name that Kudu's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Auto => "AUTO_ENCODING",
            Encoding::Plain => "PLAIN_ENCODING",
            Encoding::Prefix => "PREFIX_ENCODING",
            Encoding::RunLength => "RLE",
            Encoding::Dictionary => "DICT_ENCODING",
            Encoding::BitShuffle => "BIT_SHUFFLE",
        }
    }
}

/// How the server compresses a column on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// The server's choice.
    #[default]
    Default,
    /// No compression.
    None,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// zlib.
    Zlib,
}

impl Compression {
    pub(crate) const fn to_pb(self) -> CompressionTypePb {
        match self {
            Compression::Default => CompressionTypePb::Default,
            Compression::None => CompressionTypePb::None,
            Compression::Snappy => CompressionTypePb::Snappy,
            Compression::Lz4 => CompressionTypePb::Lz4,
            Compression::Zlib => CompressionTypePb::Zlib,
        }
    }

    /// An unknown compression counts as the server's choice, like an encoding.
    pub(crate) fn from_pb(number: i32) -> Compression {
        match CompressionTypePb::try_from(number) {
            Ok(CompressionTypePb::None) => Compression::None,
            Ok(CompressionTypePb::Snappy) => Compression::Snappy,
            Ok(CompressionTypePb::Lz4) => Compression::Lz4,
            Ok(CompressionTypePb::Zlib) => Compression::Zlib,
            Ok(CompressionTypePb::Default | CompressionTypePb::Unknown) | Err(_) => {
                Compression::Default
            }
        }
    }

    /// The name that Kudu's tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Default => "DEFAULT_COMPRESSION",
            Compression::None => "NO_COMPRESSION",
            Compression::Snappy => "SNAPPY",
            Compression::Lz4 => "LZ4",
            Compression::Zlib => "ZLIB",
        }
    }
}

/// The attributes of a type: digits of a decimal, characters of a varchar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ColumnTypeAttributes {
    /// Digits of a decimal, from 1 to 38.
    pub precision: Option<u8>,
    /// Digits of a decimal after the point, at most `precision`.
    pub scale: Option<u8>,
    /// Characters of a varchar, from 1 to 65535.
    pub length: Option<u16>,
}

impl ColumnTypeAttributes {
    /// A decimal of `precision` digits, `scale` of them after the point.
    pub const fn decimal(precision: u8, scale: u8) -> ColumnTypeAttributes {
        ColumnTypeAttributes { precision: Some(precision), scale: Some(scale), length: None }
    }

    /// A varchar of at most `length` characters.
    pub const fn varchar(length: u16) -> ColumnTypeAttributes {
        ColumnTypeAttributes { precision: None, scale: None, length: Some(length) }
    }
}
