//! Durations as texts: `1h30m`, `1.5s`, `100ns`.

use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::QueryValue;

const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3_600e9),
];

/// The nanoseconds of a duration.
pub fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (if text.starts_with('-') { -1.0 } else { 1.0 }, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let (_, size) = UNITS.iter().find(|(unit, _)| *unit == &rest[..end])?;
        total += number * size;
        rest = &rest[end..];
    }
    let total = sign * total;
    (total.abs() < i64::MAX as f64).then_some(total as i64)
}

/// The text of nanoseconds, as Go prints a duration.
pub fn print(nanoseconds: i64) -> String {
    let total = nanoseconds.unsigned_abs();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let fraction = |value: u64, unit: u64, name: &str| {
        let mut text = format!("{}", value / unit);
        let rest = value % unit;
        if rest > 0 {
            let width = unit.ilog10() as usize;
            text.push('.');
            text.push_str(format!("{rest:0width$}").trim_end_matches('0'));
        }
        format!("{text}{name}")
    };
    let text = match total {
        0 => "0s".to_owned(),
        1..1_000 => format!("{total}ns"),
        1_000..1_000_000 => fraction(total, 1_000, "µs"),
        1_000_000..1_000_000_000 => fraction(total, 1_000_000, "ms"),
        _ => {
            let seconds = total / 1_000_000_000;
            let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
            let last = fraction(total % 60_000_000_000, 1_000_000_000, "s");
            match (hours, minutes) {
                (0, 0) => last,
                (0, minutes) => format!("{minutes}m{last}"),
                (hours, minutes) => format!("{hours}h{minutes}m{last}"),
            }
        }
    };
    format!("{sign}{text}")
}

pub fn to_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    if args.len() > 1 {
        return Ok(QueryValue::Null);
    }
    let number = args[0].as_f64().filter(|number| number.abs() < 9.2e18);
    Ok(number.map_or(QueryValue::Null, |number| QueryValue::from(print(number as i64))))
}

pub fn from_text(args: &[QueryValue], _: &Runtime<'_>) -> Result<QueryValue> {
    if args.len() > 1 {
        return Ok(QueryValue::Null);
    }
    let text = args[0].as_text().map(|text| text.to_string());
    Ok(text.and_then(|text| parse(&text)).map_or(QueryValue::Null, QueryValue::Int))
}
