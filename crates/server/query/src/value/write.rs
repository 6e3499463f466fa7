//! Writes values as JSON text.
//!
//! Numbers have all their digits and no exponent; infinities and NaN are texts. A missing value in
//! an array is null, and as a field it is left out. Stored text is copied as it is.

use std::io::Write;

use super::{QueryValue, Text};

/// Appends the JSON text of `value`. A missing value is null.
pub fn write(value: &QueryValue, out: &mut Vec<u8>) {
    match value {
        QueryValue::Missing | QueryValue::Null => out.extend_from_slice(b"null"),
        QueryValue::Bool(true) => out.extend_from_slice(b"true"),
        QueryValue::Bool(false) => out.extend_from_slice(b"false"),
        QueryValue::Int(number) => {
            out.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes())
        }
        QueryValue::Float(number) => write_float(*number, out),
        QueryValue::Str(text) => write_text(&text.to_str(), out),
        QueryValue::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        QueryValue::Object(object) => {
            out.push(b'{');
            for (index, (name, value)) in object.fields().iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_field(&name.to_str(), value, out);
            }
            out.push(b'}');
        }
        QueryValue::Json(json) => out.extend_from_slice(json.as_bytes()),
        QueryValue::Binary(bytes) => write_text(&format!("<binary ({} b)>", bytes.len()), out),
    }
}

pub fn write_field(name: &str, value: &QueryValue, out: &mut Vec<u8>) {
    write_text(name, out);
    out.push(b':');
    write(value, out);
}

/// The most bytes that the JSON text of a value takes, but for escapes.
pub fn text_bytes(value: &QueryValue) -> usize {
    match value {
        QueryValue::Str(text) => text.as_bytes().len() + 2,
        QueryValue::Json(json) => json.len(),
        QueryValue::Array(items) => {
            2 + items.iter().map(|item| 1 + text_bytes(item)).sum::<usize>()
        }
        QueryValue::Object(object) => {
            let fields = object.fields().iter();
            let bytes =
                |(name, value): &(Text, QueryValue)| name.as_bytes().len() + 4 + text_bytes(value);
            2 + fields.map(bytes).sum::<usize>()
        }
        _ => 24,
    }
}

/// The JSON text of a value.
pub fn to_json(value: &QueryValue) -> String {
    let mut out = Vec::new();
    write(value, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn write_float(number: f64, out: &mut Vec<u8>) {
    let text = float_text(number);
    if number.is_finite() {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_text(&text, out);
    }
}

/// A float as the reference prints it.
pub fn float_text(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "+Infinity" } else { "-Infinity" }.to_owned()
    } else {
        format!("{number}")
    }
}

/// Appends a text in quotes with the escapes that JSON needs.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut start = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            8 => b"\\b",
            12 => b"\\f",
            0..=0x1f => b"",
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[start..at]);
        start = at + 1;
        if escape.is_empty() {
            // Writing to memory cannot fail.
            let _ = write!(out, "\\u{byte:04x}");
        } else {
            out.extend_from_slice(escape);
        }
    }
    out.extend_from_slice(&text.as_bytes()[start..]);
    out.push(b'"');
}
