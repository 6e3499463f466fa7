//! Paths: `a.b[0].c`, `[-1]`, and names that hold such characters between backticks.
//!
//! A name ends at a dot, a bracket or the end. Between backticks everything is the name, and a doubled
//! backtick is one; that is also how the empty name is written. Names are JSON text between quotes, so
//! they may hold escapes and not a bare quote. An index is a decimal number without leading zeroes; -1
//! is the last element. The empty path is the whole document; which operations take it is theirs to say.

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

/// A parsed path.
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
                // A dot stands between a step and a name, and nowhere else.
                b'.' if components.is_empty() => return Err(SubdocError::PathEinval),
                b'.' => {
                    rest = &rest[1..];
                    name(&mut rest)?
                }
                _ if components.is_empty() => name(&mut rest)?,
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

/// Takes `[n]`.
fn index<'a>(rest: &mut &'a [u8]) -> Result<Component<'a>, SubdocError> {
    let end = rest.iter().position(|byte| *byte == b']').ok_or(SubdocError::PathEinval)?;
    let digits = &rest[1..end];
    *rest = &rest[end + 1..];
    let is_number = digits.iter().all(u8::is_ascii_digit)
        && (digits.len() == 1 || digits.first() != Some(&b'0'));
    match std::str::from_utf8(digits) {
        Ok("-1") => Ok(Component::Last),
        Ok(digits) if is_number => {
            digits.parse().map(Component::Index).map_err(|_| SubdocError::PathEinval)
        }
        _ => Err(SubdocError::PathEinval),
    }
}

/// Takes a name, plain or between backticks.
fn name<'a>(rest: &mut &'a [u8]) -> Result<Component<'a>, SubdocError> {
    let name = match rest.strip_prefix(b"`") {
        Some(quoted) => {
            *rest = quoted;
            quoted_name(rest)?
        }
        None => {
            let end =
                rest.iter().position(|byte| matches!(byte, b'.' | b'[')).unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            *rest = behind;
            if name.is_empty() || name.iter().any(|byte| matches!(byte, b'`' | b']')) {
                return Err(SubdocError::PathEinval);
            }
            Cow::Borrowed(name)
        }
    };
    key_text::is_valid(&name).then_some(Component::Key(name)).ok_or(SubdocError::PathEinval)
}

/// Takes the rest of a name behind its opening backtick.
fn quoted_name<'a>(rest: &mut &'a [u8]) -> Result<Cow<'a, [u8]>, SubdocError> {
    let mut name = Cow::Borrowed(&rest[..0]);
    loop {
        let end = rest.iter().position(|byte| *byte == b'`').ok_or(SubdocError::PathEinval)?;
        let (part, behind) = (&rest[..end], &rest[end + 1..]);
        if name.is_empty() {
            name = Cow::Borrowed(part);
        } else {
            name.to_mut().extend_from_slice(part);
        }
        *rest = behind;
        match behind.strip_prefix(b"`") {
            Some(behind) => {
                name.to_mut().push(b'`');
                *rest = behind;
            }
            None => return Ok(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Component, Path};
    use crate::error::SubdocError;

    fn key(name: &str) -> Component<'_> {
        Component::Key(name.as_bytes().into())
    }

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
        ];
        for (text, components) in table {
            assert_eq!(Path::parse(text.as_bytes()).unwrap().components(), components, "{text}");
        }
    }

    #[test]
    fn malformed_paths() {
        for text in [
            ".",
            "a.",
            ".a",
            "a..b",
            "a.[0]",
            "[",
            "[]",
            "[a]",
            "[-2]",
            "[-0]",
            "[01]",
            "[+1]",
            "[ 1]",
            "[1",
            "a]",
            "a[0]b",
            "[0]a",
            "`a",
            "`a`b",
            "a`b`",
            "a`",
            "`",
            "```",
            "\"a\"",
            "a\\",
            "a\nb",
            "[4294967296]",
            "a[0].",
            "[1]]",
            "`a`.",
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
