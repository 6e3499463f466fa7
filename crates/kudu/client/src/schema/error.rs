//! The errors of a schema.

use super::value::ValueError;

/// Why a schema is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// There is no key column.
    #[error("a schema needs at least one key column")]
    NoKey,
    /// A column has no name.
    #[error("a column needs a name")]
    EmptyName,
    /// Two columns have the same name.
    #[error("there are two columns {column:?}")]
    DuplicateColumn {
        /// The name.
        column: String,
    },
    /// A key column comes after one that is not.
    #[error("key column {column:?} stands behind a column that is not part of the key")]
    KeyNotFirst {
        /// Name of the key column.
        column: String,
    },
    /// A key column cannot be NULL, immutable or of this type.
    #[error("column {column:?} cannot be part of the key: {reason}")]
    BadKey {
        /// Name of the column.
        column: String,
        /// The reason.
        reason: &'static str,
    },
    /// Precision, scale or length do not match the type.
    #[error("column {column:?}: {reason}")]
    BadAttributes {
        /// Name of the column.
        column: String,
        /// The attribute that does not match.
        reason: String,
    },
    /// The column cannot hold its default.
    #[error("default: {0}")]
    BadDefault(ValueError),
    /// The auto-incrementing column is not a 64-bit integer at the end of the key.
    #[error(
        "auto-incrementing column {column:?} must be INT64, the last of the key and without a default"
    )]
    BadAutoIncrementing {
        /// Name of the column.
        column: String,
    },
    /// The server has a column of a type that this client does not know.
    #[error("column {column:?} has type {number}, which this client does not know")]
    UnsupportedType {
        /// Name of the column.
        column: String,
        /// The type's number in the protocol.
        number: i32,
    },
    /// A partition schema has an invalid column or number.
    #[error("partition schema: {reason}")]
    BadPartitioning {
        /// The invalid part.
        reason: String,
    },
}
