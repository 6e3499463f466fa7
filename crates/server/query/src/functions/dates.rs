//! Dates: moments as milliseconds since 1970 or as texts.
//!
//! A text keeps its format: what a function makes of it has the same parts. `dates::civil` has the
//! calendar, `dates::format` the texts.

mod civil;
mod duration;
mod format;

use super::function::{Function, array, check_length, free, strict};
use super::strings::PART_BYTES;
use crate::error::{QueryError, Result};
use crate::runtime::Runtime;
use crate::value::{QueryValue, Text};

use civil::{Civil, DatePart, Zone};
use format::DatePattern;

pub use duration::parse as parse_duration;

/// Bytes of a time as text.
const TIME_BYTES: usize = 64;

pub const TABLE: &[Function] = &[
    free("CLOCK_MILLIS", 0, 0, |_, rt| Ok(now_millis(rt, true))),
    free("CLOCK_LOCAL", 0, 1, |args, rt| now_text(args, rt, None)),
    free("CLOCK_STR", 0, 1, |args, rt| now_text(args, rt, None)),
    free("CLOCK_UTC", 0, 1, |args, rt| now_text(args, rt, None)),
    free("CLOCK_TZ", 1, 2, |args, rt| now_text(&args[1..], rt, Some(&args[0]))),
    free("NOW_MILLIS", 0, 0, |_, rt| Ok(now_millis(rt, false))),
    free("NOW_LOCAL", 0, 1, |args, rt| now_text(args, rt, None)),
    free("NOW_STR", 0, 1, |args, rt| now_text(args, rt, None)),
    free("NOW_UTC", 0, 1, |args, rt| now_text(args, rt, None)),
    free("NOW_TZ", 1, 2, |args, rt| now_text(&args[1..], rt, Some(&args[0]))),
    strict("DATE_ADD_MILLIS", 3, 3, add_millis),
    strict("DATE_ADD_STR", 3, 3, add_text),
    strict("DATE_DIFF_MILLIS", 3, 3, |args, _| diff_millis(args, false)),
    strict("DATE_DIFF_ABS_MILLIS", 3, 3, |args, _| diff_millis(args, true)),
    strict("DATE_DIFF_STR", 3, 3, |args, _| diff_text(args, false)),
    strict("DATE_DIFF_ABS_STR", 3, 3, |args, _| diff_text(args, true)),
    strict("DATE_FORMAT_STR", 2, 2, format_text),
    strict("DATE_PART_MILLIS", 2, 3, part_millis),
    strict("DATE_PART_STR", 2, 2, part_text),
    strict("DATE_RANGE_MILLIS", 3, 4, range_millis),
    strict("DATE_RANGE_STR", 3, 4, range_text),
    strict("DATE_TRUNC_MILLIS", 2, 2, trunc_millis),
    strict("DATE_TRUNC_STR", 2, 2, trunc_text),
    strict("DURATION_TO_STR", 1, 2, duration::to_text),
    strict("STR_TO_DURATION", 1, 2, duration::from_text),
    strict("MILLIS_TO_STR", 1, 2, |args, _| millis_to_text(&args[0], None, args.get(1))),
    strict("MILLIS_TO_UTC", 1, 2, |args, _| millis_to_text(&args[0], None, args.get(1))),
    strict("MILLIS_TO_TZ", 2, 3, |args, _| millis_to_text(&args[0], Some(&args[1]), args.get(2))),
    strict("STR_TO_MILLIS", 1, 2, to_millis),
    strict("STR_TO_TZ", 2, 4, to_zone),
    strict("STR_TO_UTC", 1, 2, to_utc),
    strict("WEEKDAY_MILLIS", 1, 2, weekday_millis),
    strict("WEEKDAY_STR", 1, 1, weekday_text),
];

/// A date text: the moment and the format to print it with.
struct DateText {
    civil: Civil,
    pattern: DatePattern,
}

fn dated(value: &QueryValue) -> Option<DateText> {
    let text = value.as_text()?.to_str().into_owned();
    let (civil, pattern) = format::parse(&text)?;
    Some(DateText { civil, pattern })
}

/// A moment of milliseconds since 1970, in UTC.
fn moment(value: &QueryValue) -> Option<Civil> {
    let millis = value.as_f64()?;
    if !millis.is_finite() || millis.abs() > civil::MILLIS_MAX {
        return None;
    }
    Some(Civil::from_nanoseconds(millis.trunc() as i128 * 1_000_000, 0))
}

fn millis_of(civil: &Civil) -> QueryValue {
    whole(civil.nanoseconds().div_euclid(1_000_000))
}

/// A whole number: a float if 64 bits do not hold it.
fn whole(number: i128) -> QueryValue {
    i64::try_from(number).map_or(QueryValue::Float(number as f64), QueryValue::Int)
}

fn invalid_part(part: &QueryValue) -> Box<QueryError> {
    let text = crate::value::write::to_json(part);
    QueryError::evaluation(format!("{text} is not a part of a date"))
}

/// The part that a text names. A value that is no text is null.
fn part_of(value: &QueryValue) -> Result<Option<DatePart>> {
    match value.as_text() {
        Some(text) => match DatePart::named(&text.to_str().to_ascii_lowercase()) {
            Some(part) => Ok(Some(part)),
            None => Err(invalid_part(value)),
        },
        None => Ok(None),
    }
}

fn now_millis(rt: &Runtime<'_>, clock: bool) -> QueryValue {
    let nanoseconds = match clock {
        true => std::time::SystemTime::now()
            .duration_since(std::time::SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as i64),
        false => rt.now_nanoseconds(),
    };
    QueryValue::number((nanoseconds / 1_000) as f64 / 1_000.0)
}

fn now_text(
    args: &[QueryValue],
    rt: &Runtime<'_>,
    zone: Option<&QueryValue>,
) -> Result<QueryValue> {
    if args.iter().chain(zone).any(QueryValue::is_missing) {
        return Ok(QueryValue::Missing);
    }
    let millis = QueryValue::Int(rt.now_nanoseconds() / 1_000_000);
    millis_to_text(&millis, zone, args.first())
}

/// The zone that a text names.
fn zone_of(value: &QueryValue) -> Option<Zone> {
    Zone::named(&value.as_text()?.to_str())
}

fn millis_to_text(
    millis: &QueryValue,
    zone: Option<&QueryValue>,
    format: Option<&QueryValue>,
) -> Result<QueryValue> {
    let Some(mut civil) = moment(millis) else { return Ok(QueryValue::Null) };
    if let Some(zone) = zone {
        let Some(zone) = zone_of(zone) else { return Ok(QueryValue::Null) };
        civil = zone.civil(civil.nanoseconds());
    }
    let pattern = match format {
        None => DatePattern::default(),
        Some(format) => match format.as_text() {
            Some(text) => DatePattern::of(&text.to_str()),
            None => return Ok(QueryValue::Null),
        },
    };
    Ok(QueryValue::from(pattern.print(&civil)))
}

fn add(civil: &Civil, count: &QueryValue, part: &QueryValue) -> Result<Option<Civil>> {
    let (Some(count), Some(part)) = (count.as_int(), part_of(part)?) else { return Ok(None) };
    let size = part.size().ok_or_else(|| invalid_part(&QueryValue::from("a part to add")))?;
    Ok(civil.add(size, i128::from(count)))
}

fn add_millis(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(civil) = moment(&args[0]) else { return Ok(QueryValue::Null) };
    Ok(add(&civil, &args[1], &args[2])?.map_or(QueryValue::Null, |civil| millis_of(&civil)))
}

fn add_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(DateText { civil, pattern }) = dated(&args[0]) else { return Ok(QueryValue::Null) };
    let added = add(&civil, &args[1], &args[2])?;
    Ok(added.map_or(QueryValue::Null, |civil| QueryValue::from(pattern.print(&civil))))
}

fn diff(left: &Civil, right: &Civil, part: &QueryValue, absolute: bool) -> Result<QueryValue> {
    let Some(part) = part_of(part)? else { return Ok(QueryValue::Null) };
    let Some(diff) = left.diff(right, part) else { return Err(invalid_part(&QueryValue::Null)) };
    Ok(whole(if absolute { diff.abs() } else { diff }))
}

fn diff_millis(args: &[QueryValue], absolute: bool) -> Result<QueryValue> {
    let (Some(left), Some(right)) = (moment(&args[0]), moment(&args[1])) else {
        return Ok(QueryValue::Null);
    };
    diff(&left, &right, &args[2], absolute)
}

fn diff_text(args: &[QueryValue], absolute: bool) -> Result<QueryValue> {
    let (Some(left), Some(right)) = (dated(&args[0]), dated(&args[1])) else {
        return Ok(QueryValue::Null);
    };
    diff(&left.civil, &right.civil, &args[2], absolute)
}

fn format_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(DateText { civil, .. }), Some(format)) = (dated(&args[0]), args[1].as_text()) else {
        return Ok(QueryValue::Null);
    };
    Ok(QueryValue::from(DatePattern::of(&format.to_str()).print(&civil)))
}

fn part_millis(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(mut civil) = moment(&args[0]) else { return Ok(QueryValue::Null) };
    if let Some(zone) = args.get(2) {
        let Some(zone) = zone_of(zone) else { return Ok(QueryValue::Null) };
        civil = zone.civil(civil.nanoseconds());
    }
    Ok(part_of(&args[1])?.map_or(QueryValue::Null, |part| QueryValue::Int(civil.part(part))))
}

fn part_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(DateText { civil, .. }) = dated(&args[0]) else { return Ok(QueryValue::Null) };
    Ok(part_of(&args[1])?.map_or(QueryValue::Null, |part| QueryValue::Int(civil.part(part))))
}

fn trunc(civil: &Civil, part: &QueryValue) -> Result<Option<Civil>> {
    let Some(part) = part_of(part)? else { return Ok(None) };
    civil.trunc(part).map(Some).ok_or_else(|| invalid_part(&QueryValue::Null))
}

fn trunc_millis(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(civil) = moment(&args[0]) else { return Ok(QueryValue::Null) };
    Ok(trunc(&civil, &args[1])?.map_or(QueryValue::Null, |civil| millis_of(&civil)))
}

fn trunc_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(DateText { civil, pattern }) = dated(&args[0]) else {
        return Ok(args[0].as_text().map_or(QueryValue::Null, unparsed));
    };
    let civil = trunc(&civil, &args[1])?;
    Ok(civil.map_or(QueryValue::Null, |civil| QueryValue::from(pattern.print(&civil))))
}

/// Moments from the first up to the second, which is left out.
fn range(
    first: &Civil,
    last: &Civil,
    args: &[QueryValue],
    rt: &Runtime<'_>,
    make: impl Fn(&Civil) -> QueryValue,
) -> Result<QueryValue> {
    let step = match args.get(1) {
        None => 1,
        Some(step) => match step.as_int() {
            Some(step) => step,
            None => return Ok(QueryValue::Null),
        },
    };
    if args[0].as_text().is_none() {
        return Ok(QueryValue::Null);
    }
    if first.nanoseconds() == last.nanoseconds() {
        return array(Vec::new());
    }
    let Some(part) = part_of(&args[0])? else { return Ok(QueryValue::Null) };
    let forward = last.nanoseconds() > first.nanoseconds();
    if step == 0 {
        return Err(QueryError::new(5001, "The step of a range of dates is 0"));
    }
    let mut items = Vec::new();
    if forward != (step > 0) {
        return array(items);
    }
    let size = part.size().ok_or_else(|| invalid_part(&args[0]))?;
    for number in 0i128.. {
        rt.turn()?;
        // What is out of range is past the second moment.
        let Some(civil) = first.add(size, number * i128::from(step)) else { break };
        let before = civil.nanoseconds() < last.nanoseconds();
        if civil.nanoseconds() == last.nanoseconds() || before != forward {
            break;
        }
        items.push(make(&civil));
        rt.scratch(3 * size_of::<QueryValue>() + PART_BYTES + TIME_BYTES)?;
        check_length(items.len() * size_of::<QueryValue>())?;
    }
    array(items)
}

fn range_millis(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    match (moment(&args[0]), moment(&args[1])) {
        (Some(first), Some(last)) => range(&first, &last, &args[2..], rt, millis_of),
        _ => Ok(QueryValue::Null),
    }
}

fn range_text(args: &[QueryValue], rt: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(first), Some(last)) = (dated(&args[0]), dated(&args[1])) else {
        return Ok(QueryValue::Null);
    };
    let pattern = first.pattern;
    let make = |civil: &Civil| QueryValue::from(pattern.print(civil));
    range(&first.civil, &last.civil, &args[2..], rt, make)
}

fn to_millis(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let civil = match args.get(1) {
        None => dated(&args[0]).map(|dated| dated.civil),
        Some(format) => match (args[0].as_text(), format.as_text()) {
            (Some(text), Some(format)) => DatePattern::of(&format.to_str()).parse(&text.to_str()),
            _ => None,
        },
    };
    Ok(civil.map_or(QueryValue::Null, |civil| millis_of(&civil)))
}

/// A text that is no date at all is its own format, and so comes back.
fn unparsed(text: &Text) -> QueryValue {
    let text = text.to_str();
    match text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => QueryValue::from(text.into_owned()),
        false => QueryValue::Null,
    }
}

fn to_zone(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let (Some(text), Some(zone)) = (args[0].as_text(), zone_of(&args[1])) else {
        return Ok(QueryValue::Null);
    };
    let Some(DateText { civil, pattern }) = dated(&args[0]) else { return Ok(unparsed(text)) };
    let civil = zone.civil(civil.nanoseconds());
    match args.get(2) {
        None => Ok(QueryValue::from(pattern.print(&civil))),
        Some(QueryValue::Str(format)) => {
            Ok(QueryValue::from(DatePattern::of(&format.to_str()).print(&civil)))
        }
        Some(_) => Ok(QueryValue::Null),
    }
}

fn to_utc(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(DateText { civil, pattern }) = dated(&args[0]) else { return Ok(QueryValue::Null) };
    Ok(QueryValue::from(pattern.print(&Civil::from_nanoseconds(civil.nanoseconds(), 0))))
}

fn weekday_millis(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    let Some(mut civil) = moment(&args[0]) else { return Ok(QueryValue::Null) };
    if let Some(zone) = args.get(1) {
        let Some(zone) = zone_of(zone) else { return Ok(QueryValue::Null) };
        civil = zone.civil(civil.nanoseconds());
    }
    Ok(QueryValue::from(civil.weekday_name()))
}

fn weekday_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    Ok(dated(&args[0])
        .map_or(QueryValue::Null, |dated| QueryValue::from(dated.civil.weekday_name())))
}
