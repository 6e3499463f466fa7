//! A range of rows in the description of a table or of a partition.
//!
//! Creators and alterers resolve bounds against the schema when they get the range, so a wrong
//! column or value fails at its source. The cells keep Kudu's cell form until the request is laid
//! out, because all bounds of a request share one block of strings.

use std::ops::Bound;

use super::hash_partition::HashPartition;
use crate::error::Error;
use crate::proto::common::{HashBucketSchemaPb, RowOperationsPb};
use crate::row_operation::{BoundKind, encode_bounds};
use crate::schema::{DataType, Schema, Value};

/// A range partition: a lower and an upper bound, each on some or all of the range columns.
///
/// A missing column counts as the least value of its type. [`Bound::Unbounded`] means no bound.
///
/// ```
/// use std::ops::Bound;
/// use oribi_kudu::{HashPartition, RangePartition, Value};
///
/// let spring = RangePartition::new(
///     Bound::Included(&[("day", Value::Int32(59))]),
///     Bound::Excluded(&[("day", Value::Int32(151))]),
/// )
/// .with_hash([HashPartition::new(["key"], 4)]);
/// # let _ = spring;
/// ```
#[derive(Clone, Debug)]
pub struct RangePartition<'a> {
    lower: Bound<&'a [(&'a str, Value<'a>)]>,
    upper: Bound<&'a [(&'a str, Value<'a>)]>,
    hash: Option<Vec<HashPartition>>,
    dimension_label: Option<String>,
}

impl<'a> RangePartition<'a> {
    /// The rows between two bounds.
    pub fn new(
        lower: Bound<&'a [(&'a str, Value<'a>)]>,
        upper: Bound<&'a [(&'a str, Value<'a>)]>,
    ) -> RangePartition<'a> {
        RangePartition { lower, upper, hash: None, dimension_label: None }
    }

    /// All rows.
    pub fn unbounded() -> RangePartition<'a> {
        RangePartition::new(Bound::Unbounded, Bound::Unbounded)
    }

    /// Hashes the rows of this range in its own way instead of the table's. Kudu requires as many
    /// levels as the table has.
    pub fn with_hash(
        mut self,
        hash: impl IntoIterator<Item = HashPartition>,
    ) -> RangePartition<'a> {
        self.hash = Some(hash.into_iter().collect());
        self
    }

    /// Makes the master place this label's tablets separately from those of other labels. Only
    /// for ranges that are added to a table; a new table has one label for all.
    pub fn with_dimension_label(mut self, label: impl Into<String>) -> RangePartition<'a> {
        self.dimension_label = Some(label.into());
        self
    }

    /// Checks the bounds against a schema.
    pub(super) fn resolve(self, schema: &Schema) -> Result<ResolvedRange, Error> {
        let lower = match self.lower {
            Bound::Included(cells) => ResolvedBound::new(BoundKind::InclusiveLower, cells, schema)?,
            Bound::Excluded(cells) => ResolvedBound::new(BoundKind::ExclusiveLower, cells, schema)?,
            Bound::Unbounded => {
                ResolvedBound { kind: BoundKind::InclusiveLower, cells: Vec::new() }
            }
        };
        let upper = match self.upper {
            Bound::Included(cells) => ResolvedBound::new(BoundKind::InclusiveUpper, cells, schema)?,
            Bound::Excluded(cells) => ResolvedBound::new(BoundKind::ExclusiveUpper, cells, schema)?,
            Bound::Unbounded => {
                ResolvedBound { kind: BoundKind::ExclusiveUpper, cells: Vec::new() }
            }
        };
        Ok(ResolvedRange {
            bounds: [lower, upper],
            hash: self.hash,
            dimension_label: self.dimension_label,
        })
    }
}

/// A range whose bounds match a schema.
#[derive(Clone, Debug)]
pub(super) struct ResolvedRange {
    /// Lower, then upper.
    pub(super) bounds: [ResolvedBound; 2],
    hash: Option<Vec<HashPartition>>,
    pub(super) dimension_label: Option<String>,
}

impl ResolvedRange {
    pub(super) fn has_own_hash(&self) -> bool {
        self.hash.is_some()
    }

    /// The hash dimensions of the range: its own, or those of the table.
    pub(super) fn hash_pb(&self, of_table: &[HashPartition]) -> Vec<HashBucketSchemaPb> {
        self.hash.as_deref().unwrap_or(of_table).iter().map(HashPartition::to_pb).collect()
    }
}

/// A bound, or a split value, whose columns and values match a schema.
#[derive(Clone, Debug)]
pub(super) struct ResolvedBound {
    kind: BoundKind,
    /// Index and type of each set column, and its cell in Kudu's form.
    cells: Vec<(usize, DataType, Vec<u8>)>,
}

impl ResolvedBound {
    pub(super) fn new(
        kind: BoundKind,
        cells: &[(&str, Value<'_>)],
        schema: &Schema,
    ) -> Result<ResolvedBound, Error> {
        if cells.is_empty() {
            return Err(Error::InvalidArgument(
                "a bound names at least one column; none is Bound::Unbounded".to_owned(),
            ));
        }
        let cells = cells
            .iter()
            .map(|(name, value)| {
                let index = column_index(schema, name)?;
                let column = &schema.columns()[index];
                Ok((index, column.data_type(), value.to_cell(column)?))
            })
            .collect::<Result<_, Error>>()?;
        Ok(ResolvedBound { kind, cells })
    }
}

/// Lays out bounds in the form of a request.
pub(super) fn bounds_pb<'a>(
    schema: &Schema,
    bounds: impl IntoIterator<Item = &'a ResolvedBound>,
) -> Result<RowOperationsPb, Error> {
    let rows: Vec<(BoundKind, Vec<(usize, Value<'_>)>)> = bounds
        .into_iter()
        .map(|bound| {
            let value = |(index, data_type, cell): &'a (usize, DataType, Vec<u8>)| {
                Some((*index, Value::from_cell(*data_type, cell)?))
            };
            (bound.kind, bound.cells.iter().filter_map(value).collect())
        })
        .collect();
    let borrowed: Vec<(BoundKind, &[(usize, Value<'_>)])> =
        rows.iter().map(|(kind, cells)| (*kind, cells.as_slice())).collect();
    Ok(encode_bounds(schema, &borrowed)?)
}

/// The index of the column with this name.
pub(super) fn column_index(schema: &Schema, name: &str) -> Result<usize, Error> {
    schema
        .column_index(name)
        .ok_or_else(|| Error::InvalidArgument(format!("the schema has no column {name:?}")))
}
