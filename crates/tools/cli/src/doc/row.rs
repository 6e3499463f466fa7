//! One line of a file of JSON lines: a document and its key.
//!
//! The forms, with `_key` for the name in `--key-field`:
//!
//! - `{"_key":"k", ...}`: the document is the line without that field;
//! - `{"id":"k", ...}` with another name in `--key-field`: the document is the line itself, unless
//!   an option drops the field;
//! - `{"_key":"k","_base64":"..."}`, exactly these two: a value that is not JSON;
//! - `{"_key":"k","_json":...}`, exactly these two: JSON that is no object, or an object that one
//!   of the names here would confuse;
//! - with `--meta`, `_cas`, `_flags` and `_expiry` stand next to the key, `_xattrs` if the document
//!   has attributes, and `_scope` and `_collection` if the file is of several collections. None of
//!   these fields belongs to the document.
//!
//! A key that is not UTF-8 is in `_key_base64`. What [`write`](write::write) makes of a document,
//! [`read`](read::read) turns back into it, apart from white space around and line ends between the
//! tokens of a JSON value. With another key field, a document that had none has one afterwards,
//! unless an option drops it.

pub mod attributes;
mod error;
pub mod key;
mod members;
pub mod read;
pub mod write;

use serde::de::IgnoredAny;

/// Field with the key, unless an option names another one. It belongs to no document.
pub const KEY: &str = "_key";
/// Field with a key that is not UTF-8.
const KEY_BASE64: &str = "_key_base64";
/// Field with a value that is not JSON.
const BASE64: &str = "_base64";
/// Field with a JSON value.
const JSON: &str = "_json";
/// Field with the CAS, a string of decimal digits.
const CAS: &str = "_cas";
/// Field with the flags.
const FLAGS: &str = "_flags";
/// Field with the expiry: UNIX seconds, 0 for none.
const EXPIRY: &str = "_expiry";
/// Field with an object of the extended attributes, those of the system included.
const XATTRS: &str = "_xattrs";
/// Fields with the names of scope and collection.
const SCOPE: &str = "_scope";
const COLLECTION: &str = "_collection";

/// The flags that SDKs expect of a non-JSON document: format 3 ("binary") in the high byte.
pub const FLAGS_RAW: u32 = 0x0300_0000;

/// Names that `--key-field` must not use.
const RESERVED: [&str; 9] =
    [KEY_BASE64, BASE64, JSON, CAS, FLAGS, EXPIRY, XATTRS, SCOPE, COLLECTION];

/// Takes the name of the key field from the command line.
pub fn parse_key_field(text: &str) -> Result<String, String> {
    match RESERVED.contains(&text) {
        true => Err("this field has a meaning of its own".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// True when the bytes are one JSON text in UTF-8, which is what makes a server call them JSON.
pub fn is_json(value: &[u8]) -> bool {
    // The parser skips strings without checking their encoding, so check it first.
    let Ok(text) = std::str::from_utf8(value) else { return false };
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests;
