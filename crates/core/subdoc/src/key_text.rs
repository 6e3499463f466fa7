//! Text between the quotes of a JSON string: its characters, and the comparison of two such texts.

use std::iter::Peekable;

/// True when `text` is valid between quotes.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        at += match byte {
            0..=0x1f | b'"' => return false,
            b'\\' => match text.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                Some(b'u') if hex(text, at + 2).is_some() => 6,
                _ => return false,
            },
            _ => 1,
        };
    }
    std::str::from_utf8(text).is_ok()
}

/// True when both texts mean the same characters. Without a backslash it compares the bytes.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    one == other
        || ((one.contains(&b'\\') || other.contains(&b'\\')) && Units::of(one).eq(Units::of(other)))
}

/// The bytes that a text means, with a lone surrogate as its three bytes: enough to compare any
/// text.
struct Units<'a> {
    text: Peekable<Escapes<'a>>,
    pending: smallvec::SmallVec<[u8; 4]>,
}

impl<'a> Units<'a> {
    fn of(text: &'a [u8]) -> Units<'a> {
        Units { text: Escapes { text, at: 0 }.peekable(), pending: smallvec::SmallVec::new() }
    }
}

impl Iterator for Units<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let Some(byte) = self.pending.pop() {
            return Some(byte);
        }
        let code = match self.text.next()? {
            Unit::Byte(byte) => return Some(byte),
            Unit::Code(code) => code,
        };
        let low = match self.text.peek() {
            Some(Unit::Code(low @ 0xdc00..=0xdfff)) if (0xd800..=0xdbff).contains(&code) => {
                Some(*low)
            }
            _ => None,
        };
        let scalar = match low {
            Some(low) => {
                self.text.next();
                0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
            }
            None => code,
        };
        push_reversed(scalar, &mut self.pending);
        self.pending.pop()
    }
}

/// UTF-8 of a scalar value, or of a surrogate as if it were one, last byte first.
fn push_reversed(scalar: u32, out: &mut smallvec::SmallVec<[u8; 4]>) {
    let low = |shift: u32| 0x80 | (scalar >> shift & 0x3f) as u8;
    match scalar {
        0..=0x7f => out.push(scalar as u8),
        0x80..=0x7ff => out.extend([low(0), 0xc0 | (scalar >> 6) as u8]),
        0x800..=0xffff => out.extend([low(0), low(6), 0xe0 | (scalar >> 12) as u8]),
        _ => out.extend([low(0), low(6), low(12), 0xf0 | (scalar >> 18) as u8]),
    }
}

/// The meaning of an escape or a plain byte.
enum Unit {
    Byte(u8),
    /// A UTF-16 code unit.
    Code(u32),
}

struct Escapes<'a> {
    text: &'a [u8],
    at: usize,
}

impl Iterator for Escapes<'_> {
    type Item = Unit;

    fn next(&mut self) -> Option<Unit> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        if byte != b'\\' {
            return Some(Unit::Byte(byte));
        }
        let escape = *self.text.get(self.at)?;
        self.at += 1;
        Some(match escape {
            b'b' => Unit::Byte(8),
            b'f' => Unit::Byte(12),
            b'n' => Unit::Byte(b'\n'),
            b'r' => Unit::Byte(b'\r'),
            b't' => Unit::Byte(b'\t'),
            b'u' => {
                let code = hex(self.text, self.at)?;
                self.at += 4;
                Unit::Code(code)
            }
            plain => Unit::Byte(plain),
        })
    }
}

fn hex(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 4)?;
    digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::{is_valid, same};

    #[test]
    fn is_legal_between_quotes() {
        for text in ["", "a", "ä", r#"a\"b"#, r"\u0041\n\\", r"\ud800", "😀"] {
            assert!(is_valid(text.as_bytes()), "{text}");
        }
        for text in ["\"", "\\", "\\x", "\\u12", "\\u12g4", "a\nb", "\u{1f}"] {
            assert!(!is_valid(text.as_bytes()), "{text}");
        }
        assert!(!is_valid(b"\xff"));
    }

    #[test]
    fn equal_is_what_means_the_same() {
        let all = [
            vec!["A", r"\u0041"],
            vec!["a/b", r"a\/b"],
            vec![r"\n", r"\u000a", r"\u000A"],
            vec!["😀", r"\ud83d\ude00", r"\uD83D\uDE00"],
            vec!["é", r"\u00e9"],
            vec!["€", r"\u20ac"],
            vec![r"\ud83d"],
            vec![r"\ude00"],
            vec![r"\ude00\ud83d"],
            vec![r#"\""#, r"\u0022"],
            vec![r"\\", r"\u005c"],
            vec![r"\\n"],
            vec![r"\b\f\r\t", r"\u0008\u000c\u000d\u0009"],
            vec![""],
        ];
        for (at, group) in all.iter().enumerate() {
            for (other_at, others) in all.iter().enumerate() {
                for (one, other) in
                    group.iter().flat_map(|one| others.iter().map(move |other| (one, other)))
                {
                    let equal = same(one.as_bytes(), other.as_bytes());
                    assert_eq!(equal, at == other_at, "{one} {other}");
                }
            }
        }
    }
}
