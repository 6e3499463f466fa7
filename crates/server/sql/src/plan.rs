//! Chooses the part of a statement for the source of a table.
//!
//! It owns the choice that SQLite's `xBestIndex` asks for, and its text in `EXPLAIN QUERY PLAN`.
//! Invariants: it chooses only conditions that the source accepts, each with a position among the
//! scan's arguments. SQLite checks all of them again, so a condition of the wrong type can be
//! dropped. Scans read only the columns that the statement uses. [`super::virtual_table`] calls it.

use rusqlite::vtab::{IndexConstraintOp, IndexInfo};

use crate::source::{Conditions, Operator, TableSource};

/// Rows from which on a table without any figures is assumed to be large.
const ROWS_UNKNOWN: u64 = 1_000_000;
/// Cost of starting a scan, in rows: a round trip is worth some hundred of them.
const START_COST: f64 = 500.0;
/// Bit of the mask of used columns that stands for all columns from this on.
const LAST_BIT: usize = 63;

/// A choice: what a scan does whose arguments come later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Positions of the columns to read.
    pub columns: Vec<usize>,
    /// Columns and what is asked of them, in the order of the arguments.
    pub conditions: Vec<(usize, Operator)>,
}

impl Plan {
    /// Chooses among the conditions of a statement and tells SQLite the arguments and the cost.
    pub fn choose(source: &dyn TableSource, info: &mut IndexInfo) -> rusqlite::Result<Plan> {
        let mut conditions = Vec::new();
        for at in 0..info.constraints().count() {
            if let Some(condition) = usable(source, info, at)? {
                conditions.push(condition);
                let mut usage = info.constraint_usage(at);
                usage.set_argv_index(i32::try_from(conditions.len()).unwrap_or(i32::MAX));
                usage.set_omit(false);
            }
        }
        let share = source.share_read(&conditions).clamp(0.0, 1.0);
        let rows = match source.rows() {
            0 => ROWS_UNKNOWN,
            rows => rows,
        } as f64;
        info.set_estimated_rows((rows * share).max(1.0) as i64);
        info.set_estimated_cost(START_COST + rows * share);
        let plan =
            Plan { columns: columns_of(info.col_used(), source.columns().len()), conditions };
        info.set_idx_str(&plan.describe(source));
        Ok(plan)
    }

    /// The plan in words: what the source checks, and what it shows.
    pub fn describe(&self, source: &dyn TableSource) -> String {
        let name = |column: usize| source.columns()[column].name.as_str();
        let conditions = self
            .conditions
            .iter()
            .map(|(column, operator)| format!("{} {}", name(*column), symbol(*operator)))
            .collect::<Vec<_>>();
        let columns = self.columns.iter().map(|column| name(*column)).collect::<Vec<_>>();
        let columns = if columns.is_empty() { "no column".to_owned() } else { columns.join(", ") };
        match conditions.is_empty() {
            true => format!("reads {columns}"),
            false => format!("where {}, reads {columns}", conditions.join(" and ")),
        }
    }
}

/// The condition at this position, if the source takes it.
fn usable(
    source: &dyn TableSource,
    info: &mut IndexInfo,
    at: usize,
) -> rusqlite::Result<Option<(usize, Operator)>> {
    let Some(constraint) = info.constraints().nth(at).filter(|constraint| constraint.is_usable())
    else {
        return Ok(None);
    };
    // The number of the row, which is -1, is no column.
    let Ok(column) = usize::try_from(constraint.column()) else { return Ok(None) };
    let Some(operator) = operator_of(&constraint.operator()) else { return Ok(None) };
    let takes = match source.columns()[column].takes {
        Conditions::Nullness => matches!(operator, Operator::IsNull | Operator::IsNotNull),
        Conditions::Comparisons => true,
    };
    // A source compares bytes; what a statement wants compared otherwise is SQLite's to do.
    if !takes || info.collation(at)? != "BINARY" {
        return Ok(None);
    }
    let is_list = operator == Operator::Equal && info.set_in_constraint(at, true)?;
    Ok(Some((column, if is_list { Operator::In } else { operator })))
}

fn operator_of(operator: &IndexConstraintOp) -> Option<Operator> {
    Some(match operator {
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Operator::Equal,
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT => Operator::Less,
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => Operator::LessOrEqual,
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT => Operator::Greater,
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => Operator::GreaterOrEqual,
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_ISNULL => Operator::IsNull,
        IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_ISNOTNULL => Operator::IsNotNull,
        _ => return None,
    })
}

fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Equal => "= ?",
        Operator::Less => "< ?",
        Operator::LessOrEqual => "<= ?",
        Operator::Greater => "> ?",
        Operator::GreaterOrEqual => ">= ?",
        Operator::In => "in (?)",
        Operator::IsNull => "is null",
        Operator::IsNotNull => "is not null",
    }
}

/// The columns of SQLite's mask, whose last bit stands for all that have no bit of their own.
fn columns_of(mask: u64, count: usize) -> Vec<usize> {
    (0..count).filter(|column| mask >> (*column).min(LAST_BIT) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    //! The mask of used columns.

    use super::columns_of;

    #[test]
    fn the_last_bit_stands_for_all_that_follow() {
        assert_eq!(columns_of(0b101, 3), [0, 2]);
        assert_eq!(columns_of(0, 70), [0; 0]);
        assert_eq!(columns_of(1 << 63, 66), [63, 64, 65]);
    }
}
