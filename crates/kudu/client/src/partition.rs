//! How a table is divided into tablets, and to which of them a row belongs.
//!
//! It owns hash dimensions, range columns, hash schemas of single ranges, the encoding of partition
//! keys and their order. A row's range columns select the range, the range selects the hash schema,
//! and the buckets with the range select the tablet. Invariants: the columns of a hash dimension
//! are sorted by id, in whatever order the table's creator named them. The number of buckets of a
//! range is small enough for a table of them. Sessions, the cache of tablets, lookups and the
//! pruning of scans call it. It does not know where tablets are.

mod murmur2;
#[cfg(test)]
mod partition_key;
mod tablet_map;
mod tablet_partition;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(crate) use murmur2::murmur2_64a;
#[cfg(test)]
pub(crate) use partition_key::PartitionKey;
pub(crate) use tablet_map::TabletMap;
pub(crate) use tablet_partition::{BUCKET_BYTES, Partition};

use crate::key_encoding::{KeyCells, encode_key_cell, encode_least, order_preserving};
use crate::proto::common::column_identifier_pb::Identifier;
use crate::proto::common::{
    ColumnIdentifierPb, HashBucketSchemaPb, PartitionSchemaPb, RangeWithHashSchemaPb,
};
use crate::row_operation::{BoundKind, RangeBound, decode_bounds};
use crate::schema::{DataType, Schema, SchemaError};

/// Most tablets of one range that the client keeps in a table. Kudu advises against more than some
/// thousands of tablets for a whole table.
const BUCKETS_MAX: u32 = 1 << 20;

/// The rules that assign a table's rows to tablets.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct PartitionSchema {
    hash: Arc<[HashDimension]>,
    range_columns: Arc<[KeyColumn]>,
    /// Sorted by start.
    custom: Arc<[CustomRange]>,
}

/// One level of hashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashDimension {
    /// The hashed columns, sorted by id.
    pub columns: Box<[KeyColumn]>,
    /// At least one.
    pub num_buckets: u32,
    /// Makes two dimensions over the same columns independent.
    pub seed: u32,
}

/// A column of a partition key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    /// Its place in the table's schema.
    pub index: usize,
    /// The type of its cells.
    pub data_type: DataType,
}

/// A range with its own hash dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CustomRange {
    start: Box<[u8]>,
    /// Empty: no bound.
    end: Box<[u8]>,
    hash: Arc<[HashDimension]>,
}

/// The bucket of an encoded group of columns.
#[inline]
pub(crate) fn bucket_of(encoded: &[u8], seed: u32, num_buckets: u32) -> u32 {
    (murmur2_64a(encoded, seed) % u64::from(num_buckets)) as u32
}

impl HashDimension {
    /// The bucket of a row. It overwrites `scratch`.
    #[inline]
    pub(crate) fn bucket(&self, cells: &impl KeyCells, scratch: &mut Vec<u8>) -> u32 {
        // One 64-bit integer is by far the most common key, and its encoding needs no memory.
        if let [KeyColumn { index, data_type: DataType::Int64 | DataType::UnixtimeMicros }] =
            *self.columns
            && let Some(cell) = cells.cell(index).and_then(|cell| cell.first_chunk::<8>())
        {
            return bucket_of(&order_preserving(*cell), self.seed, self.num_buckets);
        }
        scratch.clear();
        encode_columns(&self.columns, cells, scratch);
        bucket_of(scratch, self.seed, self.num_buckets)
    }
}

impl PartitionSchema {
    /// The hash dimensions of every range without its own.
    pub(crate) fn hash_dimensions(&self) -> &[HashDimension] {
        &self.hash
    }

    /// The hash dimensions of the range that contains an encoded range key.
    pub(crate) fn hash_dimensions_of_range(&self, range_key: &[u8]) -> &[HashDimension] {
        self.hash_schema_of_range(range_key)
    }

    /// The range columns, in the order of comparison.
    pub(crate) fn range_columns(&self) -> &[KeyColumn] {
        &self.range_columns
    }

    /// Every column that determines a row's tablet.
    pub(crate) fn columns(&self) -> impl Iterator<Item = usize> {
        let custom = self.custom.iter().flat_map(|range| range.hash.iter());
        let hashed = self.hash.iter().chain(custom).flat_map(|dimension| dimension.columns.iter());
        hashed.chain(self.range_columns.iter()).map(|column| column.index)
    }

    /// Appends the encoded range columns of a row.
    pub(crate) fn encode_range_key(&self, cells: &impl KeyCells, key: &mut Vec<u8>) {
        encode_columns(&self.range_columns, cells, key);
    }

    /// The partition key of a row. Sessions and lookups find tablets without it, through their
    /// [`TabletMap`].
    #[cfg(test)]
    pub(crate) fn partition_key_of(&self, cells: &impl KeyCells) -> PartitionKey {
        let mut range_key = Vec::new();
        self.encode_range_key(cells, &mut range_key);
        let mut scratch = Vec::new();
        let mut hash_key = Vec::new();
        for dimension in self.hash_dimensions_of_range(&range_key) {
            hash_key.extend_from_slice(&dimension.bucket(cells, &mut scratch).to_be_bytes());
        }
        PartitionKey::new(&hash_key, &range_key)
    }

    pub(crate) fn from_pb(
        pb: &PartitionSchemaPb,
        schema: &Schema,
    ) -> Result<PartitionSchema, SchemaError> {
        let range_columns: Arc<[KeyColumn]> = match &pb.range_schema {
            Some(range) => key_columns(&range.columns, schema)?.into(),
            // The server assumes the same.
            None => schema
                .key_columns()
                .iter()
                .enumerate()
                .map(|(index, column)| KeyColumn { index, data_type: column.data_type() })
                .collect(),
        };
        let mut custom = pb
            .custom_hash_schema_ranges
            .iter()
            .map(|range| CustomRange::from_pb(range, &range_columns, schema))
            .collect::<Result<Vec<_>, _>>()?;
        custom.sort_by(|a, b| a.start.cmp(&b.start));
        Ok(PartitionSchema {
            hash: hash_dimensions(&pb.hash_schema, schema)?,
            range_columns,
            custom: custom.into(),
        })
    }

    fn hash_schema_of_range(&self, range_key: &[u8]) -> &Arc<[HashDimension]> {
        let after = self.custom.partition_point(|range| &*range.start <= range_key);
        match after.checked_sub(1).and_then(|index| self.custom.get(index)) {
            Some(range) if range.end.is_empty() || range_key < &*range.end => &range.hash,
            _ => &self.hash,
        }
    }
}

impl CustomRange {
    fn from_pb(
        pb: &RangeWithHashSchemaPb,
        range_columns: &[KeyColumn],
        schema: &Schema,
    ) -> Result<CustomRange, SchemaError> {
        let bounds = pb.range_bounds.as_ref().ok_or_else(|| bad("a range has no bounds"))?;
        let rows = decode_bounds(schema, bounds)
            .ok_or_else(|| bad("a range's bounds cannot be decoded"))?;
        let [lower, upper] = &rows[..] else { return Err(bad("a range has not two bounds")) };
        let encode = |bound: &RangeBound| {
            let mut key = Vec::new();
            // A bound without columns is no bound; it is not the least value of each column.
            if range_columns.iter().any(|column| bound.cell(column.index).is_some()) {
                encode_columns(range_columns, bound, &mut key);
            }
            key.into_boxed_slice()
        };
        if lower.kind != BoundKind::InclusiveLower || upper.kind != BoundKind::ExclusiveUpper {
            return Err(bad("a range is not bounded as the server bounds them"));
        }
        Ok(CustomRange {
            start: encode(lower),
            end: encode(upper),
            hash: hash_dimensions(&pb.hash_schema, schema)?,
        })
    }
}

/// Appends a group of columns. Every column except the last gets an end mark.
fn encode_columns(columns: &[KeyColumn], cells: &impl KeyCells, key: &mut Vec<u8>) {
    for (place, column) in columns.iter().enumerate() {
        let is_last = place + 1 == columns.len();
        match cells.cell(column.index) {
            Some(cell) => encode_key_cell(cell, column.data_type, is_last, key),
            None => encode_least(column.data_type, is_last, key),
        }
    }
}

fn hash_dimensions(
    pb: &[HashBucketSchemaPb],
    schema: &Schema,
) -> Result<Arc<[HashDimension]>, SchemaError> {
    let mut tablets: u32 = 1;
    pb.iter()
        .map(|dimension| {
            let num_buckets = u32::try_from(dimension.num_buckets).unwrap_or(0);
            tablets = tablets.saturating_mul(num_buckets);
            if num_buckets == 0 || tablets > BUCKETS_MAX {
                return Err(bad(&format!("a range cannot have {} buckets", dimension.num_buckets)));
            }
            let mut columns = key_columns(&dimension.columns, schema)?;
            // In the order of ids; before a table has ids, in the order of its columns.
            columns.sort_by_key(|column| (schema.columns()[column.index].id(), column.index));
            Ok(HashDimension {
                columns: columns.into(),
                num_buckets,
                seed: dimension.seed.unwrap_or(0),
            })
        })
        .collect()
}

fn key_columns(
    identifiers: &[ColumnIdentifierPb],
    schema: &Schema,
) -> Result<Vec<KeyColumn>, SchemaError> {
    identifiers
        .iter()
        .map(|identifier| {
            let index = match &identifier.identifier {
                Some(Identifier::Id(id)) => {
                    u32::try_from(*id).ok().and_then(|id| schema.column_index_of_id(id))
                }
                Some(Identifier::Name(name)) => schema.column_index(name),
                None => None,
            };
            let index = index
                .ok_or_else(|| bad(&format!("there is no column {:?}", identifier.identifier)))?;
            Ok(KeyColumn { index, data_type: schema.columns()[index].data_type() })
        })
        .collect()
}

fn bad(reason: &str) -> SchemaError {
    SchemaError::BadPartitioning { reason: reason.to_owned() }
}
