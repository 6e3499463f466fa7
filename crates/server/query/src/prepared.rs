//! Prepared statements: a bounded map in memory from a name to a statement's text and tree.
//!
//! Clients prepare again when a name is unknown (4040), so nothing is stored. A name belongs to a
//! user, a text and a query context: no user sees or replaces the statements of others. The plan is
//! kept until a keyspace or index comes or goes ([`Datastore::version`]). Each run binds it to the
//! keyspaces of then, with the user's rights of then.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ast::statement::{Prepare, Statement};
use crate::bindings::Bindings;
use crate::catalog::{CatalogRows, PreparedCatalog};
use crate::compiled::StatementPlan;
use crate::context::QueryContext;
use crate::datastore::Datastore;
use crate::error::{QueryError, Result};
use crate::limits::{PREPARED_BYTES_MAX, PREPARED_BYTES_MIN, PREPARED_MAX};
use crate::value::{Object, QueryValue, Text};

#[derive(Debug)]
pub struct PreparedStatement {
    /// The user whose it is.
    pub owner: String,
    pub name: Text,
    pub text: String,
    pub context: QueryContext,
    pub statement: Arc<Statement>,
    /// Bytes of text, tree and plan, at most.
    bytes: usize,
    /// The newest plan, and the version of the datastore before its compilation.
    plan: Mutex<Option<(u64, Arc<StatementPlan>)>>,
}

impl PreparedStatement {
    pub fn new(
        owner: &str,
        name: Text,
        prepare: &Prepare,
        context: QueryContext,
    ) -> Result<PreparedStatement> {
        let bytes = prepare.bytes + prepare.text.len() + PREPARED_BYTES_MIN;
        let (text, statement) = (prepare.text.clone(), prepare.statement.clone());
        let (owner, plan) = (owner.to_owned(), Mutex::default());
        if bytes > PREPARED_BYTES_MAX {
            let msg = "The statement is too long to be prepared; send it as it is";
            return Err(QueryError::new(5010, msg));
        }
        Ok(PreparedStatement { owner, name, text, context, statement, bytes, plan })
    }

    /// The plan for a run, and what the run reads. Compiled again if it is stale.
    pub fn plan(
        &self,
        store: &dyn Datastore,
        turn: &dyn Fn() -> Result<()>,
    ) -> Result<(Arc<StatementPlan>, Bindings)> {
        // Asked first: what changes during the compilation makes the plan stale.
        let version = store.version();
        let kept = self.plan.lock().clone().filter(|(of, _)| *of == version);
        if let Some((_, plan)) = kept
            && let Some(bound) = plan.bind(store)?
        {
            return Ok((plan, bound));
        }
        let (plan, bound) = StatementPlan::compile(&self.statement, &self.context, store, turn)?;
        let plan = Arc::new(plan);
        *self.plan.lock() = Some((version, plan.clone()));
        Ok((plan, bound))
    }
}

/// The prepared statements of a service.
#[derive(Debug, Default)]
pub struct PreparedStatements {
    state: Mutex<AggregateState>,
}

#[derive(Debug, Default)]
struct AggregateState {
    by_name: HashMap<(String, Text), (u64, Arc<PreparedStatement>)>,
    /// The number of the newest.
    newest: u64,
}

impl PreparedStatements {
    /// The statement of a name.
    pub fn get(&self, owner: &str, name: &Text) -> Result<Arc<PreparedStatement>> {
        let state = self.state.lock();
        let found = state
            .by_name
            .get(&(owner.to_owned(), name.clone()))
            .map(|(_, statement)| statement.clone());
        found.ok_or_else(|| QueryError::new(4040, format!("No such prepared statement: {name}")))
    }

    /// Keeps a statement. The oldest one leaves when there are too many.
    pub fn put(&self, statement: PreparedStatement, force: bool) -> Result<Arc<PreparedStatement>> {
        let mut state = self.state.lock();
        let key = (statement.owner.clone(), statement.name.clone());
        if let Some((_, known)) = state.by_name.get(&key) {
            let same = known.text == statement.text && known.context == statement.context;
            if !same && !force {
                let msg = format!("The name {} has another prepared statement", statement.name);
                return Err(QueryError::new(4060, msg));
            }
            state.by_name.remove(&key);
        }
        let mut bytes: usize = state.by_name.values().map(|(_, one)| one.bytes).sum();
        while state.by_name.len() >= PREPARED_MAX || bytes + statement.bytes > PREPARED_BYTES_MAX {
            let oldest = state.by_name.iter().min_by_key(|(_, (number, _))| *number);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            let removed = state.by_name.remove(&oldest);
            bytes -= removed.map_or(0, |(_, one)| one.bytes);
        }
        assert!(
            bytes + statement.bytes <= PREPARED_BYTES_MAX,
            "statements stay within their limit"
        );
        state.newest += 1;
        let number = state.newest;
        let statement = Arc::new(statement);
        state.by_name.insert(key, (number, statement.clone()));
        assert!(state.by_name.len() <= PREPARED_MAX, "few statements are kept");
        Ok(statement)
    }
}

impl PreparedCatalog for PreparedStatements {
    fn prepared_rows(&self, owner: &str) -> CatalogRows {
        let state = self.state.lock();
        let row = |(_, statement): &(u64, Arc<PreparedStatement>)| {
            let name = QueryValue::Str(statement.name.clone());
            let fields = vec![
                ("name".into(), name.clone()),
                ("statement".into(), QueryValue::from(statement.text.as_str())),
            ];
            (name, QueryValue::from(Object::new(fields)))
        };
        state.by_name.values().filter(|(_, one)| one.owner == owner).map(row).collect()
    }
}
