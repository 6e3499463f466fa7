//! Compiles syntax trees into plans: resolves names, splits conditions, chooses how to read.
//!
//! A name is, from the inside out, a loop variable, an alias, a LET or WITH name, else a field of
//! the only source. Anything else is 3080.

mod access;
pub mod change;
mod expr;
mod from;
mod group;
mod index_access;
pub mod index_keys;
mod query;
mod scope_names;
mod select;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::ast::{Name, WindowClause};
use crate::bindings::{Bindings, KeyspaceReference, PlanSources};
use crate::context::QueryContext;
use crate::datastore::{Datastore, KeyspaceName};
use crate::error::{QueryError, Result};
use crate::plan::Aggregate;
use crate::plan::{ExprPlan, FrameSlot, StepPlan, WindowPlan};
use crate::value::Text;
use scope_names::ScopeNames;

pub struct Compiler<'a> {
    store: &'a dyn Datastore,
    sources: PlanSources,
    bound: Bindings,
    context: &'a QueryContext,
    /// Ends the compilation of a statement whose time is over.
    turn: &'a dyn Fn() -> Result<()>,
    next_slot: FrameSlot,
    scopes: Vec<Scope>,
    subquery_count: usize,
    /// The subqueries that are being compiled, from the outside in.
    open_subqueries: Vec<OpenSubquery>,
    select: SelectState,
    /// Loop variables whose sources are being compiled. They may not be bound again there.
    open_variables: HashMap<Text, usize>,
    /// Documents whose `META()` object is needed.
    meta_slots: HashSet<FrameSlot>,
    /// Documents that are read, by their slots.
    document_uses: HashMap<FrameSlot, DocumentUse>,
}

/// Which part of a document a statement reads.
enum DocumentUse {
    Fields(BTreeSet<String>),
    Whole,
}

struct OpenSubquery {
    start: FrameSlot,
    outer: Vec<FrameSlot>,
}

/// What the current SELECT has collected.
struct SelectState {
    /// The error of an aggregate at this place; none where aggregates may be.
    aggregate_error: Option<u32>,
    aggregates: Vec<Aggregate>,
    windows: Vec<WindowPlan>,
    named_windows: Vec<(Text, WindowClause)>,
    /// Slots of LETTING, which aggregates may not read.
    letting: Vec<FrameSlot>,
}

impl Default for SelectState {
    fn default() -> SelectState {
        SelectState {
            aggregate_error: Some(3100),
            aggregates: Vec::new(),
            windows: Vec::new(),
            named_windows: Vec::new(),
            letting: Vec::new(),
        }
    }
}

#[derive(Default)]
struct Scope {
    names: ScopeNames<LoopPlan>,
    /// The sources, if this is the scope of a SELECT or change.
    sources: Option<Vec<FromSource>>,
}

#[derive(Clone)]
struct FromSource {
    alias: Text,
    slot: FrameSlot,
    is_document: bool,
}

#[derive(Clone)]
enum LoopPlan {
    /// An alias of FROM.
    Source(FromSource),
    /// LET, LETTING, loops and groups.
    Value(FrameSlot),
    /// WITH; `constant` if it is computed once a statement.
    With { slot: FrameSlot, constant: bool },
    /// A result alias, in ORDER BY.
    Result(ExprPlan),
}

impl<'a> Compiler<'a> {
    pub fn new(
        store: &'a dyn Datastore,
        context: &'a QueryContext,
        turn: &'a dyn Fn() -> Result<()>,
    ) -> Compiler<'a> {
        Compiler {
            store,
            sources: PlanSources::default(),
            bound: Bindings::default(),
            context,
            turn,
            next_slot: 0,
            scopes: Vec::new(),
            subquery_count: 0,
            open_subqueries: Vec::new(),
            select: SelectState::default(),
            open_variables: HashMap::new(),
            meta_slots: HashSet::new(),
            document_uses: HashMap::new(),
        }
    }

    /// Binds the document of an index to the first slots.
    pub fn index_source(&mut self) -> Result<()> {
        self.add_source(Text::default(), true).map(drop)
    }

    /// A slot for the elements of an array key.
    pub fn index_variable(&mut self) -> FrameSlot {
        self.allocate(1)
    }

    /// Whether a document's `META()` object is read, apart from its `id`.
    pub fn reads_meta(&self) -> bool {
        !self.meta_slots.is_empty()
    }

    /// The number of slots and cached subqueries that the compiled statement needs.
    pub fn sizes(&self) -> (usize, usize) {
        (self.next_slot, self.subquery_count)
    }

    /// The keyspaces and indexes that the compiled statement names, and those of its first run.
    pub fn into_sources(self) -> (PlanSources, Bindings) {
        assert!(self.open_subqueries.is_empty(), "every subquery was closed");
        assert!(self.open_variables.is_empty(), "every loop has its sources");
        (self.sources, self.bound)
    }

    fn use_keyspace(&mut self, name: KeyspaceName) -> Result<Arc<KeyspaceReference>> {
        self.sources.use_keyspace(name, self.store, &mut self.bound)
    }

    fn takes_hints(&self, keyspace: &KeyspaceReference) -> bool {
        self.bound.keyspace(keyspace).is_some_and(|keyspace| keyspace.takes_hints())
    }

    fn allocate(&mut self, count: usize) -> FrameSlot {
        let slot = self.next_slot;
        self.next_slot += count;
        slot
    }

    fn scope(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::default());
        }
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    fn bind(&mut self, name: Text, binding: LoopPlan) {
        self.scope().names.push(name, binding);
    }

    /// Allocates the three slots of a source and binds its alias.
    fn add_source(&mut self, alias: Text, is_document: bool) -> Result<FromSource> {
        let taken = self.binding(&alias);
        if taken.is_some_and(|binding| !matches!(binding, LoopPlan::With { .. })) {
            return Err(QueryError::new(4020, format!("Duplicate alias {alias}")));
        }
        let source = FromSource { alias: alias.clone(), slot: self.allocate(3), is_document };
        debug_assert!(source.slot + 3 <= self.next_slot, "a source has three slots");
        self.bind(alias, LoopPlan::Source(source.clone()));
        self.scope().sources.get_or_insert_default().push(source.clone());
        Ok(source)
    }

    /// Binds a variable that may not hide another name.
    fn add_variable(&mut self, name: &Text) -> Result<FrameSlot> {
        if self.binding(name).is_some() || self.open_variables.contains_key(name) {
            return Err(QueryError::new(3081, format!("Duplicate variable {name}")));
        }
        let slot = self.allocate(1);
        self.bind(name.clone(), LoopPlan::Value(slot));
        Ok(slot)
    }

    fn binding(&self, name: &Text) -> Option<&LoopPlan> {
        self.scopes.iter().rev().find_map(|scope| scope.names.find(name))
    }

    /// Notes that open subqueries read a slot of an outer row.
    fn note_use(&mut self, slot: FrameSlot) {
        debug_assert!(slot < self.next_slot, "a slot is allocated before it is read");
        for open in &mut self.open_subqueries {
            if slot < open.start && !open.outer.contains(&slot) {
                open.outer.push(slot);
            }
        }
    }

    fn slot(&mut self, slot: FrameSlot) -> ExprPlan {
        self.note_use(slot);
        ExprPlan::Slot(slot)
    }

    /// Notes that a field of a document is read; all fields without a name.
    fn note_field(&mut self, name: Option<&Text>, slot: FrameSlot) {
        let fields = DocumentUse::Fields(BTreeSet::new());
        let known = self.document_uses.entry(slot).or_insert(fields);
        match (known, name) {
            (DocumentUse::Fields(fields), Some(name)) => drop(fields.insert(name.to_string())),
            (known, None) => *known = DocumentUse::Whole,
            (DocumentUse::Whole, Some(_)) => {}
        }
    }

    fn bound(&mut self, name: &Text) -> Option<ExprPlan> {
        Some(match self.binding(name)?.clone() {
            LoopPlan::Source(source) => {
                self.document_uses.insert(source.slot, DocumentUse::Whole);
                self.slot(source.slot)
            }
            LoopPlan::Value(slot) => self.slot(slot),
            LoopPlan::With { slot, constant: true } => ExprPlan::Slot(slot),
            LoopPlan::With { slot, constant: false } => self.slot(slot),
            LoopPlan::Result(expr) => expr,
        })
    }

    /// Resolves a bare name.
    fn resolve(&mut self, name: &Name) -> Result<ExprPlan> {
        if !name.folded
            && let Some(expr) = self.bound(&name.text)
        {
            return Ok(expr);
        }
        let sources = self.scopes.iter().rev().filter_map(|scope| scope.sources.as_ref());
        let source = sources.into_iter().find(|sources| !sources.is_empty());
        match source.map(|sources| (sources.len(), sources[0].slot)) {
            Some((1, slot)) => {
                let base = self.slot(slot);
                self.note_field((!name.folded).then_some(&name.text), slot);
                let step = match name.folded {
                    true => StepPlan::Folded(name.text.clone()),
                    false => StepPlan::Field(name.text.clone()),
                };
                Ok(ExprPlan::path(base, vec![step]))
            }
            _ => {
                let msg = format!("Ambiguous reference to field {}", name.text);
                Err(QueryError::new(3080, msg))
            }
        }
    }

    /// Runs `compile` in a new scope.
    fn scoped<T>(
        &mut self,
        scope: Scope,
        compile: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.scopes.push(scope);
        let depth = self.scopes.len();
        let result = compile(self);
        debug_assert!(self.scopes.len() == depth, "scopes are left as they were entered");
        self.scopes.truncate(depth - 1);
        result
    }

    /// The full name of a keyspace as written.
    pub fn full_name(&self, path: &crate::ast::KeyspacePath) -> Result<KeyspaceName> {
        self.keyspace_name(path)
    }

    fn keyspace_name(&self, path: &crate::ast::KeyspacePath) -> Result<KeyspaceName> {
        let parts: Vec<String> = path.parts.iter().map(Text::to_string).collect();
        assert!(!parts.is_empty(), "a path has a name");
        match (&parts[..], &self.context.0, &path.namespace) {
            ([collection], Some((bucket, scope)), None) => Ok(KeyspaceName {
                bucket: bucket.clone(),
                collection: Some((scope.clone(), collection.clone())),
            }),
            ([bucket], _, _) => Ok(KeyspaceName { bucket: bucket.clone(), collection: None }),
            ([bucket, scope, collection], _, _) => Ok(KeyspaceName {
                bucket: bucket.clone(),
                collection: Some((scope.clone(), collection.clone())),
            }),
            _ => Err(QueryError::keyspace_missing(&parts.join("."))),
        }
    }
}
