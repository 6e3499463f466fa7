//! The text of statements, for programs that show, complete and split it.
//!
//! Owns: classes of tokens, also of a text that is still being written, the ends of statements, and
//! the words of the language.

use std::ops::Range;

use crate::aggregates::AGGREGATES;
use crate::error::Result;
use crate::functions;
use crate::lexer::keywords::{self, Keyword};
use crate::lexer::{self, Punctuation, TokenKind};
use crate::windows;

/// The kind of a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextClass {
    Keyword,
    Name,
    /// The name of a known function before its parenthesis.
    Function,
    /// A string in quotes.
    Text,
    Number,
    Parameter,
    Punctuation,
    Comment,
    /// Text that is no token, such as an unclosed quote.
    Invalid,
}

/// The parts of a text without blanks, in order.
pub fn classify(text: &str) -> Vec<(Range<usize>, TextClass)> {
    let (tokens, end) = lexer::readable_tokens(text);
    let mut parts = Vec::with_capacity(tokens.len());
    let mut at = 0;
    for (number, token) in tokens.iter().enumerate() {
        let (mut start, stop) = (token.start as usize, token.end as usize);
        let class = match token.kind {
            TokenKind::Word(_) => TextClass::Keyword,
            TokenKind::Name => {
                let next = tokens.get(number + 1).map(|next| next.kind);
                let is_call = next == Some(TokenKind::Mark(Punctuation::OpenParen));
                let name = text[start..stop].to_ascii_uppercase();
                match is_call && functions::is_known(&name) {
                    true => TextClass::Function,
                    false => TextClass::Name,
                }
            }
            TokenKind::QuotedName | TokenKind::FoldedName => TextClass::Name,
            TokenKind::Text => TextClass::Text,
            TokenKind::Integer | TokenKind::Decimal => TextClass::Number,
            TokenKind::Parameter => {
                // The range of the token is without its sign.
                start -= 1;
                TextClass::Parameter
            }
            TokenKind::NextParameter => TextClass::Parameter,
            TokenKind::Mark(_) => TextClass::Punctuation,
            TokenKind::End => continue,
        };
        push_comment(text, at..start, &mut parts);
        parts.push((start..stop, class));
        at = stop;
    }
    push_comment(text, at..end, &mut parts);
    if end < text.len() {
        parts.push((end..text.len(), TextClass::Invalid));
    }
    debug_assert!(parts.is_sorted_by(|left, right| left.0.end <= right.0.start), "parts ascend");
    parts
}

/// Text between two tokens is blanks and comments.
fn push_comment(text: &str, between: Range<usize>, parts: &mut Vec<(Range<usize>, TextClass)>) {
    let inside = &text[between.clone()];
    let start = between.start + inside.len() - inside.trim_start().len();
    let end = between.start + inside.trim_end().len();
    if start < end {
        parts.push((start..end, TextClass::Comment));
    }
}

/// The statements of a text, without their semicolons. Empty ones are left out.
///
/// # Errors
/// When the text has something that is no token (3000).
pub fn statements(text: &str) -> Result<Vec<Range<usize>>> {
    let mut found = Vec::new();
    let mut current: Option<Range<usize>> = None;
    for token in lexer::tokens(text)? {
        let parameter = usize::from(token.kind == TokenKind::Parameter);
        match token.kind {
            TokenKind::End | TokenKind::Mark(Punctuation::Semicolon) => {
                found.extend(current.take());
            }
            _ => {
                let start = token.start as usize - parameter;
                current.get_or_insert(start..start).end = token.end as usize;
            }
        }
    }
    Ok(found)
}

/// True when the text ends with a semicolon that ends a statement, or with something that can never
/// become one.
pub fn is_complete(text: &str) -> bool {
    let Ok(tokens) = lexer::tokens(text) else {
        // An open quote or comment may be closed by a later line.
        return false;
    };
    let last = tokens.iter().rev().nth(1);
    last.is_some_and(|token| token.kind == TokenKind::Mark(Punctuation::Semicolon))
}

/// Line and column of a byte position, both from 1.
pub fn position(text: &str, at: usize) -> (u32, u32) {
    lexer::position(text, at)
}

/// A name as a statement has it: in backticks where it must be.
pub fn quoted_name(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    match starts && name.bytes().all(plain) && keywords::keyword(name.as_bytes()).is_none() {
        true => name.to_owned(),
        false => format!("`{}`", name.replace('\\', "\\\\").replace('`', "``")),
    }
}

/// The reserved words in capitals, in alphabetical order.
pub fn keyword_names() -> impl Iterator<Item = &'static str> {
    Keyword::all()
}

/// The functions, aggregates and window functions, without their other names.
pub fn function_names() -> impl Iterator<Item = &'static str> {
    let aggregates = AGGREGATES.iter().map(|(name, _)| *name);
    functions::names().chain(aggregates).chain(windows::FUNCTIONS.iter().map(|known| known.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_text_has_classes() {
        let text = "select COUNT(*), `a b`.x -- note\nfrom $1 where n = 1.5 and s = 'open";
        let found: Vec<(&str, TextClass)> =
            classify(text).into_iter().map(|(range, class)| (&text[range], class)).collect();
        assert_eq!(found[0], ("select", TextClass::Keyword));
        assert_eq!(found[1], ("COUNT", TextClass::Function));
        assert!(found.contains(&("`a b`", TextClass::Name)));
        assert!(found.contains(&("-- note", TextClass::Comment)));
        assert!(found.contains(&("$1", TextClass::Parameter)));
        assert!(found.contains(&("1.5", TextClass::Number)));
        assert_eq!(found.last(), Some(&("'open", TextClass::Invalid)));
    }

    #[test]
    fn semicolons_in_quotes_end_no_statement() {
        let text = " select ';' ; /* ; */ select $1;; select 2";
        let found: Vec<&str> =
            statements(text).unwrap().into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["select ';'", "select $1", "select 2"]);
        assert!(statements("select 'a").is_err());
        for (text, complete) in
            [("select 1;", true), ("select 1; -- end", true), ("select 1", false), ("'a;", false)]
        {
            assert_eq!(is_complete(text), complete, "{text}");
        }
    }

    #[test]
    fn names_are_quoted_where_they_must_be() {
        for (name, expected) in
            [("beer", "beer"), ("beer-sample", "`beer-sample`"), ("key", "`key`"), ("`", "````")]
        {
            assert_eq!(quoted_name(name), expected);
            let text = format!("select {expected} from a");
            assert_eq!(statements(&text).unwrap().len(), 1);
        }
    }

    #[test]
    fn words_of_the_language_are_listed() {
        assert!(keyword_names().any(|word| word == "SELECT"));
        for name in ["ARRAY_AGG", "LOWER", "ROW_NUMBER"] {
            assert!(function_names().any(|known| known == name), "{name}");
        }
    }
}
