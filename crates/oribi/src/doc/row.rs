//! One line of an import file: a JSON object, one field of which is the key.
//!
//! The line is checked but not rebuilt: the document is the line's bytes as they are, key field
//! included. Checking visits every field without keeping any but the key.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// The document's key, from the field named `key_field`. Strings are taken as they are, whole numbers
/// as their decimal digits.
pub fn key_of(line: &[u8], key_field: &str) -> Result<String, RowError> {
    // Fields that are skipped are not checked for UTF-8 by the parser, so the line is, first.
    let text = std::str::from_utf8(line).map_err(|_| RowError::NotUtf8)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let key = KeyField(key_field)
        .deserialize(&mut deserializer)
        .and_then(|key| deserializer.end().map(|()| key))
        .map_err(|error| RowError::NotAnObject(error.to_string()))?;
    match key {
        None => Err(RowError::NoKey(key_field.to_owned())),
        Some(Key::Other) => Err(RowError::KeyOfWrongKind(key_field.to_owned())),
        Some(Key::Text(key)) => Ok(key),
    }
}

/// Why a line is no document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowError {
    /// Not text.
    NotUtf8,
    /// Not JSON, or not an object; with the parser's reason.
    NotAnObject(String),
    /// The key field is missing.
    NoKey(String),
    /// The key field is neither a string nor a whole number.
    KeyOfWrongKind(String),
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowError::NotUtf8 => write!(f, "not UTF-8"),
            RowError::NotAnObject(reason) => write!(f, "not a JSON object: {reason}"),
            RowError::NoKey(field) => {
                write!(f, "no field \"{field}\" to take the key from (see --key-field)")
            }
            RowError::KeyOfWrongKind(field) => {
                write!(f, "field \"{field}\" is neither a string nor a whole number")
            }
        }
    }
}

impl std::error::Error for RowError {}

enum Key {
    Text(String),
    Other,
}

/// Deserializes an object into the key that the named field holds, if it is there.
struct KeyField<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for KeyField<'_> {
    type Value = Option<Key>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for KeyField<'_> {
    type Value = Option<Key>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut key = None;
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if name == self.0 {
                key = Some(map.next_value::<Key>()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(key)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        Ok(match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => Key::Text(text),
            serde_json::Value::Number(number) if !number.is_f64() => Key::Text(number.to_string()),
            _ => Key::Other,
        })
    }
}

#[cfg(test)]
mod tests {
    //! Lines that are documents and lines that are not.

    use super::*;

    #[test]
    fn finds_the_key_wherever_it_stands() {
        for line in [
            r#"{"_key":"a"}"#,
            r#" {"x":{"_key":"inner"},"_key":"a"} "#,
            r#"{"_key":"a","list":[1,2,{"_key":"b"}]}"#,
            r#"{"\u005fkey":"\u0061"}"#,
        ] {
            assert_eq!(key_of(line.as_bytes(), "_key"), Ok("a".to_owned()), "{line}");
        }
        assert_eq!(key_of(br#"{"id":42}"#, "id"), Ok("42".to_owned()));
        assert_eq!(key_of(br#"{"id":-7}"#, "id"), Ok("-7".to_owned()));
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, text) in [
            (&b"{\"a\":1}"[..], "no field \"_key\" to take the key from (see --key-field)"),
            (b"{\"_key\":1.5}", "field \"_key\" is neither a string nor a whole number"),
            (b"{\"_key\":null}", "field \"_key\" is neither a string nor a whole number"),
            (b"{\"_key\":\"\xff\"}", "not UTF-8"),
            (b"[1]", "not a JSON object: invalid type: sequence, expected an object"),
            (b"{\"_key\":\"a\"", "not a JSON object: EOF while parsing an object"),
            (b"{\"_key\":\"a\"} x", "not a JSON object: trailing characters"),
            (b"{\"_key\":\"a\",\"b\":tru}", "not a JSON object: expected ident"),
        ] {
            let error = key_of(line, "_key").expect_err("refused").to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }
}
