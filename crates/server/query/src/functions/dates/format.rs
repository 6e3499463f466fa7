//! Texts of dates: how they are read and printed.
//!
//! A format is an example (`1111-11-11`, `2006-01-02T15:04:05Z07:00`), a pattern of `YYYY`, `MM`,
//! `DD`, `hh`, `mm`, `ss`, one of `%Y`, `%m`, .., or a layout of Go's reference time
//! (`Mon Jan 2 2006`).

use super::civil::{Civil, days_in_month};

/// A piece of a format.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(String),
    Year,
    ShortYear,
    Month,
    ShortMonth,
    MonthName,
    ShortMonthName,
    Day,
    ShortDay,
    WeekdayName,
    ShortWeekdayName,
    Hour,
    Hour12,
    ShortHour12,
    Minute,
    Second,
    /// Milliseconds without trailing zeros, with the point.
    Fraction,
    /// Milliseconds in three digits, with the point.
    Milliseconds,
    HalfOfDay,
    /// `Z` for UTC, else `+hh:mm`.
    Zone,
    ZoneOffset,
    ShortZoneOffset,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

#[derive(Clone, Debug, PartialEq)]
pub struct DatePattern(Vec<Piece>);

impl Default for DatePattern {
    fn default() -> DatePattern {
        Shape { date: true, separator: Some('T'), fraction: true, zone: true }.pattern()
    }
}

/// The parts that a date text has.
struct Shape {
    date: bool,
    /// Between date and time; `None` without a time.
    separator: Option<char>,
    fraction: bool,
    zone: bool,
}

impl Shape {
    fn pattern(&self) -> DatePattern {
        let literal = |text: &str| Piece::Literal(text.to_owned());
        let mut pieces = Vec::new();
        if self.date {
            pieces.extend([Piece::Year, literal("-"), Piece::Month, literal("-"), Piece::Day]);
        }
        if let Some(separator) = self.separator {
            if self.date {
                pieces.push(literal(&separator.to_string()));
            }
            let time = [Piece::Hour, literal(":"), Piece::Minute, literal(":"), Piece::Second];
            pieces.extend(time);
            if self.fraction {
                pieces.push(Piece::Fraction);
            }
            if self.zone {
                pieces.push(Piece::Zone);
            }
        }
        DatePattern(pieces)
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, character: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(character)?;
        Some(())
    }

    fn digits(&mut self, count: usize) -> Option<i64> {
        let digits = self.rest.get(..count)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        self.rest = &self.rest[count..];
        digits.parse().ok()
    }

    fn time(&mut self) -> Option<i64> {
        let hour = self.digits(2)?;
        self.eat(':')?;
        let minute = self.digits(2)?;
        self.eat(':')?;
        let second = self.digits(2)?;
        (hour < 24 && minute < 60 && second < 60)
            .then_some(((hour * 60 + minute) * 60 + second) * 1_000_000_000)
    }

    /// `.123`, up to nanoseconds.
    fn fraction(&mut self) -> Option<i64> {
        self.eat('.')?;
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 || count > 9 {
            return None;
        }
        Some(self.digits(count)? * 10i64.pow(9 - count as u32))
    }

    fn zone(&mut self) -> Option<i32> {
        if self.eat('Z').is_some() {
            return Some(0);
        }
        let sign = if self.rest.starts_with('-') { -1 } else { 1 };
        self.rest = self.rest.strip_prefix(['+', '-'])?;
        let hours = self.digits(2)?;
        let _ = self.eat(':');
        let minutes = self.digits(2)?;
        (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60) as i32)
    }
}

/// The moment of a date text and the format it is in.
pub fn parse(text: &str) -> Option<(Civil, DatePattern)> {
    let mut reader = Reader { rest: text };
    let mut civil = Civil { year: 0, month: 1, day: 1, time: 0, offset: 0 };
    let mut shape = Shape { date: false, separator: None, fraction: false, zone: false };
    if text.as_bytes().get(2) != Some(&b':') {
        civil.year = reader.digits(4)?;
        reader.eat('-')?;
        civil.month = reader.digits(2)?;
        reader.eat('-')?;
        civil.day = reader.digits(2)?;
        shape.date = true;
        if !(1..=12).contains(&civil.month)
            || !(1..=days_in_month(civil.year, civil.month)).contains(&civil.day)
        {
            return None;
        }
        if reader.rest.is_empty() {
            return Some((civil, shape.pattern()));
        }
        let separator = reader.rest.chars().next()?;
        if separator != 'T' && separator != ' ' {
            return None;
        }
        reader.eat(separator)?;
        shape.separator = Some(separator);
    }
    shape.separator.get_or_insert('T');
    civil.time = reader.time()?;
    if reader.rest.starts_with('.') {
        civil.time += reader.fraction()?;
        shape.fraction = true;
    }
    if !reader.rest.is_empty() {
        civil.offset = reader.zone()?;
        shape.zone = true;
    }
    debug_assert!((0..86_400_000_000_000).contains(&civil.time), "the time is within a day");
    reader.rest.is_empty().then(|| (civil, shape.pattern()))
}

/// Pieces by their text, the longest first where one begins another.
const GO: &[(&str, Piece)] = &[
    ("2006", Piece::Year),
    ("January", Piece::MonthName),
    ("Jan", Piece::ShortMonthName),
    ("Monday", Piece::WeekdayName),
    ("Mon", Piece::ShortWeekdayName),
    ("Z07:00", Piece::Zone),
    ("-07:00", Piece::ZoneOffset),
    ("-0700", Piece::ShortZoneOffset),
    (".999", Piece::Fraction),
    (".000", Piece::Milliseconds),
    ("01", Piece::Month),
    ("02", Piece::Day),
    ("03", Piece::Hour12),
    ("04", Piece::Minute),
    ("05", Piece::Second),
    ("06", Piece::ShortYear),
    ("15", Piece::Hour),
    ("PM", Piece::HalfOfDay),
    ("1", Piece::ShortMonth),
    ("2", Piece::ShortDay),
    ("3", Piece::ShortHour12),
];

const LETTERS: &[(&str, Piece)] = &[
    ("YYYY", Piece::Year),
    ("YY", Piece::ShortYear),
    ("MM", Piece::Month),
    ("DD", Piece::Day),
    ("HH", Piece::Hour),
    ("hh", Piece::Hour),
    ("mm", Piece::Minute),
    ("ss", Piece::Second),
    (".sss", Piece::Milliseconds),
    (".s", Piece::Fraction),
    ("TZD", Piece::Zone),
];

const PERCENT: &[(&str, Piece)] = &[
    ("%Y", Piece::Year),
    ("%y", Piece::ShortYear),
    ("%m", Piece::Month),
    ("%d", Piece::Day),
    ("%e", Piece::ShortDay),
    ("%H", Piece::Hour),
    ("%I", Piece::Hour12),
    ("%M", Piece::Minute),
    ("%S", Piece::Second),
    ("%p", Piece::HalfOfDay),
    ("%b", Piece::ShortMonthName),
    ("%B", Piece::MonthName),
    ("%a", Piece::ShortWeekdayName),
    ("%A", Piece::WeekdayName),
    ("%z", Piece::ShortZoneOffset),
];

impl DatePattern {
    /// The format that a text describes.
    pub fn of(text: &str) -> DatePattern {
        if let Some((_, pattern)) = parse(text) {
            return pattern;
        }
        if text.contains('%') {
            return DatePattern::from_table(text, PERCENT);
        }
        if text.contains("YY") || text.contains("hh") || text.contains("DD") {
            return DatePattern::from_table(text, LETTERS);
        }
        DatePattern::from_table(text, GO)
    }

    fn from_table(text: &str, table: &[(&str, Piece)]) -> DatePattern {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            if let Some((name, piece)) = table.iter().find(|(name, _)| rest.starts_with(name)) {
                pieces.push(piece.clone());
                rest = &rest[name.len()..];
                continue;
            }
            match pieces.last_mut() {
                Some(Piece::Literal(literal)) => literal.push(character),
                _ => pieces.push(Piece::Literal(character.to_string())),
            }
            rest = &rest[character.len_utf8()..];
        }
        DatePattern(pieces)
    }

    /// The text of a time.
    pub fn print(&self, civil: &Civil) -> String {
        self.0.iter().map(|piece| print(piece, civil)).collect()
    }

    /// The time of a text in this format. Names are not read.
    pub fn parse(&self, text: &str) -> Option<Civil> {
        let mut reader = Reader { rest: text };
        let mut civil = Civil { year: 0, month: 1, day: 1, time: 0, offset: 0 };
        for piece in &self.0 {
            match piece {
                Piece::Literal(literal) => {
                    reader.rest = reader.rest.strip_prefix(literal.as_str())?;
                }
                Piece::Year => civil.year = reader.digits(4)?,
                Piece::Month => civil.month = reader.digits(2)?,
                Piece::Day => civil.day = reader.digits(2)?,
                Piece::Hour => civil.time += reader.digits(2)? * 3_600_000_000_000,
                Piece::Minute => civil.time += reader.digits(2)? * 60_000_000_000,
                Piece::Second => civil.time += reader.digits(2)? * 1_000_000_000,
                Piece::Fraction | Piece::Milliseconds if reader.rest.starts_with('.') => {
                    civil.time += reader.fraction()?;
                }
                Piece::Fraction => {}
                Piece::Zone | Piece::ZoneOffset | Piece::ShortZoneOffset => {
                    civil.offset = reader.zone()?;
                }
                _ => return None,
            }
        }
        let valid = reader.rest.is_empty()
            && (1..=12).contains(&civil.month)
            && (1..=days_in_month(civil.year, civil.month)).contains(&civil.day)
            && civil.time < 86_400_000_000_000;
        valid.then_some(civil)
    }
}

fn print(piece: &Piece, civil: &Civil) -> String {
    let month = MONTHS[(civil.month - 1).clamp(0, 11) as usize];
    let offset = |colon: &str| {
        let sign = if civil.offset < 0 { '-' } else { '+' };
        let minutes = civil.offset.unsigned_abs() / 60;
        format!("{sign}{:02}{colon}{:02}", minutes / 60, minutes % 60)
    };
    let half = |hour: i64| if hour % 12 == 0 { 12 } else { hour % 12 };
    let millis = civil.time / 1_000_000 % 1_000;
    match piece {
        Piece::Literal(text) => text.clone(),
        Piece::Year if civil.year < 0 => format!("-{:04}", -civil.year),
        Piece::Year => format!("{:04}", civil.year),
        Piece::ShortYear => format!("{:02}", civil.year.rem_euclid(100)),
        Piece::Month => format!("{:02}", civil.month),
        Piece::ShortMonth => civil.month.to_string(),
        Piece::MonthName => month.to_owned(),
        Piece::ShortMonthName => month[..3].to_owned(),
        Piece::Day => format!("{:02}", civil.day),
        Piece::ShortDay => civil.day.to_string(),
        Piece::WeekdayName => civil.weekday_name().to_owned(),
        Piece::ShortWeekdayName => civil.weekday_name()[..3].to_owned(),
        Piece::Hour => format!("{:02}", civil.hour()),
        Piece::Hour12 => format!("{:02}", half(civil.hour())),
        Piece::ShortHour12 => half(civil.hour()).to_string(),
        Piece::Minute => format!("{:02}", civil.minute()),
        Piece::Second => format!("{:02}", civil.second()),
        Piece::Fraction if millis == 0 => String::new(),
        Piece::Fraction => format!(".{millis:03}").trim_end_matches('0').to_owned(),
        Piece::Milliseconds => format!(".{millis:03}"),
        Piece::HalfOfDay => if civil.hour() < 12 { "AM" } else { "PM" }.to_owned(),
        Piece::Zone if civil.offset == 0 => "Z".to_owned(),
        Piece::Zone | Piece::ZoneOffset => offset(":"),
        Piece::ShortZoneOffset => offset(""),
    }
}
