//! Plans of statements that change documents.

use std::sync::Arc;

use super::{Expr, FromPlan, ProjectionPlan, QueryPlan, Slot};
use crate::datastore::Keyspace;

#[derive(Debug)]
pub struct InsertPlan {
    pub upsert: bool,
    pub keyspace: Arc<dyn Keyspace>,
    pub rows: InsertRowsPlan,
    /// Where the new document is for RETURNING.
    pub document: Slot,
    pub returning: Option<ProjectionPlan>,
}

#[derive(Debug)]
pub enum InsertRowsPlan {
    Values(Vec<(Expr, Expr, Option<Expr>)>),
    /// A row of the query is at `row`.
    Select {
        query: Box<QueryPlan>,
        row: Slot,
        key: Expr,
        value: Option<Expr>,
        options: Option<Expr>,
    },
}

#[derive(Debug)]
pub struct UpdatePlan {
    pub keyspace: Arc<dyn Keyspace>,
    pub from: FromPlan,
    pub assignments: Vec<AssignmentPlan>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub returning: Option<ProjectionPlan>,
}

/// One SET or UNSET.
#[derive(Debug)]
pub struct AssignmentPlan {
    pub target: AssignmentTarget,
    /// None for UNSET.
    pub value: Option<Expr>,
    /// From the outermost to the innermost; the loops of one list run in parallel.
    pub loops: Vec<Vec<AssignmentLoop>>,
    pub condition: Option<Expr>,
}

#[derive(Debug)]
pub enum AssignmentTarget {
    Expiration,
    /// From the document, or from the variable of a loop.
    Path {
        variable: Option<Slot>,
        steps: Vec<super::Step>,
    },
}

/// A loop over the elements of an array in the document.
#[derive(Debug)]
pub struct AssignmentLoop {
    pub position: Option<Slot>,
    pub variable: Slot,
    pub within: bool,
    /// Where the array is: a path from the document or from an outer variable.
    pub source: LoopSource,
}

#[derive(Debug)]
pub enum LoopSource {
    Place { variable: Option<Slot>, steps: Vec<super::Step> },
    Value(Expr),
}

#[derive(Debug)]
pub struct DeletePlan {
    pub keyspace: Arc<dyn Keyspace>,
    pub from: FromPlan,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub returning: Option<ProjectionPlan>,
}

#[derive(Debug)]
pub struct MergePlan {
    pub keyspace: Arc<dyn Keyspace>,
    /// The source, with the target as an outer join.
    pub from: FromPlan,
    /// The target's three slots.
    pub target: Slot,
    /// The target's key, if the condition is one.
    pub key: Option<Expr>,
    pub update: Option<(Vec<AssignmentPlan>, Option<Expr>)>,
    pub delete: Option<Option<Expr>>,
    pub insert: Option<MergeInsert>,
    pub limit: Option<Expr>,
    pub returning: Option<ProjectionPlan>,
}

#[derive(Debug)]
pub struct MergeInsert {
    pub key: Option<Expr>,
    pub value: Option<Expr>,
    pub options: Option<Expr>,
    pub condition: Option<Expr>,
}
