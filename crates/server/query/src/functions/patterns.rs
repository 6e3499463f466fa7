//! Regular expressions. The engine needs time in proportion to the text, whatever the pattern.

use super::function::{Function, array, check_length, strict};
use super::strings::PART_BYTES;
use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::{QueryValue, Text};

/// Bytes of a text apart from its content, in a list that grows.
const PART_OF_LIST_BYTES: usize = 3 * size_of::<QueryValue>() + PART_BYTES;

pub const TABLE: &[Function] = &[
    strict("REGEXP_CONTAINS", 2, 2, |args, rt| {
        with_pattern(args, rt, |text, regex| Ok(QueryValue::Bool(regex.is_match(text))))
    }),
    strict("REGEXP_LIKE", 2, 2, like),
    strict("REGEXP_MATCHES", 2, 2, |args, rt| {
        with_pattern(args, rt, |text, regex| {
            let mut found = Vec::new();
            for part in regex.find_iter(text) {
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
    run: impl FnOnce(&str, &regex::Regex) -> Result<QueryValue>,
) -> Result<QueryValue> {
    let (Some(text), Some(pattern)) = (args[0].as_text(), args[1].as_text()) else {
        return Ok(QueryValue::Null);
    };
    run(&text.to_str(), &rt.regex(pattern)?)
}

/// Whether the whole text matches.
fn like(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(text), Some(pattern)) = (args[0].as_text(), args[1].as_text()) else {
        return Ok(QueryValue::Null);
    };
    // The pattern alone must be valid, not only in its group.
    rt.regex(pattern)?;
    let whole = rt.regex(&Text::from(format!("^(?:{pattern})$")))?;
    Ok(QueryValue::Bool(whole.is_match(&text.to_str())))
}

fn position(args: &[QueryValue], rt: &Runtime<'_>, first: i64) -> Result<QueryValue> {
    with_pattern(args, rt, |text, regex| {
        let found = regex.find(text).map(|found| found.start() as i64 + first);
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
    let regex = rt.regex(texts[1])?;
    let (text, new) = (texts[0].to_str(), texts[2].to_str());
    let mut out = String::new();
    let mut end = 0;
    for found in regex.captures_iter(&text).take(count) {
        rt.turn()?;
        let Some(whole) = found.get(0) else { continue };
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
    with_pattern(args, rt, |text, regex| {
        let mut parts = Vec::new();
        let mut start = 0;
        for found in regex.find_iter(text) {
            rt.turn()?;
            // An empty match at an end splits nothing.
            if found.is_empty() && (found.end() == 0 || found.start() == text.len()) {
                continue;
            }
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
