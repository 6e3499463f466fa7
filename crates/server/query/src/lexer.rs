//! Splits a statement into tokens.
//!
//! A token has a kind and a range of the text. The parser decodes strings and numbers when it needs
//! them. Comments are dropped, hints among them. The list of tokens ends with `End`.

pub mod keywords;

use crate::error::{QueryError, Result};
use crate::value::{Text, json};
use keywords::{Keyword, keyword};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    Name,
    /// A name in backticks; `` `n`i `` folds its case.
    QuotedName,
    FoldedName,
    Text,
    Integer,
    Decimal,
    Word(Keyword),
    /// `$1`, `$name`, `@name`; the range is without the sign.
    Parameter,
    NextParameter,
    Mark(Punctuation),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Punctuation {
    Comma,
    Dot,
    Colon,
    Semicolon,
    OpenParen,
    CloseParen,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    Caret,
    Concat,
    Equal,
    DoubleEqual,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub start: u32,
    pub end: u32,
}

/// The number of tokens of a statement, the end included.
pub fn count_tokens(text: &str) -> Result<usize> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    let mut count = 1;
    while lexer.next()?.kind != TokenKind::End {
        count += 1;
    }
    debug_assert!(count <= text.len() + 1, "each token has a byte of the text");
    Ok(count)
}

/// The tokens of a statement.
pub fn tokens(text: &str) -> Result<Vec<Token>> {
    counted_tokens(text, text.len() / 4)
}

/// The tokens of a statement, of which there are about `count`.
pub fn counted_tokens(text: &str, count: usize) -> Result<Vec<Token>> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    let mut list = Vec::with_capacity(count + 2);
    loop {
        let token = lexer.next()?;
        debug_assert!(
            list.last().is_none_or(|last: &Token| last.end <= token.start),
            "tokens do not overlap"
        );
        list.push(token);
        if token.kind == TokenKind::End {
            debug_assert!(token.end as usize == text.len(), "the last token is the text's end");
            return Ok(list);
        }
    }
}

/// The tokens up to the first text that is none, and where that begins: at the end if all are.
pub fn readable_tokens(text: &str) -> (Vec<Token>, usize) {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0 };
    let mut list = Vec::new();
    loop {
        let blanks = lexer.at;
        // A comment that is not closed begins after blanks.
        if lexer.skip_blanks().is_err() {
            return (list, blanks + text[blanks..].len() - text[blanks..].trim_start().len());
        }
        let start = lexer.at;
        match lexer.next() {
            Ok(token) if token.kind == TokenKind::End => return (list, text.len()),
            Ok(token) => list.push(token),
            Err(_) => return (list, start),
        }
    }
}

/// The inside of a token in quotes; `None` when an escape is not valid.
pub fn unquoted(token: &str, kind: TokenKind) -> Option<Text> {
    let raw = token.as_bytes();
    let quote = raw[0];
    let end = raw.len() - usize::from(kind == TokenKind::FoldedName) - 1;
    debug_assert!(end > 0 && raw[end] == quote, "a token in quotes ends with its quote");
    let inside = &raw[1..end];
    if memchr::memchr2(b'\\', quote, inside).is_none() {
        return Some(Text::from_bytes(inside.to_vec().into()));
    }
    let mut plain = Vec::with_capacity(inside.len());
    let mut at = 0;
    while let Some(&byte) = inside.get(at) {
        at += 1;
        plain.push(byte);
        if byte == quote {
            at += 1;
        } else if byte == b'\\' {
            let escape = inside.get(at).copied().unwrap_or_default();
            let valid = match escape {
                b'u' => inside
                    .get(at + 1..at + 5)
                    .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
                b'b' | b'f' | b'n' | b'r' | b't' | b'/' | b'\\' | b'"' | b'\'' | b'`' => true,
                _ => false,
            };
            if !valid {
                return None;
            }
            plain.push(escape);
            at += 1;
        }
    }
    Some(Text::from_bytes(json::decode_bytes(&plain).into()))
}

/// Line and column of a byte position, both from 1.
pub fn position(text: &str, at: usize) -> (u32, u32) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = memchr::memchr_iter(b'\n', before).count();
    let start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
    (line as u32 + 1, (before.len() - start) as u32 + 1)
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Result<Token> {
        self.skip_blanks()?;
        let start = self.at;
        let Some(&byte) = self.bytes.get(start) else {
            return Ok(self.token(TokenKind::End, start, start));
        };
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Ok(self.word(start)),
            b'0'..=b'9' => self.number(start),
            b'"' | b'\'' => self.quoted(start, byte, TokenKind::Text),
            b'`' => self.quoted_name(start),
            b'$' | b'@' => self.parameter(start),
            b'?' => {
                self.at += 1;
                Ok(self.token(TokenKind::NextParameter, start, self.at))
            }
            _ => self.mark(start),
        }
    }

    fn token(&self, kind: TokenKind, start: usize, end: usize) -> Token {
        debug_assert!(start <= end && end <= self.bytes.len(), "a token is inside the text");
        Token { kind, start: start as u32, end: end as u32 }
    }

    fn fail<T>(&self, what: &str, at: usize) -> Result<T> {
        let (line, column) = position(self.text, at);
        let msg = format!("syntax error - line {line}, column {column}: {what}");
        Err(QueryError::syntax(msg, (line, column)))
    }

    fn skip_blanks(&mut self) -> Result<()> {
        loop {
            match (self.bytes.get(self.at), self.bytes.get(self.at + 1)) {
                (Some(b' ' | b'\t' | b'\r' | b'\n'), _) => self.at += 1,
                (Some(b'-'), Some(b'-')) => {
                    let rest = &self.bytes[self.at..];
                    self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                }
                (Some(b'/'), Some(b'*')) => {
                    let rest = &self.bytes[self.at + 2..];
                    match memchr::memmem::find(rest, b"*/") {
                        Some(length) => self.at += length + 4,
                        None => return self.fail("a comment is not closed", self.at),
                    }
                }
                _ => {
                    debug_assert!(self.at <= self.bytes.len(), "blanks end inside the text");
                    return Ok(());
                }
            }
        }
    }

    fn word(&mut self, start: usize) -> Token {
        self.skip_name();
        debug_assert!(self.at > start, "a word has a character");
        let kind = keyword(&self.bytes[start..self.at]).map_or(TokenKind::Name, TokenKind::Word);
        self.token(kind, start, self.at)
    }

    fn skip_name(&mut self) {
        while matches!(
            self.bytes.get(self.at),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$')
        ) {
            self.at += 1;
        }
    }

    fn skip_digits(&mut self) -> usize {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        self.at - start
    }

    fn number(&mut self, start: usize) -> Result<Token> {
        self.skip_digits();
        let mut kind = TokenKind::Integer;
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            kind = TokenKind::Decimal;
            if self.skip_digits() == 0 {
                return self.fail("a number ends with a point", start);
            }
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            let mark = self.at;
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.skip_digits() == 0 {
                return self.fail("an exponent has no digits", mark);
            }
            kind = TokenKind::Decimal;
        }
        if matches!(self.bytes.get(self.at), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$')) {
            return self.fail("a number runs into a name", start);
        }
        debug_assert!(self.at > start, "a number has a digit");
        Ok(self.token(kind, start, self.at))
    }

    /// A text or name in quotes. The quote is doubled or escaped inside.
    fn quoted(&mut self, start: usize, quote: u8, kind: TokenKind) -> Result<Token> {
        self.at = start + 1;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(stop) = memchr::memchr2(quote, b'\\', rest) else {
                return self.fail("a quote is not closed", start);
            };
            self.at += stop + 1;
            if rest[stop] == b'\\' {
                if self.at >= self.bytes.len() {
                    return self.fail("a quote is not closed", start);
                }
                self.at += 1;
                while !self.text.is_char_boundary(self.at) {
                    self.at += 1;
                }
            } else if self.bytes.get(self.at) == Some(&quote) {
                self.at += 1;
            } else {
                debug_assert!(self.at >= start + 2, "a token in quotes has both of them");
                return Ok(self.token(kind, start, self.at));
            }
        }
    }

    fn quoted_name(&mut self, start: usize) -> Result<Token> {
        let mut token = self.quoted(start, b'`', TokenKind::QuotedName)?;
        let after = self.bytes.get(self.at + 1);
        let ends = !after.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if self.bytes.get(self.at) == Some(&b'i') && ends {
            self.at += 1;
            token.kind = TokenKind::FoldedName;
            token.end = self.at as u32;
        }
        Ok(token)
    }

    fn parameter(&mut self, start: usize) -> Result<Token> {
        self.at += 1;
        if self.skip_digits() > 0 {
            let ends = !matches!(self.bytes.get(self.at), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_'));
            if !ends || self.bytes[start] == b'@' || self.bytes[start + 1] == b'0' {
                return self.fail("a parameter's number is not valid", start);
            }
        } else {
            if !matches!(self.bytes.get(self.at), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_')) {
                return self.fail("a parameter has no name", start);
            }
            self.skip_name();
        }
        debug_assert!(self.at > start + 1, "a parameter has a name or a number");
        Ok(self.token(TokenKind::Parameter, start + 1, self.at))
    }

    fn mark(&mut self, start: usize) -> Result<Token> {
        use Punctuation::*;
        let next = self.bytes.get(start + 1);
        let (mark, length) = match (self.bytes[start], next) {
            (b'|', Some(b'|')) => (Concat, 2),
            (b'=', Some(b'=')) => (DoubleEqual, 2),
            (b'!', Some(b'=')) | (b'<', Some(b'>')) => (NotEqual, 2),
            (b'<', Some(b'=')) => (LessEqual, 2),
            (b'>', Some(b'=')) => (GreaterEqual, 2),
            (b',', _) => (Comma, 1),
            (b'.', _) => (Dot, 1),
            (b':', _) => (Colon, 1),
            (b';', _) => (Semicolon, 1),
            (b'(', _) => (OpenParen, 1),
            (b')', _) => (CloseParen, 1),
            (b'[', _) => (OpenBracket, 1),
            (b']', _) => (CloseBracket, 1),
            (b'{', _) => (OpenBrace, 1),
            (b'}', _) => (CloseBrace, 1),
            (b'+', _) => (Plus, 1),
            (b'-', _) => (Minus, 1),
            (b'*', _) => (Star, 1),
            (b'/', _) => (Slash, 1),
            (b'%', _) => (Percent, 1),
            (b'^', _) => (Caret, 1),
            (b'=', _) => (Equal, 1),
            (b'<', _) => (Less, 1),
            (b'>', _) => (Greater, 1),
            _ => return self.fail("an unknown character", start),
        };
        self.at += length;
        Ok(self.token(TokenKind::Mark(mark), start, self.at))
    }
}
