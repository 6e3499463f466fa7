//! Why a line is not a document, in words.

use std::fmt;

use super::{BASE64, JSON};

/// Why a line is not a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentRowError {
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
    /// An extra field next to one that holds the whole value.
    Surplus(String),
}

impl fmt::Display for DocumentRowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocumentRowError::NotUtf8 => write!(f, "not UTF-8"),
            // A row is one line of its file, whose number the caller says.
            DocumentRowError::NotAnObject(reason) => {
                write!(
                    f,
                    "not a JSON object: {}",
                    reason.replace(" at line 1 column", " at column")
                )
            }
            DocumentRowError::NoKey(field) => {
                write!(f, "no field \"{field}\" to take the key from (see --key-field)")
            }
            DocumentRowError::NoField(field) => write!(f, "no field \"{field}\""),
            DocumentRowError::KeyOfWrongKind(field) => {
                write!(f, "field \"{field}\" is neither a string nor a whole number")
            }
            DocumentRowError::FieldInvalid(field, expected) => {
                write!(f, "field \"{field}\" is not {expected}")
            }
            DocumentRowError::Surplus(field) => {
                write!(f, "field \"{field}\" beside \"{BASE64}\" or \"{JSON}\"")
            }
        }
    }
}

impl std::error::Error for DocumentRowError {}
