//! The plan of a statement, with every name resolved to a slot.
//!
//! A running statement has one frame: a list of values. Each source, LET, WITH term, loop variable
//! and group value has its slots in it, also those of subqueries, so a correlated subquery reads
//! its outer row without any look-up. A document of a keyspace has three slots: the document, its
//! key, and the object of `META()`.

pub mod change;
pub mod expr;
pub mod normal_form;

use std::sync::Arc;

use crate::aggregates::AggregateKind;
use crate::ast::{
    ArithmeticOperator, CollectionKind, FrameClause as AstFrame, Param, Quantifier, Relation,
    SetOperator, Test,
};
use crate::bindings::{IndexReference, KeyspaceReference};
use crate::functions::function::Function;
use crate::scan_hints::FieldOperator;
use crate::value::{QueryValue, Text};
use crate::windows::WindowFunction;

/// The place of a value in the frame.
pub type FrameSlot = usize;

#[derive(Debug)]
pub struct QueryPlan {
    pub with: Vec<WithPlan>,
    pub body: BodyPlan,
    pub order: Vec<OrderKey>,
    pub limit: Option<ExprPlan>,
    pub offset: Option<ExprPlan>,
    /// Where a row of a set operation or nested query is while its order is computed.
    pub row: FrameSlot,
}

#[derive(Debug)]
pub struct WithPlan {
    pub slot: FrameSlot,
    pub value: WithValue,
}

#[derive(Debug)]
pub enum WithValue {
    Value(ExprPlan),
    Recursive(Box<RecursivePlan>),
}

/// `first UNION [ALL] step`, where `step` reads the rows of the round before in the term's slot.
#[derive(Debug)]
pub struct RecursivePlan {
    pub first: QueryPlan,
    pub step: QueryPlan,
    pub all: bool,
    /// With each row at `row`: rows with equal values were seen before.
    pub cycle: Vec<ExprPlan>,
    pub row: FrameSlot,
    pub options: Option<ExprPlan>,
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
    pub lets: Vec<(FrameSlot, ExprPlan)>,
    pub filters: Vec<ExprPlan>,
    pub group: Option<GroupPlan>,
    pub windows: Vec<WindowPlan>,
    pub projection: ProjectionPlan,
}

#[derive(Debug)]
pub struct FromPlan {
    pub first: SourcePlan,
    /// Conditions on the first source alone.
    pub filters: Vec<ExprPlan>,
    pub joins: Vec<JoinPlan>,
}

#[derive(Debug)]
pub struct SourcePlan {
    pub alias: Text,
    pub slot: FrameSlot,
    pub kind: SourceKind,
}

#[derive(Debug)]
pub enum SourceKind {
    Keyspace(KeyspacePlan),
    Value(ExprPlan),
    Subquery(Arc<Subquery>),
    /// Rows of a `system:` keyspace.
    Catalog(crate::catalog::SystemKeyspace),
    /// The left side of a RIGHT JOIN that is itself joined. Its sources have that many slots.
    Joined(Box<FromPlan>, usize),
}

impl SourcePlan {
    /// The slots that the source fills.
    pub fn slots(&self) -> std::ops::Range<FrameSlot> {
        let count = match &self.kind {
            SourceKind::Joined(_, count) => *count,
            _ => 3,
        };
        debug_assert!(count > 0, "a source has slots");
        self.slot..self.slot + count
    }
}

impl FromPlan {
    /// Calls `visit` for every source, also those of a joined left side.
    pub fn for_each_source_mut(&mut self, visit: &mut dyn FnMut(&mut SourcePlan)) {
        let joins = self.joins.iter_mut().map(|join| &mut join.source);
        for source in std::iter::once(&mut self.first).chain(joins) {
            match &mut source.kind {
                SourceKind::Joined(from, _) => from.for_each_source_mut(visit),
                _ => visit(source),
            }
        }
    }

    /// Calls `visit` for every source, also those of a joined left side.
    pub fn for_each_source<'p>(&'p self, visit: &mut dyn FnMut(&'p SourcePlan)) {
        let joins = self.joins.iter().map(|join| &join.source);
        for source in std::iter::once(&self.first).chain(joins) {
            match &source.kind {
                SourceKind::Joined(from, _) => from.for_each_source(visit),
                _ => visit(source),
            }
        }
    }
}

/// How documents of a keyspace are read.
#[derive(Debug)]
pub struct KeyspacePlan {
    pub keyspace: Arc<KeyspaceReference>,
    pub access: AccessPath,
    /// The names of USE INDEX.
    pub index_names: Vec<Text>,
    /// Whether the object of `META()` is needed, apart from its `id`.
    pub meta: bool,
    /// For a keyspace that takes hints.
    pub hints: Option<Box<HintPlan>>,
}

/// What becomes the hints of a scan.
#[derive(Debug, Default)]
pub struct HintPlan {
    /// A field, and the value or list that it is compared with.
    pub conditions: Vec<(Text, FieldOperator, Option<ExprPlan>)>,
    /// `None` for whole documents.
    pub fields: Option<Vec<String>>,
}

#[derive(Debug)]
pub enum AccessPath {
    /// By key or list of keys, in its order.
    Keys(ExprPlan),
    /// The same for a condition: each key once.
    KeySet(ExprPlan),
    Scan(Vec<KeyRangeBound>),
    /// By the entries of indexes. A document of several entries is read once.
    Indexes(Vec<IndexScanPlan>),
}

/// One bound of the keys that a scan visits.
#[derive(Clone, Debug)]
pub struct KeyRangeBound {
    pub lower: bool,
    pub inclusive: bool,
    pub key: ExprPlan,
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
    Keys(ExprPlan),
    /// Documents whose value of `key`, a key or list of keys, is the key of the row's document.
    KeyFor { key: ExprPlan, parent: FrameSlot },
    /// Elements of an array computed from the row so far; their positions go to the slot after.
    Unnest(ExprPlan),
    /// Rows of the source that meet a condition.
    On {
        condition: Option<ExprPlan>,
        /// Pairs of equal values: of the row so far, of the source.
        equal: Vec<(ExprPlan, ExprPlan)>,
        /// The source reads the row so far.
        lateral: bool,
    },
}

#[derive(Debug)]
pub struct GroupPlan {
    pub keys: Vec<(FrameSlot, ExprPlan)>,
    pub aggregates: Vec<(FrameSlot, Aggregate)>,
    pub letting: Vec<(FrameSlot, ExprPlan)>,
    pub having: Option<ExprPlan>,
    /// Without GROUP BY: one group, also of no rows.
    pub single: bool,
    /// A subquery reads the group's first row.
    pub keeps_row: bool,
}

#[derive(Debug)]
pub struct WindowPlan {
    pub slot: FrameSlot,
    pub function: WindowFunction,
    pub args: Vec<ExprPlan>,
    pub aggregate: Option<Aggregate>,
    pub ignore_nulls: bool,
    pub from_last: bool,
    pub partition: Vec<ExprPlan>,
    pub order: Vec<OrderKey>,
    pub frame: Option<WindowFrame>,
}

/// A frame with its distances compiled.
#[derive(Debug)]
pub struct WindowFrame {
    pub shape: AstFrame,
    pub start: Option<ExprPlan>,
    pub end: Option<ExprPlan>,
}

#[derive(Debug)]
pub struct ProjectionPlan {
    pub distinct: bool,
    pub raw: bool,
    pub terms: Vec<ProjectionTerm>,
    /// Paths of EXCLUDE, which leave the row.
    pub excluded: Vec<Vec<Text>>,
}

#[derive(Debug)]
pub enum ProjectionTerm {
    /// Each source under its alias.
    All(Vec<(Text, FrameSlot)>),
    AllOf(ExprPlan),
    Value(Text, ExprPlan),
}

#[derive(Debug)]
pub struct OrderKey {
    pub value: ExprPlan,
    pub descending: bool,
    pub nulls_last: Option<bool>,
}

/// An aggregate of a query. `COUNT(*)` has no argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    pub kind: AggregateKind,
    pub arg: Option<ExprPlan>,
    pub distinct: bool,
    pub filter: Option<ExprPlan>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExprPlan {
    Const(QueryValue),
    Slot(FrameSlot),
    Param(Param),
    /// A path from a value: plain names first, then any steps.
    Path {
        base: Box<ExprPlan>,
        names: Vec<Text>,
        rest: Vec<StepPlan>,
    },
    Array(Vec<ExprPlan>),
    Object(Vec<(ExprPlan, ExprPlan)>),
    Not(Box<ExprPlan>),
    Negate(Box<ExprPlan>),
    And(Vec<ExprPlan>),
    Or(Vec<ExprPlan>),
    Arithmetic(Box<ExprPlan>, Vec<(ArithmeticOperator, ExprPlan)>),
    Concat(Vec<ExprPlan>),
    Compare(Relation, Box<(ExprPlan, ExprPlan)>),
    Is {
        test: Test,
        negated: bool,
        value: Box<ExprPlan>,
    },
    Between {
        negated: bool,
        parts: Box<[ExprPlan; 3]>,
    },
    Like {
        negated: bool,
        parts: Box<[ExprPlan; 3]>,
    },
    In {
        negated: bool,
        within: bool,
        parts: Box<(ExprPlan, ExprPlan)>,
    },
    Exists(Box<ExprPlan>),
    Case {
        operand: Option<Box<ExprPlan>>,
        whens: Vec<(ExprPlan, ExprPlan)>,
        otherwise: Option<Box<ExprPlan>>,
    },
    Call(&'static Function, Vec<ExprPlan>),
    Quantified {
        quantifier: Quantifier,
        bindings: Vec<LoopPlan>,
        condition: Box<ExprPlan>,
    },
    Collection {
        kind: CollectionKind,
        key: Option<Box<ExprPlan>>,
        value: Box<ExprPlan>,
        bindings: Vec<LoopPlan>,
        condition: Option<Box<ExprPlan>>,
    },
    Subquery(Arc<Subquery>),
    /// An aggregate of the query, by number, until the group's slots are known.
    Aggregate(usize),
}

/// One step of a path after its plain names.
#[derive(Clone, Debug, PartialEq)]
pub enum StepPlan {
    Field(Text),
    Folded(Text),
    Computed(ExprPlan),
    Index(ExprPlan),
    Slice(Option<ExprPlan>, Option<ExprPlan>),
    Star,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoopPlan {
    pub position: Option<FrameSlot>,
    pub variable: FrameSlot,
    pub within: bool,
    pub source: ExprPlan,
}

/// A query inside an expression or FROM.
#[derive(Debug)]
pub struct Subquery {
    pub plan: QueryPlan,
    /// The slots of outer rows that it reads. Without any, its result is computed once.
    pub outer: Vec<FrameSlot>,
    /// Its number in the statement's cache of results.
    pub number: usize,
}

impl PartialEq for Subquery {
    fn eq(&self, other: &Subquery) -> bool {
        self.number == other.number
    }
}

/// The keys of an index, with its document at the slots 0 to 2.
#[derive(Debug)]
pub struct IndexKeys {
    pub keys: Vec<IndexKeyPlan>,
    /// The parts of the condition, in normal form.
    pub condition: Vec<ExprPlan>,
    /// Whether the object of `META()` is read, apart from its `id`.
    pub needs_meta: bool,
    pub slot_count: usize,
}

/// One key. The key of an array may give several components of an entry.
#[derive(Debug)]
pub struct IndexKeyPlan {
    /// The canonical text without its direction.
    pub text: String,
    pub descending: bool,
    pub include_missing: bool,
    pub value: IndexKeyValue,
}

#[derive(Debug)]
pub enum IndexKeyValue {
    Value {
        expr: ExprPlan,
        normal: ExprPlan,
    },
    /// One entry for each element.
    Array {
        /// Evaluates to an array of elements, or of arrays with one value for each component.
        list: ExprPlan,
        parts: ArrayKeyParts,
    },
}

/// The parts of an array key in normal form.
#[derive(Debug)]
pub struct ArrayKeyParts {
    /// Where the elements are.
    pub source: ExprPlan,
    pub within: bool,
    /// The slot of an element.
    pub variable: FrameSlot,
    pub condition: Vec<ExprPlan>,
    /// One value for each component of an entry.
    pub values: Vec<ExprPlan>,
    pub flattened: bool,
}

/// One component of an entry.
#[derive(Clone, Copy, Debug)]
pub struct IndexComponent<'k> {
    pub key: &'k IndexKeyPlan,
    /// The value of the component in normal form.
    pub value: &'k ExprPlan,
    /// The array, if the value is one of its elements.
    pub array: Option<&'k ArrayKeyParts>,
}

impl IndexKeys {
    pub fn components(&self) -> impl Iterator<Item = IndexComponent<'_>> {
        self.keys.iter().flat_map(|key| match &key.value {
            IndexKeyValue::Value { normal, .. } => {
                vec![IndexComponent { key, value: normal, array: None }]
            }
            IndexKeyValue::Array { parts, .. } => {
                let component = |value| IndexComponent { key, value, array: Some(parts) };
                parts.values.iter().map(component).collect()
            }
        })
    }

    pub fn has_array(&self) -> bool {
        self.keys.iter().any(|key| matches!(key.value, IndexKeyValue::Array { .. }))
    }
}

/// A condition on the value of a key. The expressions are known before the document is read.
#[derive(Clone, Debug)]
pub enum KeyTerm {
    Equal(ExprPlan),
    /// One of a list.
    In(ExprPlan),
    IsNull,
    /// Above the value, or equal to it if `inclusive`.
    Above {
        value: ExprPlan,
        inclusive: bool,
    },
    Below {
        value: ExprPlan,
        inclusive: bool,
    },
    /// Like the pattern, whose constant beginning bounds the key.
    Like(ExprPlan),
    IsNotMissing,
    IsValued,
}

impl KeyTerm {
    /// Whether the term bounds the key by more than the type.
    pub fn is_bound(&self) -> bool {
        !matches!(self, KeyTerm::IsNotMissing | KeyTerm::IsValued)
    }

    pub fn value(&self) -> Option<&ExprPlan> {
        match self {
            KeyTerm::Equal(value) | KeyTerm::In(value) | KeyTerm::Like(value) => Some(value),
            KeyTerm::Above { value, .. } | KeyTerm::Below { value, .. } => Some(value),
            KeyTerm::IsNull | KeyTerm::IsNotMissing | KeyTerm::IsValued => None,
        }
    }
}

/// A part of an index: the entries whose first keys meet `prefix` and whose next key is in a
/// range.
#[derive(Clone, Debug)]
pub struct IndexScanPlan {
    pub index: Arc<IndexReference>,
    pub keys: Arc<IndexKeys>,
    pub prefix: Vec<KeyTerm>,
    pub range: Vec<KeyTerm>,
    /// Rows are in the order of the entries, or in reverse.
    pub ordered: Option<bool>,
}

impl IndexScanPlan {
    /// Whether a document has at most one entry in this part.
    pub fn is_point(&self) -> bool {
        let count = self.keys.components().count();
        debug_assert!(self.prefix.len() <= count, "a prefix is no longer than the keys");
        self.prefix.len() == count
            && !self.keys.has_array()
            && !self.prefix.iter().any(|term| matches!(term, KeyTerm::In(_)))
    }
}
