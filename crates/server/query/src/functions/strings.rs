//! Text functions. `LENGTH`, `SUBSTR`, `POSITION` and the pads count bytes, `MB_` ones characters.

use std::borrow::Cow;

use super::function::{Function, MANY, array, check_length, check_size, strict};
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::{QueryValue, Text, write};

pub const TABLE: &[Function] = &[
    strict("CONCAT", 2, MANY, concat),
    strict("CONCAT2", 2, MANY, concat2),
    strict("CONTAINS", 2, 2, contains),
    strict("LENGTH", 1, 1, length),
    strict("LEN", 1, 1, len),
    strict("MB_LENGTH", 1, 1, mb_length),
    strict("LOWER", 1, 1, lower),
    strict("UPPER", 1, 1, upper),
    strict("TITLE", 1, 1, title),
    strict("LPAD", 2, 3, |args, rt| pad(args, rt, true, false)),
    strict("RPAD", 2, 3, |args, rt| pad(args, rt, false, false)),
    strict("MB_LPAD", 2, 3, |args, rt| pad(args, rt, true, true)),
    strict("MB_RPAD", 2, 3, |args, rt| pad(args, rt, false, true)),
    strict("LTRIM", 1, 2, |args, rt| trim(args, rt, true, false)),
    strict("RTRIM", 1, 2, |args, rt| trim(args, rt, false, true)),
    strict("TRIM", 1, 2, |args, rt| trim(args, rt, true, true)),
    strict("POSITION", 2, 2, |args, _| Ok(position(args, 0, false))),
    strict("POSITION1", 2, 2, |args, _| Ok(position(args, 1, false))),
    strict("MB_POSITION", 2, 2, |args, _| Ok(position(args, 0, true))),
    strict("MB_POSITION1", 2, 2, |args, _| Ok(position(args, 1, true))),
    strict("SUBSTR", 2, 3, |args, rt| substring(args, rt, 0, false)),
    strict("SUBSTR1", 2, 3, |args, rt| substring(args, rt, 1, false)),
    strict("MB_SUBSTR", 2, 3, |args, rt| substring(args, rt, 0, true)),
    strict("MB_SUBSTR1", 2, 3, |args, rt| substring(args, rt, 1, true)),
    strict("REPEAT", 2, 2, repeat),
    strict("REPLACE", 3, 4, replace),
    strict("REVERSE", 1, 1, reverse),
    strict("SPLIT", 1, 2, split),
    strict("SUFFIXES", 1, 1, suffixes),
    strict("URLENCODE", 1, 1, url_encode),
    strict("URLDECODE", 1, 1, url_decode),
    strict("MASK", 1, 2, mask),
];

/// Bytes of a separate text apart from its content.
pub const PART_BYTES: usize = 48;

/// All arguments as texts.
pub fn texts(args: &[QueryValue]) -> Option<Vec<&Text>> {
    args.iter().map(QueryValue::as_text).collect()
}

/// The result of a function that has reserved its memory.
fn text_result(text: impl Into<Text>) -> Result<QueryValue> {
    let text = text.into();
    check_length(text.as_bytes().len())?;
    Ok(QueryValue::Str(text))
}

fn concat(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(texts) = texts(args) else { return Ok(QueryValue::Null) };
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    check_size(texts.iter().map(|text| text.len()).sum(), rt)?;
    text_result(Text::from_bytes(texts.concat().into()))
}

/// Texts, and elements of arrays, with a separator in between.
fn concat2(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(separator) = args[0].as_text() else { return Ok(QueryValue::Null) };
    let mut parts: Vec<Text> = Vec::new();
    for arg in &args[1..] {
        match (arg, rt.elements(arg)?) {
            (QueryValue::Str(text), _) => parts.push(text.clone()),
            (_, Some(items)) => {
                rt.scratch(2 * items.len() * size_of::<QueryValue>())?;
                for item in items.iter() {
                    let Some(text) = item.as_text() else { return Ok(QueryValue::Null) };
                    parts.push(text.clone());
                }
            }
            _ => return Ok(QueryValue::Null),
        }
    }
    let parts: Vec<&[u8]> = parts.iter().map(Text::as_bytes).collect();
    let separators = parts.len().saturating_mul(separator.as_bytes().len());
    let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
    check_size(bytes.saturating_add(separators), rt)?;
    text_result(Text::from_bytes(parts.join(separator.as_bytes()).into()))
}

fn contains(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    Ok(match texts(args).as_deref() {
        Some([text, part]) => {
            QueryValue::Bool(memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some())
        }
        _ => QueryValue::Null,
    })
}

fn length(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    Ok(args[0].as_text().map_or(QueryValue::Null, |text| QueryValue::from(text.as_bytes().len())))
}

fn len(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    Ok(match &args[0] {
        QueryValue::Str(text) => QueryValue::from(text.as_bytes().len()),
        QueryValue::Bool(_) => QueryValue::Int(1),
        QueryValue::Int(_) | QueryValue::Float(_) => {
            QueryValue::from(write::to_json(&args[0]).len())
        }
        value => match (rt.elements(value)?, rt.fields_of(value)?) {
            (Some(items), _) => QueryValue::from(items.len()),
            (_, Some(object)) => QueryValue::from(object.len()),
            _ => QueryValue::Null,
        },
    })
}

fn mb_length(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let text = args[0].as_text();
    Ok(text.map_or(QueryValue::Null, |text| QueryValue::from(text.to_str().chars().count())))
}

/// One character for one, as the reference maps case.
fn simple(character: char, mut mapped: impl Iterator<Item = char>) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(single), None) => single,
        _ => character,
    }
}

fn simple_upper(character: char) -> char {
    simple(character, character.to_uppercase())
}

fn simple_lower(character: char) -> char {
    simple(character, character.to_lowercase())
}

fn lower(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(4 * text.as_bytes().len())?;
    text_result(text.to_str().chars().map(simple_lower).collect::<String>())
}

fn upper(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(4 * text.as_bytes().len())?;
    text_result(text.to_str().chars().map(simple_upper).collect::<String>())
}

/// The first letter of each word in capitals, the others in small letters.
fn title(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(4 * text.as_bytes().len())?;
    let mut in_word = false;
    let letter = |character: char| {
        let first = !std::mem::replace(
            &mut in_word,
            character.is_alphanumeric() || character == '_' || character == '\'',
        );
        if first { simple_upper(character) } else { simple_lower(character) }
    };
    text_result(text.to_str().chars().map(letter).collect::<String>())
}

/// The position of the byte at which unit `index` of a text begins: a byte, or a character.
fn unit_start(text: &str, index: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

/// The first `width` units of `filler`, repeated.
fn padding(filler: &Text, width: usize, characters: bool) -> Vec<u8> {
    match characters {
        true => filler.to_str().chars().cycle().take(width).collect::<String>().into_bytes(),
        false => filler.as_bytes().iter().copied().cycle().take(width).collect(),
    }
}

fn pad(args: &[QueryValue], rt: &Runtime<'_>, left: bool, characters: bool) -> Result<QueryValue> {
    let (Some(text), Some(width)) = (args[0].as_text(), args[1].as_int()) else {
        return Ok(QueryValue::Null);
    };
    let space = Text::from(" ");
    let filler = match args.get(2) {
        None => &space,
        Some(QueryValue::Str(filler)) if !filler.as_bytes().is_empty() => filler,
        Some(_) => return Ok(QueryValue::Null),
    };
    let Ok(width) = usize::try_from(width) else { return Ok(QueryValue::Null) };
    check_length(width)?;
    let length = match characters {
        true => text.to_str().chars().count(),
        false => text.as_bytes().len(),
    };
    if width <= length {
        return part(text, 0, width, characters, rt);
    }
    // A character takes at most four bytes; the padding grows by doubling, then both are joined.
    let unit_bytes = if characters { 4 } else { 1 };
    rt.scratch(2 * text.as_bytes().len() + 3 * unit_bytes * (width - length))?;
    let padding = padding(filler, width - length, characters);
    let whole = match left {
        true => [&padding[..], text.as_bytes()].concat(),
        false => [text.as_bytes(), &padding[..]].concat(),
    };
    debug_assert!(characters || whole.len() == width, "a padded text has its width");
    Ok(QueryValue::Str(Text::from_bytes(whole.into())))
}

/// The units from `start` to `end`, copied.
fn part(
    text: &Text,
    start: usize,
    end: usize,
    characters: bool,
    rt: &Runtime<'_>,
) -> Result<QueryValue> {
    debug_assert!(start <= end, "a part begins before its end");
    if !characters {
        let bytes = &text.as_bytes()[start..end];
        rt.scratch(bytes.len())?;
        return Ok(QueryValue::Str(Text::from_bytes(bytes::Bytes::copy_from_slice(bytes))));
    }
    rt.scratch(2 * text.as_bytes().len())?;
    let text = text.to_str();
    let bounds = (unit_start(&text, start), unit_start(&text, end));
    let (Some(start), Some(end)) = bounds else { return Ok(QueryValue::Null) };
    Ok(QueryValue::from(&text[start..end]))
}

fn trim(args: &[QueryValue], rt: &Runtime<'_>, left: bool, right: bool) -> Result<QueryValue> {
    let Some(texts) = texts(args) else { return Ok(QueryValue::Null) };
    rt.scratch(2 * texts[0].as_bytes().len())?;
    let set: Cow<'_, str> = texts.get(1).map_or(Cow::Borrowed(" \t\n\u{c}\r"), |set| set.to_str());
    let text = texts[0].to_str();
    let mut trimmed: &str = &text;
    if left {
        trimmed = trimmed.trim_start_matches(|c| set.contains(c));
    }
    if right {
        trimmed = trimmed.trim_end_matches(|c| set.contains(c));
    }
    Ok(QueryValue::from(trimmed))
}

fn position(args: &[QueryValue], first: i64, characters: bool) -> QueryValue {
    let Some(texts) = texts(args) else { return QueryValue::Null };
    let (text, part) = (texts[0].as_bytes(), texts[1].as_bytes());
    match memchr::memmem::find(text, part) {
        Some(at) if characters => {
            let before = String::from_utf8_lossy(&text[..at]).chars().count();
            QueryValue::Int(before as i64 + first)
        }
        Some(at) => QueryValue::Int(at as i64 + first),
        None => QueryValue::Int(first - 1),
    }
}

fn substring(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    first: i64,
    characters: bool,
) -> Result<QueryValue> {
    let (Some(text), Some(start)) = (args[0].as_text(), args[1].as_int()) else {
        return Ok(QueryValue::Null);
    };
    let total = match characters {
        true => text.to_str().chars().count(),
        false => text.as_bytes().len(),
    } as i64;
    let start = match start {
        start if start < 0 => start.saturating_add(total),
        0 => 0,
        start => start - first,
    };
    let length = match args.get(2).map(QueryValue::as_int) {
        None => total,
        Some(Some(length)) if length >= 0 => length,
        Some(_) => return Ok(QueryValue::Null),
    };
    if start < 0 || start >= total {
        return Ok(QueryValue::Null);
    }
    let end = start.saturating_add(length).min(total);
    debug_assert!(start <= end && end <= total, "a part is inside the text");
    part(text, start as usize, end as usize, characters, rt)
}

fn repeat(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(text), Some(count)) = (args[0].as_text(), args[1].as_int()) else {
        return Ok(QueryValue::Null);
    };
    let Ok(count) = usize::try_from(count) else { return Ok(QueryValue::Null) };
    check_size(text.as_bytes().len().saturating_mul(count), rt)?;
    text_result(Text::from_bytes(text.as_bytes().repeat(count).into()))
}

fn replace(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(texts) = texts(&args[..3]) else { return Ok(QueryValue::Null) };
    let count = match args.get(3).map(QueryValue::as_int) {
        None => usize::MAX,
        Some(Some(count)) => usize::try_from(count).unwrap_or(usize::MAX),
        Some(None) => return Ok(QueryValue::Null),
    };
    let [text, old, new] = [texts[0], texts[1], texts[2]].map(Text::to_str);
    let places = text.matches(&*old).count().min(count);
    let bytes = text.len().saturating_add(places.saturating_mul(new.len()));
    check_length(bytes)?;
    // The text grows by doubling.
    rt.scratch(3 * bytes)?;
    let replaced = text.replacen(&*old, &new, count);
    debug_assert!(replaced.len() <= bytes, "the result has the bytes reserved at most");
    text_result(replaced)
}

fn reverse(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(4 * text.as_bytes().len())?;
    text_result(text.to_str().chars().rev().collect::<String>())
}

fn split(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(texts) = texts(args) else { return Ok(QueryValue::Null) };
    let text = texts[0].to_str();
    let count = match texts.get(1).map(|separator| separator.to_str()) {
        None => text.split_whitespace().count(),
        Some(separator) if separator.is_empty() => text.chars().count(),
        Some(separator) => text.matches(&*separator).count() + 1,
    };
    check_length(count * size_of::<QueryValue>())?;
    // The list grows by doubling; each part is an allocation.
    rt.scratch(text.len() + count * (3 * size_of::<QueryValue>() + PART_BYTES))?;
    let parts: Vec<QueryValue> = match texts.get(1).map(|separator| separator.to_str()) {
        None => text.split_whitespace().map(QueryValue::from).collect(),
        Some(separator) if separator.is_empty() => {
            text.chars().map(|character| QueryValue::from(character.to_string())).collect()
        }
        Some(separator) => text.split(&*separator).map(QueryValue::from).collect(),
    };
    debug_assert!(parts.len() == count, "parts are counted before they are made");
    array(parts)
}

fn suffixes(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    let owned = text.to_str();
    let total = owned.len();
    check_length(total * size_of::<QueryValue>())?;
    rt.scratch(3 * total * size_of::<QueryValue>())?;
    array(owned.char_indices().map(|(at, _)| QueryValue::Str(text.slice(at..total))).collect())
}

fn url_encode(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(6 * text.as_bytes().len())?;
    let mut out = String::new();
    for byte in text.as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(*byte));
            }
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    text_result(out)
}

fn url_decode(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(text) = args[0].as_text() else { return Ok(QueryValue::Null) };
    rt.scratch(4 * text.as_bytes().len())?;
    let mut out = Vec::new();
    let mut bytes = text.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = bytes.as_slice().get(..2).and_then(|d| std::str::from_utf8(d).ok());
                let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok())
                else {
                    return Ok(QueryValue::Null);
                };
                out.push(byte);
                bytes = bytes.as_slice()[2..].iter();
            }
            byte => out.push(*byte),
        }
    }
    text_result(String::from_utf8_lossy(&out).into_owned())
}

/// Hides a text. `{"mask": ..}` names what stands for it.
fn mask(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(_), options) = (args[0].as_text(), args.get(1)) else {
        return Ok(QueryValue::Null);
    };
    match options.map(|options| options.field(b"mask")) {
        Some(QueryValue::Str(mask)) => Ok(QueryValue::Str(mask)),
        _ => Ok(QueryValue::from("********")),
    }
}
