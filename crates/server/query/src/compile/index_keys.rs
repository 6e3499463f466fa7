//! The keys and the condition of an index, compiled from the canonical texts of its definition.
//!
//! The document has the slots 0 to 2, loop variables those after. The planner compares these
//! expressions with those of statements in `plan::normal_form`.

use std::sync::Arc;

use crate::ast::statement::{IndexKey, Statement};
use crate::ast::{Comprehension, Expr};
use crate::context::QueryContext;
use crate::datastore::{Datastore, IndexChange, IndexDefinition, Keyspace, KeyspaceName};
use crate::error::{QueryError, Result};
use crate::parser;
use crate::plan::expr::conjuncts;
use crate::plan::normal_form::normal;
use crate::plan::{ArrayKeyParts, IndexKeyPlan, IndexKeyValue, IndexKeys};
use crate::plan::{ExprPlan, LoopPlan};

use super::Compiler;

/// Functions whose result is not decided by the document.
const VOLATILE: [&str; 12] = [
    "CLOCK_MILLIS",
    "CLOCK_LOCAL",
    "CLOCK_STR",
    "CLOCK_UTC",
    "CLOCK_TZ",
    "NOW_MILLIS",
    "NOW_LOCAL",
    "NOW_STR",
    "NOW_UTC",
    "NOW_TZ",
    "UUID",
    "RANDOM",
];

impl IndexKeys {
    /// The keys of a definition; 5010 if no index can have them.
    pub fn compile(definition: &IndexDefinition) -> Result<IndexKeys> {
        let keys: Vec<String> = definition.keys.iter().map(|key| key_syntax(key)).collect();
        let condition = definition.condition.iter().map(|text| format!(" WHERE {text}"));
        let condition: String = condition.collect();
        let text = format!("CREATE INDEX `i` ON `k`({}){condition}", keys.join(", "));
        // A subquery has no canonical text.
        let Ok(Statement::CreateIndex(create)) = parser::parse(&text, &|_| Ok(())) else {
            return Err(unusable("its keys are not expressions of a document"));
        };
        let store = NoDocuments;
        let context = QueryContext::default();
        let mut compiler = Compiler::new(&store, &context, &|| Ok(()));
        compiler.index_source()?;
        let condition = compiler.optional(&create.condition)?.map(conjuncts).unwrap_or_default();
        let keys = create.keys.iter().zip(&definition.keys);
        let keys = keys.map(|(key, text)| key_plan(key, text, &mut compiler));
        let keys = keys.collect::<Result<Vec<IndexKeyPlan>>>()?;
        let arrays = keys.iter().filter(|key| matches!(key.value, IndexKeyValue::Array { .. }));
        if arrays.count() > 1 {
            return Err(unusable("it has more than one array key"));
        }
        let compiled = IndexKeys {
            needs_meta: compiler.reads_meta(),
            slot_count: compiler.sizes().0,
            condition: condition.into_iter().map(normal).collect(),
            keys,
        };
        assert!(!compiled.keys.is_empty(), "an index has keys");
        compiled.check()?;
        Ok(compiled)
    }

    /// Refuses expressions that do not depend on the document alone.
    fn check(&self) -> Result<()> {
        for component in self.components() {
            check_expr(component.value)?;
            if let Some(array) = component.array {
                check_expr(&array.source)?;
                array.condition.iter().try_for_each(check_expr)?;
            }
        }
        self.condition.iter().try_for_each(check_expr)
    }
}

fn unusable(why: &str) -> Box<QueryError> {
    QueryError::new(5010, format!("The index cannot be built: {why}"))
}

fn check_expr(expr: &ExprPlan) -> Result<()> {
    match expr {
        ExprPlan::Subquery(_) => return Err(unusable("it has a subquery")),
        ExprPlan::Param(_) => return Err(unusable("it has a parameter")),
        ExprPlan::Aggregate(_) => return Err(unusable("it has an aggregate")),
        ExprPlan::Call(function, _) if VOLATILE.contains(&function.name) => {
            let why = format!("{} gives another value at each call", function.name);
            return Err(unusable(&why));
        }
        _ => {}
    }
    let mut result = Ok(());
    expr.for_each_part(&mut |part| {
        if result.is_ok() {
            result = check_expr(part);
        }
    });
    result
}

/// The canonical text of a key as the parser reads it, without its attributes.
fn split_key(text: &str) -> (Option<&'static str>, &str, Vec<&'static str>) {
    let mut attributes = Vec::new();
    let mut rest = text;
    loop {
        if let Some(before) = rest.strip_suffix(" DESC") {
            attributes.insert(0, " DESC");
            rest = before;
        } else if let Some(before) = rest.strip_suffix(" INCLUDE MISSING") {
            attributes.insert(0, " INCLUDE MISSING");
            rest = before;
        } else {
            break;
        }
    }
    for (prefix, word) in [("(distinct (", "DISTINCT "), ("(all (", "ALL ")] {
        if let Some(inner) = rest.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("))")) {
            return (Some(word), inner, attributes);
        }
    }
    (None, rest, attributes)
}

fn key_syntax(text: &str) -> String {
    let (array, inner, attributes) = split_key(text);
    format!("{}{inner}{}", array.unwrap_or_default(), attributes.concat())
}

fn key_plan(key: &IndexKey, text: &str, compiler: &mut Compiler<'_>) -> Result<IndexKeyPlan> {
    let value = match key.array {
        None => {
            let expr = compiler.expr(&key.value)?;
            IndexKeyValue::Value { normal: normal(expr.clone()), expr }
        }
        Some(_) => array_value(&key.value, compiler)?,
    };
    let attributes: usize = split_key(text).2.iter().map(|attribute| attribute.len()).sum();
    assert!(attributes <= text.len(), "the attributes are a part of the text");
    Ok(IndexKeyPlan {
        text: text[..text.len() - attributes].to_owned(),
        descending: key.descending,
        include_missing: key.include_missing,
        value,
    })
}

fn array_value(key: &Expr, compiler: &mut Compiler<'_>) -> Result<IndexKeyValue> {
    let (flattened, key) = with_flattened_keys(key);
    let list = compiler.expr(&key)?;
    if let ExprPlan::Collection { value, bindings, condition, .. } = &list
        && let [LoopPlan { position: None, variable, within, source }] = &bindings[..]
    {
        let values = match (&**value, flattened) {
            (ExprPlan::Array(values), true) => values.clone(),
            (value, _) => vec![value.clone()],
        };
        let condition = condition.iter().flat_map(|condition| conjuncts((**condition).clone()));
        let parts = ArrayKeyParts {
            source: normal(source.clone()),
            within: *within,
            variable: *variable,
            condition: condition.map(normal).collect(),
            values: values.into_iter().map(normal).collect(),
            flattened,
        };
        assert!(!parts.values.is_empty(), "an array key has a value");
        return Ok(IndexKeyValue::Array { list, parts });
    }
    // The elements of an array as they are.
    let variable = compiler.index_variable();
    let parts = ArrayKeyParts {
        source: normal(list.clone()),
        within: false,
        variable,
        condition: Vec::new(),
        values: vec![ExprPlan::Slot(variable)],
        flattened: false,
    };
    Ok(IndexKeyValue::Array { list, parts })
}

/// `FLATTEN_KEYS(a, b)` as the array `[a, b]`.
fn with_flattened_keys(key: &Expr) -> (bool, Expr) {
    if let Expr::Collection(inner) = key
        && let Expr::Call(call) = &inner.value
        && call.name == "FLATTEN_KEYS"
        && !call.args.is_empty()
    {
        let value = Expr::Array(call.args.clone());
        return (true, Expr::Collection(Box::new(Comprehension { value, ..(**inner).clone() })));
    }
    (false, key.clone())
}

/// The datastore of expressions that read their document only.
pub struct NoDocuments;

impl Datastore for NoDocuments {
    fn keyspace(&self, name: &KeyspaceName) -> Result<Arc<dyn Keyspace>> {
        Err(QueryError::keyspace_missing(&name.bucket))
    }

    fn keyspaces(&self) -> Result<Vec<KeyspaceName>> {
        Ok(Vec::new())
    }

    fn indexes(&self) -> Result<Vec<IndexDefinition>> {
        Ok(Vec::new())
    }

    fn change_indexes(&self, _: IndexChange) -> Result<()> {
        Err(unusable("an index changes no index"))
    }

    fn version(&self) -> u64 {
        0
    }
}
