//! Ranges of values, and the entries that they select.
//!
//! A range has every document that meets the conditions, and may have others: conditions are
//! checked again on each document. A comparison holds for values only, so the entries of missing
//! and null are outside, but for the tests of IS.

use crate::value::QueryValue;

use super::encoding::{after_prefix, append, append_text_prefix};
use super::sorted::EntryRange;

/// A place between values: before or after all encodings that begin with `bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cut {
    bytes: Vec<u8>,
    after: bool,
}

impl Cut {
    fn at(value: &QueryValue, after: bool) -> Cut {
        let mut bytes = Vec::new();
        append(value, false, &mut bytes);
        Cut { bytes, after }
    }

    /// The place as a bound of entries; none is the end.
    fn bound(&self, prefix: &[u8], descending: bool) -> Option<Vec<u8>> {
        let mut bytes = prefix.to_vec();
        let own = self.bytes.iter();
        match descending {
            true => bytes.extend(own.map(|byte| !byte)),
            false => bytes.extend(own),
        }
        // Inverting swaps the order.
        if self.after != descending { after_prefix(&bytes) } else { Some(bytes) }
    }
}

/// The values of a key between two cuts.
#[derive(Clone, Debug, Default)]
pub struct ValueRange {
    low: Option<Cut>,
    high: Option<Cut>,
}

impl ValueRange {
    pub fn all() -> ValueRange {
        ValueRange::default()
    }

    /// All values but missing and null.
    pub fn valued() -> ValueRange {
        ValueRange { low: Some(Cut::at(&QueryValue::Null, true)), high: None }
    }

    /// All values but missing.
    pub fn not_missing() -> ValueRange {
        ValueRange { low: Some(Cut::at(&QueryValue::Missing, true)), high: None }
    }

    pub fn point(value: &QueryValue) -> ValueRange {
        ValueRange { low: Some(Cut::at(value, false)), high: Some(Cut::at(value, true)) }
    }

    pub fn above(value: &QueryValue, inclusive: bool) -> ValueRange {
        ValueRange { low: Some(Cut::at(value, !inclusive)), high: None }
    }

    pub fn below(value: &QueryValue, inclusive: bool) -> ValueRange {
        ValueRange { high: Some(Cut::at(value, inclusive)), ..ValueRange::valued() }
    }

    /// The texts with a prefix.
    pub fn texts(prefix: &[u8]) -> ValueRange {
        let mut bytes = Vec::new();
        append_text_prefix(prefix, false, &mut bytes);
        let cut = |after| Some(Cut { bytes: bytes.clone(), after });
        ValueRange { low: cut(false), high: cut(true) }
    }

    /// The values in both ranges.
    pub fn intersect(&mut self, other: ValueRange) {
        let bound = |cut: &Cut| cut.bound(&[], false);
        if let Some(low) = other.low
            && self.low.as_ref().is_none_or(|known| bound(&low) > bound(known))
        {
            self.low = Some(low);
        }
        if let Some(high) = other.high
            && self.high.as_ref().is_none_or(|known| bound(&high) < bound(known))
        {
            self.high = Some(high);
        }
    }

    /// Whether all values of another range are in this one.
    pub fn contains(&self, other: &ValueRange) -> bool {
        let bound = |cut: &Cut| cut.bound(&[], false);
        let is_above = self
            .low
            .as_ref()
            .is_none_or(|low| other.low.as_ref().is_some_and(|other| bound(other) >= bound(low)));
        let is_below = self.high.as_ref().is_none_or(|high| {
            other.high.as_ref().is_some_and(|other| bound(other) <= bound(high))
        });
        is_above && is_below
    }

    /// The entries that begin with `prefix` and have a value of this range after it.
    pub fn entries(&self, prefix: &[u8], descending: bool) -> EntryRange {
        let (low, high) = match descending {
            true => (&self.high, &self.low),
            false => (&self.low, &self.high),
        };
        let after = || after_prefix(prefix);
        EntryRange {
            low: match low {
                // A low bound after everything leaves nothing.
                Some(low) => low.bound(prefix, descending).unwrap_or_else(|| vec![u8::MAX; 8]),
                None => prefix.to_vec(),
            },
            high: match high {
                Some(high) => high.bound(prefix, descending),
                None => after().filter(|_| !prefix.is_empty()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ValueRange;
    use crate::entries::encoding::append;
    use crate::value::QueryValue;

    fn numbers_in(range: &ValueRange, descending: bool) -> Vec<i64> {
        let entries = range.entries(b"p", descending);
        let is_in = |number: &i64| {
            let mut bytes = b"p".to_vec();
            append(&QueryValue::Int(*number), descending, &mut bytes);
            bytes.push(b'k');
            bytes >= entries.low && entries.high.as_ref().is_none_or(|high| bytes < *high)
        };
        (0..6).filter(is_in).collect()
    }

    #[test]
    fn ranges_have_their_bounds_in_both_directions() {
        let value = QueryValue::Int;
        for descending in [false, true] {
            let in_range = |range: &ValueRange| numbers_in(range, descending);
            assert_eq!(in_range(&ValueRange::point(&value(3))), [3]);
            assert_eq!(in_range(&ValueRange::above(&value(3), false)), [4, 5]);
            assert_eq!(in_range(&ValueRange::above(&value(3), true)), [3, 4, 5]);
            assert_eq!(in_range(&ValueRange::below(&value(2), false)), [0, 1]);
            assert_eq!(in_range(&ValueRange::below(&value(2), true)), [0, 1, 2]);
            let mut both = ValueRange::above(&value(1), false);
            both.intersect(ValueRange::below(&value(4), false));
            assert_eq!(in_range(&both), [2, 3]);
            assert!(in_range(&ValueRange::texts(b"a")).is_empty());
            assert_eq!(in_range(&ValueRange::valued()).len(), 6);
        }
    }

    #[test]
    fn range_contains_narrower_ones() {
        let above = |number| ValueRange::above(&QueryValue::Int(number), false);
        assert!(above(3).contains(&above(5)));
        assert!(!above(5).contains(&above(3)));
        assert!(above(3).contains(&ValueRange::point(&QueryValue::Int(4))));
        assert!(ValueRange::valued().contains(&ValueRange::texts(b"a")));
        assert!(!ValueRange::valued().contains(&ValueRange::not_missing()));
        assert!(ValueRange::all().contains(&above(1)));
    }
}
