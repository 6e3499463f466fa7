//! A document as one line of an export file; see the parent module for the forms.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use oribi_subdoc::xattr::Xattrs;

use super::{
    BASE64, CAS, COLLECTION, EXPIRY, FLAGS, JSON, KEY, KEY_BASE64, RESERVED, SCOPE, XATTRS, is_json,
};

#[derive(Clone, Copy, Debug)]
pub struct WriteMeta<'a> {
    pub cas: u64,
    pub flags: u32,
    /// Expiry in UNIX seconds, 0 for none.
    pub expiry: u32,
    /// Attributes, which are acceptable as a server says it.
    pub attributes: Xattrs<'a>,
    /// Scope and collection, if the line names them.
    pub place: Option<(&'a str, &'a str)>,
}

/// Appends the line of a document, line end included.
pub fn write(
    out: &mut Vec<u8>,
    key: &[u8],
    value: &[u8],
    key_field: &str,
    meta: Option<&WriteMeta<'_>>,
) {
    let key_text = std::str::from_utf8(key).ok();
    match form(value, key_text, key_field, meta.is_some()) {
        Form::AsItIs => push_in_one_line(out, value.trim_ascii()),
        Form::Inline => {
            push_head(out, key, key_field, meta);
            let members = value.trim_ascii().get(1..).unwrap_or_default();
            if !members.trim_ascii_start().starts_with(b"}") {
                out.push(b',');
            }
            push_in_one_line(out, members);
        }
        Form::Json => {
            push_head(out, key, key_field, meta);
            push_name(out, JSON);
            push_in_one_line(out, value.trim_ascii());
            out.push(b'}');
        }
        Form::Base64 => {
            push_head(out, key, key_field, meta);
            push_name(out, BASE64);
            push_base64(out, value);
            out.push(b'}');
        }
    }
    out.push(b'\n');
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// The document holds its key.
    AsItIs,
    /// The document's members follow the key.
    Inline,
    /// The document is the value of a field.
    Json,
    /// The value is not JSON.
    Base64,
}

fn form(value: &[u8], key: Option<&str>, key_field: &str, has_meta: bool) -> Form {
    if !value.trim_ascii_start().starts_with(b"{") {
        return if is_json(value) { Form::Json } else { Form::Base64 };
    }
    let Some(names) = std::str::from_utf8(value).ok().and_then(|text| Names::of(text, key_field))
    else {
        return Form::Base64;
    };
    match (key, names.keys.as_slice()) {
        _ if names.has_reserved => Form::Json,
        (Some(_), []) => Form::Inline,
        // A reader takes the usual key field out.
        (Some(key), [held]) if !has_meta && key_field != KEY && held.as_deref() == Some(key) => {
            Form::AsItIs
        }
        _ => Form::Json,
    }
}

fn push_head(out: &mut Vec<u8>, key: &[u8], key_field: &str, meta: Option<&WriteMeta<'_>>) {
    out.push(b'{');
    match std::str::from_utf8(key) {
        Ok(key) => {
            push_string(out, key_field);
            out.push(b':');
            push_string(out, key);
        }
        Err(_) => {
            push_string(out, KEY_BASE64);
            out.push(b':');
            push_base64(out, key);
        }
    }
    if let Some(meta) = meta {
        push_meta(out, meta);
    }
}

fn push_meta(out: &mut Vec<u8>, meta: &WriteMeta<'_>) {
    let WriteMeta { cas, flags, expiry, attributes, place } = meta;
    let written = write!(out, ",\"{CAS}\":\"{cas}\",\"{FLAGS}\":{flags},\"{EXPIRY}\":{expiry}");
    written.expect("a vector takes every byte");
    if let Some((scope, collection)) = place {
        for (field, name) in [(SCOPE, scope), (COLLECTION, collection)] {
            push_name(out, field);
            push_string(out, name);
        }
    }
    for (number, (name, value)) in attributes.iter().enumerate() {
        if number == 0 {
            push_name(out, XATTRS);
        }
        out.push(if number == 0 { b'{' } else { b',' });
        push_string(out, &String::from_utf8_lossy(name));
        out.push(b':');
        push_in_one_line(out, value);
    }
    if !attributes.is_empty() {
        out.push(b'}');
    }
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    out.push(b',');
    push_string(out, name);
    out.push(b':');
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string has a JSON form and a vector takes it");
}

fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    out.push(b'"');
}

/// JSON without its line ends. They are only between tokens, where they are optional: inside a
/// string a line end is always escaped.
fn push_in_one_line(out: &mut Vec<u8>, json: &[u8]) {
    for part in json.split(|byte| matches!(byte, b'\n' | b'\r')) {
        out.extend_from_slice(part);
    }
}

/// The effect of an object's member names on a reader of lines.
struct Names {
    /// Content of every key field; `None` when it is no string.
    keys: Vec<Option<String>>,
    has_reserved: bool,
}

impl Names {
    /// `None` when the text is not a JSON object.
    fn of(text: &str, key_field: &str) -> Option<Names> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let names = deserializer.deserialize_map(NamesOf(key_field)).ok()?;
        deserializer.end().ok().map(|()| names)
    }
}

struct NamesOf<'a>(&'a str);

impl<'de> Visitor<'de> for NamesOf<'_> {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
        let mut names = Names { keys: Vec::new(), has_reserved: false };
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            if name == self.0 {
                let value = map.next_value::<&serde_json::value::RawValue>()?;
                names.keys.push(serde_json::from_str(value.get()).ok());
                continue;
            }
            names.has_reserved |= RESERVED.contains(&&*name);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(names)
    }
}
