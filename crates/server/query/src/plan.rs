//! What a statement does, with every name resolved to a slot.
//!
//! A running statement has one frame: a list of values. Each source, LET, WITH term, loop variable
//! and group value has its slots in it, also those of subqueries, so a correlated subquery reads
//! its outer row without any look-up. A document of a keyspace has three slots: the document, its
//! key, and the object of `META()`.

pub mod change;
mod expr;

use std::sync::Arc;

use crate::aggregates::AggregateKind;
use crate::ast::{
    CollectionKind, Frame as AstFrame, Operator, Param, Quantifier, Relation, SetOperator, Test,
};
use crate::datastore::Keyspace;
use crate::functions::function::Function;
use crate::value::{Text, Value};
use crate::windows::WindowFunction;

/// The place of a value in the frame.
pub type Slot = usize;

/// A query.
#[derive(Debug)]
pub struct QueryPlan {
    pub with: Vec<WithPlan>,
    pub body: BodyPlan,
    pub order: Vec<SortKey>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// Where a row of a set operation or nested query is while its order is computed.
    pub row: Slot,
}

#[derive(Debug)]
pub struct WithPlan {
    pub slot: Slot,
    pub value: WithValue,
}

#[derive(Debug)]
pub enum WithValue {
    Value(Expr),
    Recursive(Box<RecursivePlan>),
}

/// `first UNION [ALL] step`, where `step` reads the rows of the round before in the term's slot.
#[derive(Debug)]
pub struct RecursivePlan {
    pub first: QueryPlan,
    pub step: QueryPlan,
    pub all: bool,
    /// With each row at `row`: rows with equal values were seen before.
    pub cycle: Vec<Expr>,
    pub row: Slot,
    pub options: Option<Expr>,
}

#[derive(Debug)]
pub enum BodyPlan {
    Select(Box<SelectPlan>),
    Nested(Box<QueryPlan>),
    Sets(Box<BodyPlan>, Vec<(SetOperator, BodyPlan)>),
}

#[derive(Debug)]
pub struct SelectPlan {
    pub from: Option<FromPlan>,
    pub lets: Vec<(Slot, Expr)>,
    pub filters: Vec<Expr>,
    pub group: Option<GroupPlan>,
    pub windows: Vec<WindowPlan>,
    pub projection: ProjectionPlan,
}

#[derive(Debug)]
pub struct FromPlan {
    pub first: SourcePlan,
    /// Conditions on the first source alone.
    pub filters: Vec<Expr>,
    pub joins: Vec<JoinPlan>,
}

#[derive(Debug)]
pub struct SourcePlan {
    pub alias: Text,
    pub slot: Slot,
    pub kind: SourceKind,
}

#[derive(Debug)]
pub enum SourceKind {
    Keyspace(KeyspacePlan),
    Value(Expr),
    Subquery(Arc<Subquery>),
    /// Rows of a `system:` keyspace.
    Catalog(crate::catalog::Catalog),
}

/// How documents of a keyspace are read.
#[derive(Debug)]
pub struct KeyspacePlan {
    pub keyspace: Arc<dyn Keyspace>,
    pub access: Access,
    /// Whether the object of `META()` is needed, apart from its `id`.
    pub meta: bool,
}

#[derive(Debug)]
pub enum Access {
    /// By key or list of keys, in its order.
    Keys(Expr),
    /// The same for a condition: each key once.
    KeySet(Expr),
    Scan(Vec<KeyBound>),
}

/// One bound of the keys that a scan visits.
#[derive(Clone, Debug)]
pub struct KeyBound {
    pub lower: bool,
    pub inclusive: bool,
    pub key: Expr,
    /// The bound is the prefix of a LIKE pattern.
    pub pattern: bool,
}

#[derive(Debug)]
pub struct JoinPlan {
    pub outer: bool,
    pub nest: bool,
    pub source: SourcePlan,
    pub kind: JoinPlanKind,
}

#[derive(Debug)]
pub enum JoinPlanKind {
    /// Documents by keys computed from the row so far.
    Keys(Expr),
    /// Documents whose value of `key`, a key or list of keys, is the key of the row's document.
    KeyFor { key: Expr, parent: Slot },
    /// Elements of an array computed from the row so far; their positions go to the slot after.
    Unnest(Expr),
    /// Rows of the source that meet a condition.
    On {
        condition: Option<Expr>,
        /// Pairs of equal values: of the row so far, of the source.
        equal: Vec<(Expr, Expr)>,
        /// The source reads the row so far.
        lateral: bool,
    },
}

#[derive(Debug)]
pub struct GroupPlan {
    pub keys: Vec<(Slot, Expr)>,
    pub aggregates: Vec<(Slot, Aggregate)>,
    pub letting: Vec<(Slot, Expr)>,
    pub having: Option<Expr>,
    /// Without GROUP BY: one group, also of no rows.
    pub single: bool,
    /// A subquery reads the group's first row.
    pub keeps_row: bool,
}

#[derive(Debug)]
pub struct WindowPlan {
    pub slot: Slot,
    pub function: WindowFunction,
    pub args: Vec<Expr>,
    pub aggregate: Option<Aggregate>,
    pub ignore_nulls: bool,
    pub from_last: bool,
    pub partition: Vec<Expr>,
    pub order: Vec<SortKey>,
    pub frame: Option<WindowFrame>,
}

/// A frame with its distances compiled.
#[derive(Debug)]
pub struct WindowFrame {
    pub shape: AstFrame,
    pub start: Option<Expr>,
    pub end: Option<Expr>,
}

#[derive(Debug)]
pub struct ProjectionPlan {
    pub distinct: bool,
    pub raw: bool,
    pub terms: Vec<ProjectionTerm>,
}

#[derive(Debug)]
pub enum ProjectionTerm {
    /// Each source under its alias.
    All(Vec<(Text, Slot)>),
    AllOf(Expr),
    Value(Text, Expr),
}

#[derive(Debug)]
pub struct SortKey {
    pub value: Expr,
    pub descending: bool,
    pub nulls_last: Option<bool>,
}

/// An aggregate of a query. `COUNT(*)` has no argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub kind: AggregateKind,
    pub arg: Option<Expr>,
    pub distinct: bool,
    pub filter: Option<Expr>,
}

/// A resolved expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Const(Value),
    Slot(Slot),
    Param(Param),
    /// A path from a value: plain names first, then any steps.
    Path {
        base: Box<Expr>,
        names: Vec<Text>,
        rest: Vec<Step>,
    },
    Array(Vec<Expr>),
    Object(Vec<(Expr, Expr)>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Arithmetic(Box<Expr>, Vec<(Operator, Expr)>),
    Concat(Vec<Expr>),
    Compare(Relation, Box<(Expr, Expr)>),
    Is {
        test: Test,
        negated: bool,
        value: Box<Expr>,
    },
    Between {
        negated: bool,
        parts: Box<[Expr; 3]>,
    },
    Like {
        negated: bool,
        parts: Box<[Expr; 3]>,
    },
    In {
        negated: bool,
        within: bool,
        parts: Box<(Expr, Expr)>,
    },
    Exists(Box<Expr>),
    Case {
        operand: Option<Box<Expr>>,
        whens: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Call(&'static Function, Vec<Expr>),
    Quantified {
        quantifier: Quantifier,
        bindings: Vec<Binding>,
        condition: Box<Expr>,
    },
    Collection {
        kind: CollectionKind,
        key: Option<Box<Expr>>,
        value: Box<Expr>,
        bindings: Vec<Binding>,
        condition: Option<Box<Expr>>,
    },
    Subquery(Arc<Subquery>),
    /// An aggregate of the query, by number, until the group's slots are known.
    Aggregate(usize),
}

/// One step of a path after its plain names.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Field(Text),
    Folded(Text),
    Computed(Expr),
    Index(Expr),
    Slice(Option<Expr>, Option<Expr>),
    Star,
}

/// A loop variable.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    pub position: Option<Slot>,
    pub variable: Slot,
    pub within: bool,
    pub source: Expr,
}

/// A query inside an expression or FROM.
#[derive(Debug)]
pub struct Subquery {
    pub plan: QueryPlan,
    /// The slots of outer rows that it reads. Without any, its result is computed once.
    pub outer: Vec<Slot>,
    /// Its number in the statement's cache of results.
    pub number: usize,
}

impl PartialEq for Subquery {
    fn eq(&self, other: &Subquery) -> bool {
        self.number == other.number
    }
}
