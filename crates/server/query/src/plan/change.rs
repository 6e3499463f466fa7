//! Plans of statements that change documents.

use std::sync::Arc;

use super::{ExprPlan, FrameSlot, FromPlan, ProjectionPlan, QueryPlan};
use crate::bindings::KeyspaceReference;

#[derive(Debug)]
pub struct InsertPlan {
    pub upsert: bool,
    pub keyspace: Arc<KeyspaceReference>,
    pub rows: InsertRowsPlan,
    /// Where the new document is for RETURNING.
    pub document: FrameSlot,
    pub returning: Option<ProjectionPlan>,
}

#[derive(Debug)]
pub enum InsertRowsPlan {
    Values(Vec<(ExprPlan, ExprPlan, Option<ExprPlan>)>),
    /// A row of the query is at `row`.
    Select {
        query: Box<QueryPlan>,
        row: FrameSlot,
        key: ExprPlan,
        value: Option<ExprPlan>,
        options: Option<ExprPlan>,
    },
}

#[derive(Debug)]
pub struct UpdatePlan {
    pub keyspace: Arc<KeyspaceReference>,
    pub from: FromPlan,
    pub assignments: Vec<AssignmentPlan>,
    pub limit: Option<ExprPlan>,
    pub offset: Option<ExprPlan>,
    pub returning: Option<ProjectionPlan>,
}

/// One SET or UNSET.
#[derive(Debug)]
pub struct AssignmentPlan {
    pub target: AssignmentTarget,
    pub value: Option<ExprPlan>,
    /// From the outermost to the innermost; the loops of one list run in parallel.
    pub loops: Vec<Vec<AssignmentLoop>>,
    pub condition: Option<ExprPlan>,
}

#[derive(Debug)]
pub enum AssignmentTarget {
    Expiration,
    /// From the document, or from the variable of a loop.
    Path {
        variable: Option<FrameSlot>,
        steps: Vec<super::StepPlan>,
    },
}

/// A loop over the elements of an array in the document.
#[derive(Debug)]
pub struct AssignmentLoop {
    pub position: Option<FrameSlot>,
    pub variable: FrameSlot,
    pub within: bool,
    /// Where the array is: a path from the document or from an outer variable.
    pub source: LoopSource,
}

#[derive(Debug)]
pub enum LoopSource {
    Place { variable: Option<FrameSlot>, steps: Vec<super::StepPlan> },
    Value(ExprPlan),
}

#[derive(Debug)]
pub struct DeletePlan {
    pub keyspace: Arc<KeyspaceReference>,
    pub from: FromPlan,
    pub limit: Option<ExprPlan>,
    pub offset: Option<ExprPlan>,
    pub returning: Option<ProjectionPlan>,
}

#[derive(Debug)]
pub struct MergePlan {
    pub keyspace: Arc<KeyspaceReference>,
    /// The source, with the target as an outer join.
    pub from: FromPlan,
    /// The target's three slots.
    pub target: FrameSlot,
    /// The target's key, if the condition is one.
    pub key: Option<ExprPlan>,
    pub update: Option<(Vec<AssignmentPlan>, Option<ExprPlan>)>,
    pub delete: Option<Option<ExprPlan>>,
    pub insert: Option<MergeInsert>,
    pub limit: Option<ExprPlan>,
    pub returning: Option<ProjectionPlan>,
}

#[derive(Debug)]
pub struct MergeInsert {
    pub key: Option<ExprPlan>,
    pub value: Option<ExprPlan>,
    pub options: Option<ExprPlan>,
    pub condition: Option<ExprPlan>,
}
