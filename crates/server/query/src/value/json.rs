//! Reads JSON text one level at a time.
//!
//! A `Json` is the span of one array or object. The walk trusts that the text was valid once; on
//! other text it ends early and never panics. Of equal names in an object the first counts.

use bytes::Bytes;
use memchr::{memchr2, memchr3};

use super::{Json, QueryValue, Text, write};

impl Json {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The length of the text.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes of the text, if no other value shares its memory.
    pub fn own_bytes(&self) -> usize {
        if self.0.is_unique() { self.0.len() } else { 0 }
    }

    /// The same text in other memory.
    pub fn map(self, run: impl FnOnce(Bytes) -> Bytes) -> Json {
        Json(run(self.0))
    }

    pub fn is_array(&self) -> bool {
        self.0.first() == Some(&b'[')
    }

    pub fn is_empty(&self) -> bool {
        matches!(self.0.get(skip_space(&self.0, 1)), Some(b']' | b'}') | None)
    }

    /// The elements of an array.
    pub fn items(&self) -> JsonItems {
        JsonItems { text: self.0.clone(), at: 1 }
    }

    /// The fields of an object.
    pub fn fields(&self) -> Fields {
        Fields { text: self.0.clone(), at: 1 }
    }

    /// A field of an object, else missing.
    pub fn field(&self, name: &[u8]) -> QueryValue {
        match field_range(&self.0, 0, name) {
            Some(start) => value_at(&self.0, start).map_or(QueryValue::Missing, |(value, _)| value),
            None => QueryValue::Missing,
        }
    }

    /// The value at the end of a path of plain names, without steps in between.
    pub fn path(&self, names: &[Text]) -> QueryValue {
        let mut at = 0;
        for name in names {
            match field_range(&self.0, at, name.as_bytes()) {
                Some(start) => at = start,
                None => return QueryValue::Missing,
            }
        }
        value_at(&self.0, at).map_or(QueryValue::Missing, |(value, _)| value)
    }
}

/// Reads the value that `text` is. Arrays and objects stay text.
pub fn parse(text: &Bytes) -> Option<QueryValue> {
    let start = skip_space(text, 0);
    let (value, end) = value_at(text, start)?;
    (skip_space(text, end) == text.len()).then_some(value)
}

/// Reads the value that `text` is, if it is valid JSON throughout.
pub fn parse_checked(text: &Bytes) -> Option<QueryValue> {
    if oribi_subdoc::json::is_json(text) { parse(text) } else { None }
}

/// The same value with its arrays and objects as text, so that its depth costs no stack.
pub fn flattened(value: QueryValue) -> QueryValue {
    if !matches!(value, QueryValue::Array(_) | QueryValue::Object(_)) {
        return value;
    }
    let mut out = Vec::new();
    write::write(&value, &mut out);
    parse(&out.into()).unwrap_or_default()
}

/// Iterates over the elements of an array.
pub struct JsonItems {
    text: Bytes,
    at: usize,
}

impl Iterator for JsonItems {
    type Item = QueryValue;

    fn next(&mut self) -> Option<QueryValue> {
        let start = skip_space(&self.text, self.at);
        if matches!(self.text.get(start), Some(b']') | None) {
            return None;
        }
        let (value, end) = value_at(&self.text, start)?;
        self.at = after_comma(&self.text, end);
        debug_assert!(self.at > start, "elements follow each other");
        Some(value)
    }
}

/// Iterates over the fields of an object.
pub struct Fields {
    text: Bytes,
    at: usize,
}

impl Iterator for Fields {
    type Item = (Text, QueryValue);

    fn next(&mut self) -> Option<(Text, QueryValue)> {
        let start = skip_space(&self.text, self.at);
        let name_end = string_end(&self.text, start)?;
        let name = decode_text(&self.text, start + 1, name_end - 1);
        let (value, end) = value_at(&self.text, after_colon(&self.text, name_end))?;
        self.at = after_comma(&self.text, end);
        debug_assert!(self.at > name_end, "fields follow each other");
        Some((name, value))
    }
}

fn skip_space(text: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = text.get(at) {
        at += 1;
    }
    at
}

fn after_comma(text: &[u8], at: usize) -> usize {
    let at = skip_space(text, at);
    if text.get(at) == Some(&b',') { at + 1 } else { at }
}

fn after_colon(text: &[u8], at: usize) -> usize {
    let at = skip_space(text, at);
    let at = if text.get(at) == Some(&b':') { at + 1 } else { at };
    skip_space(text, at)
}

/// The position after the closing quote of the string that begins at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        let stop = at + memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[stop] == b'"' {
            return Some(stop + 1);
        }
        at = stop + 2;
    }
}

/// The position after the value that begins at `at`.
pub fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' => container_end(text, at, b'{', b'}'),
        b'[' => container_end(text, at, b'[', b']'),
        _ => {
            let rest = &text[at..];
            let ends =
                |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            let length = rest.iter().position(ends).unwrap_or(rest.len());
            (length > 0).then_some(at + length)
        }
    }
}

/// The position after the container that begins at `at`. Only its own kind of bracket is counted.
fn container_end(text: &[u8], at: usize, open: u8, close: u8) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = at;
    loop {
        let stop = at + memchr3(b'"', open, close, text.get(at..)?)?;
        at = stop + 1;
        if text[stop] == b'"' {
            at = string_end(text, stop)?;
        } else if text[stop] == open {
            depth += 1;
        } else {
            debug_assert!(depth > 0, "a bracket closes an open one");
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
}

/// Where the value of a field begins in the object at `at`.
fn field_range(text: &[u8], at: usize, name: &[u8]) -> Option<usize> {
    if text.get(at) != Some(&b'{') {
        return None;
    }
    let mut at = at + 1;
    loop {
        let start = skip_space(text, at);
        let end = string_end(text, start)?;
        let value = after_colon(text, end);
        debug_assert!(start + 1 < end && end <= value, "a value comes after its name");
        let raw = &text[start + 1..end - 1];
        if raw == name || (raw.contains(&b'\\') && decode_bytes(raw) == name) {
            return Some(value);
        }
        at = after_comma(text, value_end(text, value)?);
    }
}

/// The value at `at` and the position after it.
fn value_at(text: &Bytes, at: usize) -> Option<(QueryValue, usize)> {
    let end = value_end(text, at)?;
    debug_assert!(at < end && end <= text.len(), "a value is inside its text");
    let value = match text[at] {
        b'"' => QueryValue::Str(decode_text(text, at + 1, end - 1)),
        b'{' | b'[' => QueryValue::Json(Json(text.slice(at..end))),
        b't' => QueryValue::Bool(true),
        b'f' => QueryValue::Bool(false),
        b'n' => QueryValue::Null,
        _ => number(&text[at..end])?,
    };
    Some((value, end))
}

/// The number that a JSON text is.
pub fn number(text: &[u8]) -> Option<QueryValue> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        let number = digits.iter().fold(0i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        return Some(match text[0] {
            b'-' => QueryValue::Int(-number),
            _ => QueryValue::Int(number),
        });
    }
    let text = std::str::from_utf8(text).ok()?;
    match text.parse::<i64>() {
        Ok(number) => Some(QueryValue::Int(number)),
        Err(_) => text.parse::<f64>().ok().map(QueryValue::number),
    }
}

fn decode_text(text: &Bytes, start: usize, end: usize) -> Text {
    let raw = &text[start..end];
    if memchr::memchr(b'\\', raw).is_none() {
        return Text::from_bytes(text.slice(start..end));
    }
    Text::from_bytes(decode_bytes(raw).into())
}

/// The bytes of a string's inside without its escapes. Half of a surrogate pair is U+FFFD.
pub fn decode_bytes(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let escape = raw.get(at).copied().unwrap_or(b'\\');
        at += 1;
        match escape {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => at = decode_unicode(raw, at, &mut out),
            other => out.push(other),
        }
    }
    out
}

fn decode_unicode(raw: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let unit = |at: usize| {
        let digits = std::str::from_utf8(raw.get(at..at + 4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let high = unit(at).unwrap_or(0xFFFD);
    let (code, end) = match (high, raw.get(at + 4..at + 6), unit(at + 6)) {
        (0xD800..=0xDBFF, Some(b"\\u"), Some(low @ 0xDC00..=0xDFFF)) => {
            (0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), at + 10)
        }
        _ => (high, at + 4),
    };
    let character = char::from_u32(code).unwrap_or('\u{FFFD}');
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    end
}
