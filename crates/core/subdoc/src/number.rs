//! 64-bit integers in JSON text, for counters.

use crate::error::SubdocError;

/// The delta of a counter: an integer other than 0.
pub(crate) fn delta(text: &[u8]) -> Result<i64, SubdocError> {
    let is_whole = is_whole(text);
    let parsed =
        std::str::from_utf8(text).ok().filter(|_| is_whole).and_then(|text| text.parse().ok());
    parsed.filter(|delta| *delta != 0).ok_or(SubdocError::DeltaEinval)
}

/// The number at a counter's path.
pub(crate) fn current(text: &[u8]) -> Result<i64, SubdocError> {
    if !is_whole(text) {
        return Err(SubdocError::PathMismatch);
    }
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    parsed.ok_or(SubdocError::NumErange)
}

/// JSON's integers: digits, with an optional minus sign, without a fraction or an exponent.
pub(crate) fn is_whole(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [] => false,
        [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    }
}

#[cfg(test)]
mod tests {
    use super::{current, delta};
    use crate::error::SubdocError;

    #[test]
    fn deltas() {
        assert_eq!(delta(b"1"), Ok(1));
        assert_eq!(delta(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(delta(b"9223372036854775807"), Ok(i64::MAX));
        let refused = [
            "",
            "0",
            "-0",
            "-",
            "1.0",
            "1e3",
            "+1",
            "01",
            " 1",
            "9223372036854775808",
            "x",
            "\"1\"",
        ];
        for text in refused {
            assert_eq!(delta(text.as_bytes()), Err(SubdocError::DeltaEinval), "{text}");
        }
    }

    #[test]
    fn numbers_in_documents() {
        assert_eq!(current(b"0"), Ok(0));
        assert_eq!(current(b"-0"), Ok(0));
        assert_eq!(current(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(current(b"9223372036854775808"), Err(SubdocError::NumErange));
        for text in ["1.5", "1e2", "null", "\"1\"", "[]", "{}", "true"] {
            assert_eq!(current(text.as_bytes()), Err(SubdocError::PathMismatch), "{text}");
        }
    }
}
