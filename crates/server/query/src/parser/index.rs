//! CREATE, DROP and BUILD INDEX.

use crate::ast::statement::{BuildIndex, CreateIndex, DropIndex, IndexKey, Statement};
use crate::ast::{Expr, KeyspacePath};
use crate::error::{QueryError, Result};
use crate::lexer::Punctuation;
use crate::lexer::keywords::Keyword;
use crate::value::Text;

use super::Parser;

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::CREATE)?;
        let unsupported = [
            (Keyword::SCOPE, "CREATE SCOPE"),
            (Keyword::COLLECTION, "CREATE COLLECTION"),
            (Keyword::FUNCTION, "CREATE FUNCTION"),
            (Keyword::SEQUENCE, "CREATE SEQUENCE"),
        ];
        if let Some((_, name)) = unsupported.iter().find(|(word, _)| self.at_word(*word)) {
            self.at = self.tokens.len() - 1;
            return Ok(Statement::Unsupported(name));
        }
        let primary = self.eat_word(Keyword::PRIMARY);
        self.expect_word(Keyword::INDEX)?;
        let mut index = CreateIndex {
            name: None,
            primary,
            if_not_exists: self.if_not_exists()?,
            keyspace: KeyspacePath::default(),
            keys: Vec::new(),
            partition: Vec::new(),
            condition: None,
            with: None,
        };
        if !primary || self.at_name() {
            index.name = Some(self.alias()?);
        }
        index.if_not_exists |= self.if_not_exists()?;
        self.expect_word(Keyword::ON)?;
        index.keyspace = self.keyspace()?;
        if !primary {
            self.expect(Punctuation::OpenParen)?;
            index.keys = self.list(Parser::index_key)?;
            self.expect(Punctuation::CloseParen)?;
        }
        assert!(primary == index.keys.is_empty(), "a primary index alone has no keys");
        assert!(primary || index.name.is_some(), "an index with keys has a name");
        self.index_clauses(&mut index)?;
        Ok(Statement::CreateIndex(Box::new(index)))
    }

    fn index_clauses(&mut self, index: &mut CreateIndex) -> Result<()> {
        if self.eat_word(Keyword::PARTITION) {
            self.expect_word(Keyword::BY)?;
            self.expect_word(Keyword::HASH)?;
            self.expect(Punctuation::OpenParen)?;
            index.partition = self.list(Parser::expr)?;
            debug_assert!(!index.partition.is_empty(), "PARTITION BY has an expression");
            self.expect(Punctuation::CloseParen)?;
        }
        if self.eat_word(Keyword::WHERE) {
            index.condition = Some(self.expr()?);
        }
        if self.at_word(Keyword::USING) {
            self.using()?;
        }
        if self.eat_word(Keyword::WITH) {
            index.with = Some(self.expr()?);
        }
        Ok(())
    }

    fn if_not_exists(&mut self) -> Result<bool> {
        if !self.eat_word(Keyword::IF) {
            return Ok(false);
        }
        self.expect_word(Keyword::NOT)?;
        self.expect_word(Keyword::EXISTS)?;
        Ok(true)
    }

    /// One key. The form that `system:indexes` shows puts an array key in parentheses.
    fn index_key(&mut self) -> Result<IndexKey> {
        let is_array_after =
            self.word_after(1, Keyword::DISTINCT) || self.word_after(1, Keyword::ALL);
        let is_enclosed = is_array_after && self.eat(Punctuation::OpenParen);
        let array = match (self.eat_word(Keyword::DISTINCT), self.eat_word(Keyword::ALL)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        debug_assert!(!is_enclosed || array.is_some(), "only an array key is enclosed");
        if array.is_some() && self.eat_word(Keyword::DISTINCT) {
            return self.fail("an array");
        }
        let value = self.expr()?;
        if is_enclosed {
            self.expect(Punctuation::CloseParen)?;
        }
        if matches!(value, Expr::Literal(_)) {
            let msg = "An index key is not a constant expression";
            return Err(QueryError::new(3280, msg));
        }
        let mut key = IndexKey { value, array, descending: false, include_missing: false };
        loop {
            if self.eat_word(Keyword::DESC) {
                key.descending = true;
            } else if self.at_word(Keyword::INCLUDE) {
                self.advance();
                self.expect_word(Keyword::MISSING)?;
                key.include_missing = true;
            } else if !self.eat_word(Keyword::ASC) {
                return Ok(key);
            }
        }
    }

    pub(super) fn drop_index(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::DROP)?;
        let unsupported = [
            (Keyword::SCOPE, "DROP SCOPE"),
            (Keyword::COLLECTION, "DROP COLLECTION"),
            (Keyword::FUNCTION, "DROP FUNCTION"),
            (Keyword::SEQUENCE, "DROP SEQUENCE"),
        ];
        if let Some((_, name)) = unsupported.iter().find(|(word, _)| self.at_word(*word)) {
            self.at = self.tokens.len() - 1;
            return Ok(Statement::Unsupported(name));
        }
        let primary = self.eat_word(Keyword::PRIMARY);
        self.expect_word(Keyword::INDEX)?;
        let mut if_exists = self.if_exists()?;
        let (name, keyspace) = self.dropped_name(primary, &mut if_exists)?;
        if_exists |= self.if_exists()?;
        if self.at_word(Keyword::USING) {
            self.using()?;
        }
        let index = DropIndex { primary, if_exists, name, keyspace };
        Ok(Statement::DropIndex(Box::new(index)))
    }

    fn if_exists(&mut self) -> Result<bool> {
        if !self.eat_word(Keyword::IF) {
            return Ok(false);
        }
        self.expect_word(Keyword::EXISTS)?;
        Ok(true)
    }

    /// `ON keyspace`, `name ON keyspace` or `keyspace.name`.
    /// `IF EXISTS` may follow a bare name.
    fn dropped_name(
        &mut self,
        primary: bool,
        if_exists: &mut bool,
    ) -> Result<(Option<Text>, KeyspacePath)> {
        if primary && self.eat_word(Keyword::ON) {
            return Ok((None, self.keyspace()?));
        }
        let start = self.at;
        let name = self.name()?.text;
        let has_condition = self.if_exists()?;
        if has_condition || self.at_word(Keyword::ON) {
            *if_exists |= has_condition;
            self.expect_word(Keyword::ON)?;
            return Ok((Some(name), self.keyspace()?));
        }
        self.at = start;
        let mut path = self.keyspace()?;
        if self.eat(Punctuation::Dot) {
            path.parts.push(self.alias()?);
        }
        let name = path.parts.pop();
        assert!(name.is_some(), "a path has a name");
        if path.parts.is_empty() {
            return self.fail("ON");
        }
        Ok((name, path))
    }

    pub(super) fn build_index(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::BUILD)?;
        self.expect_word(Keyword::INDEX)?;
        self.expect_word(Keyword::ON)?;
        let keyspace = self.keyspace()?;
        self.expect(Punctuation::OpenParen)?;
        let names = self.items(Punctuation::CloseParen, Parser::expr)?;
        if self.at_word(Keyword::USING) {
            self.using()?;
        }
        Ok(Statement::BuildIndex(Box::new(BuildIndex { keyspace, names })))
    }
}
