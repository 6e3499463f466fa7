//! Times on the command line: `2`, `2s`, `500ms`, `5m`, `1.5h`, `7d`.
//!
//! It owns their one form, so that every option accepts the same. A plain number is seconds. Each
//! option decides which lengths make sense.

use std::time::Duration;

/// Units by suffix, in seconds. `ms` comes before its own suffix `s`.
const UNITS: [(&str, f64); 5] =
    [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3_600.0), ("d", 86_400.0)];

/// The time in `text`; `None` when it is invalid.
pub fn parse(text: &str) -> Option<Duration> {
    let with_unit =
        UNITS.iter().find_map(|(suffix, seconds)| Some((text.strip_suffix(suffix)?, *seconds)));
    let (number, unit) = with_unit.unwrap_or((text, 1.0));
    // Rust parses more than digits and a point as a number: signs, exponents, infinity.
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let seconds = number.parse::<f64>().ok().filter(|_| is_plain)? * unit;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_and_without_units() {
        for (text, milliseconds) in [
            ("0", 0),
            ("2", 2_000),
            ("0.25", 250),
            ("1s", 1_000),
            ("0.25s", 250),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5h", 5_400_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "ms", "-1s", "+1", "1e3", "NaN", "inf", "1 s", " 1", "1w", "1sm", "."]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&format!("{}d", "9".repeat(40))), None, "too long for a clock");
    }
}
