//! From a row to its tablet, in a few loads and without a lock.
//!
//! It owns an index over the tablets that a table had at one moment. Ranges come first, sorted by
//! start; each maps the numbers of its buckets to a tablet. A table with hashing only, the usual
//! case, has one range without bounds and skips the encoding of range columns. Invariant: a map
//! never changes. A session that meets a key without a tablet builds a new map from a new snapshot.

use std::sync::Arc;

use super::{HashDimension, Partition, PartitionSchema};
use crate::key_encoding::KeyCells;

/// No tablet has this number.
const NO_TABLET: u32 = u32::MAX;

/// The tablets of a table by partition.
#[derive(Debug, Default)]
pub(crate) struct TabletMap {
    schema: PartitionSchema,
    ranges: Vec<Range>,
    /// There is one range without bounds, so rows need no range lookup.
    is_one_range: bool,
}

#[derive(Debug)]
struct Range {
    start: Box<[u8]>,
    /// Empty: no bound.
    end: Box<[u8]>,
    hash: Arc<[HashDimension]>,
    /// By bucket number, the first dimension most significant.
    tablets: Box<[u32]>,
}

impl TabletMap {
    /// Builds the index over partitions. A tablet's number is its index among them.
    pub(crate) fn new<'a>(
        schema: &PartitionSchema,
        partitions: impl IntoIterator<Item = &'a Partition>,
    ) -> TabletMap {
        TabletMap::numbered(schema, (0..NO_TABLET).zip(partitions))
    }

    /// Builds the index over partitions, with the caller's number for each tablet. It leaves out a
    /// tablet that does not match the partition schema; the caller then misses its keys and looks
    /// again.
    pub(crate) fn numbered<'a>(
        schema: &PartitionSchema,
        partitions: impl IntoIterator<Item = (u32, &'a Partition)>,
    ) -> TabletMap {
        let mut numbered: Vec<(u32, &Partition)> = partitions.into_iter().collect();
        numbered.sort_by(|a, b| a.1.range_start().cmp(b.1.range_start()));
        let mut ranges: Vec<Range> = Vec::new();
        for (number, partition) in numbered {
            if ranges.last().is_none_or(|last| &*last.start != partition.range_start()) {
                ranges.push(Range::new(schema, partition));
            }
            let Some(range) = ranges.last_mut() else { continue };
            if let Some(slot) = slot_of(&range.hash, &partition.hash_buckets) {
                range.tablets[slot] = number;
            }
        }
        let is_one_range =
            matches!(&ranges[..], [only] if only.start.is_empty() && only.end.is_empty());
        TabletMap { schema: schema.clone(), ranges, is_one_range }
    }

    /// The number of the tablet that holds a row. It overwrites `scratch`.
    #[inline]
    pub(crate) fn locate(&self, cells: &impl KeyCells, scratch: &mut Vec<u8>) -> Option<usize> {
        let range =
            if self.is_one_range { self.ranges.first()? } else { self.range_of(cells, scratch)? };
        let mut slot = 0;
        for dimension in range.hash.iter() {
            slot =
                slot * dimension.num_buckets as usize + dimension.bucket(cells, scratch) as usize;
        }
        let tablet = *range.tablets.get(slot)?;
        (tablet != NO_TABLET).then_some(tablet as usize)
    }

    fn range_of(&self, cells: &impl KeyCells, scratch: &mut Vec<u8>) -> Option<&Range> {
        scratch.clear();
        self.schema.encode_range_key(cells, scratch);
        let key = scratch.as_slice();
        let after = self.ranges.partition_point(|range| &*range.start <= key);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        (range.end.is_empty() || key < &*range.end).then_some(range)
    }
}

impl Range {
    fn new(schema: &PartitionSchema, partition: &Partition) -> Range {
        let hash = schema.hash_schema_of_range(partition.range_start()).clone();
        let slots = hash.iter().map(|dimension| dimension.num_buckets as usize).product();
        Range {
            start: partition.range_start().into(),
            end: partition.range_end().into(),
            hash,
            tablets: vec![NO_TABLET; slots].into(),
        }
    }
}

/// The index of a combination of buckets; `None` if this hash schema does not have it.
fn slot_of(hash: &[HashDimension], buckets: &[u32]) -> Option<usize> {
    if hash.len() != buckets.len() {
        return None;
    }
    hash.iter().zip(buckets).try_fold(0, |slot, (dimension, bucket)| {
        (*bucket < dimension.num_buckets)
            .then(|| slot * dimension.num_buckets as usize + *bucket as usize)
    })
}
