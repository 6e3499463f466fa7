//! Parses a line of an import file.
//!
//! The usual line is checked but not rebuilt: the document is the line's bytes. The check visits
//! every field and keeps only the key. Only a line in one of the other forms is split, and then the
//! remaining fields are copied unchanged, including spaces.

use std::borrow::Cow;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oribi_client::FLAGS_JSON;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::attributes::block_of;
use super::error::DocumentRowError;
use super::key::KeySource;
use super::members::{RowMembers, key_text};
use super::{BASE64, CAS, COLLECTION, EXPIRY, FLAGS, FLAGS_RAW, JSON, KEY_BASE64, SCOPE, XATTRS};

/// How to interpret lines.
#[derive(Clone, Debug)]
pub struct RowFormat {
    /// Where keys come from.
    pub key: KeySource,
    /// Metadata is next to the key field, and none of it belongs to the document.
    pub meta: bool,
    /// The key field does not belong to the document.
    pub drop_key: bool,
}

/// The document of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentRow {
    pub key: Bytes,
    pub value: Bytes,
    pub flags: u32,
    /// Expiry in UNIX seconds or 0 for none, if the line has it.
    pub expiry: Option<u32>,
    /// Block of the attributes; empty without any.
    pub attributes: Bytes,
    /// Scope and collection, if the line names them.
    pub place: Option<(String, String)>,
}

impl DocumentRow {
    fn plain(key: Bytes, value: Bytes) -> DocumentRow {
        DocumentRow {
            key,
            value,
            flags: FLAGS_JSON,
            expiry: None,
            attributes: Bytes::new(),
            place: None,
        }
    }
}

/// Parses a line. String keys are taken unchanged, integers as their digits.
pub fn read(line: &Bytes, format: &RowFormat) -> Result<DocumentRow, DocumentRowError> {
    // The parser does not check skipped fields for UTF-8, so check the line first.
    let text = std::str::from_utf8(line).map_err(|_| DocumentRowError::NotUtf8)?;
    let key_field = match &format.key {
        KeySource::Field(field) => field,
        KeySource::Template(template) => {
            return Ok(DocumentRow::plain(template.key_of(text)?.into(), line.clone()));
        }
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let outline = Outline::of(&mut deserializer, key_field)?;
    let is_wrapped = outline.has_value_field && (format.meta || outline.members == 2);
    if format.meta || format.drop_key || is_wrapped {
        return take_apart((line, text), key_field, format.meta, is_wrapped);
    }
    Ok(DocumentRow::plain(named_key(outline.key, key_field)?, line.clone()))
}

fn named_key(key: Option<Key>, key_field: &str) -> Result<Bytes, DocumentRowError> {
    match key {
        None => Err(DocumentRowError::NoKey(key_field.to_owned())),
        Some(Key::Other) => Err(DocumentRowError::KeyOfWrongKind(key_field.to_owned())),
        Some(Key::Text(key)) => Ok(key.into()),
    }
}

/// Roles of a line's members.
#[derive(Default)]
struct Parts<'t> {
    key: Option<Bytes>,
    whole: Option<(Bytes, u32)>,
    rest: Vec<&'t str>,
    flags: Option<u32>,
    expiry: Option<u32>,
    attributes: Bytes,
    scope: Option<String>,
    collection: Option<String>,
}

fn take_apart(
    (line, text): (&Bytes, &str),
    key_field: &str,
    has_meta: bool,
    is_wrapped: bool,
) -> Result<DocumentRow, DocumentRowError> {
    let RowMembers(members) = RowMembers::of(text)?;
    let mut parts = Parts::default();
    let mut region_start = text.find('{').map_or(0, |brace| brace + 1);
    for (name, raw) in &members {
        // Both lie in the same line, so the difference of their addresses is an offset.
        let end = raw.get().as_ptr() as usize - text.as_ptr() as usize + raw.get().len();
        let region = text.get(region_start..end).unwrap_or_default();
        region_start = end;
        match &**name {
            name if name == key_field => {
                let parsed = serde_json::from_str(raw.get()).unwrap_or(Key::Other);
                parts.key = Some(named_key(Some(parsed), name)?);
            }
            KEY_BASE64 if is_wrapped => parts.key = Some(decode(KEY_BASE64, raw)?),
            BASE64 if is_wrapped => parts.whole = Some((decode(BASE64, raw)?, FLAGS_RAW)),
            JSON if is_wrapped => {
                parts.whole = Some((line.slice_ref(raw.get().as_bytes()), FLAGS_JSON));
            }
            name if has_meta && parts.take_meta(name, raw)? => {}
            other if is_wrapped => return Err(DocumentRowError::Surplus(other.to_owned())),
            _ => parts.rest.push(region),
        }
    }
    parts.into_row(key_field)
}

impl Parts<'_> {
    /// Takes a field of the metadata; false when it is none.
    fn take_meta(&mut self, name: &str, raw: &RawValue) -> Result<bool, DocumentRowError> {
        match name {
            CAS => {}
            FLAGS => self.flags = Some(number(FLAGS, raw)?),
            EXPIRY => self.expiry = Some(number(EXPIRY, raw)?),
            XATTRS => self.attributes = block_of(raw)?,
            SCOPE => self.scope = Some(name_in(SCOPE, raw)?),
            COLLECTION => self.collection = Some(name_in(COLLECTION, raw)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn into_row(self, key_field: &str) -> Result<DocumentRow, DocumentRowError> {
        let key = self.key.ok_or_else(|| DocumentRowError::NoKey(key_field.to_owned()))?;
        let (value, flags) = self.whole.unwrap_or_else(|| (joined(&self.rest), FLAGS_JSON));
        let place = match (self.scope, self.collection) {
            (None, None) => None,
            (Some(scope), Some(collection)) => Some((scope, collection)),
            (Some(_), None) => return Err(DocumentRowError::NoField(COLLECTION.to_owned())),
            (None, Some(_)) => return Err(DocumentRowError::NoField(SCOPE.to_owned())),
        };
        let flags = self.flags.unwrap_or(flags);
        Ok(DocumentRow {
            key,
            value,
            flags,
            expiry: self.expiry,
            attributes: self.attributes,
            place,
        })
    }
}

/// An object of these members; each still has the comma before it, unless it was the first.
fn joined(members: &[&str]) -> Bytes {
    let bytes: usize = members.iter().map(|member| member.len() + 1).sum();
    let mut object = String::with_capacity(bytes + 2);
    object.push('{');
    for (number, member) in members.iter().enumerate() {
        if number > 0 {
            object.push(',');
        }
        object.push_str(member.trim_start().strip_prefix(',').unwrap_or(member));
    }
    object.push('}');
    object.into()
}

fn decode(field: &'static str, raw: &RawValue) -> Result<Bytes, DocumentRowError> {
    let invalid = DocumentRowError::FieldInvalid(field, "a string in base64");
    let Ok(text) = serde_json::from_str::<Cow<'_, str>>(raw.get()) else { return Err(invalid) };
    STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(|_| invalid)
}

fn name_in(field: &'static str, raw: &RawValue) -> Result<String, DocumentRowError> {
    serde_json::from_str(raw.get()).map_err(|_| DocumentRowError::FieldInvalid(field, "a name"))
}

fn number(field: &'static str, raw: &RawValue) -> Result<u32, DocumentRowError> {
    raw.get()
        .parse()
        .map_err(|_| DocumentRowError::FieldInvalid(field, "a whole number of 32 bits"))
}

enum Key {
    Text(String),
    Other,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(key_text(&value).map_or(Key::Other, |text| Key::Text(text.into_owned())))
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
    ) -> Result<Outline, DocumentRowError> {
        OutlineOf(key_field)
            .deserialize(&mut *deserializer)
            .and_then(|outline| deserializer.end().map(|()| outline))
            .map_err(|error| DocumentRowError::NotAnObject(error.to_string()))
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
