//! The calendar: the proleptic Gregorian one for every year that 64 bits of milliseconds reach.
//!
//! A `Civil` is a local time with its distance from UTC. Days are counted as in H. Hinnant's
//! public `days_from_civil`.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The farthest moment from 1970.
pub const MILLIS_MAX: f64 = 9.3e18 * 20.0;
const NANOSECONDS_MAX: i128 = MILLIS_MAX as i128 * 1_000_000;

/// Beyond the year of the farthest moment.
const YEAR_MAX: i64 = 6_000_000_000;
const _: () = assert!(NANOSECONDS_MAX / (365 * DAY) < YEAR_MAX as i128);

const DAY: i128 = 86_400_000_000_000;
const NAMES: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    /// Nanoseconds of the day.
    pub time: i64,
    /// Seconds to the east of UTC.
    pub offset: i32,
}

/// A part of a date.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DatePart {
    Millennium,
    Century,
    Decade,
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    DayOfYear,
    DayOfWeek,
    IsoWeek,
    IsoYear,
    IsoDayOfWeek,
    Zone,
    ZoneHour,
    ZoneMinute,
}

impl DatePart {
    /// The part of a name in small letters.
    pub fn named(name: &str) -> Option<DatePart> {
        Some(match name {
            "millennium" => DatePart::Millennium,
            "century" => DatePart::Century,
            "decade" => DatePart::Decade,
            "year" => DatePart::Year,
            "quarter" => DatePart::Quarter,
            "month" => DatePart::Month,
            "week" => DatePart::Week,
            "day" => DatePart::Day,
            "hour" => DatePart::Hour,
            "minute" => DatePart::Minute,
            "second" => DatePart::Second,
            "millisecond" => DatePart::Millisecond,
            "day_of_year" | "doy" => DatePart::DayOfYear,
            "day_of_week" | "dow" => DatePart::DayOfWeek,
            "iso_week" => DatePart::IsoWeek,
            "iso_year" => DatePart::IsoYear,
            "iso_dow" => DatePart::IsoDayOfWeek,
            "timezone" => DatePart::Zone,
            "timezone_hour" => DatePart::ZoneHour,
            "timezone_minute" => DatePart::ZoneMinute,
            _ => return None,
        })
    }

    /// Months in the part, and nanoseconds in it. None for what cannot be counted.
    pub fn size(self) -> Option<(i128, i128)> {
        Some(match self {
            DatePart::Millennium => (12_000, 0),
            DatePart::Century => (1_200, 0),
            DatePart::Decade => (120, 0),
            DatePart::Year => (12, 0),
            DatePart::Quarter => (3, 0),
            DatePart::Month => (1, 0),
            DatePart::Week => (0, 7 * DAY),
            DatePart::Day => (0, DAY),
            DatePart::Hour => (0, 3_600_000_000_000),
            DatePart::Minute => (0, 60_000_000_000),
            DatePart::Second => (0, 1_000_000_000),
            DatePart::Millisecond => (0, 1_000_000),
            _ => return None,
        })
    }
}

/// Days from 1970-01-01 to a date.
pub fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted = (month + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn date(number: i64) -> (i64, i64, i64) {
    let days = number + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    debug_assert!((1..=12).contains(&month) && (1..=31).contains(&day), "the date is one");
    debug_assert!(self::days(year, month, day) == number, "the date has the number of its day");
    (year, month, day)
}

pub fn days_in_month(year: i64, month: i64) -> i64 {
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    let count = days(next_year, next_month, 1) - days(year, month, 1);
    debug_assert!((28..=31).contains(&count), "a month has four weeks and some days");
    count
}

impl Civil {
    /// The local time of a moment.
    pub fn from_nanoseconds(nanoseconds: i128, offset: i32) -> Civil {
        Civil::from_local(nanoseconds + i128::from(offset) * 1_000_000_000, offset)
    }

    fn from_local(local: i128, offset: i32) -> Civil {
        debug_assert!(local.unsigned_abs() < 2 * NANOSECONDS_MAX as u128, "the moment is near");
        let (year, month, day) = date(local.div_euclid(DAY) as i64);
        Civil { year, month, day, time: local.rem_euclid(DAY) as i64, offset }
    }

    fn local(&self) -> i128 {
        i128::from(days(self.year, self.month, self.day)) * DAY + i128::from(self.time)
    }

    pub fn nanoseconds(&self) -> i128 {
        self.local() - i128::from(self.offset) * 1_000_000_000
    }

    fn day_of_year(&self) -> i64 {
        days(self.year, self.month, self.day) - days(self.year, 1, 1) + 1
    }

    /// From 0 for Sunday.
    fn weekday(&self) -> i64 {
        (days(self.year, self.month, self.day) + 4).rem_euclid(7)
    }

    pub fn weekday_name(&self) -> &'static str {
        NAMES[self.weekday() as usize]
    }

    /// The ISO year and week.
    fn iso_week(&self) -> (i64, i64) {
        let today = days(self.year, self.month, self.day);
        // The week belongs to the year of its Thursday.
        let thursday = today - (self.weekday() + 6) % 7 + 3;
        let (year, ..) = date(thursday);
        let week = (thursday - days(year, 1, 1)) / 7 + 1;
        debug_assert!((1..=53).contains(&week), "a year has 53 weeks at most");
        (year, week)
    }

    pub fn hour(&self) -> i64 {
        self.time / 3_600_000_000_000
    }

    pub fn minute(&self) -> i64 {
        self.time / 60_000_000_000 % 60
    }

    pub fn second(&self) -> i64 {
        self.time / 1_000_000_000 % 60
    }

    pub fn part(&self, part: DatePart) -> i64 {
        match part {
            DatePart::Millennium => (self.year - 1) / 1_000 + 1,
            DatePart::Century => (self.year - 1) / 100 + 1,
            DatePart::Decade => self.year / 10,
            DatePart::Year => self.year,
            DatePart::Quarter => (self.month + 2) / 3,
            DatePart::Month => self.month,
            DatePart::Week => (self.day_of_year() + 6) / 7,
            DatePart::Day => self.day,
            DatePart::Hour => self.hour(),
            DatePart::Minute => self.minute(),
            DatePart::Second => self.second(),
            DatePart::Millisecond => self.time / 1_000_000 % 1_000,
            DatePart::DayOfYear => self.day_of_year(),
            DatePart::DayOfWeek => self.weekday(),
            DatePart::IsoWeek => self.iso_week().1,
            DatePart::IsoYear => self.iso_week().0,
            DatePart::IsoDayOfWeek => (self.weekday() + 6) % 7 + 1,
            DatePart::Zone => i64::from(self.offset),
            DatePart::ZoneHour => i64::from(self.offset / 3_600),
            DatePart::ZoneMinute => i64::from(self.offset % 3_600 / 60),
        }
    }

    /// The time after a number of parts of a size. None if it is out of range.
    pub fn add(&self, (months, nanoseconds): (i128, i128), count: i128) -> Option<Civil> {
        let local = match months {
            0 => self.local().checked_add(nanoseconds.checked_mul(count)?)?,
            _ => self.local_after(months.checked_mul(count)?)?,
        };
        let moment = local.checked_sub(i128::from(self.offset) * 1_000_000_000)?;
        let is_near = (-NANOSECONDS_MAX..=NANOSECONDS_MAX).contains(&moment);
        is_near.then(|| Civil::from_local(local, self.offset))
    }

    fn local_after(&self, months: i128) -> Option<i128> {
        let months = months.checked_add(i128::from(self.year * 12 + self.month - 1))?;
        let year = i64::try_from(months.div_euclid(12)).ok()?;
        if !(-YEAR_MAX..=YEAR_MAX).contains(&year) {
            return None;
        }
        let month = i64::try_from(months.rem_euclid(12)).ok()? + 1;
        // A day after the month's end goes to the next month.
        let first = Civil { year, month, day: 1, ..*self };
        Some(first.local() + i128::from(self.day - 1) * DAY)
    }

    /// How many parts lie between two times. None for what cannot be counted.
    pub fn diff(&self, other: &Civil, part: DatePart) -> Option<i128> {
        let (months, nanoseconds) = part.size()?;
        // The reference counts year 0, that of a time without date, without its leap day.
        let local = |civil: &Civil| civil.local() + if civil.year == 0 { DAY } else { 0 };
        Some(match part {
            DatePart::Millennium | DatePart::Century | DatePart::Decade | DatePart::Year => {
                i128::from(self.year - other.year) / (months / 12)
            }
            DatePart::Quarter | DatePart::Month => {
                let index = |civil: &Civil| {
                    i128::from(civil.year * 12 + civil.month - 1).div_euclid(months)
                };
                index(self) - index(other)
            }
            DatePart::Week => (local(self).div_euclid(DAY) - local(other).div_euclid(DAY)) / 7,
            _ => {
                let index = |civil: &Civil| local(civil).div_euclid(nanoseconds);
                index(self) - index(other)
            }
        })
    }

    /// The begin of a part.
    pub fn trunc(&self, part: DatePart) -> Option<Civil> {
        let begin = |year: i64, month: i64| Civil { year, month, day: 1, time: 0, ..*self };
        Some(match part {
            DatePart::Millennium => begin(self.year.div_euclid(1_000) * 1_000, 1),
            DatePart::Century => begin(self.year.div_euclid(100) * 100, 1),
            DatePart::Decade => begin(self.year.div_euclid(10) * 10, 1),
            DatePart::Year => begin(self.year, 1),
            DatePart::Quarter => begin(self.year, (self.month - 1) / 3 * 3 + 1),
            DatePart::Month => begin(self.year, self.month),
            DatePart::Week => {
                let local = self.local() - i128::from(self.weekday()) * DAY;
                Civil { time: 0, ..Civil::from_local(local, self.offset) }
            }
            _ => {
                let (_, nanoseconds) = part.size()?;
                let local = self.local().div_euclid(nanoseconds) * nanoseconds;
                Civil::from_local(local, self.offset)
            }
        })
    }
}

pub enum Zone {
    Utc,
    Named(TimeZone),
}

impl Zone {
    /// The zone of a name from the system's database. An empty name is UTC.
    pub fn named(name: &str) -> Option<Zone> {
        if name.is_empty() || name.eq_ignore_ascii_case("utc") || name == "Z" {
            return Some(Zone::Utc);
        }
        if name.eq_ignore_ascii_case("local") {
            return Some(Zone::Named(TimeZone::system()));
        }
        TimeZone::get(name).ok().map(Zone::Named)
    }

    /// The local time of a moment.
    pub fn civil(&self, nanoseconds: i128) -> Civil {
        let offset = match self {
            Zone::Utc => 0,
            Zone::Named(zone) => {
                let (first, last) =
                    (Timestamp::MIN.as_nanosecond(), Timestamp::MAX.as_nanosecond());
                let near = Timestamp::from_nanosecond(nanoseconds.clamp(first, last));
                near.map_or(0, |near| zone.to_offset(near).seconds())
            }
        };
        Civil::from_nanoseconds(nanoseconds, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree() {
        for number in (-1_000_000..1_000_000).step_by(97) {
            let (year, month, day) = date(number);
            assert_eq!(days(year, month, day), number);
            assert!((1..=days_in_month(year, month)).contains(&day));
        }
        assert_eq!(date(0), (1970, 1, 1));
    }

    #[test]
    fn a_day_after_the_end_of_a_month_overflows() {
        let civil = Civil { year: 2024, month: 1, day: 31, time: 0, offset: 0 };
        let added = civil.add((1, 0), 1).expect("the next month is near");
        assert_eq!((added.month, added.day), (3, 2));
    }
}
