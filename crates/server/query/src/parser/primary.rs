//! Operands: literals, names, parameters, calls, constructors, CASE, quantifiers, and the steps of
//! a path after any of them.

use crate::ast::{
    CaseExpr, CollectionKind, Comprehension, Expr, FunctionCall, LoopBinding, Param, PathStep,
    QuantifiedExpr, Quantifier,
};
use crate::error::Result;
use crate::functions;
use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, TokenKind};
use crate::value::{QueryValue, Text, json};

use super::Parser;

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Result<Expr> {
        let operand = self.operand()?;
        let mut steps = Vec::new();
        while let Some(step) = self.step()? {
            steps.push(step);
        }
        Ok(match operand {
            operand if steps.is_empty() => operand,
            Expr::Path(base, mut earlier) => {
                debug_assert!(!earlier.is_empty(), "a path has a step");
                earlier.append(&mut steps);
                Expr::Path(base, earlier)
            }
            operand => Expr::Path(Box::new(operand), steps),
        })
    }

    fn operand(&mut self) -> Result<Expr> {
        match self.kind() {
            TokenKind::Name | TokenKind::QuotedName | TokenKind::FoldedName => self.name_or_call(),
            TokenKind::Text => {
                let token = self.advance();
                Ok(Expr::Literal(QueryValue::Str(self.unquoted(token)?)))
            }
            TokenKind::Integer | TokenKind::Decimal => {
                let token = self.advance();
                let number = json::number(self.slice(token).as_bytes());
                Ok(Expr::Literal(number.unwrap_or(QueryValue::Null)))
            }
            TokenKind::Parameter => Ok(Expr::Param(self.parameter())),
            TokenKind::NextParameter => {
                self.advance();
                self.positions += 1;
                Ok(Expr::Param(Param::Position(self.positions)))
            }
            TokenKind::Mark(Punctuation::OpenParen) => self.parens(Parser::expr_or_subquery),
            TokenKind::Mark(Punctuation::OpenBracket) => {
                self.advance();
                let items = self.items(Punctuation::CloseBracket, Parser::expr)?;
                Ok(Expr::Array(items))
            }
            TokenKind::Mark(Punctuation::OpenBrace) => {
                self.advance();
                let fields = self.items(Punctuation::CloseBrace, Parser::object_field)?;
                Ok(Expr::Object(fields))
            }
            TokenKind::Word(word) => self.word_operand(word),
            _ => self.fail("an expression"),
        }
    }

    fn word_operand(&mut self, word: Keyword) -> Result<Expr> {
        let literal = match word {
            Keyword::NULL => QueryValue::Null,
            Keyword::MISSING => QueryValue::Missing,
            Keyword::TRUE => QueryValue::Bool(true),
            Keyword::FALSE => QueryValue::Bool(false),
            Keyword::CASE => return self.nested(Parser::case),
            Keyword::ARRAY => return self.nested(|p| p.collection(CollectionKind::Array)),
            Keyword::FIRST => return self.nested(|p| p.collection(CollectionKind::First)),
            Keyword::OBJECT => return self.nested(|p| p.collection(CollectionKind::Object)),
            Keyword::ANY | Keyword::SOME | Keyword::EVERY => {
                return self.nested(Parser::quantified);
            }
            _ if self.kind_after(1) == TokenKind::Mark(Punctuation::OpenParen)
                && functions::is_known(word.text()) =>
            {
                let token = self.advance();
                return self.call(word.text().to_owned(), token.start);
            }
            _ => return self.fail("an expression"),
        };
        self.advance();
        Ok(Expr::Literal(literal))
    }

    fn parameter(&mut self) -> Param {
        let token = self.advance();
        let name = self.slice(token);
        match name.parse::<usize>() {
            Ok(position) => {
                debug_assert!(position > 0, "positions begin at 1");
                Param::Position(position)
            }
            Err(_) => Param::Name(Text::from(name)),
        }
    }

    /// A list up to `close`, which may be empty.
    pub(super) fn items<T>(
        &mut self,
        close: Punctuation,
        item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        if self.eat(close) {
            return Ok(Vec::new());
        }
        let items = self.list(item)?;
        self.expect(close)?;
        Ok(items)
    }

    pub(super) fn at_query(&self) -> bool {
        self.is_query_at(self.at)
    }

    /// Whether a query begins at a token. A parenthesis begins one if it holds one, and is followed
    /// by what may follow a query: so no text is parsed as a query and then as an expression.
    pub(super) fn is_query_at(&self, at: usize) -> bool {
        let mut at = at;
        loop {
            match self.tokens.get(at).map(|token| token.kind) {
                Some(TokenKind::Word(Keyword::SELECT | Keyword::FROM | Keyword::WITH)) => {
                    return true;
                }
                Some(TokenKind::Mark(Punctuation::OpenParen)) => {
                    let close = self.closings[at] as usize;
                    debug_assert!(close > at, "a parenthesis closes after it opens");
                    let is_closed = close + 1 < self.tokens.len();
                    if !is_closed || !self.may_follow_query(close + 1) {
                        return false;
                    }
                    at += 1;
                }
                _ => return false,
            }
        }
    }

    fn may_follow_query(&self, at: usize) -> bool {
        matches!(
            self.tokens.get(at).map_or(TokenKind::End, |token| token.kind),
            TokenKind::End
                | TokenKind::Mark(Punctuation::CloseParen | Punctuation::Semicolon)
                | TokenKind::Word(
                    Keyword::UNION
                        | Keyword::INTERSECT
                        | Keyword::EXCEPT
                        | Keyword::ORDER
                        | Keyword::LIMIT
                        | Keyword::OFFSET
                )
        )
    }

    fn expr_or_subquery(&mut self) -> Result<Expr> {
        if !self.at_query() {
            return self.expr();
        }
        let query = self.query()?;
        match self.at_mark(Punctuation::CloseParen) {
            true => Ok(Expr::Subquery(Box::new(query))),
            false => self.fail("a closing parenthesis"),
        }
    }

    fn object_field(&mut self) -> Result<(Expr, Expr)> {
        let first = self.token();
        let name = self.expr()?;
        if self.eat(Punctuation::Colon) {
            return Ok((name, self.expr()?));
        }
        match super::query::implicit_name(&name) {
            Some(text) => Ok((Expr::Literal(QueryValue::Str(text)), name)),
            None => self.fail_at(first, "a field needs a name"),
        }
    }

    fn step(&mut self) -> Result<Option<PathStep>> {
        if self.at_mark(Punctuation::Dot) {
            if self.kind_after(1) == TokenKind::Mark(Punctuation::Star) {
                return Ok(None);
            }
            self.advance();
            if self.eat(Punctuation::OpenBracket) {
                let name = self.expr()?;
                self.expect(Punctuation::CloseBracket)?;
                return Ok(Some(PathStep::Computed(name)));
            }
            let name = self.name()?;
            if self.at_mark(Punctuation::OpenParen) {
                return self.fail("no call of a function after a point");
            }
            return Ok(Some(PathStep::Field { name: name.text, folded: name.folded }));
        }
        if self.eat(Punctuation::OpenBracket) {
            return self.bracket_step().map(Some);
        }
        Ok(None)
    }

    fn bracket_step(&mut self) -> Result<PathStep> {
        if self.eat(Punctuation::Star) {
            self.expect(Punctuation::CloseBracket)?;
            return Ok(PathStep::Star);
        }
        if self.eat(Punctuation::Colon) {
            let end = self.slice_end()?;
            return Ok(PathStep::Slice(None, end));
        }
        let index = self.expr()?;
        if self.eat(Punctuation::Colon) {
            let end = self.slice_end()?;
            return Ok(PathStep::Slice(Some(index), end));
        }
        self.expect(Punctuation::CloseBracket)?;
        Ok(PathStep::Index(index))
    }

    fn slice_end(&mut self) -> Result<Option<Expr>> {
        if self.eat(Punctuation::CloseBracket) {
            return Ok(None);
        }
        let end = self.expr()?;
        self.expect(Punctuation::CloseBracket)?;
        Ok(Some(end))
    }

    fn name_or_call(&mut self) -> Result<Expr> {
        let token = self.token();
        let name = self.name()?;
        if self.at_mark(Punctuation::OpenParen) && !name.folded {
            return self.call(name.text.to_str().to_uppercase(), token.start);
        }
        Ok(Expr::Name(name))
    }

    fn call(&mut self, name: String, at: u32) -> Result<Expr> {
        debug_assert!(self.at_mark(Punctuation::OpenParen), "a call has a parenthesis");
        let token = self.tokens[self.at - 1];
        let aggregate = functions::aggregate(&name).is_some();
        // Only keys of indexes have it.
        let is_key = name == "FLATTEN_KEYS";
        if !aggregate && !is_key && !functions::is_known(&name) {
            return self.fail_at(token, "an unknown function");
        }
        let mut call = FunctionCall {
            name,
            args: Vec::new(),
            distinct: false,
            star: false,
            filter: None,
            over: None,
            ignore_nulls: false,
            from_last: false,
            at,
        };
        self.nested(|parser| parser.call_args(&mut call, aggregate))?;
        debug_assert!(!call.star || call.args.is_empty(), "a star is the only argument");
        functions::check_arity(&call).or_else(|what| self.fail_at(token, &what))?;
        self.call_tail(&mut call, aggregate)?;
        Ok(Expr::Call(Box::new(call)))
    }

    fn call_args(&mut self, call: &mut FunctionCall, aggregate: bool) -> Result<()> {
        self.expect(Punctuation::OpenParen)?;
        if aggregate && self.eat(Punctuation::Star) {
            call.star = true;
            return self.expect(Punctuation::CloseParen);
        }
        if aggregate && self.eat_word(Keyword::DISTINCT) {
            call.distinct = true;
        } else if aggregate {
            self.eat_word(Keyword::ALL);
        }
        call.args = self.items(Punctuation::CloseParen, Parser::expr)?;
        Ok(())
    }

    fn call_tail(&mut self, call: &mut FunctionCall, aggregate: bool) -> Result<()> {
        let window = functions::is_window_only(&call.name);
        if aggregate && self.at_word(Keyword::FILTER) {
            self.advance();
            let filter = self.parens(|parser| {
                parser.expect_word(Keyword::WHERE)?;
                parser.expr()
            })?;
            call.filter = Some(filter);
        }
        if window && self.at_word(Keyword::FROM) && self.word_after(1, Keyword::LAST) {
            self.at += 2;
            call.from_last = true;
        } else if window && self.at_word(Keyword::FROM) && self.word_after(1, Keyword::FIRST) {
            self.at += 2;
        }
        if window && self.at_word(Keyword::IGNORE) && self.word_after(1, Keyword::NULLS) {
            self.at += 2;
            call.ignore_nulls = true;
        } else if window && self.at_word(Keyword::RESPECT) && self.word_after(1, Keyword::NULLS) {
            self.at += 2;
        }
        if self.at_word(Keyword::OVER) && (aggregate || window) {
            self.advance();
            call.over = Some(self.window_or_name()?);
        } else if window {
            return self.fail("OVER");
        }
        debug_assert!(!window || call.over.is_some(), "a window function has a window");
        Ok(())
    }

    fn case(&mut self) -> Result<Expr> {
        self.expect_word(Keyword::CASE)?;
        let operand = match self.at_word(Keyword::WHEN) {
            true => None,
            false => Some(self.expr()?),
        };
        let mut whens = Vec::new();
        while self.eat_word(Keyword::WHEN) {
            let when = self.expr()?;
            self.expect_word(Keyword::THEN)?;
            whens.push((when, self.expr()?));
        }
        if whens.is_empty() {
            return self.fail("WHEN");
        }
        let otherwise = match self.eat_word(Keyword::ELSE) {
            true => Some(self.expr()?),
            false => None,
        };
        self.expect_word(Keyword::END)?;
        Ok(Expr::Case(Box::new(CaseExpr { operand, whens, otherwise })))
    }

    fn quantified(&mut self) -> Result<Expr> {
        let quantifier = match self.advance().kind {
            TokenKind::Word(Keyword::EVERY) => Quantifier::Every,
            _ if self.at_word(Keyword::AND) && self.word_after(1, Keyword::EVERY) => {
                self.at += 2;
                Quantifier::AnyAndEvery
            }
            _ => Quantifier::Any,
        };
        let bindings = self.list(Parser::binding)?;
        debug_assert!(!bindings.is_empty(), "a quantifier binds a variable");
        self.expect_word(Keyword::SATISFIES)?;
        let condition = self.expr()?;
        self.expect_word(Keyword::END)?;
        Ok(Expr::Quantified(Box::new(QuantifiedExpr { quantifier, bindings, condition })))
    }

    fn collection(&mut self, kind: CollectionKind) -> Result<Expr> {
        self.advance();
        let mut value = self.expr()?;
        let mut key = None;
        if kind == CollectionKind::Object {
            self.expect(Punctuation::Colon)?;
            key = Some(std::mem::replace(&mut value, self.expr()?));
        }
        self.expect_word(Keyword::FOR)?;
        let bindings = self.list(Parser::binding)?;
        debug_assert!(!bindings.is_empty(), "a loop binds a variable");
        let condition = self.when()?;
        self.expect_word(Keyword::END)?;
        Ok(Expr::Collection(Box::new(Comprehension { kind, key, value, bindings, condition })))
    }

    pub(super) fn when(&mut self) -> Result<Option<Expr>> {
        match self.eat_word(Keyword::WHEN) {
            true => Ok(Some(self.expr()?)),
            false => Ok(None),
        }
    }

    pub(super) fn binding(&mut self) -> Result<LoopBinding> {
        let mut variable = self.alias()?;
        let mut position = None;
        if self.eat(Punctuation::Colon) {
            position = Some(std::mem::replace(&mut variable, self.alias()?));
        }
        let within = self.eat_word(Keyword::WITHIN);
        if !within {
            self.expect_word(Keyword::IN)?;
        }
        Ok(LoopBinding { position, variable, within, source: self.expr()? })
    }
}
