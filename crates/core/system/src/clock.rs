//! The time of day.
//!
//! Callers read it once per batch or event and pass it down; durations are measured with a
//! monotonic clock.

use std::time::{SystemTime, UNIX_EPOCH};

use oribi_types::Timestamp;

/// The wall clock. A clock set before 1970 counts as 1970.
pub fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
}

/// A time as `2026-11-23T02:30:00.000Z`.
pub fn iso_8601(unix_s: u32) -> String {
    let (days, second) = (u64::from(unix_s) / 86_400, unix_s % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // From Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms": years begin in March.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, is_next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + is_next_year;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

#[cfg(test)]
mod tests {
    use super::iso_8601;

    #[test]
    fn times_are_dates_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (1_767_225_600, "2026-01-01T00:00:00.000Z"),
            (u32::MAX, "2106-02-07T06:28:15.000Z"),
        ] {
            assert_eq!(iso_8601(unix_s), text);
        }
    }
}
