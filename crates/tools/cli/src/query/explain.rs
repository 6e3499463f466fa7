//! The plan of a statement for people: one operator a line, from the first source to the result.

use serde_json::{Map, Value};

/// Fields with the operators below.
const CHILDREN: [&str; 5] = ["~children", "~child", "first", "second", "scans"];

/// The lines of EXPLAIN's row; none when it has no plan.
pub fn lines(row: &Value) -> Option<String> {
    let mut out = String::new();
    push(&mut out, row.get("plan")?, 0);
    Some(out)
}

fn push(out: &mut String, plan: &Value, depth: usize) {
    match plan {
        Value::Array(plans) => plans.iter().for_each(|plan| push(out, plan, depth)),
        Value::Object(fields) => push_operator(out, fields, depth),
        _ => {}
    }
}

fn push_operator(out: &mut String, fields: &Map<String, Value>, depth: usize) {
    let name = fields.get("#operator").and_then(Value::as_str).unwrap_or("?");
    let children =
        CHILDREN.iter().filter_map(|name| fields.get(*name)).filter(|child| is_plan(child));
    // A sequence is its parts.
    let is_shown = !matches!(name, "Sequence" | "Parallel");
    if is_shown {
        out.push_str(&"  ".repeat(depth));
        out.push_str(name);
        for (name, value) in fields {
            if name == "#operator" || (CHILDREN.contains(&name.as_str()) && is_plan(value)) {
                continue;
            }
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            out.push_str(&format!("  {name}: {value}"));
        }
        out.push('\n');
    }
    let depth = depth + usize::from(is_shown);
    children.for_each(|child| push(out, child, depth));
}

fn is_plan(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(is_plan),
        Value::Object(fields) => fields.contains_key("#operator"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    //! A plan as text.

    use serde_json::json;

    use super::*;

    #[test]
    fn operators_are_lines() {
        let scan = json!({"#operator": "PrimaryScan", "as": "k", "spans": [1]});
        let join = json!({"#operator": "HashJoin", "~child": {"#operator": "Sequence",
            "~children": [scan, {"#operator": "Fetch"}]}});
        let plan = json!({"#operator": "Sequence", "~children": [scan, join]});
        let expected = "PrimaryScan  as: k  spans: [1]\nHashJoin\n  PrimaryScan  as: k  \
                        spans: [1]\n  Fetch\n";
        assert_eq!(lines(&json!({"plan": plan, "text": "x"})).unwrap(), expected);
        assert_eq!(lines(&json!({"text": "x"})), None);
    }
}
