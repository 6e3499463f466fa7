//! A SELECT of the model: conditions, groups, order, DISTINCT and bounds over a few documents.

use serde_json::{Value, json};

use super::expression::Expression;
use super::model::{ModelValue, Row, collate, normal, shown, truth};

pub struct Order {
    pub value: Expression,
    pub descending: bool,
    pub nulls_last: Option<bool>,
}

pub enum ModelQuery {
    Rows {
        condition: Option<Expression>,
        distinct: bool,
        raw: bool,
        terms: Vec<Expression>,
        order: Vec<Order>,
        limit: Option<usize>,
        offset: Option<usize>,
    },
    /// Some aggregates by a key.
    Groups { condition: Option<Expression>, key: Expression, arg: Expression, having: bool },
}

/// The names of result fields.
const NAMES: [&str; 3] = ["r", "s", "t"];

impl ModelQuery {
    pub fn text(&self) -> String {
        let condition = |condition: &Option<Expression>| {
            let text = condition.as_ref().map(|condition| format!(" WHERE {}", condition.text()));
            text.unwrap_or_default()
        };
        match self {
            ModelQuery::Rows { condition: filter, distinct, raw, terms, order, limit, offset } => {
                let distinct = if *distinct { "DISTINCT " } else { "" };
                let terms: Vec<String> = match raw {
                    true => vec![format!("RAW {}", terms[0].text())],
                    false => terms
                        .iter()
                        .zip(NAMES)
                        .map(|(term, name)| format!("{} AS {name}", term.text()))
                        .collect(),
                };
                let mut text =
                    format!("SELECT {distinct}{} FROM k{}", terms.join(", "), condition(filter));
                let keys: Vec<String> = order.iter().map(Order::text).collect();
                if !keys.is_empty() {
                    text += &format!(" ORDER BY {}", keys.join(", "));
                }
                if let Some(limit) = limit {
                    text += &format!(" LIMIT {limit}");
                }
                if let Some(offset) = offset {
                    text += &format!(" OFFSET {offset}");
                }
                text
            }
            ModelQuery::Groups { condition: filter, key, arg, having } => {
                let having = if *having { " HAVING COUNT(*) > 1" } else { "" };
                let arg = arg.text();
                format!(
                    "SELECT g AS g, COUNT(*) AS n, COUNT({arg}) AS c, SUM({arg}) AS s, \
                     MIN({arg}) AS i, MAX({arg}) AS x, COUNT(DISTINCT {arg}) AS d, \
                     ARRAY_AGG({arg}) AS l FROM k{} GROUP BY {} AS g{having}",
                    condition(filter),
                    key.text()
                )
            }
        }
    }

    /// Whether rows come in an order.
    pub fn is_ordered(&self) -> bool {
        matches!(self, ModelQuery::Rows { .. })
    }

    pub fn rows(&self, documents: &[Value]) -> Vec<Value> {
        let evaluate = |expression: &Expression, document: &Value| {
            expression.value(&mut Row { document, variables: Vec::new() })
        };
        let matching = |condition: &Option<Expression>| {
            let holds = |document: &&Value| {
                condition.as_ref().is_none_or(|condition| truth(&evaluate(condition, document)))
            };
            documents.iter().filter(holds).collect::<Vec<&Value>>()
        };
        match self {
            ModelQuery::Rows { condition, distinct, raw, terms, order, limit, offset } => {
                let mut documents = matching(condition);
                documents.sort_by(|left, right| {
                    let by_key = order.iter().map(|key| {
                        key.compare(&evaluate(&key.value, left), &evaluate(&key.value, right))
                    });
                    by_key.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
                });
                // DISTINCT tells MISSING from NULL, although both rows are null.
                let mut rows: Vec<ModelValue> = Vec::new();
                for document in documents {
                    let row = match raw {
                        true => evaluate(&terms[0], document),
                        false => {
                            let fields = terms.iter().zip(NAMES).filter_map(|(term, name)| {
                                Some((name.to_owned(), evaluate(term, document)?))
                            });
                            Some(Value::Object(fields.collect()))
                        }
                    };
                    if !distinct || !rows.iter().any(|known| collate(known, &row).is_eq()) {
                        rows.push(row);
                    }
                }
                let rows = rows.into_iter().map(|row| shown(row.unwrap_or(Value::Null)));
                let rows = rows.skip(offset.unwrap_or(0));
                rows.take(limit.unwrap_or(usize::MAX)).collect()
            }
            ModelQuery::Groups { condition, key, arg, having } => {
                let mut groups: Vec<(ModelValue, Vec<ModelValue>)> = Vec::new();
                for document in matching(condition) {
                    let (key, value) = (evaluate(key, document), evaluate(arg, document));
                    match groups.iter_mut().find(|(known, _)| collate(known, &key).is_eq()) {
                        Some((_, values)) => values.push(value),
                        None => groups.push((key, vec![value])),
                    }
                }
                let groups = groups.iter().filter(|(_, values)| !having || values.len() > 1);
                groups.map(|(key, values)| shown(group_row(key, values))).collect()
            }
        }
    }
}

impl Order {
    fn text(&self) -> String {
        let direction = if self.descending { " DESC" } else { "" };
        let nulls = match self.nulls_last {
            None => "",
            Some(true) => " NULLS LAST",
            Some(false) => " NULLS FIRST",
        };
        format!("{}{direction}{nulls}", self.value.text())
    }

    fn compare(&self, left: &ModelValue, right: &ModelValue) -> std::cmp::Ordering {
        let is_valued = |value: &ModelValue| !matches!(value, None | Some(Value::Null));
        if let Some(last) = self.nulls_last
            && is_valued(left) != is_valued(right)
        {
            return if is_valued(left) == last {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Greater
            };
        }
        let order = collate(left, right);
        if self.descending { order.reverse() } else { order }
    }
}

fn group_row(key: &ModelValue, values: &[ModelValue]) -> Value {
    let valued: Vec<&Value> = values.iter().flatten().filter(|value| !value.is_null()).collect();
    let sum =
        valued.iter().filter(|value| value.is_number()).fold(None, |sum: Option<Value>, one| {
            let Some(sum) = sum else { return Some((*one).clone()) };
            match (sum.as_i64(), one.as_i64()) {
                (Some(left), Some(right)) if left.checked_add(right).is_some() => {
                    Some(json!(left + right))
                }
                _ => {
                    let sum = sum.as_f64().unwrap_or_default() + one.as_f64().unwrap_or_default();
                    Some(normal(&json!(sum)))
                }
            }
        });
    let mut distinct: Vec<&Value> = Vec::new();
    let same = |left: &Value, right: &Value| collate(&Some(left.clone()), &Some(right.clone()));
    for value in &valued {
        if !distinct.iter().any(|known| same(known, value).is_eq()) {
            distinct.push(value);
        }
    }
    let mut list: Vec<Value> = values.iter().flatten().cloned().collect();
    list.sort_by(same);
    let mut sorted = valued.clone();
    sorted.sort_by(|left, right| same(left, right));
    let mut row = json!({
        "n": values.len(),
        "c": valued.len(),
        "s": sum,
        "i": sorted.first(),
        "x": sorted.last(),
        "d": distinct.len(),
        "l": if list.is_empty() { Value::Null } else { Value::from(list) },
    });
    if let Some(key) = key {
        row["g"] = key.clone();
    }
    row
}

/// Whether both have the same rows, in any order unless they are ordered.
pub fn same_rows(left: &[Value], right: &[Value], ordered: bool) -> bool {
    if left.len() != right.len() {
        return false;
    }
    if ordered {
        return left.iter().zip(right).all(|(left, right)| is_same(left, right));
    }
    let mut rest: Vec<&Value> = right.iter().collect();
    left.iter().all(|row| match rest.iter().position(|other| is_same(row, other)) {
        Some(found) => {
            rest.swap_remove(found);
            true
        }
        None => false,
    })
}

/// Numbers are the same within 1e-12, integers exactly.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => left == right,
            _ => {
                let (left, right) = (left.as_f64().unwrap_or(0.0), right.as_f64().unwrap_or(0.0));
                left == right || (left - right).abs() <= 1e-12 * left.abs().max(right.abs())
            }
        },
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| is_same(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, value)| right.get(name).is_some_and(|other| is_same(value, other)))
        }
        _ => left == right,
    }
}
