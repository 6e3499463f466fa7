//! The state of a running statement: parameters, memory, deadline and caches.
//!
//! One thread runs a statement. Whatever it keeps, it reserves first (5500); long loops call
//! `turn`, which ends the statement at its deadline or when its client is gone (1080, 1181). The
//! keys of an index have no deadline: their work is limited by its amount, so that a document has
//! the same entries each time.

pub mod memory;
pub mod pattern_cache;
mod patterns;
mod sorting;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::ast::Param;
use crate::bindings::{Bindings, IndexReference, KeyspaceReference};
use crate::catalog::PreparedCatalog;
use crate::consistency::Consistency;
use crate::datastore::{Datastore, Keyspace, KeyspaceIndex, KeyspaceName};
use crate::error::{QueryError, Result};
use crate::limits::{BYTES_OF_A_TURN, ERRORS_MAX, TURNS_BETWEEN_CHECKS};
use crate::memory_budget::MemoryBudget;
use crate::value::{QueryValue, Text};
use pattern_cache::PatternCache;

/// The frame: the values of a statement's slots.
pub type SlotFrame = Vec<QueryValue>;

#[derive(Clone, Debug, Default)]
pub struct QueryParameters {
    pub positional: Vec<QueryValue>,
    pub named: Vec<(Text, QueryValue)>,
}

pub struct Runtime<'a> {
    pub store: &'a dyn Datastore,
    bindings: OnceCell<Bindings>,
    pub prepared: &'a dyn PreparedCatalog,
    /// Whose prepared statements it sees.
    pub user: &'a str,
    pub params: &'a QueryParameters,
    pub now: SystemTime,
    /// Keeps documents' expiry where a change does not name one.
    pub preserve_expiry: bool,
    pub deadline: Option<Instant>,
    pub cancelled: Option<&'a AtomicBool>,
    /// How fresh index scans must be, and how long they wait for it.
    pub consistency: (Consistency, Option<Duration>),
    /// The keyspaces whose indexes are fresh enough.
    caught_up: RefCell<Vec<KeyspaceName>>,
    budget: &'a dyn MemoryBudget,
    /// Bytes reserved from the budget, and those in use: kept, by one call, and by values.
    reserved: Cell<usize>,
    used: Cell<usize>,
    scratch: Cell<usize>,
    values_bytes: Arc<AtomicUsize>,
    turns: Cell<u32>,
    /// Checks that are left, if the amount of work is limited.
    checks_left: Cell<Option<u32>>,
    is_exhausted: Cell<bool>,
    numbers: Cell<u64>,
    subqueries: RefCell<Vec<Option<QueryValue>>>,
    patterns: RefCell<PatternCache>,
    pub mutations: Cell<u64>,
    pub sorted: Cell<u64>,
    /// Failures of single rows.
    pub errors: RefCell<Vec<QueryError>>,
    pub warnings: RefCell<Vec<QueryError>>,
}

impl<'a> Runtime<'a> {
    pub fn new(
        store: &'a dyn Datastore,
        prepared: &'a dyn PreparedCatalog,
        params: &'a QueryParameters,
        budget: &'a dyn MemoryBudget,
    ) -> Runtime<'a> {
        Runtime::at(SystemTime::now(), store, prepared, params, budget)
    }

    /// A runtime whose functions see this time. To look at the clock costs as much as some keys of
    /// an index.
    pub fn at(
        now: SystemTime,
        store: &'a dyn Datastore,
        prepared: &'a dyn PreparedCatalog,
        params: &'a QueryParameters,
        budget: &'a dyn MemoryBudget,
    ) -> Runtime<'a> {
        Runtime {
            store,
            bindings: OnceCell::new(),
            prepared,
            user: "",
            params,
            now,
            preserve_expiry: false,
            deadline: None,
            cancelled: None,
            consistency: (Consistency::NotBounded, None),
            caught_up: RefCell::default(),
            budget,
            reserved: Cell::new(0),
            used: Cell::new(0),
            scratch: Cell::new(0),
            values_bytes: Arc::default(),
            turns: Cell::new(0),
            checks_left: Cell::new(None),
            is_exhausted: Cell::new(false),
            numbers: Cell::new(0),
            subqueries: RefCell::default(),
            patterns: RefCell::default(),
            mutations: Cell::new(0),
            sorted: Cell::new(0),
            errors: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// Sets what the plan of this run reads.
    pub fn bind(&self, bindings: Bindings) -> Result<()> {
        let again = |_| QueryError::new(5000, "A run has the keyspaces of one plan");
        self.bindings.set(bindings).map_err(again)
    }

    pub fn keyspace(&self, reference: &KeyspaceReference) -> Result<&dyn Keyspace> {
        let found = self.bindings.get().and_then(|bindings| bindings.keyspace(reference));
        let unbound = || QueryError::new(5000, "A keyspace of the plan was not found");
        found.map(|keyspace| &**keyspace).ok_or_else(unbound)
    }

    pub fn index(&self, reference: &IndexReference) -> Result<&dyn KeyspaceIndex> {
        let found = self.bindings.get().and_then(|bindings| bindings.index(reference));
        let unbound = || QueryError::new(5000, "An index of the plan was not found");
        found.map(|index| &**index).ok_or_else(unbound)
    }

    /// A runtime with the parameters of EXECUTE.
    pub fn with_params<'b>(&'b self, params: &'b QueryParameters) -> Runtime<'b> {
        let mut inner = Runtime::at(self.now, self.store, self.prepared, params, self.budget);
        inner.user = self.user;
        inner.preserve_expiry = self.preserve_expiry;
        inner.deadline = self.deadline;
        inner.consistency.clone_from(&self.consistency);
        inner.cancelled = self.cancelled;
        inner
    }

    /// Takes over the counters, errors and warnings of an inner runtime.
    pub fn absorb(&self, inner: &Runtime<'_>) {
        self.mutations.set(self.mutations.get() + inner.mutations.get());
        self.sorted.set(self.sorted.get() + inner.sorted.get());
        self.errors.borrow_mut().append(&mut inner.errors.borrow_mut());
        self.warnings.borrow_mut().append(&mut inner.warnings.borrow_mut());
    }

    /// The time of the statement in nanoseconds since 1970.
    pub fn now_nanoseconds(&self) -> i64 {
        let since = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    /// A number that differs at each call.
    pub fn next_number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Limits the work to so many checks from now on.
    pub fn limit_work(&self, checks: u32) {
        self.checks_left.set(Some(checks));
    }

    /// Whether the limit of work has ended it.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    fn exhausted(&self) -> Box<QueryError> {
        self.is_exhausted.set(true);
        QueryError::evaluation("The keys of an index take too much work")
    }

    /// One turn of a loop.
    #[inline]
    pub fn turn(&self) -> Result<()> {
        let turns = self.turns.get() + 1;
        debug_assert!(turns <= TURNS_BETWEEN_CHECKS, "turns are counted up to a check");
        self.turns.set(turns % TURNS_BETWEEN_CHECKS);
        if turns < TURNS_BETWEEN_CHECKS { Ok(()) } else { self.spend(1) }
    }

    /// Counts work on so many bytes as the turns that it takes.
    #[inline]
    pub fn work(&self, bytes: usize) -> Result<()> {
        if bytes < BYTES_OF_A_TURN { Ok(()) } else { self.work_on_many(bytes) }
    }

    #[cold]
    fn work_on_many(&self, bytes: usize) -> Result<()> {
        let turns = self.turns.get() as usize + bytes / BYTES_OF_A_TURN;
        if turns < TURNS_BETWEEN_CHECKS as usize {
            self.turns.set(turns as u32);
            return Ok(());
        }
        self.turns.set(0);
        self.spend(turns / TURNS_BETWEEN_CHECKS as usize)
    }

    /// Checks the deadline after work that takes so many checks.
    fn spend(&self, checks: usize) -> Result<()> {
        debug_assert!(checks > 0, "work is counted in whole checks");
        if let Some(left) = self.checks_left.get() {
            let checks = u32::try_from(checks).unwrap_or(u32::MAX);
            let left = left.checked_sub(checks).ok_or_else(|| self.exhausted())?;
            self.checks_left.set(Some(left));
        }
        self.check_deadline()
    }

    pub fn check_deadline(&self) -> Result<()> {
        // First, because the server cancels a request whose time is over, too.
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(QueryError::timeout());
        }
        match self.cancelled {
            Some(cancelled) if cancelled.load(Ordering::Relaxed) => {
                Err(QueryError::new(1181, "The request was stopped"))
            }
            _ => Ok(()),
        }
    }

    /// Waits until the indexes of a keyspace meet the request's scan consistency.
    pub fn catch_up(&self, keyspace: &dyn Keyspace) -> Result<()> {
        let (consistency, wait) = &self.consistency;
        let name = keyspace.name();
        if !self.caught_up.borrow().contains(&name) {
            keyspace.catch_up(consistency, *wait)?;
            self.caught_up.borrow_mut().push(name);
        }
        Ok(())
    }

    /// Gives back so many bytes that were kept.
    pub fn give_back(&self, bytes: usize) {
        assert!(bytes <= self.used.get(), "only what was kept is given back");
        self.used.set(self.used.get() - bytes);
    }

    pub fn param(&self, param: &Param) -> Result<QueryValue> {
        let missing =
            |name: String| QueryError::evaluation(format!("No value for the parameter {name}"));
        match param {
            Param::Position(position) => {
                debug_assert!(*position > 0, "positions begin at 1");
                let value = self.params.positional.get(position - 1).cloned();
                value.ok_or_else(|| missing(format!("${position}")))
            }
            Param::Name(name) => {
                self.work(self.params.named.len())?;
                let found = self.params.named.iter().find(|(known, _)| known == name);
                let value = found.map(|(_, value)| value.clone());
                value.ok_or_else(|| missing(format!("${name}")))
            }
        }
    }

    pub fn cached_subquery(&self, number: usize) -> Option<QueryValue> {
        self.subqueries.borrow().get(number).cloned().flatten()
    }

    pub fn cache_subquery(&self, number: usize, value: QueryValue) {
        let mut cache = self.subqueries.borrow_mut();
        if cache.len() <= number {
            cache.resize(number + 1, None);
        }
        debug_assert!(cache[number].is_none(), "a subquery is computed once");
        cache[number] = Some(value);
    }

    /// Notes the failure of one row; work continues.
    pub fn row_failed(&self, error: QueryError) {
        let mut errors = self.errors.borrow_mut();
        if errors.len() < ERRORS_MAX {
            errors.push(error);
        }
    }

    pub fn warn(&self, code: u32, msg: &str) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < ERRORS_MAX && warnings.iter().all(|known| known.code != code) {
            warnings.push(*QueryError::new(code, msg));
        }
    }
}

impl Drop for Runtime<'_> {
    fn drop(&mut self) {
        self.budget.release(self.reserved.get());
    }
}
