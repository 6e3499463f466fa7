//! Which keys a scan has to show.
//!
//! It owns the translation of a statement's conditions on `id` and the test of a key. Invariant: it
//! never excludes a key that fulfils the conditions. SQLite checks them again, so a condition that
//! cannot be translated is dropped.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::source::{Argument, Condition, Operator};

/// See the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFilter {
    points: Option<BTreeSet<Vec<u8>>>,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

impl Default for KeyFilter {
    fn default() -> KeyFilter {
        KeyFilter { points: None, from: Bound::Unbounded, to: Bound::Unbounded }
    }
}

impl KeyFilter {
    /// Of the conditions on the column with the keys.
    pub fn of<'a>(conditions: impl Iterator<Item = &'a Condition>) -> KeyFilter {
        let mut filter = KeyFilter::default();
        for condition in conditions {
            filter.narrow(condition);
        }
        filter
    }

    fn narrow(&mut self, condition: &Condition) {
        let bound = || match condition.values.first() {
            Some(Argument::Text(key)) => Some(key.clone()),
            _ => None,
        };
        match condition.operator {
            Operator::Equal | Operator::In => {
                let keys = condition.values.iter().filter(|value| **value != Argument::Null);
                let Some(keys) = keys.map(text_of).collect::<Option<BTreeSet<_>>>() else { return };
                self.points = Some(match self.points.take() {
                    Some(known) => known.intersection(&keys).cloned().collect(),
                    None => keys,
                });
            }
            Operator::Greater => self.raise(bound().map(Bound::Excluded)),
            Operator::GreaterOrEqual => self.raise(bound().map(Bound::Included)),
            Operator::Less => self.lower(bound().map(Bound::Excluded)),
            Operator::LessOrEqual => self.lower(bound().map(Bound::Included)),
            Operator::IsNull | Operator::IsNotNull => {}
        }
    }

    fn raise(&mut self, from: Option<Bound<Vec<u8>>>) {
        if let Some(from) = from
            && edge(&from) >= edge(&self.from)
        {
            self.from = from;
        }
    }

    fn lower(&mut self, to: Option<Bound<Vec<u8>>>) {
        let is_lower = match (&to, edge(&self.to)) {
            (Some(to), known) => known.is_none() || edge(to) <= known,
            _ => false,
        };
        if let Some(to) = to.filter(|_| is_lower) {
            self.to = to;
        }
    }

    /// The keys, if the conditions name them; ascending.
    pub fn points(&self) -> Option<Vec<&[u8]>> {
        let points = self.points.as_ref()?;
        Some(points.iter().map(Vec::as_slice).filter(|key| self.is_between(key)).collect())
    }

    /// The lower end.
    pub fn from(&self) -> Bound<&[u8]> {
        self.from.as_ref().map(Vec::as_slice)
    }

    /// The upper end.
    pub fn to(&self) -> Bound<&[u8]> {
        self.to.as_ref().map(Vec::as_slice)
    }

    /// True when every key is shown.
    pub fn is_open(&self) -> bool {
        *self == KeyFilter::default()
    }

    /// True when a key has to be shown.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_between(key) && self.points.as_ref().is_none_or(|points| points.contains(key))
    }

    fn is_between(&self, key: &[u8]) -> bool {
        let is_behind = match &self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from.as_slice(),
            Bound::Excluded(from) => key > from.as_slice(),
        };
        is_behind
            && match &self.to {
                Bound::Unbounded => true,
                Bound::Included(to) => key <= to.as_slice(),
                Bound::Excluded(to) => key < to.as_slice(),
            }
    }
}

/// The key at a bound; `None` without one, which is less than every key.
fn edge(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

/// The value as SQLite compares it with text; none where it would not be text.
fn text_of(value: &Argument) -> Option<Vec<u8>> {
    match value {
        Argument::Text(text) => Some(text.clone()),
        Argument::Integer(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Conditions as filters.

    use super::*;

    fn condition(operator: Operator, values: &[&str]) -> Condition {
        let values = values.iter().map(|text| Argument::Text(text.as_bytes().to_vec())).collect();
        Condition { column: 0, operator, values }
    }

    #[test]
    fn conditions_narrow_a_range() {
        let conditions = [
            condition(Operator::GreaterOrEqual, &["b"]),
            condition(Operator::Greater, &["a"]),
            condition(Operator::Less, &["d"]),
            condition(Operator::LessOrEqual, &["x"]),
        ];
        let filter = KeyFilter::of(conditions.iter());
        let shown = |key: &str| filter.contains(key.as_bytes());
        assert!(shown("b") && shown("c") && !shown("a") && !shown("d"));
        assert_eq!(
            (filter.from(), filter.to()),
            (Bound::Included(&b"b"[..]), Bound::Excluded(&b"d"[..]))
        );
        let same =
            [condition(Operator::GreaterOrEqual, &["b"]), condition(Operator::Greater, &["b"])];
        assert!(!KeyFilter::of(same.iter()).contains(b"b"));
        assert!(KeyFilter::of([].iter()).is_open());
    }

    #[test]
    fn points_are_those_in_every_list() {
        let conditions = [
            condition(Operator::In, &["a", "b", "c"]),
            condition(Operator::In, &["b", "c", "d"]),
            condition(Operator::Less, &["c"]),
        ];
        let filter = KeyFilter::of(conditions.iter());
        assert_eq!(filter.points(), Some(vec![&b"b"[..]]));
        assert!(filter.contains(b"b") && !filter.contains(b"c") && !filter.contains(b"a"));
        let number =
            Condition { column: 0, operator: Operator::Equal, values: vec![Argument::Integer(5)] };
        assert_eq!(KeyFilter::of([number].iter()).points(), Some(vec![&b"5"[..]]));
        let real =
            Condition { column: 0, operator: Operator::Equal, values: vec![Argument::Real(5.0)] };
        assert!(KeyFilter::of([real].iter()).is_open());
    }
}
