//! INSERT, UPSERT, UPDATE, DELETE and MERGE.

use crate::ast::statement::{
    Assignment, Delete, Insert, InsertRows, KeyspaceTarget, Merge, MergeAction, Statement, Update,
};
use crate::ast::{Expr, FromTerm, PathStep, ProjectionClause};
use crate::error::Result;
use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, TokenKind};

use super::Parser;

impl Parser<'_> {
    fn target(&mut self) -> Result<KeyspaceTarget> {
        let keyspace = self.keyspace()?;
        let alias = self.optional_alias()?;
        Ok(KeyspaceTarget { keyspace, alias, keys: None })
    }

    fn target_with_keys(&mut self) -> Result<KeyspaceTarget> {
        let mut target = self.target()?;
        let mut term = FromTerm {
            source: crate::ast::FromSource::Keyspace(target.keyspace.clone()),
            alias: None,
            keys: None,
            indexes: Vec::new(),
            hash: false,
            at: 0,
        };
        self.use_hints(&mut term)?;
        target.keys = term.keys;
        Ok(target)
    }

    fn returning(&mut self) -> Result<Option<ProjectionClause>> {
        match self.eat_word(Keyword::RETURNING) {
            true => Ok(Some(self.projection()?)),
            false => Ok(None),
        }
    }

    fn condition(&mut self) -> Result<Option<Expr>> {
        match self.eat_word(Keyword::WHERE) {
            true => Ok(Some(self.expr()?)),
            false => Ok(None),
        }
    }

    pub(super) fn insert(&mut self) -> Result<Statement> {
        let is_first = self.at_word(Keyword::INSERT) || self.at_word(Keyword::UPSERT);
        debug_assert!(is_first, "INSERT and UPSERT begin with their words");
        let upsert = self.advance().kind == TokenKind::Word(Keyword::UPSERT);
        self.expect_word(Keyword::INTO)?;
        let target = self.target()?;
        let rows = match self.at_mark(Punctuation::OpenParen) {
            true => self.insert_with_header()?,
            false => InsertRows::Values(self.insert_values(true)?),
        };
        let returning = self.returning()?;
        Ok(Statement::Insert(Box::new(Insert { upsert, target, rows, returning })))
    }

    /// `(KEY, VALUE [, OPTIONS]) VALUES ..` or `(KEY e [, VALUE e [, OPTIONS e]]) SELECT ..`
    fn insert_with_header(&mut self) -> Result<InsertRows> {
        self.expect(Punctuation::OpenParen)?;
        self.eat_word(Keyword::PRIMARY);
        self.expect_word(Keyword::KEY)?;
        if self.eat(Punctuation::Comma) {
            self.expect_word(Keyword::VALUE)?;
            let options = self.eat(Punctuation::Comma);
            if options {
                self.expect_word(Keyword::OPTIONS)?;
            }
            self.expect(Punctuation::CloseParen)?;
            return Ok(InsertRows::Values(self.insert_values(true)?));
        }
        let key = self.expr()?;
        let (mut value, mut options) = (None, None);
        while self.eat(Punctuation::Comma) {
            if value.is_none() && options.is_none() && self.eat_word(Keyword::VALUE) {
                value = Some(self.expr()?);
            } else if options.is_none() && self.eat_word(Keyword::OPTIONS) {
                options = Some(self.expr()?);
            } else {
                return self.fail("VALUE or OPTIONS");
            }
        }
        self.expect(Punctuation::CloseParen)?;
        let query = Box::new(self.query()?);
        Ok(InsertRows::Select { key, value, options, query })
    }

    fn insert_values(&mut self, options: bool) -> Result<Vec<(Expr, Expr, Option<Expr>)>> {
        self.expect_word(Keyword::VALUES)?;
        self.list(|parser| {
            parser.eat_word(Keyword::VALUES);
            parser.parens(|parser| {
                let key = parser.expr()?;
                parser.expect(Punctuation::Comma)?;
                let value = parser.expr()?;
                let options = match options && parser.eat(Punctuation::Comma) {
                    true => Some(parser.expr()?),
                    false => None,
                };
                Ok((key, value, options))
            })
        })
    }

    pub(super) fn update(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::UPDATE)?;
        let target = self.target_with_keys()?;
        let (set, unset) = self.set_and_unset()?;
        assert!(!set.is_empty() || !unset.is_empty(), "UPDATE changes something");
        let condition = self.condition()?;
        let (limit, offset) = self.limit_and_offset()?;
        let returning = self.returning()?;
        let update = Update { target, set, unset, condition, limit, offset, returning };
        Ok(Statement::Update(Box::new(update)))
    }

    fn set_and_unset(&mut self) -> Result<(Vec<Assignment>, Vec<Assignment>)> {
        let set = match self.eat_word(Keyword::SET) {
            true => self.list(|parser| parser.assignment(true))?,
            false => Vec::new(),
        };
        let unset = match self.eat_word(Keyword::UNSET) {
            true => self.list(|parser| parser.assignment(false))?,
            false => Vec::new(),
        };
        if set.is_empty() && unset.is_empty() {
            return self.fail("SET or UNSET");
        }
        Ok((set, unset))
    }

    fn assignment(&mut self, with_value: bool) -> Result<Assignment> {
        let token = self.token();
        let path = self.primary()?;
        let meta = is_expiration(&path);
        if !meta && !is_path(&path) {
            return self.fail_at(token, "expected a path of the document");
        }
        let value = match with_value {
            true => {
                self.expect(Punctuation::Equal)?;
                Some(self.expr()?)
            }
            false => None,
        };
        let mut loops = Vec::new();
        while self.eat_word(Keyword::FOR) {
            loops.push(self.list(Parser::binding)?);
        }
        debug_assert!(loops.iter().all(|list| !list.is_empty()), "FOR binds a variable");
        loops.reverse();
        let mut condition = None;
        if !loops.is_empty() {
            condition = self.when()?;
            self.expect_word(Keyword::END)?;
        }
        Ok(Assignment { meta, path, value, loops, condition })
    }

    pub(super) fn delete(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::DELETE)?;
        self.expect_word(Keyword::FROM)?;
        let target = self.target_with_keys()?;
        let condition = self.condition()?;
        let (limit, offset) = self.limit_and_offset()?;
        let returning = self.returning()?;
        let delete = Delete { target, condition, limit, offset, returning };
        Ok(Statement::Delete(Box::new(delete)))
    }

    pub(super) fn merge(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::MERGE)?;
        self.expect_word(Keyword::INTO)?;
        let target = self.target_with_keys()?;
        self.expect_word(Keyword::USING)?;
        let source = self.source_term()?;
        self.expect_word(Keyword::ON)?;
        let primary = self.eat_word(Keyword::PRIMARY);
        let by_key = self.eat_word(Keyword::KEY);
        if primary && !by_key {
            return self.fail("KEY");
        }
        let on = self.expr()?;
        let mut actions = Vec::new();
        while self.eat_word(Keyword::WHEN) {
            actions.push(self.merge_action(by_key)?);
        }
        if actions.is_empty() {
            return self.fail("WHEN");
        }
        let (limit, _) = self.limit_and_offset()?;
        let returning = self.returning()?;
        let merge = Merge { target, source, by_key, on, actions, limit, returning };
        Ok(Statement::Merge(Box::new(merge)))
    }

    fn merge_action(&mut self, by_key: bool) -> Result<MergeAction> {
        let matched = !self.eat_word(Keyword::NOT);
        self.expect_word(Keyword::MATCHED)?;
        self.expect_word(Keyword::THEN)?;
        if matched && self.eat_word(Keyword::UPDATE) {
            let (set, unset) = self.set_and_unset()?;
            return Ok(MergeAction::Update { set, unset, condition: self.condition()? });
        }
        if matched && self.eat_word(Keyword::DELETE) {
            return Ok(MergeAction::Delete { condition: self.condition()? });
        }
        if matched {
            return self.fail("UPDATE or DELETE");
        }
        self.expect_word(Keyword::INSERT)?;
        let _ = by_key;
        let (mut key, mut value, mut options) = (None, None, None);
        let keyed = self.at_mark(Punctuation::OpenParen)
            && (self.word_after(1, Keyword::KEY) || self.word_after(1, Keyword::PRIMARY));
        if keyed {
            self.advance();
            self.eat_word(Keyword::PRIMARY);
            self.expect_word(Keyword::KEY)?;
            key = Some(self.expr()?);
            while self.eat(Punctuation::Comma) {
                if value.is_none() && self.eat_word(Keyword::VALUE) {
                    value = Some(self.expr()?);
                } else {
                    self.expect_word(Keyword::OPTIONS)?;
                    options = Some(self.expr()?);
                }
            }
            self.expect(Punctuation::CloseParen)?;
        } else {
            value = Some(self.expr()?);
        }
        debug_assert!(keyed == key.is_some(), "a key is in parentheses");
        Ok(MergeAction::Insert { key, value, options, condition: self.condition()? })
    }
}

fn is_path(path: &Expr) -> bool {
    match path {
        Expr::Name(_) => true,
        Expr::Path(base, steps) => {
            matches!(**base, Expr::Name(_))
                && steps.iter().all(|step| !matches!(step, PathStep::Slice(..) | PathStep::Star))
        }
        _ => false,
    }
}

fn is_expiration(path: &Expr) -> bool {
    let Expr::Path(base, steps) = path else { return false };
    let meta = matches!(&**base, Expr::Call(call) if call.name == "META");
    let name = PathStep::Field { name: "expiration".into(), folded: false };
    meta && *steps == [name]
}
