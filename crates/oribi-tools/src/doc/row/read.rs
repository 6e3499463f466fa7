//! Parses a line of an import file.
//!
//! The usual line is checked but not rebuilt: the document is the line's bytes. The check visits
//! every field and keeps only the key. Only a line in one of the other forms is split, and then the
//! remaining fields are copied unchanged, including spaces.
//! forms is taken apart, and then the fields that stay are copied as they stand, spaces included.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oribi_client::FLAGS_JSON;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{BASE64, CAS, EXPIRY, FLAGS, FLAGS_RAW, JSON, KEY_BASE64};

/// How to interpret lines.
#[derive(Clone, Debug)]
pub struct RowFormat {
    /// Field that holds the key.
    pub key_field: String,
    /// CAS, flags and expiry are beside it, and none of them belongs to the document.
    pub meta: bool,
    /// The key field does not belong to the document.
    pub drop_key: bool,
}

/// The document of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Key.
    pub key: Bytes,
    /// Value.
    pub value: Bytes,
    /// Flags.
    pub flags: u32,
    /// Expiry in UNIX seconds or 0 for none, if the line has it.
    pub expiry: Option<u32>,
}

/// Parses a line. String keys are taken unchanged, integers as their digits.
pub fn read(line: &Bytes, format: &RowFormat) -> Result<Row, RowError> {
    // The parser does not check skipped fields for UTF-8, so check the line first.
    let text = std::str::from_utf8(line).map_err(|_| RowError::NotUtf8)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let outline = Outline::of(&mut deserializer, &format.key_field)?;
    let is_wrapped = outline.has_value_field && (format.meta || outline.members == 2);
    if format.meta || format.drop_key || is_wrapped {
        return take_apart(line, text, format, is_wrapped);
    }
    let key = named_key(outline.key, &format.key_field)?;
    Ok(Row { key, value: line.clone(), flags: FLAGS_JSON, expiry: None })
}

fn named_key(key: Option<Key>, key_field: &str) -> Result<Bytes, RowError> {
    match key {
        None => Err(RowError::NoKey(key_field.to_owned())),
        Some(Key::Other) => Err(RowError::KeyOfWrongKind(key_field.to_owned())),
        Some(Key::Text(key)) => Ok(key.into()),
    }
}

fn take_apart(
    line: &Bytes,
    text: &str,
    format: &RowFormat,
    is_wrapped: bool,
) -> Result<Row, RowError> {
    let Members(members) = serde_json::from_str(text)
        .map_err(|error: serde_json::Error| RowError::NotAnObject(error.to_string()))?;
    let (mut key, mut whole, mut rest) = (None, None, Vec::new());
    let (mut flags, mut expiry) = (None, None);
    let mut region_start = text.find('{').map_or(0, |brace| brace + 1);
    for (name, raw) in &members {
        // Both lie in the same line, so the difference of their addresses is an offset.
        let end = raw.get().as_ptr() as usize - text.as_ptr() as usize + raw.get().len();
        let region = text.get(region_start..end).unwrap_or_default();
        region_start = end;
        match &**name {
            name if name == format.key_field => {
                let parsed = serde_json::from_str(raw.get()).unwrap_or(Key::Other);
                key = Some(named_key(Some(parsed), name)?);
            }
            KEY_BASE64 if is_wrapped => key = Some(decode(KEY_BASE64, raw)?),
            BASE64 if is_wrapped => whole = Some((decode(BASE64, raw)?, FLAGS_RAW)),
            JSON if is_wrapped => whole = Some((line.slice_ref(raw.get().as_bytes()), FLAGS_JSON)),
            CAS if format.meta => {}
            FLAGS if format.meta => flags = Some(number(FLAGS, raw)?),
            EXPIRY if format.meta => expiry = Some(number(EXPIRY, raw)?),
            other if is_wrapped => return Err(RowError::Surplus(other.to_owned())),
            _ => rest.push(region),
        }
    }
    let key = key.ok_or_else(|| RowError::NoKey(format.key_field.clone()))?;
    let (value, default_flags) = whole.unwrap_or_else(|| (joined(&rest), FLAGS_JSON));
    Ok(Row { key, value, flags: flags.unwrap_or(default_flags), expiry })
}

/// An object of these members; each still has the comma before it, unless it was the first.
fn joined(members: &[&str]) -> Bytes {
    let bare = |member: &&str| match member.trim_start().strip_prefix(',') {
        Some(after_comma) => after_comma.to_owned(),
        None => (*member).to_owned(),
    };
    let members: Vec<String> = members.iter().map(bare).collect();
    format!("{{{}}}", members.join(",")).into()
}

fn decode(field: &'static str, raw: &RawValue) -> Result<Bytes, RowError> {
    let invalid = RowError::FieldInvalid(field, "a string in base64");
    let Ok(text) = serde_json::from_str::<Cow<'_, str>>(raw.get()) else { return Err(invalid) };
    STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(|_| invalid)
}

fn number(field: &'static str, raw: &RawValue) -> Result<u32, RowError> {
    raw.get().parse().map_err(|_| RowError::FieldInvalid(field, "a whole number of 32 bits"))
}

/// Why a line is not a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowError {
    /// Not text.
    NotUtf8,
    /// Not JSON, or not an object; with the parser's reason.
    NotAnObject(String),
    /// The key field is missing.
    NoKey(String),
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
            RowError::NotAnObject(reason) => write!(f, "not a JSON object: {reason}"),
            RowError::NoKey(field) => {
                write!(f, "no field \"{field}\" to take the key from (see --key-field)")
            }
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

enum Key {
    Text(String),
    Other,
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

/// The result of one pass over an object.
struct Outline {
    key: Option<Key>,
    members: usize,
    has_value_field: bool,
}

impl Outline {
    fn of(
        deserializer: &mut serde_json::Deserializer<serde_json::de::StrRead<'_>>,
        key_field: &str,
    ) -> Result<Outline, RowError> {
        OutlineOf(key_field)
            .deserialize(&mut *deserializer)
            .and_then(|outline| deserializer.end().map(|()| outline))
            .map_err(|error| RowError::NotAnObject(error.to_string()))
    }
}

/// Deserializes an object into its outline.
struct OutlineOf<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for OutlineOf<'_> {
    type Value = Outline;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OutlineOf<'_> {
    type Value = Outline;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut outline = Outline { key: None, members: 0, has_value_field: false };
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            outline.members += 1;
            if name == self.0 {
                outline.key = Some(map.next_value::<Key>()?);
                continue;
            }
            outline.has_value_field |= name == BASE64 || name == JSON;
            map.next_value::<IgnoredAny>()?;
        }
        Ok(outline)
    }
}

/// An object's members in order, values as they stand.
struct Members<'de>(Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members<'de>, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(All)
    }
}
