//! Why a line is not a document, in words.

use std::fmt;

use super::{BASE64, JSON};

/// Why a line is not a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowError {
    /// Not text.
    NotUtf8,
    /// Not JSON, or not an object; with the parser's reason.
    NotAnObject(String),
    /// The key field is missing.
    NoKey(String),
    /// Another field is missing.
    NoField(String),
    /// The key field is neither a string nor an integer.
    KeyOfWrongKind(String),
    /// A field with a special meaning has an invalid value.
    FieldInvalid(&'static str, &'static str),
    /// An extra field beside one that holds the whole value.
    Surplus(String),
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowError::NotUtf8 => write!(f, "not UTF-8"),
            // A row is one line of its file, whose number the caller says.
            RowError::NotAnObject(reason) => {
                write!(
                    f,
                    "not a JSON object: {}",
                    reason.replace(" at line 1 column", " at column")
                )
            }
            RowError::NoKey(field) => {
                write!(f, "no field \"{field}\" to take the key from (see --key-field)")
            }
            RowError::NoField(field) => write!(f, "no field \"{field}\""),
            RowError::KeyOfWrongKind(field) => {
                write!(f, "field \"{field}\" is neither a string nor a whole number")
            }
            RowError::FieldInvalid(field, expected) => {
                write!(f, "field \"{field}\" is not {expected}")
            }
            RowError::Surplus(field) => {
                write!(f, "field \"{field}\" beside \"{BASE64}\" or \"{JSON}\"")
            }
        }
    }
}

impl std::error::Error for RowError {}
