//! The kinds of statements, EXPLAIN, PREPARE and EXECUTE.

use std::sync::Arc;

use crate::ast::statement::{Execute, Infer, Prepare, Statement};
use crate::ast::{Body, Expr};
use crate::error::Result;
use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, TokenKind};
use crate::value::{QueryValue, Text};

use super::Parser;

impl Parser<'_> {
    pub(super) fn statement(&mut self) -> Result<Statement> {
        let TokenKind::Word(word) = self.kind() else {
            return self.query_or_expression();
        };
        match word {
            Keyword::SELECT | Keyword::FROM | Keyword::WITH => {
                Ok(Statement::Query(Box::new(self.query()?)))
            }
            Keyword::INSERT | Keyword::UPSERT => self.insert(),
            Keyword::UPDATE => self.update(),
            Keyword::DELETE => self.delete(),
            Keyword::MERGE => self.merge(),
            Keyword::EXPLAIN => self.explain(),
            Keyword::PREPARE => self.prepare(),
            Keyword::EXECUTE => self.execute(),
            Keyword::CREATE => self.create(),
            Keyword::DROP => self.drop_index(),
            Keyword::BUILD => self.build_index(),
            Keyword::ADVISE => self.advise(),
            Keyword::BEGIN | Keyword::START | Keyword::COMMIT | Keyword::ROLLBACK => {
                self.transaction(word)
            }
            Keyword::INFER => self.infer(),
            _ => self.query_or_expression(),
        }
    }

    /// A statement that is only recognised: its text is not read.
    fn unsupported(&mut self, name: &'static str) -> Result<Statement> {
        self.at = self.tokens.len() - 1;
        debug_assert!(self.kind() == TokenKind::End, "the last token is the end");
        Ok(Statement::Unsupported(name))
    }

    fn advise(&mut self) -> Result<Statement> {
        self.advance();
        self.eat_word(Keyword::INDEX);
        self.statement()?;
        Ok(Statement::Unsupported("ADVISE"))
    }

    fn infer(&mut self) -> Result<Statement> {
        self.advance();
        let _ = self.eat_word(Keyword::COLLECTION) || self.eat_word(Keyword::KEYSPACE);
        let keyspace = self.keyspace()?;
        let options = match self.eat_word(Keyword::WITH) {
            true => Some(self.expr()?),
            false => None,
        };
        Ok(Statement::Infer(Box::new(Infer { keyspace, options })))
    }

    fn transaction(&mut self, word: Keyword) -> Result<Statement> {
        self.advance();
        let work = [Keyword::WORK, Keyword::TRAN, Keyword::TRANSACTION];
        let named = work.iter().any(|word| self.eat_word(*word));
        if !named && matches!(word, Keyword::BEGIN | Keyword::START) {
            return self.fail("WORK or TRANSACTION");
        }
        if self.kind() != TokenKind::End && !self.at_mark(Punctuation::Semicolon) && !named {
            return self.fail("WORK or TRANSACTION");
        }
        self.unsupported("a transaction")
    }

    fn query_or_expression(&mut self) -> Result<Statement> {
        let (start, positions) = (self.at, self.positions);
        if self.at_query() {
            let query = self.query();
            match query {
                Ok(query) if !is_parenthesised(&query) => {
                    return Ok(Statement::Query(Box::new(query)));
                }
                _ => (self.at, self.positions) = (start, positions),
            }
        }
        self.expr()?;
        Ok(Statement::Expression)
    }

    fn explain(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::EXPLAIN)?;
        if self.at_word(Keyword::EXPLAIN) || !matches!(self.kind(), TokenKind::Word(_)) {
            return self.fail("a statement");
        }
        let statement = self.nested(Parser::statement)?;
        Ok(Statement::Explain(Box::new(statement)))
    }

    fn prepare(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::PREPARE)?;
        let force = self.eat_word(Keyword::FORCE);
        let mut name = None;
        if self.at_name() || self.kind() == TokenKind::Text {
            name = Some(self.prepared_name()?);
            if !self.eat_word(Keyword::AS) {
                self.expect_word(Keyword::FROM)?;
            }
        }
        if matches!(self.kind(), TokenKind::Word(Keyword::PREPARE | Keyword::EXECUTE)) {
            return self.fail("a statement");
        }
        let start = self.token().start as usize;
        let statement = self.nested(Parser::statement)?;
        if statement == Statement::Expression {
            return self.fail("a statement");
        }
        let end = self.token().start as usize;
        assert!(start <= end && end <= self.text.len(), "the statement is inside the text");
        let text = self.text[start..end].trim_end().to_owned();
        Ok(Statement::Prepare(Box::new(Prepare {
            bytes: self.tree_bytes,
            name,
            force,
            statement: Arc::new(statement),
            text,
        })))
    }

    fn prepared_name(&mut self) -> Result<Text> {
        if self.kind() == TokenKind::Text {
            let token = self.advance();
            return self.unquoted(token);
        }
        self.alias()
    }

    fn execute(&mut self) -> Result<Statement> {
        self.expect_word(Keyword::EXECUTE)?;
        let name = match self.primary()? {
            Expr::Name(name) => Some(name.text),
            Expr::Literal(QueryValue::Str(text)) => Some(text),
            _ => None,
        };
        let mut using = None;
        if self.eat_word(Keyword::USING) {
            if !self.at_mark(Punctuation::OpenBracket) && !self.at_mark(Punctuation::OpenBrace) {
                return self.fail("an array or object");
            }
            using = Some(self.primary()?);
        }
        Ok(Statement::Execute(Box::new(Execute { name, using })))
    }
}

/// Whether a query is only another one in parentheses.
fn is_parenthesised(query: &crate::ast::QueryExpr) -> bool {
    matches!(query.body, Body::Nested(_))
        && query.with.is_empty()
        && query.order.is_empty()
        && query.limit.is_none()
        && query.offset.is_none()
}
