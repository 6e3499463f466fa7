//! The few fields of an X.509 certificate that Oribi reads: the names of its owner and its
//! validity.
//!
//! Owns: a reader for the relevant part of DER (RFC 5280, section 4.1). rustls has already decided
//! whether the certificate is trusted; this module only reads. Invariants: any bytes give an answer
//! or an error, never a panic; a name that is not plain text is left out rather than guessed.

/// Why bytes cannot be parsed as a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a certificate: {0}")]
pub struct MalformedCertificate(&'static str);

/// See the module text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Certificate {
    /// First common name of the subject.
    pub common_name: Option<String>,
    /// Alternative names that are host names.
    pub dns_names: Vec<String>,
    /// Alternative names that are mail addresses.
    pub emails: Vec<String>,
    /// Alternative names that are URIs.
    pub uris: Vec<String>,
    /// First second of its validity, since 1970.
    pub not_before_unix_s: i64,
    /// Last second of its validity, since 1970.
    pub not_after_unix_s: i64,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// UTF8String, PrintableString, IA5String.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const EMAIL_NAME: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI_NAME: u8 = 0x86;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// Parses a certificate in DER.
///
/// # Errors
/// When the bytes are not a certificate.
pub fn read(der: &[u8]) -> Result<Certificate, MalformedCertificate> {
    let mut outer = Der(Der(der).expect(SEQUENCE)?);
    let mut fields = Der(outer.expect(SEQUENCE)?);
    let mut certificate = Certificate::default();
    if fields.peek() == Some(VERSION) {
        fields.next()?;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields.next()?;
    }
    let mut validity = Der(fields.expect(SEQUENCE)?);
    certificate.not_before_unix_s = time(validity.next()?)?;
    certificate.not_after_unix_s = time(validity.next()?)?;
    certificate.common_name = common_name(Der(fields.expect(SEQUENCE)?))?;
    while let Some(tag) = fields.peek() {
        let (_, content) = fields.next()?;
        if tag == EXTENSIONS {
            let mut extensions = Der(Der(content).expect(SEQUENCE)?);
            while extensions.peek().is_some() {
                extension(Der(extensions.expect(SEQUENCE)?), &mut certificate)?;
            }
        }
    }
    Ok(certificate)
}

fn common_name(mut subject: Der<'_>) -> Result<Option<String>, MalformedCertificate> {
    while subject.peek().is_some() {
        let mut relative = Der(subject.expect(SET)?);
        while relative.peek().is_some() {
            let mut attribute = Der(relative.expect(SEQUENCE)?);
            let id = attribute.expect(OBJECT_ID)?;
            let (tag, value) = attribute.next()?;
            if id == COMMON_NAME && TEXTS.contains(&tag) {
                return Ok(text(value));
            }
        }
    }
    Ok(None)
}

fn extension(
    mut extension: Der<'_>,
    certificate: &mut Certificate,
) -> Result<(), MalformedCertificate> {
    if extension.expect(OBJECT_ID)? != ALTERNATIVE_NAMES {
        return Ok(());
    }
    // A flag "critical" may precede the value.
    let value = loop {
        let (tag, value) = extension.next()?;
        if tag == OCTET_STRING {
            break value;
        }
    };
    let mut names = Der(Der(value).expect(SEQUENCE)?);
    while names.peek().is_some() {
        let (tag, value) = names.next()?;
        let list = match tag {
            EMAIL_NAME => &mut certificate.emails,
            DNS_NAME => &mut certificate.dns_names,
            URI_NAME => &mut certificate.uris,
            _ => continue,
        };
        list.extend(text(value));
    }
    Ok(())
}

/// Text without control characters: a name with a NUL in it tries to look like another one.
fn text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    (!text.is_empty() && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// `YYMMDDHHMMSSZ` with years from 1950 to 2049, or `YYYYMMDDHHMMSSZ`.
fn time((tag, digits): (u8, &[u8])) -> Result<i64, MalformedCertificate> {
    let bad = MalformedCertificate("a time is malformed");
    let year_digits = match tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return Err(bad),
    };
    let Some((b'Z', digits)) = digits.split_last() else { return Err(bad) };
    if digits.len() != year_digits + 10 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad);
    }
    let (year, rest) = digits.split_at(year_digits);
    let number = |digits: &[u8]| digits.iter().fold(0, |sum, d| sum * 10 + i64::from(d - b'0'));
    let year = match number(year) {
        year if year_digits == 4 => year,
        year @ 0..50 => year + 2000,
        year => year + 1900,
    };
    let mut parts = rest.chunks_exact(2).map(number);
    let mut part = || parts.next().unwrap_or(0);
    let days = days_since_1970(year, part(), part());
    Ok(((days * 24 + part()) * 60 + part()) * 60 + part())
}

/// Days from 1970 to a date of the Gregorian calendar. Years count from March, so that the leap day
/// is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

/// A sequence of values, each with tag and length.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next value, which must have this tag.
    fn expect(&mut self, tag: u8) -> Result<&'a [u8], MalformedCertificate> {
        match self.next()? {
            (found, content) if found == tag => Ok(content),
            _ => Err(MalformedCertificate("a field is missing")),
        }
    }

    /// Tag and content of the next value. Tags of more than one byte do not occur in certificates.
    fn next(&mut self) -> Result<(u8, &'a [u8]), MalformedCertificate> {
        let short = MalformedCertificate("it is cut off");
        let (&tag, rest) = self.0.split_first().ok_or(short)?;
        let (&first, mut rest) = rest.split_first().ok_or(short)?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let digits = usize::from(first & 0x7f);
            if !(1..=4).contains(&digits) {
                return Err(MalformedCertificate("a length is out of range"));
            }
            let (bytes, behind) = rest.split_at_checked(digits).ok_or(short)?;
            length = bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = behind;
        }
        let (content, rest) = rest.split_at_checked(length).ok_or(short)?;
        self.0 = rest;
        Ok((tag, content))
    }
}

#[cfg(test)]
mod tests;
