//! Regular expressions. A search takes time in proportion to the text and the pattern's size.

use super::function::{Function, array, check_length, strict};
use super::strings::PART_BYTES;
use crate::error::Result;
use crate::runtime::Runtime;
use crate::runtime::pattern_cache::SearchPattern;
use crate::value::{QueryValue, Text};

/// Bytes of a text apart from its content, in a list that grows.
const PART_OF_LIST_BYTES: usize = 3 * size_of::<QueryValue>() + PART_BYTES;

pub const TABLE: &[Function] = &[
    strict("REGEXP_CONTAINS", 2, 2, |args, rt| {
        with_pattern(args, rt, |text, pattern| {
            Ok(QueryValue::Bool(pattern.search(text.len(), rt)?.is_match(text)))
        })
    }),
    strict("REGEXP_LIKE", 2, 2, like),
    strict("REGEXP_MATCHES", 2, 2, |args, rt| {
        with_pattern(args, rt, |text, pattern| {
            let mut found = Vec::new();
            for part in pattern.search(text.len(), rt)?.find_iter(text) {
                pattern.search(text.len() - part.end(), rt)?;
                rt.turn()?;
                rt.scratch(PART_OF_LIST_BYTES + part.len())?;
                found.push(QueryValue::from(part.as_str()));
            }
            if found.is_empty() { Ok(QueryValue::Null) } else { array(found) }
        })
    }),
    strict("REGEXP_POSITION", 2, 2, |args, rt| position(args, rt, 0)),
    strict("REGEXP_POSITION1", 2, 2, |args, rt| position(args, rt, 1)),
    strict("REGEXP_REPLACE", 3, 4, replace),
    strict("REGEXP_SPLIT", 2, 2, split),
];

fn with_pattern(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    run: impl FnOnce(&str, &SearchPattern) -> Result<QueryValue>,
) -> Result<QueryValue> {
    let (Some(text), Some(pattern)) = (args[0].as_text(), args[1].as_text()) else {
        return Ok(QueryValue::Null);
    };
    let pattern = rt.regex(pattern)?;
    run(&text.to_str(), &pattern)
}

/// Whether the whole text matches.
fn like(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(text), Some(pattern)) = (args[0].as_text(), args[1].as_text()) else {
        return Ok(QueryValue::Null);
    };
    // The pattern alone must be valid, not only in its group.
    rt.regex(pattern)?;
    let whole = rt.regex(&Text::from(format!("^(?:{pattern})$")))?;
    let text = text.to_str();
    Ok(QueryValue::Bool(whole.search(text.len(), rt)?.is_match(&text)))
}

fn position(args: &[QueryValue], rt: &Runtime<'_>, first: i64) -> Result<QueryValue> {
    with_pattern(args, rt, |text, pattern| {
        let found =
            pattern.search(text.len(), rt)?.find(text).map(|found| found.start() as i64 + first);
        Ok(QueryValue::Int(found.unwrap_or(-1)))
    })
}

/// `$1` and `${name}` in the replacement stand for groups.
fn replace(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let Some(texts) = super::strings::texts(&args[..3]) else { return Ok(QueryValue::Null) };
    let count = match args.get(3).map(QueryValue::as_int) {
        None => usize::MAX,
        Some(Some(count)) => usize::try_from(count).unwrap_or(0),
        Some(None) => return Ok(QueryValue::Null),
    };
    let pattern = rt.regex(texts[1])?;
    let (text, new) = (texts[0].to_str(), texts[2].to_str());
    let mut out = String::new();
    let mut end = 0;
    for found in pattern.search(text.len(), rt)?.captures_iter(&text).take(count) {
        rt.turn()?;
        let Some(whole) = found.get(0) else { continue };
        pattern.search(text.len() - whole.end(), rt)?;
        debug_assert!(end <= whole.start(), "matches do not overlap");
        // One expansion takes at most a copy of the text for each group that it names.
        let groups = 1 + new.matches('$').count();
        let bytes = (whole.start() - end) + new.len() + whole.len().saturating_mul(groups);
        check_length(out.len().saturating_add(bytes))?;
        rt.scratch(3 * bytes)?;
        out.push_str(&text[end..whole.start()]);
        found.expand(&new, &mut out);
        end = whole.end();
    }
    rt.scratch(3 * (text.len() - end))?;
    out.push_str(&text[end..]);
    check_length(out.len())?;
    Ok(QueryValue::from(out))
}

fn split(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    with_pattern(args, rt, |text, pattern| {
        let mut parts = Vec::new();
        let mut start = 0;
        for found in pattern.search(text.len(), rt)?.find_iter(text) {
            pattern.search(text.len() - found.end(), rt)?;
            rt.turn()?;
            // An empty match at an end splits nothing.
            if found.is_empty() && (found.end() == 0 || found.start() == text.len()) {
                continue;
            }
            debug_assert!(start <= found.start(), "matches do not overlap");
            rt.scratch(PART_OF_LIST_BYTES + found.start() - start)?;
            parts.push(QueryValue::from(&text[start..found.start()]));
            start = found.end();
        }
        if start == 0 && parts.is_empty() {
            return Ok(QueryValue::Null);
        }
        if start < text.len() {
            rt.scratch(PART_OF_LIST_BYTES + text.len() - start)?;
            parts.push(QueryValue::from(&text[start..]));
        }
        array(parts)
    })
}
