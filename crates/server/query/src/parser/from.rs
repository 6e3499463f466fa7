//! FROM: keyspaces, variables, values and subqueries, their hints and their joins.

use crate::ast::{
    Expr, From, FromSource, FromTerm, Join, JoinKind, JoinWith, KeyspacePath, Name, PathStep,
};
use crate::error::Result;
use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, TokenKind};
use crate::value::Text;

use super::Parser;

impl Parser<'_> {
    pub(super) fn from(&mut self) -> Result<From> {
        let first = self.source_term()?;
        let mut joins = Vec::new();
        while let Some(join) = self.join()? {
            joins.push(join);
        }
        Ok(From { first, joins })
    }

    fn join(&mut self) -> Result<Option<Join>> {
        if self.eat(Punctuation::Comma) {
            let term = self.source_term()?;
            return Ok(Some(Join {
                kind: JoinKind::Inner,
                nest: false,
                term,
                with: JoinWith::Comma,
            }));
        }
        let kind = match self.kind() {
            TokenKind::Word(Keyword::INNER) => JoinKind::Inner,
            TokenKind::Word(Keyword::LEFT) => JoinKind::Left,
            TokenKind::Word(Keyword::RIGHT) => JoinKind::Right,
            TokenKind::Word(Keyword::JOIN | Keyword::NEST | Keyword::UNNEST | Keyword::FLATTEN) => {
                return self.join_tail(JoinKind::Inner).map(Some);
            }
            _ => return Ok(None),
        };
        self.advance();
        if kind != JoinKind::Inner {
            self.eat_word(Keyword::OUTER);
        }
        self.join_tail(kind).map(Some)
    }

    fn join_tail(&mut self, kind: JoinKind) -> Result<Join> {
        let word = self.kind();
        match word {
            TokenKind::Word(Keyword::UNNEST | Keyword::FLATTEN) if kind != JoinKind::Right => {
                self.advance();
                let term = self.unnest_term()?;
                return Ok(Join { kind, nest: false, term, with: JoinWith::Unnest });
            }
            TokenKind::Word(Keyword::NEST) if kind == JoinKind::Right => return self.fail("JOIN"),
            TokenKind::Word(Keyword::JOIN | Keyword::NEST) => {}
            _ => return self.fail("JOIN, NEST or UNNEST"),
        }
        self.advance();
        let nest = word == TokenKind::Word(Keyword::NEST);
        let term = self.source_term()?;
        let with = self.join_condition(kind)?;
        Ok(Join { kind, nest, term, with })
    }

    fn join_condition(&mut self, kind: JoinKind) -> Result<JoinWith> {
        self.expect_word(Keyword::ON)?;
        let primary = self.eat_word(Keyword::PRIMARY);
        if kind != JoinKind::Right && self.eat_word(Keyword::KEYS) {
            return Ok(JoinWith::Keys(self.expr()?));
        }
        if kind != JoinKind::Right && self.eat_word(Keyword::KEY) {
            let key = self.expr()?;
            self.expect_word(Keyword::FOR)?;
            return Ok(JoinWith::KeyFor(key, self.alias()?));
        }
        if primary {
            return self.fail("KEYS");
        }
        Ok(JoinWith::On(self.expr()?))
    }

    fn unnest_term(&mut self) -> Result<FromTerm> {
        let at = self.token().start;
        let value = self.expr()?;
        let alias = match self.optional_alias()? {
            Some(alias) => Some(alias),
            None => super::query::implicit_name(&value),
        };
        Ok(FromTerm {
            source: FromSource::Value(value),
            alias,
            keys: None,
            indexes: Vec::new(),
            hash: false,
            at,
        })
    }

    pub(super) fn source_term(&mut self) -> Result<FromTerm> {
        let at = self.token().start;
        let lateral = self.eat_word(Keyword::LATERAL);
        if self.at_mark(Punctuation::OpenParen)
            && let Some(query) = self.subquery_source()?
        {
            self.eat_word(Keyword::AS);
            let alias = Some(self.alias()?);
            let source = FromSource::Subquery(Box::new(query));
            let mut term =
                FromTerm { source, alias, keys: None, indexes: Vec::new(), hash: false, at };
            self.use_hints(&mut term)?;
            return Ok(term);
        }
        if lateral {
            return self.fail("a subquery");
        }
        let (source, implicit) = self.named_source()?;
        let alias = self.optional_alias()?.or(implicit);
        let mut term = FromTerm { source, alias, keys: None, indexes: Vec::new(), hash: false, at };
        self.use_hints(&mut term)?;
        Ok(term)
    }

    /// A subquery in parentheses that no operator follows. What follows is looked at first: a
    /// subquery that is parsed twice doubles the time of a statement at each level.
    fn subquery_source(&mut self) -> Result<Option<crate::ast::QueryExpr>> {
        let close = self.closings[self.at] as usize;
        debug_assert!(close > self.at, "a parenthesis closes after it opens");
        let after = self.tokens.get(close + 1).map_or(TokenKind::End, |token| token.kind);
        if !self.is_query_at(self.at + 1) || continues_expression(after) {
            return Ok(None);
        }
        self.advance();
        let query = self.query()?;
        self.expect(Punctuation::CloseParen)?;
        debug_assert!(self.at == close + 1, "the subquery ends with its parenthesis");
        if self.at_name() || self.at_word(Keyword::AS) {
            return Ok(Some(query));
        }
        self.fail("an alias of the subquery")
    }

    fn named_source(&mut self) -> Result<(FromSource, Option<Text>)> {
        if self.kind_after(1) == TokenKind::Mark(Punctuation::Colon) {
            let path = self.keyspace()?;
            let alias = path.parts.last().cloned();
            return Ok((FromSource::Keyspace(path), alias));
        }
        let value = self.expr()?;
        let alias = super::query::implicit_name(&value);
        match path_names(&value) {
            Some(names) => Ok((FromSource::Path(names), alias)),
            None => Ok((FromSource::Value(value), alias)),
        }
    }

    pub(super) fn keyspace(&mut self) -> Result<KeyspacePath> {
        let mut namespace = None;
        if self.kind_after(1) == TokenKind::Mark(Punctuation::Colon) {
            let token = self.token();
            let text = self.slice(token).trim_matches('`').to_ascii_lowercase();
            if text != "default" && text != "system" {
                return self.fail("the namespace default or system");
            }
            self.at += 2;
            debug_assert!(self.at < self.tokens.len(), "a colon is not the end");
            namespace = Some(Text::from(text));
        }
        let mut parts = vec![self.alias()?];
        while parts.len() < 3 && self.at_mark(Punctuation::Dot) {
            self.advance();
            parts.push(self.alias()?);
        }
        assert!((1..=3).contains(&parts.len()), "a keyspace has one to three names");
        Ok(KeyspacePath { namespace, parts })
    }

    pub(super) fn use_hints(&mut self, term: &mut FromTerm) -> Result<()> {
        if !self.eat_word(Keyword::USE) {
            return Ok(());
        }
        let mut hints = 0;
        loop {
            match self.kind() {
                TokenKind::Word(Keyword::PRIMARY) if self.word_after(1, Keyword::KEYS) => {
                    self.at += 2;
                    term.keys = Some(self.expr()?);
                }
                TokenKind::Word(Keyword::KEYS) => {
                    self.advance();
                    term.keys = Some(self.expr()?);
                }
                TokenKind::Word(Keyword::INDEX) => {
                    self.advance();
                    term.indexes = self.index_hints()?;
                }
                TokenKind::Word(Keyword::HASH) => {
                    self.advance();
                    term.hash = true;
                    self.parens(|parser| {
                        if parser.eat_word(Keyword::BUILD) || parser.eat_word(Keyword::PROBE) {
                            return Ok(());
                        }
                        parser.fail("BUILD or PROBE")
                    })?;
                }
                TokenKind::Word(Keyword::NL) => drop(self.advance()),
                _ if hints == 0 => return self.fail("KEYS, INDEX, HASH or NL"),
                _ => return Ok(()),
            }
            hints += 1;
        }
    }

    fn index_hints(&mut self) -> Result<Vec<Text>> {
        self.expect(Punctuation::OpenParen)?;
        let names = self.items(Punctuation::CloseParen, |parser| {
            let name = if parser.at_name() { Some(parser.alias()?) } else { None };
            if parser.at_word(Keyword::USING) || name.is_none() {
                parser.using()?;
            }
            Ok(name)
        })?;
        Ok(names.into_iter().flatten().collect())
    }

    pub(super) fn using(&mut self) -> Result<()> {
        self.expect_word(Keyword::USING)?;
        if self.eat_word(Keyword::GSI) || self.eat_word(Keyword::FTS) {
            return Ok(());
        }
        self.fail("GSI")
    }
}

/// Whether a parenthesis before this token closes a part of an expression.
fn continues_expression(kind: TokenKind) -> bool {
    let marks = [
        Punctuation::Dot,
        Punctuation::OpenBracket,
        Punctuation::CloseParen,
        Punctuation::Plus,
        Punctuation::Concat,
    ];
    marks.iter().any(|mark| kind == TokenKind::Mark(*mark))
}

/// The names of a path that has nothing else.
fn path_names(value: &Expr) -> Option<Vec<Name>> {
    match value {
        Expr::Name(name) if !name.folded => Some(vec![name.clone()]),
        Expr::Path(base, steps) => {
            let mut names = path_names(base)?;
            debug_assert!(!names.is_empty(), "a path begins with a name");
            for step in steps {
                let PathStep::Field { name, folded: false } = step else { return None };
                names.push(Name { text: name.clone(), folded: false, at: names[0].at });
            }
            Some(names)
        }
        _ => None,
    }
}
