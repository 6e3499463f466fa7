//! Values as bytes whose order is the order of values.
//!
//! Comparing two encodings byte by byte gives the result of `value::order::collate`, so an index
//! compares no values. No encoding is the beginning of another one: several keys follow each
//! other, and a document's key follows them.
//!
//! - A value begins with a byte for its type.
//! - A number is the nearest float that is not above it, in eight bytes; from 2^53 on, two bytes
//!   have the distance to it, so integers are exact to 64 bits, but for the
//!   last 512 below 2^63, which comparison holds equal to that float.
//! - A text ends with a 0. Bytes 0 and 1 within it are two bytes that begin with a 1.
//! - An array ends with a 0, below every type. An object begins with the number of its fields.
//! - A descending key has all its bits inverted.

use crate::limits::VALUE_DEPTH_MAX;
use crate::value::order::Elements;
use crate::value::write::write;
use crate::value::{QueryValue, ValueType};

const END: u8 = 0;
const ESCAPE: u8 = 1;

/// Floats from here on are whole numbers, and several integers share one.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Integers that round to this float equal it, so they share its encoding. A range has all of
/// them, and conditions are checked on each document.
const FLOAT_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// The byte of a type. Types are above the end of an array.
fn type_byte(kind: ValueType) -> u8 {
    kind as u8 + 2
}

/// Appends the encoding of a value.
pub fn append(value: &QueryValue, descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    append_at(value, out, 0);
    debug_assert!(out.len() > start, "an encoding has a byte for its type");
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The first bytes after all that begin with a prefix; none if there are no such bytes.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    debug_assert!(*next > *prefix, "the bound is after the prefix");
    Some(next)
}

/// The encoding of all texts with a prefix, without their ends.
pub fn append_text_prefix(prefix: &[u8], descending: bool, out: &mut Vec<u8>) {
    let start = out.len();
    out.push(type_byte(ValueType::String));
    append_escaped(prefix, out);
    if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

fn append_at(value: &QueryValue, out: &mut Vec<u8>, depth: usize) {
    let kind = value.kind();
    out.push(type_byte(kind));
    match value {
        QueryValue::Missing | QueryValue::Null => {}
        QueryValue::Bool(flag) => out.push(u8::from(*flag)),
        QueryValue::Int(number) => append_integer(*number, out),
        QueryValue::Float(number) => append_float(*number, out),
        QueryValue::Str(text) => append_text(text.as_bytes(), out),
        QueryValue::Binary(bytes) => append_text(bytes, out),
        _ if depth > VALUE_DEPTH_MAX => {
            let mut text = Vec::new();
            write(value, &mut text);
            append_text(&text, out);
        }
        _ if kind == ValueType::Array => {
            Elements::of(value).for_each(|item| append_at(&item, out, depth + 1));
            out.push(END);
        }
        _ => {
            let object = value.object().unwrap_or_default();
            let count = u32::try_from(object.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&count.to_be_bytes());
            for (name, field) in object.fields() {
                append_text(name.as_bytes(), out);
                append_at(field, out, depth + 1);
            }
        }
    }
}

fn append_integer(number: i64, out: &mut Vec<u8>) {
    let nearest = number as f64;
    if nearest >= FLOAT_LIMIT {
        return append_ordered(nearest, 0, out);
    }
    let below = if nearest as i128 > i128::from(number) { nearest.next_down() } else { nearest };
    let distance = i128::from(number) - below as i128;
    debug_assert!((0..=1_024).contains(&distance), "the float is the nearest one below");
    append_ordered(below, distance as u16, out);
}

fn append_float(number: f64, out: &mut Vec<u8>) {
    // Zero has one encoding.
    append_ordered(if number == 0.0 { 0.0 } else { number }, 0, out);
}

fn append_ordered(below: f64, distance: u16, out: &mut Vec<u8>) {
    debug_assert!(distance == 0 || below.abs() >= EXACT_MAX, "small numbers are exact");
    let bits = below.to_bits();
    let ordered = match below {
        // NaN sorts before every number.
        _ if below.is_nan() => 0,
        _ if below.is_sign_negative() => !bits,
        _ => bits | 1 << 63,
    };
    out.extend_from_slice(&ordered.to_be_bytes());
    if below.abs() >= EXACT_MAX {
        out.extend_from_slice(&distance.to_be_bytes());
    }
}

fn append_text(bytes: &[u8], out: &mut Vec<u8>) {
    append_escaped(bytes, out);
    out.push(END);
}

fn append_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len() + 1);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte <= ESCAPE) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(&[ESCAPE, rest[at] + 1]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests;
