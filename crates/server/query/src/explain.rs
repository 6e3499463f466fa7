//! The parts of a plan that a client sees: EXPLAIN, the row of PREPARE and the signature.

mod condition;

use crate::ast::statement::Statement;
use crate::compiled::{PlanKind, StatementPlan};
use crate::plan::{
    AccessPath, BodyPlan, ExprPlan, FromPlan, JoinPlanKind, KeyRangeBound, OrderKey,
    ProjectionTerm, QueryPlan, SelectPlan, SourceKind, SourcePlan,
};
use crate::plan::{IndexScanPlan, KeyTerm};
use crate::prepared::PreparedStatement;
use crate::value::{Object, QueryValue};
use condition::{SourceNames, all_text, text};

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
        (
            "signature",
            crate::value::json::parse(&plan.signature.clone().into()).unwrap_or_default(),
        ),
        ("text", QueryValue::from(prepared.text.as_str())),
    ])
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
    debug_assert!(!children.is_empty(), "a plan has an operator");
    match children.len() {
        1 => children.remove(0),
        _ => operator("Sequence", [("~children", QueryValue::from(children))]),
    }
}

fn operator_of(plan: &StatementPlan) -> QueryValue {
    let change = |from: &FromPlan, name: &str| {
        let mut children = Vec::new();
        add_from(from, &names_of(Some(from)), &mut children);
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
    let names = match &query.body {
        BodyPlan::Select(select) => names_of(select.from.as_ref()),
        _ => SourceNames::new(),
    };
    if !query.with.is_empty() {
        children.push(operator("With", []));
    }
    match &query.body {
        BodyPlan::Select(select) => add_select(select, &mut children),
        body => children.push(body_operator(body)),
    }
    if !query.order.is_empty() {
        children.push(operator("Order", [("sort_terms", sort_terms(&query.order, &names))]));
    }
    let expr = |expr: &ExprPlan| [("expr", QueryValue::from(text(expr, &names)))];
    if let Some(offset) = &query.offset {
        children.push(operator("Offset", expr(offset)));
    }
    if let Some(limit) = &query.limit {
        children.push(operator("Limit", expr(limit)));
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

fn names_of(from: Option<&FromPlan>) -> SourceNames {
    let Some(from) = from else { return SourceNames::new() };
    let mut names = SourceNames::new();
    from.for_each_source(&mut |source| names.extend([(source.slot, source.alias.clone())]));
    names
}

fn sort_terms(order: &[OrderKey], names: &SourceNames) -> QueryValue {
    let term = |key: &OrderKey| {
        let expr = QueryValue::from(text(&key.value, names));
        let direction = if key.descending { "desc" } else { "asc" };
        object([("expr", expr), ("order", QueryValue::from(direction))])
    };
    QueryValue::from(order.iter().map(term).collect::<Vec<_>>())
}

fn filter(conditions: &[ExprPlan], names: &SourceNames) -> QueryValue {
    operator("Filter", [("condition", QueryValue::from(all_text(conditions, names)))])
}

fn add_select(select: &SelectPlan, children: &mut Vec<QueryValue>) {
    let names = names_of(select.from.as_ref());
    match &select.from {
        Some(from) => add_from(from, &names, children),
        None => children.push(operator("DummyScan", [])),
    }
    if !select.lets.is_empty() {
        children.push(operator("Let", []));
    }
    if !select.filters.is_empty() {
        children.push(filter(&select.filters, &names));
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

fn add_from(from: &FromPlan, names: &SourceNames, children: &mut Vec<QueryValue>) {
    add_source(&from.first, names, children);
    if !from.filters.is_empty() {
        children.push(filter(&from.filters, names));
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
        add_source(&join.source, names, &mut inner);
        if let JoinPlanKind::On { condition: Some(condition), .. } = &join.kind {
            inner.push(filter(std::slice::from_ref(condition), names));
        }
        let fields = [
            ("alias", alias),
            ("outer", QueryValue::Bool(join.outer)),
            ("~child", sequence(inner)),
        ];
        children.push(operator(&name, fields));
    }
}

fn add_source(source: &SourcePlan, names: &SourceNames, children: &mut Vec<QueryValue>) {
    let alias = QueryValue::Str(source.alias.clone());
    match &source.kind {
        SourceKind::Keyspace(plan) => {
            let name = &plan.keyspace.name;
            let collection = name.collection.as_ref().map(|(_, collection)| collection.as_str());
            let keyspace = collection.unwrap_or(&name.bucket);
            let keyspace = QueryValue::from(keyspace);
            let fields = [("as", alias.clone()), ("keyspace", keyspace.clone())];
            children.push(match &plan.access {
                AccessPath::Keys(keys) | AccessPath::KeySet(keys) => {
                    with(operator("KeyScan", fields), "keys", text(keys, names).into())
                }
                AccessPath::Scan(bounds) if bounds.is_empty() => operator("PrimaryScan", fields),
                AccessPath::Scan(bounds) => {
                    let spans = QueryValue::from(vec![key_span(bounds, names)]);
                    with(operator("KeyRangeScan", fields), "spans", spans)
                }
                AccessPath::Indexes(scans) => index_scans(scans, &fields, names),
            });
            children.push(operator("Fetch", [("as", alias), ("keyspace", keyspace)]));
        }
        SourceKind::Value(_) => children.push(operator("ExpressionScan", [("alias", alias)])),
        SourceKind::Subquery(inner) => {
            children.push(query_operator(&inner.plan));
            children.push(operator("Alias", [("as", alias)]));
        }
        SourceKind::Catalog(_) => children.push(operator("PrimaryScan", [("as", alias)])),
        SourceKind::Joined(from, _) => add_from(from, names, children),
    }
}

fn with(operator: QueryValue, name: &str, value: QueryValue) -> QueryValue {
    let mut object = operator.object().map(|object| (*object).clone()).unwrap_or_default();
    object.set(name.into(), value);
    QueryValue::from(object)
}

/// One scan, or the union of several.
fn index_scans(
    scans: &[IndexScanPlan],
    fields: &[(&str, QueryValue); 2],
    names: &SourceNames,
) -> QueryValue {
    let scan = |scan: &IndexScanPlan| {
        let mut plan = operator("IndexScan3", fields.clone());
        plan = with(plan, "index", QueryValue::from(scan.index.name.as_str()));
        plan = with(plan, "index_id", QueryValue::from(scan.index.id.as_str()));
        plan = with(plan, "using", QueryValue::from("gsi"));
        plan = with(plan, "spans", QueryValue::from(vec![index_span(scan, names)]));
        match scan.ordered {
            Some(reverse) => {
                let order = if reverse { "reverse" } else { "forward" };
                with(plan, "order", QueryValue::from(order))
            }
            None => plan,
        }
    };
    let mut scans: Vec<QueryValue> = scans.iter().map(scan).collect();
    debug_assert!(!scans.is_empty(), "an access by index has a scan");
    match scans.len() {
        1 => scans.remove(0),
        _ => operator("UnionScan", [("scans", QueryValue::from(scans))]),
    }
}

/// The bounds of each key that has some.
fn index_span(scan: &IndexScanPlan, names: &SourceNames) -> QueryValue {
    let components: Vec<_> = scan.keys.components().collect();
    let mut ranges = Vec::new();
    for (term, component) in scan.prefix.iter().zip(&components) {
        ranges.push(range(&component.key.text, &[term], names));
    }
    if let Some(component) = components.get(scan.prefix.len())
        && !scan.range.is_empty()
    {
        ranges.push(range(&component.key.text, &scan.range.iter().collect::<Vec<_>>(), names));
    }
    object([("range", QueryValue::from(ranges))])
}

fn range(key: &str, terms: &[&KeyTerm], names: &SourceNames) -> QueryValue {
    let mut fields = vec![("index_key".into(), QueryValue::from(key))];
    for term in terms {
        let value = term.value().map(|value| text(value, names));
        let value = QueryValue::from(value.unwrap_or_else(|| "null".to_owned()));
        let name = match term {
            KeyTerm::Equal(_) | KeyTerm::IsNull => "equals",
            KeyTerm::In(_) => "in",
            KeyTerm::Like(_) => "like",
            KeyTerm::Above { inclusive: true, .. } => "from",
            KeyTerm::Above { .. } | KeyTerm::IsValued => "above",
            KeyTerm::Below { inclusive: true, .. } => "to",
            KeyTerm::Below { .. } => "below",
            KeyTerm::IsNotMissing => "from",
        };
        fields.push((name.into(), value));
    }
    QueryValue::from(Object::new(fields))
}

fn key_span(bounds: &[KeyRangeBound], names: &SourceNames) -> QueryValue {
    let bound = |bound: &KeyRangeBound| {
        let name = match (bound.pattern, bound.lower, bound.inclusive) {
            (true, ..) => "like",
            (_, true, true) => "from",
            (_, true, false) => "above",
            (_, false, true) => "to",
            (_, false, false) => "below",
        };
        (name.into(), QueryValue::from(text(&bound.key, names)))
    };
    QueryValue::from(Object::new(bounds.iter().map(bound).collect()))
}
