//! What every package of a run says of itself, and how it writes times.

use flate2::Compression;

use super::options::LinkKind;

/// A version for a target, at a time.
pub(super) struct Release {
    /// Version of the programs.
    pub version: String,
    pub target: String,
    /// Seconds since the epoch: the modification time of every file.
    pub time_s: u64,
    pub compression: Compression,
}

impl Release {
    /// Name of a package without its extension.
    pub fn package_name(&self, link: LinkKind) -> String {
        let suffix = if link == LinkKind::Static { "-static" } else { "" };
        format!("oribi-{}-{}{suffix}", self.version, self.target)
    }
}

/// Seconds since the epoch as a date and time in UTC.
pub(super) fn rfc3339(time_s: u64) -> String {
    let (year, month, day) = date(time_s);
    let [hour, minute, second] = clock(time_s);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same as mails and Debian's changelogs have it.
pub(super) fn rfc5322(time_s: u64) -> String {
    // The epoch was a Thursday.
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = date(time_s);
    let [hour, minute, second] = clock(time_s);
    let weekday = WEEKDAYS[(time_s / DAY_S % 7) as usize];
    let month = MONTHS[month as usize - 1];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} +0000")
}

const DAY_S: u64 = 86_400;

/// Year, month from 1, day from 1.
fn date(time_s: u64) -> (u64, u64, u64) {
    let mut days = time_s / DAY_S;
    let mut year = 1970;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

/// Hour, minute and second of the day.
fn clock(time_s: u64) -> [u64; 3] {
    let second = time_s % DAY_S;
    [second / 3600, second / 60 % 60, second % 60]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date_1() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(rfc5322(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(rfc5322(951_827_696), "Tue, 29 Feb 2000 12:34:56 +0000");
        assert_eq!(rfc5322(1_767_225_599), "Wed, 31 Dec 2025 23:59:59 +0000");
    }
}
