//! What every package of a run says of itself, and how it writes times.

use super::options::Link;

/// A version for a target, at a time.
pub(super) struct Release {
    /// Version of the binary.
    pub version: String,
    /// Target triple.
    pub target: String,
    /// Seconds since the epoch: the modification time of every file.
    pub time_s: u64,
}

impl Release {
    /// Name of a package without its extension.
    pub fn package_name(&self, link: Link) -> String {
        let suffix = if link == Link::Static { "-static" } else { "" };
        format!("oribi-{}-{}{suffix}", self.version, self.target)
    }
}

/// Seconds since the epoch as a date and time in UTC.
pub(super) fn rfc3339(time_s: u64) -> String {
    const DAY_S: u64 = 86_400;
    let (mut days, second) = (time_s / DAY_S, time_s % DAY_S);
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
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
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
    }
}
