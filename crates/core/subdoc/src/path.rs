//! Paths: `a.b[0].c`, `[-1]`, and names that contain such characters between backticks.
//!
//! A step is a name or an index. A name ends at a dot, a bracket or the end of the path, except
//! between backticks, which may be anywhere in it. A doubled backtick is a literal one. Two
//! backticks alone are the empty name. Names are JSON text between quotes, so they may have escapes
//! but no bare quote. An index is a decimal number, -1 for the last element; without digits it is
//! 0.
//!
//! One dot may follow every step, including the last one, and may precede an index. The empty path
//! is the whole document; each operation decides whether it accepts it.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::error::SubdocError;
use crate::key_text;
use crate::limits::{DEPTH_MAX, PATH_BYTES_MAX};

/// One step from a container to something in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Component<'a> {
    /// A key of an object, as JSON text between quotes.
    Key(Cow<'a, [u8]>),
    /// An element of an array, from 0.
    Index(u32),
    /// The last element of an array.
    Last,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path<'a> {
    components: SmallVec<[Component<'a>; 8]>,
}

impl<'a> Path<'a> {
    /// Parses the text of a path.
    ///
    /// # Errors
    /// [`SubdocError::PathEinval`] and [`SubdocError::PathE2big`].
    pub fn parse(text: &'a [u8]) -> Result<Path<'a>, SubdocError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(SubdocError::PathE2big);
        }
        let mut components = SmallVec::new();
        let mut rest = text;
        while let Some(first) = rest.first() {
            let component = match first {
                b'[' => index(&mut rest)?,
                _ => name(&mut rest)?,
            };
            rest = match rest {
                [b'.', behind @ ..] => behind,
                [] | [b'[', ..] => rest,
                _ => return Err(SubdocError::PathEinval),
            };
            if components.len() == DEPTH_MAX {
                return Err(SubdocError::PathE2big);
            }
            components.push(component);
        }
        Ok(Path { components })
    }

    /// The steps from the root.
    pub fn components(&self) -> &[Component<'a>] {
        &self.components
    }

    /// The first step, and the path from there.
    pub fn split_first(&self) -> Option<(&Component<'a>, Path<'a>)> {
        let (first, rest) = self.components.split_first()?;
        Some((first, Path { components: rest.into() }))
    }

    /// True for the path of the whole document.
    pub fn is_empty(&self) -> bool {
        self.components.is_empty()
    }
}

fn index<'a>(rest: &mut &'a [u8]) -> Result<Component<'a>, SubdocError> {
    let end = rest.iter().position(|byte| *byte == b']').ok_or(SubdocError::PathEinval)?;
    let digits = &rest[1..end];
    *rest = &rest[end + 1..];
    if digits == b"-1" {
        return Ok(Component::Last);
    }
    let number = digits.iter().try_fold(0u64, |number, digit| {
        let value = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(value)
    });
    // No document has so many elements that a larger number could lead elsewhere.
    let number = number.ok_or(SubdocError::PathEinval)?;
    Ok(Component::Index(u32::try_from(number).unwrap_or(u32::MAX)))
}

/// Parses a name and stops at the character that ends it.
fn name<'a>(rest: &mut &'a [u8]) -> Result<Component<'a>, SubdocError> {
    let (raw, behind) = rest.split_at(name_bytes(rest)?);
    *rest = behind;
    let inside = raw.strip_prefix(b"`").and_then(|rest| rest.strip_suffix(b"`"));
    let name = unquoted(inside.unwrap_or(raw));
    let is_name = !raw.is_empty() && key_text::is_valid(&name);
    is_name.then_some(Component::Key(name)).ok_or(SubdocError::PathEinval)
}

/// The length of the name at the start of a text.
fn name_bytes(text: &[u8]) -> Result<usize, SubdocError> {
    let mut is_quoted = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'`' => is_quoted = !is_quoted,
            b'.' | b'[' if !is_quoted => return Ok(at),
            b']' if !is_quoted => return Err(SubdocError::PathEinval),
            _ => {}
        }
    }
    if is_quoted { Err(SubdocError::PathEinval) } else { Ok(text.len()) }
}

/// A name without its backticks; a doubled one becomes a literal one.
fn unquoted(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'`') {
        return Cow::Borrowed(text);
    }
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind) {
            (b'`', [b'`', behind @ ..]) => {
                name.push(b'`');
                rest = behind;
            }
            (b'`', _) => {}
            (byte, _) => name.push(*byte),
        }
    }
    Cow::Owned(name)
}

#[cfg(test)]
mod tests {
    use super::{Component, Path};
    use crate::error::SubdocError;

    fn key(name: &str) -> Component<'_> {
        Component::Key(name.as_bytes().into())
    }

    // Compat (Sub-document operations): Paths read as in Couchbase
    #[test]
    fn paths_that_mean_something() {
        use Component::{Index, Last};
        let table: &[(&str, Vec<Component<'_>>)] = &[
            ("", vec![]),
            ("a", vec![key("a")]),
            ("a.b", vec![key("a"), key("b")]),
            ("a[0]", vec![key("a"), Index(0)]),
            ("a[0][12].b", vec![key("a"), Index(0), Index(12), key("b")]),
            ("[-1]", vec![Last]),
            ("[4294967295]", vec![Index(u32::MAX)]),
            ("`a.b[0]`.c", vec![key("a.b[0]"), key("c")]),
            ("`a``b`", vec![key("a`b")]),
            ("````", vec![key("`")]),
            ("``", vec![key("")]),
            ("``[1]", vec![key(""), Index(1)]),
            ("a.``.b", vec![key("a"), key(""), key("b")]),
            ("a b.ä", vec![key("a b"), key("ä")]),
            (r#"a\"b"#, vec![key(r#"a\"b"#)]),
            ("$document.CAS", vec![key("$document"), key("CAS")]),
            ("-1", vec![key("-1")]),
            // A dot after any step, an index without digits or with more than necessary.
            ("a.", vec![key("a")]),
            ("a[0].", vec![key("a"), Index(0)]),
            ("`a`.", vec![key("a")]),
            ("a.[0]", vec![key("a"), Index(0)]),
            ("[1].[2].b", vec![Index(1), Index(2), key("b")]),
            ("a[]", vec![key("a"), Index(0)]),
            ("[]", vec![Index(0)]),
            ("[01]", vec![Index(1)]),
            ("[000]", vec![Index(0)]),
            ("[4294967296]", vec![Index(u32::MAX)]),
            ("[18446744073709551615]", vec![Index(u32::MAX)]),
            // Backticks inside a name.
            ("a`.b`c.d", vec![key("a.bc"), key("d")]),
            ("a``b", vec![key("a`b")]),
            ("a`[0]`", vec![key("a[0]")]),
            ("`a`b", vec![key("ab")]),
            ("a`b`", vec![key("ab")]),
            ("``a``", vec![key("a")]),
            ("`.`x`]`", vec![key(".x]")]),
        ];
        for (text, components) in table {
            assert_eq!(Path::parse(text.as_bytes()).unwrap().components(), components, "{text}");
        }
    }

    #[test]
    fn malformed_paths() {
        for text in [
            ".",
            ".a",
            "a..",
            "a..b",
            "[0]..a",
            ".[0]",
            "[",
            "[a]",
            "[-2]",
            "[-0]",
            "[-]",
            "[+1]",
            "[ 1]",
            "[1",
            "a]",
            "a[0]b",
            "[0]a",
            "[0]`a`",
            "`a",
            "`a.b",
            "a`",
            "`",
            "```",
            "\"a\"",
            "a\\",
            "a\\.b",
            "a\nb",
            "[18446744073709551616]",
            "[1]]",
            "[[0]]",
        ] {
            assert_eq!(Path::parse(text.as_bytes()), Err(SubdocError::PathEinval), "{text}");
        }
        assert_eq!(Path::parse(b"a\xff"), Err(SubdocError::PathEinval));
    }

    #[test]
    fn limits() {
        let longest = "a".repeat(1024);
        assert!(Path::parse(longest.as_bytes()).is_ok());
        assert_eq!(Path::parse("a".repeat(1025).as_bytes()), Err(SubdocError::PathE2big));
        assert_eq!(Path::parse("[0]".repeat(32).as_bytes()).unwrap().components().len(), 32);
        assert_eq!(Path::parse("[0]".repeat(33).as_bytes()), Err(SubdocError::PathE2big));
    }
}
