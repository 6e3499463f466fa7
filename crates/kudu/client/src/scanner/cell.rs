//! One cell of a scan result: borrowed bytes with their type, and the Rust types to read it as.
//!
//! It owns [`Cell`], [`FromCell`] and [`CellError`]. Invariants: it copies nothing except into the
//! fixed-width number that it returns. A type that does not match the column is an error, never a
//! lossy conversion. [`Row::get`](super::Row::get) and the Arrow conversion call it. The two block
//! layouts decide which bytes belong to a cell.

use crate::scan_error::CellError;
use crate::schema::{DataType, Value};

/// A cell that is not NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell<'a> {
    data_type: DataType,
    bytes: &'a [u8],
}

impl<'a> Cell<'a> {
    /// For types of variable length `bytes` is the value itself, else it has exactly the type's
    /// width.
    pub(crate) fn new(data_type: DataType, bytes: &'a [u8]) -> Cell<'a> {
        Cell { data_type, bytes }
    }

    /// Type of the column.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The value as on the wire: little-endian for numbers, the content for strings and binaries.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn wrong_type(&self, asked: &'static str) -> CellError {
        CellError::WrongType { data_type: self.data_type, asked }
    }

    fn fixed<const N: usize>(&self) -> Result<[u8; N], CellError> {
        self.bytes.try_into().map_err(|_| CellError::OutOfBlock)
    }

    fn read_i128(&self) -> Result<i128, CellError> {
        match self.data_type {
            DataType::Int8 => self.fixed().map(|bytes| i8::from_le_bytes(bytes).into()),
            DataType::Int16 => self.fixed().map(|bytes| i16::from_le_bytes(bytes).into()),
            DataType::Int32 | DataType::Date | DataType::Decimal32 => {
                self.fixed().map(|bytes| i32::from_le_bytes(bytes).into())
            }
            DataType::Int64 | DataType::UnixtimeMicros | DataType::Decimal64 => {
                self.fixed().map(|bytes| i64::from_le_bytes(bytes).into())
            }
            DataType::Decimal128 => self.fixed().map(i128::from_le_bytes),
            _ => Err(self.wrong_type("i128")),
        }
    }
}

/// A Rust type to read cells as.
///
/// | type | columns |
/// |---|---|
/// | `i8`, `i16` | INT8, INT16 |
/// | `i32` | INT32; DATE as days since 1970-01-01; unscaled DECIMAL of up to 9 digits |
/// | `i64` | INT64; UNIXTIME_MICROS as microseconds since 1970-01-01 UTC; unscaled DECIMAL of up to 18 digits |
/// | `i128` | every integer, date, time and unscaled DECIMAL |
/// | `f32`, `f64`, `bool` | FLOAT, DOUBLE, BOOL |
/// | `&str`, `String` | STRING, VARCHAR |
/// | `&[u8]`, `Vec<u8>` | BINARY, STRING, VARCHAR |
/// | [`Value`] | all, with NULL as [`Value::Null`] |
/// | `Option<T>` | as `T`, with NULL as `None` |
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a cell",
    note = "cells are numbers, `bool`, `String`, `&str`, `Vec<u8>`, `&[u8]`, `Value`, or an `Option` of these"
)]
pub trait FromCell<'a>: Sized {
    /// Reads a cell; `None` is NULL.
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError>;
}

impl<'a, T: FromCell<'a>> FromCell<'a> for Option<T> {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        match cell {
            Some(_) => T::from_cell(cell).map(Some),
            None => Ok(None),
        }
    }
}

impl<'a> FromCell<'a> for Cell<'a> {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        cell.ok_or(CellError::Null)
    }
}

impl<'a> FromCell<'a> for Value<'a> {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        match cell {
            Some(cell) => Value::from_cell(cell.data_type, cell.bytes).ok_or(CellError::OutOfBlock),
            None => Ok(Value::Null),
        }
    }
}

impl<'a> FromCell<'a> for i8 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Int8 => cell.fixed().map(i8::from_le_bytes),
            _ => Err(cell.wrong_type("i8")),
        }
    }
}

impl<'a> FromCell<'a> for i16 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Int16 => cell.fixed().map(i16::from_le_bytes),
            _ => Err(cell.wrong_type("i16")),
        }
    }
}

impl<'a> FromCell<'a> for i32 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Int32 | DataType::Date | DataType::Decimal32 => {
                cell.fixed().map(i32::from_le_bytes)
            }
            _ => Err(cell.wrong_type("i32")),
        }
    }
}

impl<'a> FromCell<'a> for i64 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Int64 | DataType::UnixtimeMicros | DataType::Decimal64 => {
                cell.fixed().map(i64::from_le_bytes)
            }
            _ => Err(cell.wrong_type("i64")),
        }
    }
}

impl<'a> FromCell<'a> for i128 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        cell.ok_or(CellError::Null)?.read_i128()
    }
}

impl<'a> FromCell<'a> for f32 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Float => cell.fixed().map(f32::from_le_bytes),
            _ => Err(cell.wrong_type("f32")),
        }
    }
}

impl<'a> FromCell<'a> for f64 {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Double => cell.fixed().map(f64::from_le_bytes),
            _ => Err(cell.wrong_type("f64")),
        }
    }
}

impl<'a> FromCell<'a> for bool {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Bool => cell.fixed::<1>().map(|[byte]| byte != 0),
            _ => Err(cell.wrong_type("bool")),
        }
    }
}

impl<'a> FromCell<'a> for &'a [u8] {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::Binary | DataType::String | DataType::Varchar => Ok(cell.bytes),
            _ => Err(cell.wrong_type("&[u8]")),
        }
    }
}

impl<'a> FromCell<'a> for String {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        <&str>::from_cell(cell).map(str::to_owned)
    }
}

impl<'a> FromCell<'a> for Vec<u8> {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        <&[u8]>::from_cell(cell).map(<[u8]>::to_vec)
    }
}

impl<'a> FromCell<'a> for &'a str {
    fn from_cell(cell: Option<Cell<'a>>) -> Result<Self, CellError> {
        let cell = cell.ok_or(CellError::Null)?;
        match cell.data_type {
            DataType::String | DataType::Varchar => {
                std::str::from_utf8(cell.bytes).map_err(|_| CellError::NotUtf8)
            }
            _ => Err(cell.wrong_type("&str")),
        }
    }
}
