//! UNIX time as text and back: ids of backups, and the times that people name.

/// `20261123T023000Z`, which sorts by time.
pub fn compact(unix_s: u64) -> String {
    let [year, month, day, hour, minute, second] = fields(unix_s);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// `2026-11-23 02:30:00`, in UTC.
pub fn readable(unix_s: u64) -> String {
    let [year, month, day, hour, minute, second] = fields(unix_s);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// UNIX seconds of `2026-11-23`, `2026-11-23T02:30`, `2026-11-23T02:30:00Z` (or a space for the T),
/// all in UTC.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let mut date = date.split('-').map(number);
    let mut time = time.split(':').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next().unwrap_or(Some(0))?);
    let is_over = date.next().is_none() && time.next().is_none();
    let is_valid = (1970..=9999).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    let unix_s = days_before(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    // A day that the month does not have would come back as another one.
    let is_a_day = fields(unix_s)[..3] == [year, month, day];
    (is_over && is_valid && is_a_day).then_some(unix_s)
}

fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
    is_plain.then(|| text.parse().ok())?
}

/// Days from 1970-01-01; from Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms".
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * month + 2) / 5 + day.saturating_sub(1);
    (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).saturating_sub(719_468)
}

/// Year, month, day, hour, minute, second; the inverse of the above.
fn fields(unix_s: u64) -> [u64; 6] {
    let (days, seconds) = (unix_s / 86_400 + 719_468, unix_s % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    [year, month, day, seconds / 3600, seconds / 60 % 60, seconds % 60]
}

#[cfg(test)]
mod tests {
    //! Known times, and there and back.

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(compact(0), "19700101T000000Z");
        assert_eq!(readable(951_782_399), "2000-02-28 23:59:59");
        assert_eq!(readable(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(readable(1_795_400_000), "2026-11-23 02:13:20");
        assert_eq!(parse("2026-11-23T02:13"), Some(1_795_400_000 - 20));
        assert_eq!(parse("1970-01-02"), Some(86_400));
        for text in
            ["", "x", "2026-13-01", "2026-02-30", "2026-01-01T24:00", "2026-1-1-1", "+1-1-1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn times_come_back(unix_s in 0..250_000_000_000_u64) {
            prop_assert_eq!(parse(&readable(unix_s)), Some(unix_s));
            prop_assert_eq!(compact(unix_s) < compact(unix_s + 1), true);
        }

        #[test]
        fn any_text_is_a_time_or_not(text in "[0-9TZ: +-]{0,25}") {
            parse(&text);
        }
    }
}
