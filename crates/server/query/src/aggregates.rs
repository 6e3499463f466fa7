//! Aggregates: COUNT, SUM, AVG and their kin over the rows of a group.
//!
//! A state is small and grows with no row, but for ARRAY_AGG, MEDIAN and DISTINCT, which report
//! the bytes they keep. Aggregates skip values that they do not count: missing and null, except
//! that ARRAY_AGG keeps null. The arithmetic ones also skip values that are no numbers.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use crate::error::Result;
use crate::runtime::Runtime;
use crate::value::order::collate;
use crate::value::{QueryValue, key};

/// The kind of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateKind {
    Count,
    CountNumbers,
    Sum,
    Average,
    Min,
    Max,
    Array,
    Median,
    StandardDeviation,
    StandardDeviationOfPopulation,
    StandardDeviationOfSample,
    Variance,
    VarianceOfPopulation,
    VarianceOfSample,
}

/// The names of aggregates.
pub const AGGREGATES: &[(&str, AggregateKind)] = &[
    ("COUNT", AggregateKind::Count),
    ("COUNTN", AggregateKind::CountNumbers),
    ("SUM", AggregateKind::Sum),
    ("AVG", AggregateKind::Average),
    ("MEAN", AggregateKind::Average),
    ("MIN", AggregateKind::Min),
    ("MAX", AggregateKind::Max),
    ("ARRAY_AGG", AggregateKind::Array),
    ("MEDIAN", AggregateKind::Median),
    ("STDDEV", AggregateKind::StandardDeviation),
    ("STDDEV_POP", AggregateKind::StandardDeviationOfPopulation),
    ("STDDEV_SAMP", AggregateKind::StandardDeviationOfSample),
    ("VARIANCE", AggregateKind::Variance),
    ("VAR_POP", AggregateKind::VarianceOfPopulation),
    ("VAR_SAMP", AggregateKind::VarianceOfSample),
    ("VARIANCE_POP", AggregateKind::VarianceOfPopulation),
    ("VARIANCE_SAMP", AggregateKind::VarianceOfSample),
];

/// The state of one aggregate in one group.
#[derive(Debug)]
pub struct AggregateState {
    distinct: Option<HashSet<Box<[u8]>>>,
    kind: AggregateKind,
    totals: AggregateTotals,
    best: QueryValue,
    items: Vec<QueryValue>,
}

/// The part of a state that two states of neighbouring rows can be merged in.
#[derive(Clone, Debug, Default)]
pub struct AggregateTotals {
    count: u64,
    sum: Sum,
    /// Mean and sum of squared distances, by Welford's method.
    mean: f64,
    squares: f64,
}

impl AggregateKind {
    /// Whether the aggregate counts a value.
    pub fn counts(self, value: &QueryValue) -> bool {
        match self {
            AggregateKind::Array => !value.is_missing(),
            AggregateKind::Count | AggregateKind::Min | AggregateKind::Max => value.is_valued(),
            _ => value.as_f64().is_some(),
        }
    }
}

impl AggregateTotals {
    /// Adds a value that the aggregate counts.
    pub fn add(&mut self, kind: AggregateKind, value: &QueryValue) {
        debug_assert!(kind.counts(value), "what does not count is skipped");
        use AggregateKind::*;
        self.count += 1;
        match kind {
            Count | CountNumbers | Min | Max | Array | Median => {}
            Sum | Average => self.sum.add(value),
            _ => {
                let number = value.as_f64().unwrap_or_default();
                let distance = number - self.mean;
                self.mean += distance / self.count as f64;
                self.squares += distance * (number - self.mean);
            }
        }
    }

    /// Counts a row of `COUNT(*)`.
    pub fn add_row(&mut self) {
        self.count += 1;
    }

    /// Adds the totals of other rows.
    pub fn merge(&mut self, other: &AggregateTotals) {
        if other.count == 0 {
            return;
        }
        let (own, more) = (self.count as f64, other.count as f64);
        let distance = other.mean - self.mean;
        self.mean += distance * more / (own + more);
        self.squares += other.squares + distance * distance * own * more / (own + more);
        self.count += other.count;
        self.sum.merge(&other.sum);
    }

    /// The aggregate of the values, for a kind that keeps none of them.
    pub fn value(&self, kind: AggregateKind) -> QueryValue {
        use AggregateKind::*;
        match kind {
            Count | CountNumbers => QueryValue::Int(self.count as i64),
            _ if self.count == 0 => QueryValue::Null,
            Sum => self.sum.value(),
            Average => {
                let sum = self.sum.value().as_f64().unwrap_or_default();
                QueryValue::number(sum / self.count as f64)
            }
            Min | Max | Array | Median => QueryValue::Null,
            Variance | StandardDeviation => {
                self.deviation(kind, if self.count == 1 { 0 } else { 1 })
            }
            VarianceOfPopulation | StandardDeviationOfPopulation => self.deviation(kind, 0),
            VarianceOfSample | StandardDeviationOfSample => self.deviation(kind, 1),
        }
    }

    fn deviation(&self, kind: AggregateKind, less: u64) -> QueryValue {
        use AggregateKind::*;
        if self.count <= less {
            return QueryValue::Null;
        }
        let variance = self.squares / (self.count - less) as f64;
        match kind {
            StandardDeviation | StandardDeviationOfPopulation | StandardDeviationOfSample => {
                QueryValue::number(variance.sqrt())
            }
            _ => QueryValue::number(variance),
        }
    }
}

impl AggregateState {
    pub fn new(kind: AggregateKind, distinct: bool) -> AggregateState {
        AggregateState {
            distinct: distinct.then(HashSet::new),
            kind,
            totals: AggregateTotals::default(),
            best: QueryValue::Missing,
            items: Vec::new(),
        }
    }

    /// Counts a row of `COUNT(*)`.
    pub fn add_row(&mut self) {
        self.totals.add_row();
    }

    /// Counts rows of `COUNT(*)`.
    pub fn add_rows(&mut self, count: u64) {
        self.totals.count += count;
    }

    /// Adds a value and answers the bytes it now keeps.
    pub fn add(&mut self, value: &QueryValue) -> usize {
        use AggregateKind::*;
        if !self.kind.counts(value) {
            return 0;
        }
        let mut kept = 0;
        if let Some(distinct) = &mut self.distinct {
            let mut bytes = Vec::new();
            key::append(value, &mut bytes);
            kept = bytes.len() + 32;
            if !distinct.insert(bytes.into()) {
                return 0;
            }
        }
        self.totals.add(self.kind, value);
        let count = self.distinct.as_ref().map(HashSet::len);
        debug_assert!(
            count.is_none_or(|count| count as u64 == self.totals.count),
            "a distinct value counts once"
        );
        match self.kind {
            Min if self.best.is_missing() || collate(value, &self.best).is_lt() => {
                self.best = value.clone();
            }
            Max if self.best.is_missing() || collate(value, &self.best).is_gt() => {
                self.best = value.clone();
            }
            Array | Median => {
                // The list grows by doubling.
                kept += 2 * size_of::<QueryValue>() + value.byte_count();
                self.items.push(value.clone());
                debug_assert!(
                    self.items.len() as u64 == self.totals.count,
                    "each value that counts is kept"
                );
            }
            _ => {}
        }
        kept
    }

    pub fn finish(&mut self, rt: &Runtime<'_>) -> Result<QueryValue> {
        match self.kind {
            AggregateKind::Array | AggregateKind::Median if !self.items.is_empty() => {
                list_value(self.kind, std::mem::take(&mut self.items), rt)
            }
            _ => self.value(rt),
        }
    }

    /// The aggregate of the values so far.
    pub fn value(&self, rt: &Runtime<'_>) -> Result<QueryValue> {
        use AggregateKind::*;
        match self.kind {
            Min | Max if !self.best.is_missing() => Ok(self.best.clone()),
            Array | Median if !self.items.is_empty() => {
                list_value(self.kind, self.items.clone(), rt)
            }
            kind => Ok(self.totals.value(kind)),
        }
    }
}

fn list_value(
    kind: AggregateKind,
    mut items: Vec<QueryValue>,
    rt: &Runtime<'_>,
) -> Result<QueryValue> {
    rt.sort_values(&mut items)?;
    Ok(match kind {
        AggregateKind::Median => median(items),
        _ => QueryValue::from(items),
    })
}

/// A sum that is exact while it fits 64 bits.
#[derive(Clone, Debug, Default)]
struct Sum {
    whole: i64,
    float: Option<f64>,
}

impl Sum {
    fn add(&mut self, value: &QueryValue) {
        if let (QueryValue::Int(number), None) = (value, self.float) {
            match self.whole.checked_add(*number) {
                Some(sum) => self.whole = sum,
                None => self.float = Some(self.whole as f64 + *number as f64),
            }
            return;
        }
        let sum = self.float.unwrap_or(self.whole as f64);
        self.float = Some(sum + value.as_f64().unwrap_or_default());
    }

    fn merge(&mut self, other: &Sum) {
        // A float has the whole numbers before it too.
        self.add(&other.float.map_or(QueryValue::Int(other.whole), QueryValue::Float));
    }

    fn value(&self) -> QueryValue {
        self.float.map_or(QueryValue::Int(self.whole), QueryValue::number)
    }
}

/// The middle of sorted numbers.
fn median(mut items: Vec<QueryValue>) -> QueryValue {
    assert!(!items.is_empty(), "no values have no median");
    let middle = items.len() / 2;
    if items.len() % 2 == 1 {
        return items.swap_remove(middle);
    }
    let number = |at: usize| items[at].as_f64().unwrap_or_default();
    QueryValue::number((number(middle - 1) + number(middle)) / 2.0)
}
