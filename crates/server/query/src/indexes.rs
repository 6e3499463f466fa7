//! CREATE, DROP and BUILD INDEX: checks definitions and hands them to the store.

use crate::ast::Expr;
use crate::ast::statement::{BuildIndex, CreateIndex, DropIndex, IndexKey, Statement};
use crate::compile::Compiler;
use crate::context::QueryContext;
use crate::datastore::{IndexChange, IndexDefinition};
use crate::error::{QueryError, Result};
use crate::plan::IndexKeys;
use crate::printer::print;
use crate::runtime::{Runtime, SlotFrame};
use crate::value::{QueryValue, Text};

/// The name of a primary index that has none.
const PRIMARY_NAME: &str = "#primary";

pub fn run(statement: &Statement, context: &QueryContext, rt: &Runtime<'_>) -> Result<()> {
    match statement {
        Statement::CreateIndex(create) => create_index(create, context, rt),
        Statement::DropIndex(drop) => drop_index(drop, context, rt),
        Statement::BuildIndex(build) => build_index(build, context, rt),
        _ => Ok(()),
    }
}

/// The value of an expression without names, the only one of its statement.
pub fn constant(expr: &Expr, context: &QueryContext, rt: &Runtime<'_>) -> Result<QueryValue> {
    Ok(constants(&[expr], context, rt)?.pop().unwrap_or_default())
}

/// The values of all expressions of a statement. They have one compiler, because a run has the
/// keyspaces and subqueries of one plan.
fn constants(exprs: &[&Expr], context: &QueryContext, rt: &Runtime<'_>) -> Result<Vec<QueryValue>> {
    let turn = || rt.turn();
    let mut compiler = Compiler::new(rt.store, context, &turn);
    let plans: Vec<_> = exprs.iter().map(|expr| compiler.expr(expr)).collect::<Result<_>>()?;
    let mut frame: SlotFrame = vec![QueryValue::Missing; compiler.sizes().0];
    rt.bind(compiler.into_sources().1)?;
    let values: Vec<_> =
        plans.iter().map(|plan| rt.eval(plan, &mut frame)).collect::<Result<_>>()?;
    debug_assert!(values.len() == exprs.len(), "each expression has a value");
    Ok(values)
}

fn create_index(create: &CreateIndex, context: &QueryContext, rt: &Runtime<'_>) -> Result<()> {
    let turn = || rt.turn();
    let compiler = Compiler::new(rt.store, context, &turn);
    let keyspace = compiler.full_name(&create.keyspace)?;
    rt.store.keyspace(&keyspace)?;
    let with = match &create.with {
        Some(with) => constant(with, context, rt)?,
        None => QueryValue::Missing,
    };
    let deferred = with.field(b"defer_build").truth();
    let partition: Vec<String> = create.partition.iter().map(print).collect();
    let definition = IndexDefinition {
        name: create.name.as_ref().map_or(PRIMARY_NAME.to_owned(), Text::to_string),
        keyspace,
        is_primary: create.primary,
        keys: create.keys.iter().map(key_text).collect(),
        condition: create.condition.as_ref().map(print),
        partition: (!partition.is_empty()).then(|| format!("HASH({})", partition.join(", "))),
        state: if deferred { "deferred" } else { "online" }.to_owned(),
        reason: None,
        size: None,
        id: String::new(),
        replica_count: with.field(b"num_replica").as_int().unwrap_or(0).clamp(0, 16) as u32,
    };
    if !definition.is_primary {
        // Refuses keys that no entry can have.
        IndexKeys::compile(&definition)?;
    }
    match rt.store.change_indexes(IndexChange::Create(definition)) {
        Err(error) if error.code == 4300 && create.if_not_exists => Ok(()),
        result => result,
    }
}

fn key_text(key: &IndexKey) -> String {
    let array = match key.array {
        Some(true) => "(distinct (",
        Some(false) => "(all (",
        None => "",
    };
    let end = if key.array.is_some() { "))" } else { "" };
    let missing = if key.include_missing { " INCLUDE MISSING" } else { "" };
    let order = if key.descending { " DESC" } else { "" };
    format!("{array}{}{end}{missing}{order}", print(&key.value))
}

fn drop_index(drop: &DropIndex, context: &QueryContext, rt: &Runtime<'_>) -> Result<()> {
    let turn = || rt.turn();
    let compiler = Compiler::new(rt.store, context, &turn);
    let keyspace = compiler.full_name(&drop.keyspace)?;
    rt.store.keyspace(&keyspace)?;
    let name = drop.name.as_ref().map_or(PRIMARY_NAME.to_owned(), Text::to_string);
    match rt.store.change_indexes(IndexChange::Drop { keyspace, name }) {
        Err(error) if matches!(error.code, 12004 | 12016) && drop.if_exists => Ok(()),
        result => result,
    }
}

fn build_index(build: &BuildIndex, context: &QueryContext, rt: &Runtime<'_>) -> Result<()> {
    let turn = || rt.turn();
    let compiler = Compiler::new(rt.store, context, &turn);
    let keyspace = compiler.full_name(&build.keyspace)?;
    rt.store.keyspace(&keyspace)?;
    // A bare name is the index's.
    let is_computed = |name: &&Expr| !matches!(name, Expr::Name(_));
    let computed: Vec<&Expr> = build.names.iter().filter(is_computed).collect();
    let mut values = constants(&computed, context, rt)?.into_iter();
    let mut names = Vec::new();
    for name in &build.names {
        let value = match name {
            Expr::Name(name) => QueryValue::Str(name.text.clone()),
            _ => values.next().unwrap_or_default(),
        };
        let listed = value.elements();
        let list = listed.as_ref().map_or(std::slice::from_ref(&value), |list| list.as_slice());
        for value in list.iter() {
            let QueryValue::Str(name) = value else {
                return Err(QueryError::new(5010, "BUILD INDEX takes names of indexes"));
            };
            names.push(name.to_string());
        }
    }
    rt.store.change_indexes(IndexChange::Build { keyspace, names })
}
