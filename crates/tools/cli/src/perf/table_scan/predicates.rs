//! Conditions as `kudu perf table_scan` takes them: JSON arrays with the operator first.
//!
//! `["<", "column", 5]` with `<`, `<=`, `=`, `>=` or `>`; `["IN", "column", [1, 2]]`; `["NULL",
//! "column"]`; `["NOTNULL", "column"]`; and `["AND", condition, ...]` around any number of them.
//! The column's type decides what a JSON value means; the client checks that it fits.

use anyhow::{Context, Result, bail};
use oribi_kudu::{DataType, Operand, Predicate, Schema};
use serde_json::Value;

/// Deepest nesting of AND; people write one level.
const DEPTH_MAX: usize = 16;

/// The predicates of a command line; none for an empty text.
pub fn parse(text: &str, schema: &Schema) -> Result<Vec<Predicate>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let condition = serde_json::from_str(text).context("--predicates is not JSON")?;
    let mut predicates = Vec::new();
    collect(&condition, schema, DEPTH_MAX, &mut predicates).context("--predicates")?;
    Ok(predicates)
}

fn collect(
    condition: &Value,
    schema: &Schema,
    depth_left: usize,
    predicates: &mut Vec<Predicate>,
) -> Result<()> {
    let parts = condition.as_array().map(Vec::as_slice).unwrap_or_default();
    let Some((Value::String(operator), rest)) = parts.split_first() else {
        bail!("{condition} is not an array that begins with an operator");
    };
    if operator.eq_ignore_ascii_case("AND") {
        if depth_left == 0 {
            bail!("AND is nested more than {DEPTH_MAX} times");
        }
        return rest.iter().try_for_each(|part| collect(part, schema, depth_left - 1, predicates));
    }
    predicates.push(simple(operator, rest).and_then(|simple| simple.resolve(schema))?);
    Ok(())
}

/// A condition on one column, as it was written.
struct Simple<'j> {
    operator: String,
    column: &'j str,
    value: Option<&'j Value>,
}

fn simple<'j>(operator: &str, rest: &'j [Value]) -> Result<Simple<'j>> {
    let (column, value) = match rest {
        [Value::String(column)] => (column, None),
        [Value::String(column), value] => (column, Some(value)),
        _ => bail!("{operator:?} needs the name of a column, and a value at most"),
    };
    Ok(Simple { operator: operator.to_ascii_uppercase(), column, value })
}

impl Simple<'_> {
    fn resolve(&self, schema: &Schema) -> Result<Predicate> {
        let Simple { column, .. } = *self;
        let data_type = schema
            .column(column)
            .with_context(|| format!("there is no column {column:?}"))?
            .data_type();
        let predicate = match (self.operator.as_str(), self.value) {
            ("NULL", None) => Predicate::is_null(column),
            ("NOTNULL", None) => Predicate::is_not_null(column),
            ("<", Some(value)) => Predicate::less(column, operand(value, data_type)?),
            ("<=", Some(value)) => Predicate::less_or_equal(column, operand(value, data_type)?),
            ("=", Some(value)) => Predicate::equal(column, operand(value, data_type)?),
            (">=", Some(value)) => Predicate::greater_or_equal(column, operand(value, data_type)?),
            (">", Some(value)) => Predicate::greater(column, operand(value, data_type)?),
            ("IN", Some(Value::Array(values))) => {
                let values = values.iter().map(|value| operand(value, data_type));
                Predicate::in_list(column, values.collect::<Result<Vec<_>>>()?)
            }
            (operator, _) => {
                bail!("{operator:?} with what is behind it is no condition on {column:?}")
            }
        };
        Ok(predicate)
    }
}

/// The value of a column of this type for a JSON value.
fn operand(value: &Value, data_type: DataType) -> Result<Operand> {
    let operand = match (value, data_type) {
        (Value::Number(number), DataType::Double) => number.as_f64().map(Operand::from),
        (Value::Number(number), DataType::Float) => {
            number.as_f64().map(|number| Operand::from(number as f32))
        }
        (Value::Number(number), _) => number.as_i64().map(Operand::from),
        (Value::Bool(value), _) => Some(Operand::from(*value)),
        (Value::String(text), _) => Some(Operand::from(text.as_str())),
        _ => None,
    };
    operand.with_context(|| format!("{value} is no value of a column of type {data_type}"))
}

#[cfg(test)]
mod tests {
    //! What the other tool's help shows is understood, and what it does not show is refused.

    use oribi_kudu::ColumnSchema;

    use super::*;

    fn schema() -> Schema {
        Schema::builder()
            .column(ColumnSchema::builder("key", DataType::Int64).key())
            .column(ColumnSchema::builder("text", DataType::String))
            .column(ColumnSchema::builder("share", DataType::Double))
            .build()
            .unwrap()
    }

    #[test]
    fn conditions_are_read() {
        let count = |text: &str| parse(text, &schema()).unwrap().len();
        assert_eq!(count(""), 0);
        assert_eq!(count(r#"[">=", "key", 5]"#), 1);
        assert_eq!(
            count(r#"["AND", [">=", "text", "value"], ["NOTNULL", "share"], ["NULL", "text"]]"#),
            3
        );
        assert_eq!(
            count(
                r#"["AND", ["AND", ["IN", "text", ["a", "b"]]], ["<", "share", 1], ["=", "share", 0.5]]"#
            ),
            3
        );
        assert_eq!(count(r#"["and"]"#), 0);
    }

    #[test]
    fn malformed_conditions_are_rejected() {
        let nested = format!("{}[\"NULL\",\"text\"]{}", "[\"AND\",".repeat(20), "]".repeat(20));
        for text in [
            "[",
            "5",
            "[]",
            r#"["<", "key"]"#,
            r#"["<", "absent", 5]"#,
            r#"["<", "key", [5]]"#,
            r#"["<", "key", 1.5]"#,
            r#"["IN", "key", 5]"#,
            r#"["NULL", "key", 5]"#,
            r#"["OR", ["NULL", "text"]]"#,
            &nested,
        ] {
            assert!(parse(text, &schema()).is_err(), "{text}");
        }
    }
}
