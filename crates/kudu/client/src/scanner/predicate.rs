//! Conditions on columns: in the caller's form, and in the form for servers and pruning.
//!
//! [`Predicate`] names a column and may not match the table. Resolving it against the schema gives
//! a [`ColumnPredicate`], in the few forms of the protocol. A comparison becomes a half-open range,
//! with the successor of a value for a bound on the wrong side. Conditions that are always or never
//! true are recognised. Invariants: a scan returns the rows that satisfy **all** predicates; NULL
//! satisfies only [`Predicate::is_null`]. The server merges several predicates of one column;
//! pruning uses each one separately.

use bytes::Bytes;

use crate::proto::common::{ColumnPredicatePb, column_predicate_pb};
use crate::schema::{DataType, Schema};

use super::operand::Operand;
use crate::scan_error::ScanError;

/// A condition on one column of a table, which the tablet servers check.
#[derive(Clone, Debug)]
pub struct Predicate {
    column: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Equal(Operand),
    Less(Operand),
    LessOrEqual(Operand),
    Greater(Operand),
    GreaterOrEqual(Operand),
    Range(Operand, Operand),
    InList(Vec<Operand>),
    IsNull,
    IsNotNull,
}

impl Predicate {
    fn new(column: impl Into<String>, test: Test) -> Predicate {
        Predicate { column: column.into(), test }
    }

    /// `column = value`.
    pub fn equal(column: impl Into<String>, value: impl Into<Operand>) -> Predicate {
        Predicate::new(column, Test::Equal(value.into()))
    }

    /// `column < value`.
    pub fn less(column: impl Into<String>, value: impl Into<Operand>) -> Predicate {
        Predicate::new(column, Test::Less(value.into()))
    }

    /// `column <= value`.
    pub fn less_or_equal(column: impl Into<String>, value: impl Into<Operand>) -> Predicate {
        Predicate::new(column, Test::LessOrEqual(value.into()))
    }

    /// `column > value`.
    pub fn greater(column: impl Into<String>, value: impl Into<Operand>) -> Predicate {
        Predicate::new(column, Test::Greater(value.into()))
    }

    /// `column >= value`.
    pub fn greater_or_equal(column: impl Into<String>, value: impl Into<Operand>) -> Predicate {
        Predicate::new(column, Test::GreaterOrEqual(value.into()))
    }

    /// `lower <= column AND column < upper`.
    pub fn range(
        column: impl Into<String>,
        lower: impl Into<Operand>,
        upper: impl Into<Operand>,
    ) -> Predicate {
        Predicate::new(column, Test::Range(lower.into(), upper.into()))
    }

    /// `column IN (values)`. On key columns the server still reads all rows between the least and
    /// the greatest value. To read single rows by their keys, [`PointLookup`](crate::PointLookup)
    /// is far cheaper.
    pub fn in_list<T: Into<Operand>>(
        column: impl Into<String>,
        values: impl IntoIterator<Item = T>,
    ) -> Predicate {
        Predicate::new(column, Test::InList(values.into_iter().map(Into::into).collect()))
    }

    /// `column IS NULL`.
    pub fn is_null(column: impl Into<String>) -> Predicate {
        Predicate::new(column, Test::IsNull)
    }

    /// `column IS NOT NULL`.
    pub fn is_not_null(column: impl Into<String>) -> Predicate {
        Predicate::new(column, Test::IsNotNull)
    }

    /// Resolves the column and checks the values against its type.
    pub(crate) fn resolve(&self, schema: &Schema) -> Result<ColumnPredicate, ScanError> {
        let index = schema
            .column_index(&self.column)
            .ok_or_else(|| ScanError::UnknownColumn { column: self.column.clone() })?;
        let column = &schema.columns()[index];
        let data_type = column.data_type();
        let checked = |operand: &Operand| {
            operand
                .check(data_type)
                .map(|()| operand.clone())
                .map_err(|source| ScanError::Operand { column: self.column.clone(), source })
        };
        let condition = match &self.test {
            Test::Equal(value) => PredicateCondition::Equality(checked(value)?),
            Test::Less(value) => PredicateCondition::range(None, Some(checked(value)?)),
            Test::GreaterOrEqual(value) => PredicateCondition::range(Some(checked(value)?), None),
            Test::LessOrEqual(value) => match checked(value)?.successor(data_type) {
                Some(upper) => PredicateCondition::range(None, Some(upper)),
                None => PredicateCondition::IsNotNull,
            },
            Test::Greater(value) => match checked(value)?.successor(data_type) {
                Some(lower) => PredicateCondition::range(Some(lower), None),
                None => PredicateCondition::Nothing,
            },
            Test::Range(lower, upper) => {
                PredicateCondition::range(Some(checked(lower)?), Some(checked(upper)?))
            }
            Test::InList(values) => {
                PredicateCondition::in_list(values.iter().map(checked).collect::<Result<_, _>>()?)
            }
            Test::IsNull if column.is_nullable() => PredicateCondition::IsNull,
            Test::IsNull => PredicateCondition::Nothing,
            Test::IsNotNull => PredicateCondition::IsNotNull,
        };
        Ok(ColumnPredicate {
            column_index: index,
            column: self.column.clone(),
            data_type,
            condition,
        })
    }
}

/// A predicate that matches its table.
#[derive(Clone, Debug)]
pub(crate) struct ColumnPredicate {
    /// Position of the column in the table's schema.
    pub column_index: usize,
    pub column: String,
    pub data_type: DataType,
    pub condition: PredicateCondition,
}

/// The condition.
#[derive(Clone, Debug)]
pub(crate) enum PredicateCondition {
    Equality(Operand),
    /// At least the first, less than the second.
    Range(Option<Operand>, Option<Operand>),
    /// Sorted, without duplicates, at least two.
    InList(Vec<Operand>),
    IsNull,
    IsNotNull,
    /// No row can satisfy it.
    Nothing,
}

impl PredicateCondition {
    fn range(lower: Option<Operand>, upper: Option<Operand>) -> PredicateCondition {
        match (&lower, &upper) {
            (Some(least), Some(end)) if least.compare(end).is_ge() => PredicateCondition::Nothing,
            _ => PredicateCondition::Range(lower, upper),
        }
    }

    fn in_list(mut values: Vec<Operand>) -> PredicateCondition {
        values.sort_by(Operand::compare);
        values.dedup_by(|one, other| one.compare(other).is_eq());
        match values.len() {
            0 => PredicateCondition::Nothing,
            1 => PredicateCondition::Equality(values.swap_remove(0)),
            _ => PredicateCondition::InList(values),
        }
    }
}

impl ColumnPredicate {
    /// The message for the server; `None` for a condition that no row can satisfy, which the client
    /// never sends.
    pub(crate) fn to_pb(&self) -> Option<ColumnPredicatePb> {
        use column_predicate_pb::{Equality, InList, IsNotNull, IsNull, Predicate as Pb, Range};
        let wire = |operand: &Operand| -> Bytes { operand.to_wire(self.data_type) };
        let predicate = match &self.condition {
            PredicateCondition::Equality(value) => {
                Pb::Equality(Equality { value: Some(wire(value)) })
            }
            PredicateCondition::Range(lower, upper) => Pb::Range(Range {
                lower: lower.as_ref().map(wire),
                upper: upper.as_ref().map(wire),
            }),
            PredicateCondition::InList(values) => {
                Pb::InList(InList { values: values.iter().map(wire).collect() })
            }
            PredicateCondition::IsNull => Pb::IsNull(IsNull {}),
            PredicateCondition::IsNotNull => Pb::IsNotNull(IsNotNull {}),
            PredicateCondition::Nothing => return None,
        };
        Some(ColumnPredicatePb { column: Some(self.column.clone()), predicate: Some(predicate) })
    }
}
