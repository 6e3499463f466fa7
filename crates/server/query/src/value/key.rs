//! Byte keys by which groups, distinct rows and hash joins find equal values.
//!
//! Two values have the same key exactly when they are identical, so a table of keys needs no
//! comparison of values.

use super::{QueryValue, ValueType};
use crate::limits::VALUE_DEPTH_MAX;

/// Appends the key of a value.
pub fn append(value: &QueryValue, out: &mut Vec<u8>) {
    append_at(value, out, 0);
}

fn append_at(value: &QueryValue, out: &mut Vec<u8>, depth: usize) {
    let kind = value.kind();
    out.push(kind as u8);
    match value {
        QueryValue::Missing | QueryValue::Null => {}
        QueryValue::Bool(flag) => out.push(u8::from(*flag)),
        QueryValue::Int(number) => append_number(*number, out),
        QueryValue::Float(number) if *number == 0.0 => append_number(0, out),
        QueryValue::Float(number) => {
            if let QueryValue::Int(whole) = QueryValue::number(*number) {
                return append_number(whole, out);
            }
            out.push(1);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        QueryValue::Str(text) => append_bytes(text.as_bytes(), out),
        QueryValue::Binary(bytes) => append_bytes(bytes, out),
        _ if depth > VALUE_DEPTH_MAX => {
            let mut text = Vec::new();
            super::write::write(value, &mut text);
            append_bytes(&text, out);
        }
        _ if kind == ValueType::Array => {
            let items = value.elements().unwrap_or_default();
            out.extend_from_slice(&(items.len() as u32).to_le_bytes());
            items.iter().for_each(|item| append_at(item, out, depth + 1));
        }
        _ => {
            let object = value.object().unwrap_or_default();
            out.extend_from_slice(&(object.len() as u32).to_le_bytes());
            for (name, field) in object.fields() {
                append_bytes(name.as_bytes(), out);
                append_at(field, out, depth + 1);
            }
        }
    }
}

fn append_number(number: i64, out: &mut Vec<u8>) {
    out.push(0);
    out.extend_from_slice(&number.to_le_bytes());
}

fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
