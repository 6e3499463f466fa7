//! What a client may see of a plan: EXPLAIN, the row of PREPARE and the signature.

use crate::ast::statement::Statement;
use crate::compiled::{PlanKind, StatementPlan};
use crate::plan::{
    AccessPath, BodyPlan, FromPlan, JoinPlanKind, ProjectionPlan, ProjectionTerm, QueryPlan,
    SelectPlan, SourceKind, SourcePlan,
};
use crate::prepared::PreparedStatement;
use crate::value::{Object, QueryValue, write};

/// The row of EXPLAIN.
pub fn row(plan: &StatementPlan, _statement: &Statement, text: &str) -> QueryValue {
    object([("plan", operator_of(plan)), ("text", QueryValue::from(text))])
}

/// The row of PREPARE.
pub fn prepared_row(plan: &StatementPlan, prepared: &PreparedStatement) -> QueryValue {
    object([
        ("encoded_plan", QueryValue::from("")),
        ("name", QueryValue::Str(prepared.name.clone())),
        ("operator", operator_of(plan)),
        ("signature", crate::value::json::parse(&signature(plan).into()).unwrap_or_default()),
        ("text", QueryValue::from(prepared.text.as_str())),
    ])
}

/// The types of result fields, as JSON text.
pub fn signature(plan: &StatementPlan) -> String {
    let projection = match &plan.kind {
        PlanKind::Query(query) => first_projection(&query.body),
        PlanKind::Insert(plan) => plan.returning.as_ref(),
        PlanKind::Update(plan) => plan.returning.as_ref(),
        PlanKind::Delete(plan) => plan.returning.as_ref(),
        PlanKind::Merge(plan) => plan.returning.as_ref(),
        PlanKind::Other => None,
    };
    match projection {
        None => "null".to_owned(),
        Some(projection) if projection.raw => "\"json\"".to_owned(),
        // In the order of the statement, which names the columns of a table.
        Some(projection) => {
            let term = |term: &ProjectionTerm| match term {
                ProjectionTerm::Value(name, _) => {
                    format!("{}:\"json\"", write::to_json(&QueryValue::Str(name.clone())))
                }
                _ => "\"*\":\"*\"".to_owned(),
            };
            let mut terms: Vec<String> = Vec::with_capacity(projection.terms.len());
            for text in projection.terms.iter().map(term) {
                if !terms.contains(&text) {
                    terms.push(text);
                }
            }
            format!("{{{}}}", terms.join(","))
        }
    }
}

fn first_projection(body: &BodyPlan) -> Option<&ProjectionPlan> {
    match body {
        BodyPlan::Select(select) => Some(&select.projection),
        BodyPlan::Nested(query) => first_projection(&query.body),
        BodyPlan::Sets(first, _) => first_projection(first),
    }
}

fn object<const N: usize>(fields: [(&str, QueryValue); N]) -> QueryValue {
    let fields = fields.into_iter().map(|(name, value)| (name.into(), value));
    QueryValue::from(Object::new(fields.collect()))
}

fn operator<const N: usize>(name: &str, fields: [(&str, QueryValue); N]) -> QueryValue {
    let mut all = vec![("#operator".into(), QueryValue::from(name))];
    all.extend(fields.into_iter().map(|(name, value)| (name.into(), value)));
    QueryValue::from(Object::new(all))
}

fn sequence(mut children: Vec<QueryValue>) -> QueryValue {
    match children.len() {
        1 => children.remove(0),
        _ => operator("Sequence", [("~children", QueryValue::from(children))]),
    }
}

fn operator_of(plan: &StatementPlan) -> QueryValue {
    let change = |from: &FromPlan, name: &str| {
        let mut children = Vec::new();
        add_from(from, &mut children);
        children.push(operator(name, []));
        sequence(children)
    };
    match &plan.kind {
        PlanKind::Query(query) => query_operator(query),
        PlanKind::Insert(plan) => {
            operator(if plan.upsert { "SendUpsert" } else { "SendInsert" }, [])
        }
        PlanKind::Update(plan) => change(&plan.from, "SendUpdate"),
        PlanKind::Delete(plan) => change(&plan.from, "SendDelete"),
        PlanKind::Merge(plan) => change(&plan.from, "Merge"),
        PlanKind::Other => operator("Statement", []),
    }
}

fn query_operator(query: &QueryPlan) -> QueryValue {
    let mut children = Vec::new();
    if !query.with.is_empty() {
        children.push(operator("With", []));
    }
    match &query.body {
        BodyPlan::Select(select) => add_select(select, &mut children),
        body => children.push(body_operator(body)),
    }
    if !query.order.is_empty() {
        children.push(operator("Order", []));
    }
    if query.offset.is_some() {
        children.push(operator("Offset", []));
    }
    if query.limit.is_some() {
        children.push(operator("Limit", []));
    }
    sequence(children)
}

fn body_operator(body: &BodyPlan) -> QueryValue {
    match body {
        BodyPlan::Nested(query) => query_operator(query),
        BodyPlan::Select(select) => {
            let mut children = Vec::new();
            add_select(select, &mut children);
            sequence(children)
        }
        BodyPlan::Sets(first, rest) => {
            let mut children = vec![body_operator(first)];
            children.extend(rest.iter().map(|(set, body)| {
                let name = format!("{:?}{}", set.kind, if set.all { "All" } else { "" });
                operator(&name, [("~child", body_operator(body))])
            }));
            sequence(children)
        }
    }
}

fn add_select(select: &SelectPlan, children: &mut Vec<QueryValue>) {
    match &select.from {
        Some(from) => add_from(from, children),
        None => children.push(operator("DummyScan", [])),
    }
    if !select.lets.is_empty() {
        children.push(operator("Let", []));
    }
    if !select.filters.is_empty() {
        children.push(operator("Filter", []));
    }
    if let Some(group) = &select.group {
        children.push(operator(
            "Group",
            [
                ("aggregates", QueryValue::from(group.aggregates.len())),
                ("keys", QueryValue::from(group.keys.len())),
            ],
        ));
    }
    if !select.windows.is_empty() {
        children.push(operator("WindowAggregate", []));
    }
    let fields: Vec<QueryValue> = select
        .projection
        .terms
        .iter()
        .map(|term| match term {
            ProjectionTerm::Value(name, _) => QueryValue::Str(name.clone()),
            _ => QueryValue::from("*"),
        })
        .collect();
    children.push(operator("InitialProject", [("result_terms", QueryValue::from(fields))]));
    if select.projection.distinct {
        children.push(operator("Distinct", []));
    }
}

fn add_from(from: &FromPlan, children: &mut Vec<QueryValue>) {
    add_source(&from.first, children);
    if !from.filters.is_empty() {
        children.push(operator("Filter", []));
    }
    for join in &from.joins {
        let alias = QueryValue::Str(join.source.alias.clone());
        let nested = if join.nest { "Nest" } else { "Join" };
        let name = match &join.kind {
            JoinPlanKind::Unnest(_) => "Unnest".to_owned(),
            JoinPlanKind::Keys(_) => nested.to_owned(),
            JoinPlanKind::KeyFor { .. } => format!("Index{nested}"),
            JoinPlanKind::On { lateral: true, .. } => format!("NestedLoop{nested}"),
            JoinPlanKind::On { equal, .. } if equal.is_empty() => format!("NestedLoop{nested}"),
            JoinPlanKind::On { .. } => format!("Hash{nested}"),
        };
        let mut inner = Vec::new();
        add_source(&join.source, &mut inner);
        let fields = [
            ("alias", alias),
            ("outer", QueryValue::Bool(join.outer)),
            ("~child", sequence(inner)),
        ];
        children.push(operator(&name, fields));
    }
}

fn add_source(source: &SourcePlan, children: &mut Vec<QueryValue>) {
    let alias = QueryValue::Str(source.alias.clone());
    match &source.kind {
        SourceKind::Keyspace(plan) => {
            let name = plan.keyspace.name();
            let keyspace = name.collection.map_or(name.bucket, |(_, collection)| collection);
            let keyspace = QueryValue::from(keyspace);
            let scan = match &plan.access {
                AccessPath::Keys(_) | AccessPath::KeySet(_) => "KeyScan",
                AccessPath::Scan(bounds) if bounds.is_empty() => "PrimaryScan",
                AccessPath::Scan(_) => "KeyRangeScan",
            };
            let fields = [("as", alias.clone()), ("keyspace", keyspace.clone())];
            children.push(operator(scan, fields));
            children.push(operator("Fetch", [("as", alias), ("keyspace", keyspace)]));
        }
        SourceKind::Value(_) => children.push(operator("ExpressionScan", [("alias", alias)])),
        SourceKind::Subquery(inner) => {
            children.push(query_operator(&inner.plan));
            children.push(operator("Alias", [("as", alias)]));
        }
        SourceKind::Catalog(_) => children.push(operator("PrimaryScan", [("as", alias)])),
    }
}
