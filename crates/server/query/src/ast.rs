//! The syntax tree of expressions and queries, as written: names are not resolved yet.
//!
//! Chains of operators of one rank are lists, so the depth of a tree is the nesting of its text,
//! which the parser bounds. `ast::statement` has the other statements.

pub mod statement;

use crate::value::{QueryValue, Text};

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Literal(QueryValue),
    Param(Param),
    Name(Name),
    Path(Box<Expr>, Vec<PathStep>),
    Array(Vec<Expr>),
    Object(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Arithmetic(Box<Expr>, Vec<(ArithmeticOperator, Expr)>),
    Concat(Vec<Expr>),
    Compare(Relation, Box<(Expr, Expr)>),
    Is { test: Test, negated: bool, value: Box<Expr> },
    Between { negated: bool, parts: Box<[Expr; 3]> },
    Like { negated: bool, value: Box<Expr>, pattern: Box<Expr>, escape: Option<Box<Expr>> },
    In { negated: bool, within: bool, parts: Box<(Expr, Expr)> },
    Exists(Box<Expr>),
    Case(Box<CaseExpr>),
    Call(Box<FunctionCall>),
    Quantified(Box<QuantifiedExpr>),
    Collection(Box<Comprehension>),
    Subquery(Box<QueryExpr>),
}

/// A name; `folded` ignores case.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    pub text: Text,
    pub folded: bool,
    /// The byte in the statement.
    pub at: u32,
}

/// A parameter: by position from 1, or by name.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    Position(usize),
    Name(Text),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum PathStep {
    Field { name: Text, folded: bool },
    Computed(Expr),
    Index(Expr),
    Slice(Option<Expr>, Option<Expr>),
    Star,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArithmeticOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Relation {
    /// The relation of the swapped sides.
    pub fn mirrored(self) -> Relation {
        match self {
            Relation::Less => Relation::Greater,
            Relation::LessEqual => Relation::GreaterEqual,
            Relation::Greater => Relation::Less,
            Relation::GreaterEqual => Relation::LessEqual,
            other => other,
        }
    }
}

/// `IS NULL` and its kin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    Null,
    Missing,
    Valued,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CaseExpr {
    pub operand: Option<Expr>,
    pub whens: Vec<(Expr, Expr)>,
    pub otherwise: Option<Expr>,
}

/// A call of a function or aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionCall {
    pub name: String,
    pub args: Vec<Expr>,
    pub distinct: bool,
    pub star: bool,
    pub filter: Option<Expr>,
    pub over: Option<WindowClause>,
    pub ignore_nulls: bool,
    /// `FROM LAST` of `NTH_VALUE`
    pub from_last: bool,
    pub at: u32,
}

/// The window of a call, or a named one that it refers to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowClause {
    pub base: Option<Text>,
    pub partition: Vec<Expr>,
    pub order: Vec<OrderTerm>,
    pub frame: Option<FrameClause>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FrameClause {
    pub unit: FrameUnit,
    pub start: FrameBound,
    pub end: FrameBound,
    pub exclude: FrameExclusion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    Rows,
    Range,
    Groups,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FrameBound {
    UnboundedPreceding,
    Preceding(Expr),
    CurrentRow,
    Following(Expr),
    UnboundedFollowing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameExclusion {
    NoOthers,
    CurrentRow,
    Group,
    Ties,
}

/// `variable IN source`, with `position:variable` and `WITHIN`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopBinding {
    pub position: Option<Text>,
    pub variable: Text,
    pub within: bool,
    pub source: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantifier {
    Any,
    Every,
    AnyAndEvery,
}

#[derive(Clone, Debug, PartialEq)]
pub struct QuantifiedExpr {
    pub quantifier: Quantifier,
    pub bindings: Vec<LoopBinding>,
    pub condition: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectionKind {
    Array,
    First,
    Object,
}

/// `ARRAY`, `FIRST` and `OBJECT` with bindings.
#[derive(Clone, Debug, PartialEq)]
pub struct Comprehension {
    pub kind: CollectionKind,
    pub key: Option<Expr>,
    pub value: Expr,
    pub bindings: Vec<LoopBinding>,
    pub condition: Option<Expr>,
}

/// A query: its body, order and bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryExpr {
    pub recursive: bool,
    pub with: Vec<WithTerm>,
    pub body: Body,
    pub order: Vec<OrderTerm>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
}

/// `name AS (expression or query)`
#[derive(Clone, Debug, PartialEq)]
pub struct WithTerm {
    pub name: Text,
    pub value: Expr,
    pub cycle: Vec<Expr>,
    pub options: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Select(Box<Select>),
    Nested(Box<QueryExpr>),
    /// From left to right, all of one rank.
    Sets(Box<Body>, Vec<(SetOperator, Body)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOperator {
    pub kind: SetKind,
    pub all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    Union,
    Intersect,
    Except,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Select {
    pub from: Option<From>,
    pub lets: Vec<(Text, Expr)>,
    pub condition: Option<Expr>,
    pub group: Option<GroupBy>,
    pub windows: Vec<(Text, WindowClause)>,
    pub projection: ProjectionClause,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GroupBy {
    pub terms: Vec<(Expr, Option<Text>)>,
    pub letting: Vec<(Text, Expr)>,
    pub having: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ProjectionClause {
    pub distinct: bool,
    pub raw: bool,
    pub terms: Vec<ResultTerm>,
    /// The paths that EXCLUDE removes from the row.
    pub excluded: Vec<Vec<Text>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ResultTerm {
    All,
    AllOf(Expr),
    Value { value: Expr, alias: Option<Text> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderTerm {
    pub value: Expr,
    pub descending: Descending,
    pub nulls_last: Option<bool>,
}

/// The direction of an order term. A parameter or text decides at run time.
#[derive(Clone, Debug, PartialEq)]
pub enum Descending {
    No,
    Yes,
}

#[derive(Clone, Debug, PartialEq)]
pub struct From {
    pub first: FromTerm,
    pub joins: Vec<Join>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FromTerm {
    pub source: FromSource,
    pub alias: Option<Text>,
    pub keys: Option<Expr>,
    /// Names of `USE INDEX`.
    pub indexes: Vec<Text>,
    /// `USE HASH`: a join keeps all rows of this side.
    pub hash: bool,
    pub at: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FromSource {
    /// A path of names, for a keyspace or a variable.
    Path(Vec<Name>),
    Keyspace(KeyspacePath),
    Value(Expr),
    Subquery(Box<QueryExpr>),
}

/// A keyspace as written: `namespace:a.b.c`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspacePath {
    pub namespace: Option<Text>,
    pub parts: Vec<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    Inner,
    Left,
    Right,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    pub kind: JoinKind,
    pub nest: bool,
    pub term: FromTerm,
    pub with: JoinWith,
}

#[derive(Clone, Debug, PartialEq)]
pub enum JoinWith {
    Comma,
    Keys(Expr),
    /// `ON KEY e FOR alias`
    KeyFor(Expr, Text),
    On(Expr),
    Unnest,
}
