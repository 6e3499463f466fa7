//! Documents, expressions and queries made from bytes.

use serde_json::{Value, json};

use super::expression::{Binary, Expression, Function, IsOperator, Loop, LoopKind};
use super::select::{ModelQuery, Order};

/// Choices that bytes make. After their end every choice is the first.
pub struct Choices<'b> {
    bytes: &'b [u8],
}

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Choices<'b> {
        Choices { bytes }
    }

    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % bound
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == one_in - 1
    }
}

const FIELDS: [&str; 5] = ["a", "b", "c", "d", "e"];

const TEXTS: [&str; 12] = ["", "a", "b", "ab", "bb", "aab", "A", "é", "a%b", "_", "zz", "10"];

fn number(choices: &mut Choices<'_>) -> Value {
    match choices.below(12) {
        0 => json!(0.5),
        1 => json!(-2.25),
        2 => json!(1e3),
        3 => json!(i64::MAX),
        4 => json!(i64::MIN),
        5 => json!(3.0),
        6 => json!(-0.0),
        _ => json!(choices.below(7) as i64 - 3),
    }
}

fn value(choices: &mut Choices<'_>, depth: usize) -> Value {
    match choices.below(if depth == 0 { 8 } else { 11 }) {
        0 => Value::Null,
        1 => Value::Bool(choices.chance(2)),
        2..=4 => number(choices),
        5..=7 => Value::from(choices.pick(&TEXTS)),
        8 | 9 => {
            let count = choices.below(4);
            Value::from((0..count).map(|_| value(choices, depth - 1)).collect::<Vec<_>>())
        }
        _ => object(choices, depth - 1),
    }
}

fn object(choices: &mut Choices<'_>, depth: usize) -> Value {
    let mut fields = serde_json::Map::new();
    for _ in 0..choices.below(8) {
        let name = choices.pick(&FIELDS);
        fields.insert(name.to_owned(), value(choices, depth));
    }
    Value::Object(fields)
}

/// Up to eight documents with keys in order.
pub fn documents(choices: &mut Choices<'_>) -> Vec<(String, Value)> {
    let count = 1 + choices.below(8);
    (0..count).map(|number| (format!("key{number}"), object(choices, 3))).collect()
}

/// Deepest nesting of an expression.
const DEPTH: usize = 4;

struct Generator<'c, 'b> {
    choices: &'c mut Choices<'b>,
    /// The loop variables that may be read, and the number of the next one.
    variables: Vec<usize>,
    next_variable: usize,
}

impl Generator<'_, '_> {
    fn leaf(&mut self) -> Expression {
        match self.choices.below(10) {
            0 => Expression::Missing,
            1 | 2 => Expression::Literal(value(self.choices, 2)),
            3 if !self.variables.is_empty() => {
                Expression::Variable(self.choices.pick(&self.variables))
            }
            4 => Expression::Field(Box::new(self.field()), self.choices.pick(&FIELDS).to_owned()),
            _ => self.field(),
        }
    }

    fn field(&mut self) -> Expression {
        Expression::Name(self.choices.pick(&FIELDS).to_owned())
    }

    fn boxed(&mut self, depth: usize) -> Box<Expression> {
        Box::new(self.expression(depth))
    }

    fn expression(&mut self, depth: usize) -> Expression {
        if depth == 0 {
            return self.leaf();
        }
        let depth = depth - 1;
        match self.choices.below(24) {
            0 | 1 => {
                let operator = self.choices.pick(&Binary::ARITHMETIC);
                Expression::Binary(operator, self.boxed(depth), self.boxed(depth))
            }
            2..=4 => {
                let operator = self.choices.pick(&Binary::RELATIONS);
                // Small sides are equal more often.
                let depth = if self.choices.chance(2) { 0 } else { depth };
                Expression::Binary(operator, self.boxed(depth), self.boxed(depth))
            }
            5 | 6 => {
                let operator = self.choices.pick(&[Binary::And, Binary::Or]);
                Expression::Binary(operator, self.boxed(depth), self.boxed(depth))
            }
            7 => Expression::Not(self.boxed(depth)),
            8 => Expression::Negate(self.boxed(depth)),
            9 => {
                let test =
                    self.choices.pick(&[IsOperator::Null, IsOperator::Missing, IsOperator::Valued]);
                Expression::Is(test, self.choices.chance(2), self.boxed(depth))
            }
            10 => Expression::Between(
                self.choices.chance(2),
                Box::new([self.expression(depth), self.expression(depth), self.expression(depth)]),
            ),
            11 => {
                let negated = self.choices.chance(3);
                Expression::In(negated, self.boxed(depth), self.boxed(depth))
            }
            12 => {
                let pattern =
                    self.choices.pick(&["%", "a%", "_", "%b", "a_%", "%a%b%", "", "é", "a\\%b"]);
                Expression::Like(self.choices.chance(3), self.boxed(depth), pattern.to_owned())
            }
            13 => {
                let operand = self.choices.chance(2).then(|| self.boxed(depth));
                let whens = (0..1 + self.choices.below(2))
                    .map(|_| (self.expression(depth), self.expression(depth)))
                    .collect();
                let otherwise = self.choices.chance(2).then(|| self.boxed(depth));
                Expression::Case(operand, whens, otherwise)
            }
            14 => Expression::Binary(Binary::Concat, self.boxed(depth), self.boxed(depth)),
            15 => {
                let count = self.choices.below(4);
                Expression::Array((0..count).map(|_| self.expression(depth)).collect())
            }
            16 => {
                let count = self.choices.below(FIELDS.len());
                let fields = FIELDS.iter().take(count);
                let fields: Vec<_> =
                    fields.map(|name| ((*name).to_owned(), self.expression(depth))).collect();
                Expression::Object(fields)
            }
            17 => {
                let name = self.choices.pick(&FIELDS).to_owned();
                Expression::Field(self.boxed(depth), name)
            }
            18 => Expression::Index(self.boxed(depth), self.boxed(depth)),
            19 => {
                let start = self.boxed(0);
                let end = self.choices.chance(2).then(|| self.boxed(0));
                Expression::Slice(self.boxed(depth), start, end)
            }
            20 | 21 => {
                let kind = self.choices.pick(&LoopKind::ALL);
                let source = self.boxed(depth);
                let variable = self.next_variable;
                self.next_variable += 1;
                self.variables.push(variable);
                let value = self.boxed(depth);
                let condition =
                    (!kind.is_quantifier() && self.choices.chance(2)).then(|| self.boxed(depth));
                self.variables.pop();
                Expression::Loop(Loop { kind, variable, source, value, condition })
            }
            _ => {
                let function = self.choices.pick(&Function::ALL);
                let args = (0..function.arity()).map(|_| self.expression(depth)).collect();
                Expression::Call(function, args)
            }
        }
    }
}

/// A query over the documents.
pub fn query(choices: &mut Choices<'_>) -> ModelQuery {
    let shape = choices.below(6);
    let mut generator = Generator { choices, variables: Vec::new(), next_variable: 0 };
    let condition = generator.choices.chance(2).then(|| generator.expression(DEPTH - 1));
    if shape == 0 {
        let key = generator.expression(2);
        let arg = generator.expression(2);
        let having = generator.choices.chance(3);
        return ModelQuery::Groups { condition, key, arg, having };
    }
    let distinct = generator.choices.chance(4);
    let raw = distinct || generator.choices.chance(2);
    let terms = (0..if raw { 1 } else { 1 + generator.choices.below(3) })
        .map(|_| generator.expression(DEPTH))
        .collect();
    let mut order = Vec::new();
    // With DISTINCT, rows of equal value differ in their order keys.
    if !distinct {
        for _ in 0..generator.choices.below(3) {
            order.push(Order {
                value: generator.expression(2),
                descending: generator.choices.chance(2),
                nulls_last: generator.choices.chance(3).then(|| generator.choices.chance(2)),
            });
        }
    }
    let limit = generator.choices.chance(3).then(|| generator.choices.below(4));
    let offset = generator.choices.chance(3).then(|| generator.choices.below(4));
    ModelQuery::Rows { condition, distinct, raw, terms, order, limit, offset }
}
