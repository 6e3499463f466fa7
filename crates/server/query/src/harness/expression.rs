//! Expressions of the model, and their texts in the language.

use serde_json::Value;

#[derive(Clone, Debug)]
pub enum Expression {
    Missing,
    Literal(Value),
    /// A field of the document.
    Name(String),
    Variable(usize),
    Field(Box<Expression>, String),
    Index(Box<Expression>, Box<Expression>),
    Slice(Box<Expression>, Box<Expression>, Option<Box<Expression>>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    Not(Box<Expression>),
    Negate(Box<Expression>),
    Is(IsOperator, bool, Box<Expression>),
    Between(bool, Box<[Expression; 3]>),
    In(bool, Box<Expression>, Box<Expression>),
    Like(bool, Box<Expression>, String),
    Case(Option<Box<Expression>>, Vec<(Expression, Expression)>, Option<Box<Expression>>),
    Array(Vec<Expression>),
    Object(Vec<(String, Expression)>),
    Loop(Loop),
    Call(Function, Vec<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Concat,
}

impl Binary {
    pub const ARITHMETIC: [Binary; 5] =
        [Binary::Add, Binary::Subtract, Binary::Multiply, Binary::Divide, Binary::Modulo];

    pub const RELATIONS: [Binary; 6] = [
        Binary::Equal,
        Binary::NotEqual,
        Binary::Less,
        Binary::LessEqual,
        Binary::Greater,
        Binary::GreaterEqual,
    ];

    fn text(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Subtract => "-",
            Binary::Multiply => "*",
            Binary::Divide => "/",
            Binary::Modulo => "%",
            Binary::Equal => "=",
            Binary::NotEqual => "!=",
            Binary::Less => "<",
            Binary::LessEqual => "<=",
            Binary::Greater => ">",
            Binary::GreaterEqual => ">=",
            Binary::And => "AND",
            Binary::Or => "OR",
            Binary::Concat => "||",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum IsOperator {
    Null,
    Missing,
    Valued,
}

#[derive(Clone, Debug)]
pub struct Loop {
    pub kind: LoopKind,
    pub variable: usize,
    pub source: Box<Expression>,
    /// The condition of a quantifier.
    pub value: Box<Expression>,
    pub condition: Option<Box<Expression>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoopKind {
    Array,
    First,
    Any,
    Every,
    AnyAndEvery,
}

impl LoopKind {
    pub const ALL: [LoopKind; 5] =
        [LoopKind::Array, LoopKind::First, LoopKind::Any, LoopKind::Every, LoopKind::AnyAndEvery];

    pub fn is_quantifier(self) -> bool {
        !matches!(self, LoopKind::Array | LoopKind::First)
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Function {
    ArrayLength,
    ArraySort,
    ArrayDistinct,
    IfMissing,
    IfNull,
    Length,
    Reverse,
    Type,
}

impl Function {
    pub const ALL: [Function; 8] = [
        Function::ArrayLength,
        Function::ArraySort,
        Function::ArrayDistinct,
        Function::IfMissing,
        Function::IfNull,
        Function::Length,
        Function::Reverse,
        Function::Type,
    ];

    pub fn arity(self) -> usize {
        if matches!(self, Function::IfMissing | Function::IfNull) { 2 } else { 1 }
    }

    fn name(self) -> &'static str {
        match self {
            Function::ArrayLength => "ARRAY_LENGTH",
            Function::ArraySort => "ARRAY_SORT",
            Function::ArrayDistinct => "ARRAY_DISTINCT",
            Function::IfMissing => "IFMISSING",
            Function::IfNull => "IFNULL",
            Function::Length => "LENGTH",
            Function::Reverse => "REVERSE",
            Function::Type => "TYPE",
        }
    }
}

/// A value as a literal of the language.
fn literal(value: &Value) -> String {
    match value {
        // A literal -9223372036854775808 is the negative of a float.
        Value::Number(number) if number.as_i64() == Some(i64::MIN) => {
            "(-9223372036854775807 - 1)".to_owned()
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("\"{name}\": {}", literal(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

impl Expression {
    /// The text with all parentheses.
    pub fn text(&self) -> String {
        let list = |items: &[Expression]| {
            items.iter().map(Expression::text).collect::<Vec<_>>().join(", ")
        };
        let not = |negated: &bool| if *negated { "NOT " } else { "" };
        match self {
            Expression::Missing => "MISSING".to_owned(),
            Expression::Literal(value) => literal(value),
            Expression::Name(name) => format!("k.{name}"),
            Expression::Variable(number) => format!("v{number}"),
            Expression::Field(base, name) => format!("({}).{name}", base.text()),
            Expression::Index(base, index) => format!("({})[{}]", base.text(), index.text()),
            Expression::Slice(base, start, end) => {
                let end = end.as_ref().map(|end| end.text()).unwrap_or_default();
                format!("({})[{}:{end}]", base.text(), start.text())
            }
            Expression::Binary(operator, left, right) => {
                format!("({} {} {})", left.text(), operator.text(), right.text())
            }
            Expression::Not(inner) => format!("(NOT {})", inner.text()),
            Expression::Negate(inner) => format!("(- ({}))", inner.text()),
            Expression::Is(test, negated, inner) => {
                let test = match test {
                    IsOperator::Null => "NULL",
                    IsOperator::Missing => "MISSING",
                    IsOperator::Valued => "VALUED",
                };
                format!("({} IS {}{test})", inner.text(), not(negated))
            }
            Expression::Between(negated, parts) => format!(
                "({} {}BETWEEN {} AND {})",
                parts[0].text(),
                not(negated),
                parts[1].text(),
                parts[2].text()
            ),
            // `IN (x)` is no list.
            Expression::In(negated, value, list) => {
                format!("({} {}IN {})", value.text(), not(negated), list.text())
            }
            Expression::Like(negated, value, pattern) => {
                let pattern = Value::from(pattern.as_str());
                format!("({} {}LIKE {pattern})", value.text(), not(negated))
            }
            Expression::Case(operand, whens, otherwise) => {
                let operand = operand.as_ref().map(|operand| operand.text()).unwrap_or_default();
                let whens: String = whens
                    .iter()
                    .map(|(when, then)| format!(" WHEN {} THEN {}", when.text(), then.text()))
                    .collect();
                let otherwise = otherwise.as_ref().map(|other| format!(" ELSE {}", other.text()));
                format!("(CASE {operand}{whens}{} END)", otherwise.unwrap_or_default())
            }
            Expression::Array(items) => format!("[{}]", list(items)),
            Expression::Object(fields) => {
                let field =
                    |(name, value): &(String, Expression)| format!("\"{name}\": {}", value.text());
                format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
            }
            Expression::Loop(inner) => inner.text(),
            Expression::Call(function, args) => format!("{}({})", function.name(), list(args)),
        }
    }
}

impl Loop {
    fn text(&self) -> String {
        let (value, source) = (self.value.text(), self.source.text());
        let binding = format!("v{} IN {source}", self.variable);
        let when = self.condition.as_ref().map(|condition| format!(" WHEN {}", condition.text()));
        let when = when.unwrap_or_default();
        match self.kind {
            LoopKind::Array => format!("(ARRAY {value} FOR {binding}{when} END)"),
            LoopKind::First => format!("(FIRST {value} FOR {binding}{when} END)"),
            LoopKind::Any => format!("(ANY {binding} SATISFIES {value} END)"),
            LoopKind::Every => format!("(EVERY {binding} SATISFIES {value} END)"),
            LoopKind::AnyAndEvery => format!("(ANY AND EVERY {binding} SATISFIES {value} END)"),
        }
    }
}
