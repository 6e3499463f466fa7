//! Parses a statement into its syntax tree.
//!
//! A hand-written parser: descent for statements and clauses, binding powers for operators
//! (`parser::expression`). Each nested level counts against `NESTING_MAX`, so no text can overflow
//! the stack. A syntax error names line, column and the text there.

mod change;
mod expression;
mod from;
mod index;
mod primary;
mod query;
mod statement;
#[cfg(test)]
mod tests;
mod tree_memory;

pub use query::implicit_name;

#[cfg(any(test, feature = "harness"))]
use crate::ast::Expr;
use crate::ast::Name;
use crate::ast::statement::Statement;
use crate::error::{QueryError, Result};
use crate::lexer::keywords::Keyword;
use crate::lexer::{self, Punctuation, Token, TokenKind};
use crate::limits::{NESTING_MAX, STATEMENT_BYTES_MAX, VALUE_BYTES_FREE};
use crate::value::Text;

/// Reserves so many bytes.
pub type Keep<'a> = &'a dyn Fn(usize) -> Result<()>;

/// Parses one statement with an optional semicolon. `keep` reserves memory for its tokens, which
/// are the statement's until its end, and for its tree and plan.
pub fn parse(text: &str, keep: Keep<'_>) -> Result<Statement> {
    let mut parser = Parser::new(text, keep)?;
    let statement = parser.statement()?;
    parser.eat(Punctuation::Semicolon);
    parser.expect_end()?;
    debug_assert!(parser.at + 1 == parser.tokens.len(), "no token is left");
    debug_assert!(parser.depth == 0, "every level was left");
    Ok(statement)
}

/// Parses one expression, for tests of the printer.
#[cfg(any(test, feature = "harness"))]
pub fn parse_expression(text: &str) -> Result<Expr> {
    let mut parser = Parser::new(text, &|_| Ok(()))?;
    let expr = parser.expr()?;
    parser.expect_end()?;
    Ok(expr)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    /// Positional parameters so far, for `?`.
    positions: usize,
    /// The number of the closing parenthesis of each opening one.
    closings: Vec<u32>,
    /// Bytes of the statement's tree and plan, at most.
    tree_bytes: usize,
    keep: Keep<'a>,
}

/// For each opening parenthesis the number of its closing one, or of the last token.
fn closings(tokens: &[Token]) -> Vec<u32> {
    assert!(!tokens.is_empty(), "a list of tokens has its end");
    let last = tokens.len() as u32 - 1;
    let mut closings = vec![last; tokens.len()];
    let mut open = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Mark(Punctuation::OpenParen) => open.push(at),
            TokenKind::Mark(Punctuation::CloseParen) => {
                if let Some(start) = open.pop() {
                    debug_assert!(start < at, "a parenthesis opens before it closes");
                    closings[start] = at as u32;
                }
            }
            _ => {}
        }
    }
    closings
}

impl<'a> Parser<'a> {
    fn new(text: &'a str, keep: Keep<'a>) -> Result<Parser<'a>> {
        if text.len() > STATEMENT_BYTES_MAX {
            return Err(QueryError::syntax("the statement is too long", (1, 1)));
        }
        let tokens = match text.len() {
            0..VALUE_BYTES_FREE => lexer::tokens(text)?,
            _ => {
                let count = lexer::count_tokens(text)?;
                keep(count * (size_of::<Token>() + size_of::<u32>()))?;
                lexer::counted_tokens(text, count)?
            }
        };
        let tree_bytes = tree_memory::tree_bytes(&tokens);
        keep(tree_bytes)?;
        let closings = closings(&tokens);
        debug_assert!(closings.len() == tokens.len(), "each token has its closing one");
        Ok(Parser { text, tokens, at: 0, depth: 0, positions: 0, closings, tree_bytes, keep })
    }

    fn kind(&self) -> TokenKind {
        self.tokens[self.at].kind
    }

    fn kind_after(&self, count: usize) -> TokenKind {
        self.tokens.get(self.at + count).map_or(TokenKind::End, |token| token.kind)
    }

    fn token(&self) -> Token {
        self.tokens[self.at]
    }

    fn slice(&self, token: Token) -> &'a str {
        debug_assert!(token.end as usize <= self.text.len(), "a token is inside the text");
        &self.text[token.start as usize..token.end as usize]
    }

    fn advance(&mut self) -> Token {
        let token = self.token();
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        debug_assert!(self.at < self.tokens.len(), "the end is never passed");
        token
    }

    fn fail<T>(&self, expected: &str) -> Result<T> {
        self.fail_at(self.token(), &format!("expected {expected}"))
    }

    fn fail_at<T>(&self, token: Token, what: &str) -> Result<T> {
        let (line, column) = lexer::position(self.text, token.start as usize);
        let found = match token.kind {
            TokenKind::End => "the end of the statement".to_owned(),
            _ => format!("'{}'", self.slice(token).chars().take(40).collect::<String>()),
        };
        let msg = format!("syntax error - line {line}, column {column}: {what}, found {found}");
        Err(QueryError::syntax(msg, (line, column)))
    }

    fn at_mark(&self, mark: Punctuation) -> bool {
        self.kind() == TokenKind::Mark(mark)
    }

    fn eat(&mut self, mark: Punctuation) -> bool {
        let found = self.at_mark(mark);
        if found {
            self.at += 1;
            debug_assert!(self.at < self.tokens.len(), "a mark is not the end");
        }
        found
    }

    fn expect(&mut self, mark: Punctuation) -> Result<()> {
        if self.eat(mark) { Ok(()) } else { self.fail(&format!("{mark:?}")) }
    }

    fn at_word(&self, word: Keyword) -> bool {
        self.kind() == TokenKind::Word(word)
    }

    fn word_after(&self, count: usize, word: Keyword) -> bool {
        self.kind_after(count) == TokenKind::Word(word)
    }

    fn eat_word(&mut self, word: Keyword) -> bool {
        let found = self.at_word(word);
        if found {
            self.at += 1;
            debug_assert!(self.at < self.tokens.len(), "a word is not the end");
        }
        found
    }

    fn expect_word(&mut self, word: Keyword) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.fail(word.text()) }
    }

    fn expect_end(&self) -> Result<()> {
        if self.kind() == TokenKind::End { Ok(()) } else { self.fail("the end of the statement") }
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= NESTING_MAX {
            return self.fail_at(self.token(), "the statement is nested too deeply");
        }
        self.depth += 1;
        let depth = self.depth;
        let result = parse(self);
        debug_assert!(self.depth == depth, "levels are left as they were entered");
        self.depth -= 1;
        result
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let start = self.at;
        let mut items = vec![item(self)?];
        while self.eat(Punctuation::Comma) {
            items.push(item(self)?);
        }
        debug_assert!(self.at - start >= 2 * items.len() - 1, "each item has a token");
        Ok(items)
    }

    fn parens<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.expect(Punctuation::OpenParen)?;
        let result = self.nested(parse)?;
        self.expect(Punctuation::CloseParen)?;
        Ok(result)
    }

    fn at_name(&self) -> bool {
        matches!(self.kind(), TokenKind::Name | TokenKind::QuotedName | TokenKind::FoldedName)
    }

    fn name(&mut self) -> Result<Name> {
        if !self.at_name() {
            return self.fail("a name");
        }
        let token = self.advance();
        debug_assert!(token.start < token.end, "a name has a character");
        let text = match token.kind {
            TokenKind::Name => Text::from(self.slice(token)),
            _ => self.unquoted(token)?,
        };
        Ok(Name { text, folded: token.kind == TokenKind::FoldedName, at: token.start })
    }

    fn alias(&mut self) -> Result<Text> {
        let name = self.name()?;
        if name.folded {
            return self.fail("an alias");
        }
        Ok(name.text)
    }

    /// `AS alias` or `alias`, if there is one.
    fn optional_alias(&mut self) -> Result<Option<Text>> {
        if self.eat_word(Keyword::AS) || self.at_name() {
            return Ok(Some(self.alias()?));
        }
        Ok(None)
    }

    /// The inside of a token in quotes.
    fn unquoted(&self, token: Token) -> Result<Text> {
        match lexer::unquoted(self.slice(token), token.kind) {
            Some(text) => Ok(text),
            None => self.fail_at(token, "an escape is not valid"),
        }
    }
}
