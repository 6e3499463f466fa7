//! JSON, base64, hashes and identifiers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use md5::Md5;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use super::function::{Function, free, strict};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::{QueryValue, json, write};

pub const TABLE: &[Function] = &[
    free("ENCODE_JSON", 1, 1, |args, rt| Ok(QueryValue::from(json_of(&args[0], rt)?))),
    strict("DECODE_JSON", 1, 1, decode_json),
    free("ENCODED_SIZE", 1, 1, |args, rt| Ok(QueryValue::from(json_of(&args[0], rt)?.len()))),
    strict("POLY_LENGTH", 1, 1, poly_length),
    free("BASE64_ENCODE", 1, 1, |args, rt| {
        rt.scratch(2 * args[0].byte_count())?;
        Ok(match &args[0] {
            QueryValue::Missing => QueryValue::Missing,
            value => QueryValue::from(STANDARD.encode(bytes_of(value, rt)?)),
        })
    }),
    strict("BASE64_DECODE", 1, 1, base64_decode),
    free("HASHBYTES", 1, 2, hash_bytes),
    free("UUID", 0, 0, uuid),
];

/// The JSON of a value, which grows by doubling.
fn json_of(value: &QueryValue, rt: &Runtime<'_>) -> Result<String> {
    rt.scratch(3 * value.byte_count())?;
    Ok(write::to_json(value))
}

fn decode_json(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(text.as_bytes().len())?;
    let text = Bytes::copy_from_slice(text.as_bytes());
    Ok(json::parse_checked(&text).unwrap_or(QueryValue::Null))
}

fn poly_length(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let length = match (&args[0], rt.elements(&args[0])?, rt.fields_of(&args[0])?) {
        (QueryValue::Str(text), ..) => text.as_bytes().len(),
        (_, Some(items), _) => items.len(),
        (.., Some(object)) => object.len(),
        _ => return Ok(QueryValue::Null),
    };
    Ok(QueryValue::from(length))
}

/// A text's bytes, or the JSON of another value.
fn bytes_of(value: &QueryValue, rt: &Runtime<'_>) -> Result<Vec<u8>> {
    rt.scratch(value.byte_count())?;
    Ok(match value {
        QueryValue::Binary(bytes) => bytes.to_vec(),
        other => json_of(other, rt)?.into_bytes(),
    })
}

fn base64_decode(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(text.as_bytes().len())?;
    let Ok(bytes) = STANDARD.decode(text.as_bytes()) else { return Ok(QueryValue::Null) };
    let bytes = Bytes::from(bytes);
    Ok(json::parse_checked(&bytes).unwrap_or(QueryValue::Binary(bytes)))
}

fn hex(bytes: &[u8]) -> QueryValue {
    QueryValue::from(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn hash_bytes(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    if !args[0].is_valued() {
        return Ok(args[0].clone());
    }
    let bytes = match &args[0] {
        QueryValue::Str(text) => {
            rt.scratch(text.as_bytes().len())?;
            text.as_bytes().to_vec()
        }
        other => bytes_of(other, rt)?,
    };
    let name = match args.get(1) {
        None | Some(QueryValue::Missing | QueryValue::Null) => "sha256".to_owned(),
        Some(QueryValue::Str(name)) => name.to_str().to_ascii_lowercase(),
        Some(options) => match options.field(b"type") {
            QueryValue::Str(name) => name.to_str().to_ascii_lowercase(),
            QueryValue::Missing if options.is_object() => "sha256".to_owned(),
            _ => return Ok(QueryValue::Null),
        },
    };
    Ok(match name.as_str() {
        "crc32" => QueryValue::from(format!("{:08x}", crc32fast::hash(&bytes))),
        "md5" => hex(&Md5::digest(&bytes)),
        "sha224" => hex(&Sha224::digest(&bytes)),
        "sha256" => hex(&Sha256::digest(&bytes)),
        "sha384" => hex(&Sha384::digest(&bytes)),
        "sha512" => hex(&Sha512::digest(&bytes)),
        _ => QueryValue::Null,
    })
}

/// A random identifier of version 4.
fn uuid(_: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let random = std::hash::BuildHasher::hash_one(
        &std::collections::hash_map::RandomState::new(),
        (rt.now_nanoseconds(), rt.next_number()),
    );
    let other =
        std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), random);
    let bits = (u128::from(random) << 64) | u128::from(other);
    let bits = (bits & !(0xF << 76) & !(0xC << 60)) | (4 << 76) | (8 << 60);
    let text = format!("{bits:032x}");
    debug_assert!(text.len() == 32, "128 bits have 32 digits");
    let parts = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]];
    Ok(QueryValue::from(parts.join("-")))
}
