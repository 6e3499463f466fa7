//! The syntax tree of statements other than queries: changes, prepared statements, indexes.

use std::sync::Arc;

use super::{Expr, FromTerm, KeyspacePath, LoopBinding, ProjectionClause, QueryExpr};
use crate::value::Text;

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Query(Box<QueryExpr>),
    Insert(Box<Insert>),
    Update(Box<Update>),
    Delete(Box<Delete>),
    Merge(Box<Merge>),
    Explain(Box<Statement>),
    Prepare(Box<Prepare>),
    Execute(Box<Execute>),
    CreateIndex(Box<CreateIndex>),
    DropIndex(Box<DropIndex>),
    BuildIndex(Box<BuildIndex>),
    Infer(Box<Infer>),
    /// A bare expression, which is no statement.
    Expression,
    /// A statement that the engine knows and does not run.
    Unsupported(&'static str),
}

/// `INFER keyspace WITH options`.
#[derive(Clone, Debug, PartialEq)]
pub struct Infer {
    pub keyspace: KeyspacePath,
    pub options: Option<Expr>,
}

/// A keyspace that a change goes to.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyspaceTarget {
    pub keyspace: KeyspacePath,
    pub alias: Option<Text>,
    pub keys: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Insert {
    pub upsert: bool,
    pub target: KeyspaceTarget,
    pub rows: InsertRows,
    pub returning: Option<ProjectionClause>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum InsertRows {
    Values(Vec<(Expr, Expr, Option<Expr>)>),
    Select { key: Expr, value: Option<Expr>, options: Option<Expr>, query: Box<QueryExpr> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub target: KeyspaceTarget,
    pub set: Vec<Assignment>,
    pub unset: Vec<Assignment>,
    pub condition: Option<Expr>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub returning: Option<ProjectionClause>,
}

/// `path = value FOR .. WHEN .. END`, without a value for UNSET.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// `META().expiration` instead of a path of the document.
    pub meta: bool,
    pub path: Expr,
    pub value: Option<Expr>,
    /// From the outermost to the innermost.
    pub loops: Vec<Vec<LoopBinding>>,
    pub condition: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    pub target: KeyspaceTarget,
    pub condition: Option<Expr>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    pub returning: Option<ProjectionClause>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Merge {
    pub target: KeyspaceTarget,
    pub source: FromTerm,
    /// The condition is the target's key.
    pub by_key: bool,
    pub on: Expr,
    pub actions: Vec<MergeAction>,
    pub limit: Option<Expr>,
    pub returning: Option<ProjectionClause>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    Update {
        set: Vec<Assignment>,
        unset: Vec<Assignment>,
        condition: Option<Expr>,
    },
    Delete {
        condition: Option<Expr>,
    },
    Insert {
        key: Option<Expr>,
        value: Option<Expr>,
        options: Option<Expr>,
        condition: Option<Expr>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// Bytes of the statement's tree and plan, at most.
    pub bytes: usize,
    pub name: Option<Text>,
    pub force: bool,
    pub statement: Arc<Statement>,
    /// The text of `statement`.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Execute {
    pub name: Option<Text>,
    pub using: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CreateIndex {
    /// None for `CREATE PRIMARY INDEX` without a name.
    pub name: Option<Text>,
    pub primary: bool,
    pub if_not_exists: bool,
    pub keyspace: KeyspacePath,
    pub keys: Vec<IndexKey>,
    pub partition: Vec<Expr>,
    pub condition: Option<Expr>,
    pub with: Option<Expr>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IndexKey {
    pub value: Expr,
    /// `DISTINCT` or `ALL` before an array.
    pub array: Option<bool>,
    pub descending: bool,
    pub include_missing: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DropIndex {
    pub primary: bool,
    pub if_exists: bool,
    pub name: Option<Text>,
    pub keyspace: KeyspacePath,
}

#[derive(Clone, Debug, PartialEq)]
pub struct BuildIndex {
    pub keyspace: KeyspacePath,
    pub names: Vec<Expr>,
}
