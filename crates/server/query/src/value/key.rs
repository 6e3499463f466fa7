//! Byte keys by which groups, distinct rows and hash joins find equal values.
//!
//! Two values have the same key exactly when they are identical, so a table of keys needs no
//! comparison of values. Of a long key only the digest is kept: no two values are known that have
//! the same one.

use sha2::{Digest, Sha256};

use super::order::{Elements, element_count};
use super::{QueryValue, ValueType};
use crate::limits::{KEY_BYTES_MAX, VALUE_DEPTH_MAX};

/// The first byte of a digest, which is no type.
const DIGEST: u8 = u8::MAX;

// A digest is shorter than the bytes that it replaces.
const _: () = assert!(1 + 32 < KEY_BYTES_MAX);
const _: () = assert!((ValueType::Binary as u8) < DIGEST);

/// Appends the key of a value.
pub fn append(value: &QueryValue, out: &mut Vec<u8>) {
    let start = out.len();
    let mut writer = KeyWriter { start, out: &mut *out, hasher: None };
    append_at(value, &mut writer, 0);
    writer.finish();
    debug_assert!((1..=KEY_BYTES_MAX).contains(&(out.len() - start)), "a key is short");
}

/// Writes a key, and hashes the bytes beyond `KEY_BYTES_MAX` together with those before.
struct KeyWriter<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    hasher: Option<Sha256>,
}

impl KeyWriter<'_> {
    fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        if self.hasher.is_none() && self.out.len() - self.start + bytes.len() > KEY_BYTES_MAX {
            self.hasher = Some(Sha256::new_with_prefix(&self.out[self.start..]));
            self.out.truncate(self.start);
        }
        match &mut self.hasher {
            Some(hasher) => hasher.update(bytes),
            None => self.out.extend_from_slice(bytes),
        }
    }

    fn finish(self) {
        if let Some(hasher) = self.hasher {
            self.out.push(DIGEST);
            self.out.extend_from_slice(&hasher.finalize());
        }
    }
}

fn append_at(value: &QueryValue, out: &mut KeyWriter<'_>, depth: usize) {
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
            out.extend_from_slice(&(element_count(value) as u32).to_le_bytes());
            Elements::of(value).for_each(|item| append_at(&item, out, depth + 1));
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

fn append_number(number: i64, out: &mut KeyWriter<'_>) {
    out.push(0);
    out.extend_from_slice(&number.to_le_bytes());
}

fn append_bytes(bytes: &[u8], out: &mut KeyWriter<'_>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
