//! Numbers in a command line, read as memcached reads them: with the rules of C's `strtol` family.
//!
//! White space and a plus sign may precede the digits, and white space may follow them.

use crate::limits::RELATIVE_EXPIRY_S_MAX;

/// An expiry on the binary wire that has passed: UNIX times this small are long gone.
const PASSED: u32 = RELATIVE_EXPIRY_S_MAX + 1;

/// An unsigned number of 64 bits.
pub(super) fn unsigned(token: &[u8]) -> Option<u64> {
    let (is_negative, digits) = parts(token)?;
    let number = digits_of(digits)?;
    (!is_negative || number == 0).then_some(number)
}

/// Client flags: memcached reads 64 bits and keeps 32.
pub(super) fn flags(token: &[u8]) -> Option<u32> {
    unsigned(token).map(|number| number as u32)
}

/// A signed number of 32 bits.
pub(super) fn signed(token: &[u8]) -> Option<i32> {
    signed_long(token).and_then(|number| i32::try_from(number).ok())
}

/// A time: memcached reads 64 bits and keeps 32, so that clients may send -1 as 4294967295.
pub(super) fn time(token: &[u8]) -> Option<i32> {
    signed_long(token).map(|number| number as i32)
}

/// An expiry as the binary protocol has it. Any negative one has passed.
pub(super) fn expiry(token: &[u8]) -> Option<u32> {
    time(token).map(|number| u32::try_from(number).unwrap_or(PASSED))
}

fn signed_long(token: &[u8]) -> Option<i64> {
    let (is_negative, digits) = parts(token)?;
    let number = i128::from(digits_of(digits)?);
    i64::try_from(if is_negative { -number } else { number }).ok()
}

/// The sign, and the digits with whatever follows.
fn parts(token: &[u8]) -> Option<(bool, &[u8])> {
    let token = token.trim_ascii_start();
    match token.first()? {
        b'-' => Some((true, &token[1..])),
        b'+' => Some((false, &token[1..])),
        _ => Some((false, token)),
    }
}

fn digits_of(text: &[u8]) -> Option<u64> {
    let count = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(count);
    let is_whole = rest.first().is_none_or(u8::is_ascii_whitespace);
    if digits.is_empty() || !is_whole {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::{PASSED, expiry, flags, signed, time, unsigned};

    #[test]
    fn numbers_follow_the_rules_of_c() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!(
            (unsigned(b"+5"), unsigned(b"-0"), unsigned(b"5\tx")),
            (Some(5), Some(0), Some(5))
        );
        for bad in [&b""[..], b"-", b"x", b"-1", b"1x", b"0x1"] {
            assert_eq!(unsigned(bad), None, "{}", bad.escape_ascii());
        }
        assert_eq!(flags(b"4294967297"), Some(1));
        assert_eq!((signed(b"-2147483648"), signed(b"2147483648")), (Some(i32::MIN), None));
        assert_eq!((expiry(b"-1"), expiry(b"60"), expiry(b"")), (Some(PASSED), Some(60), None));
    }

    #[test]
    fn times_of_64_bits_keep_32() {
        for passed in ["2147483648", "4294967295", "4102444800", "-9223372036854775808"] {
            let expected = if passed.starts_with('-') { 0 } else { PASSED };
            assert_eq!(expiry(passed.as_bytes()), Some(expected), "{passed}");
        }
        assert_eq!((expiry(b"4294967396"), expiry(b"4294967296")), (Some(100), Some(0)));
        assert_eq!(expiry(b"9223372036854775808"), None);
        assert_eq!(time(b"4294967295"), Some(-1));
    }
}
