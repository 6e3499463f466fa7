//! Values that columns are compared with, in predicates and key bounds.
//!
//! Owns: the check of an operand against a column's type, its encoding, order and successor.
//! Invariants: the other functions get only operands that passed [`Operand::check`] for the same
//! type, so a number is encoded in the width of the type; strings are ordered by their bytes.
//! Used by: predicates and key bounds.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::scan_error::OperandError;
use crate::schema::DataType;

/// A value to compare a column with. `From` converts Rust's types.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operand {
    /// For integers of all widths, DATE (days since 1970-01-01), UNIXTIME_MICROS (microseconds
    /// since then) and DECIMAL (unscaled: 1.50 with a scale of 2 is 150).
    Integer(i128),
    /// For FLOAT.
    Float(f32),
    /// For DOUBLE.
    Double(f64),
    /// For BOOL.
    Bool(bool),
    /// For STRING, VARCHAR and BINARY.
    Bytes(Vec<u8>),
}

impl Operand {
    /// Whether the operand is comparable with cells of this type: the kind matches and numbers are
    /// in range. NaN is an error: no comparison with it is true.
    pub(crate) fn check(&self, data_type: DataType) -> Result<(), OperandError> {
        let is_valid = match (self, data_type) {
            (Operand::Integer(value), _) => {
                integer_bounds(data_type).is_some_and(|(min, max)| (min..=max).contains(value))
            }
            (Operand::Float(value), DataType::Float) => !value.is_nan(),
            (Operand::Double(value), DataType::Double) => !value.is_nan(),
            (Operand::Bool(_), DataType::Bool) => true,
            (Operand::Bytes(bytes), DataType::Varchar) => std::str::from_utf8(bytes).is_ok(),
            // To Kudu a string is bytes, and programs may have written some that are not valid
            // text.
            (Operand::Bytes(_), DataType::Binary | DataType::String) => true,
            _ => false,
        };
        is_valid.then_some(()).ok_or(OperandError { data_type })
    }

    /// The encoding in a request: a number little-endian in the width of the type, or the bytes.
    pub(crate) fn to_wire(&self, data_type: DataType) -> Bytes {
        match self {
            Operand::Integer(value) => {
                Bytes::copy_from_slice(&value.to_le_bytes()[..data_type.size()])
            }
            Operand::Float(value) => Bytes::copy_from_slice(&value.to_le_bytes()),
            Operand::Double(value) => Bytes::copy_from_slice(&value.to_le_bytes()),
            Operand::Bool(value) => Bytes::copy_from_slice(&[u8::from(*value)]),
            Operand::Bytes(bytes) => Bytes::copy_from_slice(bytes),
        }
    }

    /// The smallest value above this one; `None` if it is the type's greatest.
    pub(crate) fn successor(&self, data_type: DataType) -> Option<Operand> {
        match self {
            Operand::Integer(value) => {
                let (_, max) = integer_bounds(data_type)?;
                (*value < max).then(|| Operand::Integer(value + 1))
            }
            Operand::Float(value) => {
                (*value < f32::INFINITY).then(|| Operand::Float(value.next_up()))
            }
            Operand::Double(value) => {
                (*value < f64::INFINITY).then(|| Operand::Double(value.next_up()))
            }
            Operand::Bool(value) => (!value).then_some(Operand::Bool(true)),
            Operand::Bytes(bytes) => {
                let mut longer = Vec::with_capacity(bytes.len() + 1);
                longer.extend_from_slice(bytes);
                longer.push(0);
                Some(Operand::Bytes(longer))
            }
        }
    }

    /// The order of two operands that match the same type.
    pub(crate) fn compare(&self, other: &Operand) -> Ordering {
        match (self, other) {
            (Operand::Integer(this), Operand::Integer(other)) => this.cmp(other),
            (Operand::Float(this), Operand::Float(other)) => this.total_cmp(other),
            (Operand::Double(this), Operand::Double(other)) => this.total_cmp(other),
            (Operand::Bool(this), Operand::Bool(other)) => this.cmp(other),
            (Operand::Bytes(this), Operand::Bytes(other)) => this.cmp(other),
            // Operands of one column have passed the same check, so they are of one kind.
            _ => Ordering::Equal,
        }
    }
}

/// Least and greatest value of an integer type.
fn integer_bounds(data_type: DataType) -> Option<(i128, i128)> {
    match data_type {
        DataType::Int8 => Some((i8::MIN.into(), i8::MAX.into())),
        DataType::Int16 => Some((i16::MIN.into(), i16::MAX.into())),
        DataType::Int32 | DataType::Date | DataType::Decimal32 => {
            Some((i32::MIN.into(), i32::MAX.into()))
        }
        DataType::Int64 | DataType::UnixtimeMicros | DataType::Decimal64 => {
            Some((i64::MIN.into(), i64::MAX.into()))
        }
        DataType::Decimal128 => Some((i128::MIN, i128::MAX)),
        _ => None,
    }
}

impl From<i8> for Operand {
    fn from(value: i8) -> Operand {
        Operand::Integer(value.into())
    }
}

impl From<i16> for Operand {
    fn from(value: i16) -> Operand {
        Operand::Integer(value.into())
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Operand {
        Operand::Integer(value.into())
    }
}

impl From<i64> for Operand {
    fn from(value: i64) -> Operand {
        Operand::Integer(value.into())
    }
}

impl From<i128> for Operand {
    fn from(value: i128) -> Operand {
        Operand::Integer(value)
    }
}

impl From<f32> for Operand {
    fn from(value: f32) -> Operand {
        Operand::Float(value)
    }
}

impl From<f64> for Operand {
    fn from(value: f64) -> Operand {
        Operand::Double(value)
    }
}

impl From<bool> for Operand {
    fn from(value: bool) -> Operand {
        Operand::Bool(value)
    }
}

impl From<&str> for Operand {
    fn from(value: &str) -> Operand {
        Operand::Bytes(value.as_bytes().to_vec())
    }
}

impl From<String> for Operand {
    fn from(value: String) -> Operand {
        Operand::Bytes(value.into_bytes())
    }
}

impl From<&[u8]> for Operand {
    fn from(value: &[u8]) -> Operand {
        Operand::Bytes(value.to_vec())
    }
}

impl From<Vec<u8>> for Operand {
    fn from(value: Vec<u8>) -> Operand {
        Operand::Bytes(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Operand;
    use crate::schema::DataType;

    #[test]
    fn an_operand_has_to_fit_the_column() {
        assert!(Operand::from(127).check(DataType::Int8).is_ok());
        assert!(Operand::from(128).check(DataType::Int8).is_err());
        assert!(Operand::from(1).check(DataType::String).is_err());
        assert!(Operand::from("a").check(DataType::Int8).is_err());
        assert!(Operand::from(f64::NAN).check(DataType::Double).is_err());
        assert!(Operand::from(1.0_f64).check(DataType::Float).is_err());
        assert!(Operand::from(&[0xff_u8][..]).check(DataType::Varchar).is_err());
        assert!(Operand::from(&[0xff_u8][..]).check(DataType::String).is_ok());
        assert!(Operand::from(&[0xff_u8][..]).check(DataType::Binary).is_ok());
    }

    #[test]
    fn no_value_lies_between_a_value_and_its_successor() {
        let next = |operand: Operand, data_type| operand.successor(data_type);
        assert_eq!(next(Operand::from(126), DataType::Int8), Some(Operand::from(127)));
        assert_eq!(next(Operand::from(127), DataType::Int8), None);
        assert_eq!(next(Operand::from(i64::MAX), DataType::Int64), None);
        assert_eq!(next(Operand::from(i128::MAX), DataType::Decimal128), None);
        assert_eq!(next(Operand::from("a"), DataType::String), Some(Operand::from("a\0")));
        assert_eq!(next(Operand::from(false), DataType::Bool), Some(Operand::from(true)));
        assert_eq!(next(Operand::from(true), DataType::Bool), None);
        assert_eq!(next(Operand::from(f32::INFINITY), DataType::Float), None);
        assert_eq!(
            next(Operand::from(f64::MAX), DataType::Double),
            Some(Operand::from(f64::INFINITY))
        );
    }

    #[test]
    fn numbers_are_cut_to_the_width_of_the_type() {
        assert_eq!(&Operand::from(-2).to_wire(DataType::Int16)[..], [0xfe, 0xff]);
        assert_eq!(&Operand::from(5).to_wire(DataType::Date)[..], [5, 0, 0, 0]);
        assert_eq!(Operand::from(-1).to_wire(DataType::Decimal128).len(), 16);
    }
}
