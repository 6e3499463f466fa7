//! Queries: WITH, SELECT and its clauses, set operators, ORDER BY, LIMIT and windows.

use crate::ast::{
    Body, Descending, Expr, FrameBound, FrameClause, FrameExclusion, FrameUnit, GroupBy, OrderTerm,
    PathStep, ProjectionClause, QueryExpr, ResultTerm, Select, SetKind, SetOperator, WindowClause,
    WithTerm,
};
use crate::error::{QueryError, Result};
use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, TokenKind};
use crate::value::Text;

use super::Parser;

/// The name of a result without alias: the last name of its path.
pub fn implicit_name(expr: &Expr) -> Option<Text> {
    match expr {
        Expr::Name(name) => Some(name.text.clone()),
        Expr::Path(_, steps) => match steps.last()? {
            PathStep::Field { name, .. } => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}

impl Parser<'_> {
    pub(super) fn query(&mut self) -> Result<QueryExpr> {
        self.nested(|parser| {
            let (recursive, with) = parser.with_terms()?;
            let body = parser.body()?;
            parser.query_tail(recursive, with, body)
        })
    }

    fn query_tail(
        &mut self,
        recursive: bool,
        with: Vec<WithTerm>,
        body: Body,
    ) -> Result<QueryExpr> {
        let order = match self.at_word(Keyword::ORDER) {
            true => self.order_by()?,
            false => Vec::new(),
        };
        let (limit, offset) = self.limit_and_offset()?;
        Ok(QueryExpr { recursive, with, body, order, limit, offset })
    }

    /// LIMIT and OFFSET in either order.
    pub(super) fn limit_and_offset(&mut self) -> Result<(Option<Expr>, Option<Expr>)> {
        let (mut limit, mut offset) = (None, None);
        loop {
            if limit.is_none() && self.eat_word(Keyword::LIMIT) {
                limit = Some(self.expr()?);
            } else if offset.is_none() && self.eat_word(Keyword::OFFSET) {
                offset = Some(self.expr()?);
            } else {
                return Ok((limit, offset));
            }
        }
    }

    fn with_terms(&mut self) -> Result<(bool, Vec<WithTerm>)> {
        if !self.eat_word(Keyword::WITH) {
            return Ok((false, Vec::new()));
        }
        let recursive = self.eat_word(Keyword::RECURSIVE);
        Ok((recursive, self.list(Parser::with_term)?))
    }

    fn with_term(&mut self) -> Result<WithTerm> {
        let name = self.alias()?;
        self.expect_word(Keyword::AS)?;
        if !self.at_mark(Punctuation::OpenParen) {
            return self.fail("an opening parenthesis");
        }
        let value = self.primary()?;
        let mut cycle = Vec::new();
        if self.eat_word(Keyword::CYCLE) {
            cycle = self.list(Parser::expr)?;
            self.expect_word(Keyword::RESTRICT)?;
        }
        let options = match self.eat_word(Keyword::OPTIONS) {
            true => Some(self.expr()?),
            false => None,
        };
        Ok(WithTerm { name, value, cycle, options })
    }

    fn body(&mut self) -> Result<Body> {
        let first = self.body_term()?;
        let mut rest = Vec::new();
        while let Some(kind) = self.set_kind() {
            self.advance();
            let all = self.eat_word(Keyword::ALL);
            rest.push((SetOperator { kind, all }, self.body_term()?));
        }
        if rest.is_empty() { Ok(first) } else { Ok(Body::Sets(Box::new(first), rest)) }
    }

    fn set_kind(&self) -> Option<SetKind> {
        match self.kind() {
            TokenKind::Word(Keyword::UNION) => Some(SetKind::Union),
            TokenKind::Word(Keyword::INTERSECT) => Some(SetKind::Intersect),
            TokenKind::Word(Keyword::EXCEPT) => Some(SetKind::Except),
            _ => None,
        }
    }

    fn body_term(&mut self) -> Result<Body> {
        if self.at_mark(Punctuation::OpenParen) {
            let query = self.parens(Parser::query)?;
            return Ok(Body::Nested(Box::new(query)));
        }
        Ok(Body::Select(Box::new(self.select()?)))
    }

    fn select(&mut self) -> Result<Select> {
        if self.eat_word(Keyword::SELECT) {
            let projection = self.projection()?;
            let from = match self.eat_word(Keyword::FROM) {
                true => Some(self.from()?),
                false => None,
            };
            return self.select_clauses(from, Some(projection));
        }
        self.expect_word(Keyword::FROM)?;
        let from = Some(self.from()?);
        self.select_clauses(from, None)
    }

    /// The clauses between FROM and ORDER BY. A query that begins with FROM has SELECT as the last.
    fn select_clauses(
        &mut self,
        from: Option<crate::ast::From>,
        projection: Option<ProjectionClause>,
    ) -> Result<Select> {
        let lets = match self.eat_word(Keyword::LET) {
            true => self.assignments()?,
            false => Vec::new(),
        };
        let condition = match self.eat_word(Keyword::WHERE) {
            true => Some(self.expr()?),
            false => None,
        };
        let group = self.group()?;
        let windows = match self.eat_word(Keyword::WINDOW) {
            true => self.list(Parser::named_window)?,
            false => Vec::new(),
        };
        let projection = match projection {
            Some(projection) => projection,
            None => {
                self.expect_word(Keyword::SELECT)?;
                self.projection()?
            }
        };
        Ok(Select { from, lets, condition, group, windows, projection })
    }

    fn assignments(&mut self) -> Result<Vec<(Text, Expr)>> {
        self.list(|parser| {
            let name = parser.alias()?;
            parser.expect(Punctuation::Equal)?;
            Ok((name, parser.expr()?))
        })
    }

    fn group(&mut self) -> Result<Option<GroupBy>> {
        let mut group = GroupBy { terms: Vec::new(), letting: Vec::new(), having: None };
        let by = self.eat_word(Keyword::GROUP);
        if by {
            self.expect_word(Keyword::BY)?;
            group.terms = self.list(|parser| {
                let value = parser.expr()?;
                let alias = match parser.eat_word(Keyword::AS) {
                    true => Some(parser.alias()?),
                    false => None,
                };
                Ok((value, alias))
            })?;
        }
        let letting = self.eat_word(Keyword::LETTING);
        if letting {
            group.letting = self.assignments()?;
        }
        if (by || letting) && self.eat_word(Keyword::HAVING) {
            group.having = Some(self.expr()?);
        }
        debug_assert!(by != group.terms.is_empty(), "GROUP BY alone has terms");
        Ok((by || letting).then_some(group))
    }

    pub(super) fn projection(&mut self) -> Result<ProjectionClause> {
        let distinct = self.eat_word(Keyword::DISTINCT);
        if !distinct {
            self.eat_word(Keyword::ALL);
        }
        let raw = matches!(
            self.kind(),
            TokenKind::Word(Keyword::RAW | Keyword::VALUE | Keyword::ELEMENT)
        );
        if raw {
            self.advance();
            let value = self.expr()?;
            let alias = self.optional_alias()?;
            let terms = vec![ResultTerm::Value { value, alias }];
            return Ok(ProjectionClause { distinct, raw, terms, excluded: Vec::new() });
        }
        let terms = self.list(Parser::result_term)?;
        debug_assert!(!terms.is_empty(), "a projection has a term");
        check_names(&terms)?;
        let excluded = match self.eat_word(Keyword::EXCLUDE) {
            true => self.list(Parser::excluded)?.concat(),
            false => Vec::new(),
        };
        Ok(ProjectionClause { distinct, raw, terms, excluded })
    }

    /// A term of EXCLUDE: a path, or a text with paths between commas.
    fn excluded(&mut self) -> Result<Vec<Vec<Text>>> {
        if self.kind() == TokenKind::Text {
            let token = self.advance();
            let list = self.unquoted(token)?.to_str().into_owned();
            let mut paths = Parser::new(&list, self.keep)?;
            let excluded = paths.list(Parser::excluded_path)?;
            let is_named = |path: &Vec<Text>| !path.is_empty();
            debug_assert!(excluded.iter().all(is_named), "a path has a name");
            paths.expect_end()?;
            return Ok(excluded);
        }
        Ok(vec![self.excluded_path()?])
    }

    fn excluded_path(&mut self) -> Result<Vec<Text>> {
        let mut names = vec![self.alias()?];
        while self.eat(Punctuation::Dot) {
            names.push(self.alias()?);
        }
        Ok(names)
    }

    fn result_term(&mut self) -> Result<ResultTerm> {
        if self.eat(Punctuation::Star) {
            return Ok(ResultTerm::All);
        }
        let value = self.expr()?;
        if self.at_mark(Punctuation::Dot)
            && self.kind_after(1) == TokenKind::Mark(Punctuation::Star)
        {
            self.at += 2;
            return Ok(ResultTerm::AllOf(value));
        }
        let alias = self.optional_alias()?;
        Ok(ResultTerm::Value { value, alias })
    }

    pub(super) fn order_by(&mut self) -> Result<Vec<OrderTerm>> {
        self.expect_word(Keyword::ORDER)?;
        self.expect_word(Keyword::BY)?;
        self.list(Parser::order_term)
    }

    fn order_term(&mut self) -> Result<OrderTerm> {
        let value = self.expr()?;
        let descending = match self.kind() {
            TokenKind::Word(Keyword::DESC) => Descending::Yes,
            _ => Descending::No,
        };
        if matches!(self.kind(), TokenKind::Word(Keyword::DESC | Keyword::ASC)) {
            self.advance();
        }
        let mut nulls_last = None;
        if self.eat_word(Keyword::NULLS) {
            nulls_last = Some(match self.kind() {
                TokenKind::Word(Keyword::FIRST) => false,
                TokenKind::Word(Keyword::LAST) => true,
                TokenKind::Name => {
                    return Err(QueryError::new(3291, "NULLS takes FIRST or LAST"));
                }
                _ => return self.fail("FIRST or LAST"),
            });
            self.advance();
        }
        Ok(OrderTerm { value, descending, nulls_last })
    }

    fn named_window(&mut self) -> Result<(Text, WindowClause)> {
        let name = self.alias()?;
        self.expect_word(Keyword::AS)?;
        Ok((name, self.parens(Parser::window)?))
    }

    pub(super) fn window_or_name(&mut self) -> Result<WindowClause> {
        if self.at_name() {
            return Ok(WindowClause { base: Some(self.alias()?), ..WindowClause::default() });
        }
        self.parens(Parser::window)
    }

    fn window(&mut self) -> Result<WindowClause> {
        let mut window = WindowClause::default();
        if self.at_name() {
            window.base = Some(self.alias()?);
        }
        if self.eat_word(Keyword::PARTITION) {
            self.expect_word(Keyword::BY)?;
            window.partition = self.list(Parser::expr)?;
        }
        if self.at_word(Keyword::ORDER) {
            window.order = self.order_by()?;
        }
        window.frame = self.window_frame()?;
        Ok(window)
    }

    fn window_frame(&mut self) -> Result<Option<FrameClause>> {
        let unit = match self.kind() {
            TokenKind::Word(Keyword::ROWS) => FrameUnit::Rows,
            TokenKind::Word(Keyword::RANGE) => FrameUnit::Range,
            TokenKind::Word(Keyword::GROUPS) => FrameUnit::Groups,
            _ => return Ok(None),
        };
        self.advance();
        let (start, end) = match self.eat_word(Keyword::BETWEEN) {
            true => {
                let start = self.frame_bound()?;
                self.expect_word(Keyword::AND)?;
                (start, self.frame_bound()?)
            }
            false => (self.frame_bound()?, FrameBound::CurrentRow),
        };
        let exclude = match self.eat_word(Keyword::EXCLUDE) {
            true => self.frame_exclusion()?,
            false => FrameExclusion::NoOthers,
        };
        Ok(Some(FrameClause { unit, start, end, exclude }))
    }

    fn frame_bound(&mut self) -> Result<FrameBound> {
        if self.eat_word(Keyword::CURRENT) {
            self.expect_word(Keyword::ROW)?;
            return Ok(FrameBound::CurrentRow);
        }
        let unbounded = self.eat_word(Keyword::UNBOUNDED);
        let distance = if unbounded { None } else { Some(self.expr()?) };
        let preceding = self.eat_word(Keyword::PRECEDING);
        if !preceding {
            self.expect_word(Keyword::FOLLOWING)?;
        }
        Ok(match (preceding, distance) {
            (true, None) => FrameBound::UnboundedPreceding,
            (true, Some(distance)) => FrameBound::Preceding(distance),
            (false, None) => FrameBound::UnboundedFollowing,
            (false, Some(distance)) => FrameBound::Following(distance),
        })
    }

    fn frame_exclusion(&mut self) -> Result<FrameExclusion> {
        if self.eat_word(Keyword::CURRENT) {
            self.expect_word(Keyword::ROW)?;
            return Ok(FrameExclusion::CurrentRow);
        }
        if self.eat_word(Keyword::NO) {
            self.expect_word(Keyword::OTHERS)?;
            return Ok(FrameExclusion::NoOthers);
        }
        if self.eat_word(Keyword::GROUP) {
            return Ok(FrameExclusion::Group);
        }
        self.expect_word(Keyword::TIES)?;
        Ok(FrameExclusion::Ties)
    }
}

/// Result names are unique.
fn check_names(terms: &[ResultTerm]) -> Result<()> {
    let mut names = std::collections::HashSet::new();
    for term in terms {
        let ResultTerm::Value { value, alias } = term else { continue };
        let Some(name) = alias.clone().or_else(|| result_name(value)) else { continue };
        if !names.insert(name.clone()) {
            return Err(QueryError::new(3000, format!("Duplicate result alias {name}")));
        }
    }
    Ok(())
}

fn result_name(value: &Expr) -> Option<Text> {
    implicit_name(value)
}
