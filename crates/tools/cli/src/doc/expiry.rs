//! Parses expiry times from the command line into the protocol's form.

use std::time::{SystemTime, UNIX_EPOCH};

use oribi_protocol::limits::RELATIVE_EXPIRY_S_MAX;

use crate::duration;

/// The form for `--help` and errors.
const FORM: &str =
    "whole seconds, or a time such as 90s, 15m, 12h or 7d, or @UNIXTIME; 0 for no expiry";

/// The expiry of the protocol: 0 for none, seconds from now up to 30 days, else UNIX time.
pub fn parse(text: &str) -> Result<u32, String> {
    parse_at(text, now_s()).ok_or_else(|| format!("expected {FORM}"))
}

/// An expiry of the protocol as UNIX time, 0 for none.
pub fn absolute(expiry: u32) -> u32 {
    match expiry {
        1..=RELATIVE_EXPIRY_S_MAX => now_s().saturating_add(expiry),
        _ => expiry,
    }
}

pub fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

fn parse_at(text: &str, now_s: u32) -> Option<u32> {
    if let Some(unix) = text.strip_prefix('@') {
        // The server would take a UNIX time in the first month of 1970 for seconds from now.
        return unix.parse().ok().filter(|unix| *unix > RELATIVE_EXPIRY_S_MAX);
    }
    let time = duration::parse(text).filter(|time| time.subsec_nanos() == 0)?;
    let seconds = u32::try_from(time.as_secs()).ok()?;
    if seconds <= RELATIVE_EXPIRY_S_MAX { Some(seconds) } else { now_s.checked_add(seconds) }
}

#[cfg(test)]
mod tests {
    //! Forms that are times, and forms that are not.

    use super::*;

    #[test]
    fn units_and_the_thirty_day_rule() {
        const NOW: u32 = 1_800_000_000;
        for (text, expiry) in [
            ("0", 0),
            ("90", 90),
            ("90s", 90),
            ("15m", 900),
            ("2h", 7200),
            ("1.5h", 5400),
            ("60000ms", 60),
            ("30d", RELATIVE_EXPIRY_S_MAX),
            ("31d", NOW + 31 * 86_400),
            ("@1900000000", 1_900_000_000),
        ] {
            assert_eq!(parse_at(text, NOW), Some(expiry), "{text}");
        }
        for text in ["", "s", "-1", "1w", "1.5s", "@", "@5", "99999999999", "4294967295s", "1h30m"]
        {
            assert_eq!(parse_at(text, NOW), None, "{text}");
        }
    }
}
