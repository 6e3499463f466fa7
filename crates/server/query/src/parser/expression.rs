//! Operators, by binding power from OR up to the unary minus.

use crate::ast::{ArithmeticOperator, Expr, Relation, Test};
use crate::error::Result;
use crate::lexer::keywords::Keyword;
use crate::lexer::{Punctuation, TokenKind};

use super::Parser;

/// Ranks of operators; a higher one binds tighter.
mod rank {
    pub const OR: u8 = 1;
    pub const AND: u8 = 2;
    pub const NOT: u8 = 3;
    pub const EQUAL: u8 = 4;
    pub const LESS: u8 = 5;
    pub const LIKE: u8 = 6;
    pub const BETWEEN: u8 = 7;
    pub const IN: u8 = 8;
    pub const EXISTS: u8 = 9;
    pub const IS: u8 = 10;
    pub const CONCAT: u8 = 11;
    pub const ADD: u8 = 12;
    pub const MULTIPLY: u8 = 13;
    pub const POWER: u8 = 14;
    pub const UNARY: u8 = 15;
}

const _: () = assert!(rank::OR < rank::AND && rank::AND < rank::NOT);
const _: () = assert!(rank::NOT < rank::EQUAL && rank::EQUAL < rank::LESS);
const _: () = assert!(rank::CONCAT < rank::ADD && rank::ADD < rank::MULTIPLY);

#[derive(Clone, Copy, PartialEq)]
enum Infix {
    Or,
    And,
    Relation(Relation),
    Like,
    Between,
    In,
    Within,
    Is,
    Concat,
    Arithmetic(ArithmeticOperator),
}

impl Infix {
    fn rank(self) -> u8 {
        match self {
            Infix::Or => rank::OR,
            Infix::And => rank::AND,
            Infix::Relation(Relation::Equal | Relation::NotEqual) => rank::EQUAL,
            Infix::Relation(_) => rank::LESS,
            Infix::Like => rank::LIKE,
            Infix::Between => rank::BETWEEN,
            Infix::In | Infix::Within => rank::IN,
            Infix::Is => rank::IS,
            Infix::Concat => rank::CONCAT,
            Infix::Arithmetic(ArithmeticOperator::Add | ArithmeticOperator::Subtract) => rank::ADD,
            Infix::Arithmetic(ArithmeticOperator::Power) => rank::POWER,
            Infix::Arithmetic(_) => rank::MULTIPLY,
        }
    }

    /// Whether `a op b op c` is an error.
    fn is_single(self) -> bool {
        matches!(
            self,
            Infix::Relation(_) | Infix::Like | Infix::Between | Infix::In | Infix::Within
        )
    }
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Result<Expr> {
        self.ranked(0)
    }

    /// An expression of operators of at least `least`.
    fn ranked(&mut self, least: u8) -> Result<Expr> {
        self.nested(|parser| {
            let mut left = parser.prefix()?;
            // After an operator that does not chain, the next one must bind less.
            let mut most = u8::MAX;
            while let Some((infix, negated)) = parser.infix() {
                let rank = infix.rank();
                if rank < least {
                    break;
                }
                if rank > most {
                    return parser.fail("an operator that may follow");
                }
                left = parser.infix_tail(left, infix, negated)?;
                most = if infix.is_single() { rank - 1 } else { rank };
            }
            Ok(left)
        })
    }

    fn prefix(&mut self) -> Result<Expr> {
        match self.kind() {
            TokenKind::Word(Keyword::NOT) => {
                self.advance();
                Ok(Expr::Not(Box::new(self.ranked(rank::NOT)?)))
            }
            TokenKind::Word(Keyword::EXISTS) => {
                self.advance();
                Ok(Expr::Exists(Box::new(self.ranked(rank::EXISTS)?)))
            }
            TokenKind::Mark(Punctuation::Minus) => {
                self.advance();
                Ok(Expr::Negate(Box::new(self.ranked(rank::UNARY)?)))
            }
            _ => self.primary(),
        }
    }

    /// The operator at this position, and whether a NOT stands before it.
    fn infix(&self) -> Option<(Infix, bool)> {
        let negated = self.at_word(Keyword::NOT);
        let kind = if negated { self.kind_after(1) } else { self.kind() };
        let infix = match kind {
            TokenKind::Word(Keyword::LIKE) => Infix::Like,
            TokenKind::Word(Keyword::BETWEEN) => Infix::Between,
            TokenKind::Word(Keyword::IN) => Infix::In,
            TokenKind::Word(Keyword::WITHIN) => Infix::Within,
            _ if negated => return None,
            TokenKind::Word(Keyword::OR) => Infix::Or,
            TokenKind::Word(Keyword::AND) => Infix::And,
            TokenKind::Word(Keyword::IS) => Infix::Is,
            TokenKind::Mark(mark) => mark_infix(mark)?,
            _ => return None,
        };
        Some((infix, negated))
    }

    fn infix_tail(&mut self, left: Expr, infix: Infix, negated: bool) -> Result<Expr> {
        self.at += 1 + usize::from(negated);
        debug_assert!(self.at < self.tokens.len(), "an operator is not the end");
        let above = infix.rank() + 1;
        Ok(match infix {
            Infix::Or => chain(left, self.ranked(above)?, Expr::Or, |expr| match expr {
                Expr::Or(list) => Ok(list),
                other => Err(other),
            }),
            Infix::And => chain(left, self.ranked(above)?, Expr::And, |expr| match expr {
                Expr::And(list) => Ok(list),
                other => Err(other),
            }),
            Infix::Concat => chain(left, self.ranked(above)?, Expr::Concat, |expr| match expr {
                Expr::Concat(list) => Ok(list),
                other => Err(other),
            }),
            Infix::Relation(relation) => {
                Expr::Compare(relation, Box::new((left, self.ranked(above)?)))
            }
            Infix::Arithmetic(operator) => {
                let right = self.ranked(above)?;
                arithmetic(left, operator, right)
            }
            Infix::In | Infix::Within => Expr::In {
                negated,
                within: infix == Infix::Within,
                parts: Box::new((left, self.ranked(above)?)),
            },
            Infix::Between => {
                let low = self.ranked(above)?;
                self.expect_word(Keyword::AND)?;
                let high = self.ranked(above)?;
                Expr::Between { negated, parts: Box::new([left, low, high]) }
            }
            Infix::Like => {
                let pattern = Box::new(self.ranked(above)?);
                let escape = match self.eat_word(Keyword::ESCAPE) {
                    true => Some(Box::new(self.ranked(above)?)),
                    false => None,
                };
                Expr::Like { negated, value: Box::new(left), pattern, escape }
            }
            Infix::Is => self.is_test(left)?,
        })
    }

    fn is_test(&mut self, value: Expr) -> Result<Expr> {
        let mut negated = self.eat_word(Keyword::NOT);
        let test = match self.kind() {
            TokenKind::Word(Keyword::NULL) => Test::Null,
            TokenKind::Word(Keyword::MISSING) => Test::Missing,
            TokenKind::Word(Keyword::VALUED | Keyword::KNOWN) => Test::Valued,
            TokenKind::Word(Keyword::UNKNOWN) => {
                negated = !negated;
                Test::Valued
            }
            _ => return self.fail("NULL, MISSING or VALUED"),
        };
        self.advance();
        Ok(Expr::Is { test, negated, value: Box::new(value) })
    }
}

fn mark_infix(mark: Punctuation) -> Option<Infix> {
    Some(match mark {
        Punctuation::Equal | Punctuation::DoubleEqual => Infix::Relation(Relation::Equal),
        Punctuation::NotEqual => Infix::Relation(Relation::NotEqual),
        Punctuation::Less => Infix::Relation(Relation::Less),
        Punctuation::LessEqual => Infix::Relation(Relation::LessEqual),
        Punctuation::Greater => Infix::Relation(Relation::Greater),
        Punctuation::GreaterEqual => Infix::Relation(Relation::GreaterEqual),
        Punctuation::Concat => Infix::Concat,
        Punctuation::Plus => Infix::Arithmetic(ArithmeticOperator::Add),
        Punctuation::Minus => Infix::Arithmetic(ArithmeticOperator::Subtract),
        Punctuation::Star => Infix::Arithmetic(ArithmeticOperator::Multiply),
        Punctuation::Slash => Infix::Arithmetic(ArithmeticOperator::Divide),
        Punctuation::Percent => Infix::Arithmetic(ArithmeticOperator::Modulo),
        Punctuation::Caret => Infix::Arithmetic(ArithmeticOperator::Power),
        _ => return None,
    })
}

fn chain(
    left: Expr,
    right: Expr,
    build: fn(Vec<Expr>) -> Expr,
    split: fn(Expr) -> std::result::Result<Vec<Expr>, Expr>,
) -> Expr {
    let mut list = split(left).unwrap_or_else(|single| vec![single]);
    list.push(right);
    debug_assert!(list.len() > 1, "a chain has two parts");
    build(list)
}

/// Adds an operator to a chain of the same rank.
fn arithmetic(left: Expr, operator: ArithmeticOperator, right: Expr) -> Expr {
    let rank = |operator| Infix::Arithmetic(operator).rank();
    match left {
        Expr::Arithmetic(first, mut rest)
            if rest.last().is_some_and(|(last, _)| rank(*last) == rank(operator)) =>
        {
            rest.push((operator, right));
            Expr::Arithmetic(first, rest)
        }
        other => Expr::Arithmetic(Box::new(other), vec![(operator, right)]),
    }
}
