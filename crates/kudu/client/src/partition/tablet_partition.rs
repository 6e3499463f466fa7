//! The part of a table that one tablet holds.
//!
//! Invariant: `start` is inclusive and `end` exclusive, as the server sent them. Either may be
//! shorter than its hash part. The server fills the gaps between hash dimensions: it cuts zero
//! buckets off a start and increments the last bucket of an end. The buckets therefore come from
//! their own list. The cache of tablets holds these partitions; a session builds its
//! [`super::TabletMap`] from them.

use bytes::Bytes;

use crate::proto::common::PartitionPb;

/// Bytes of one hash bucket's number in a partition key.
pub(crate) const BUCKET_BYTES: usize = 4;

/// The hash buckets and the range of one tablet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Partition {
    /// One bucket for each hash dimension of the tablet's range.
    pub hash_buckets: Vec<u32>,
    /// First partition key.
    pub start: Bytes,
    /// The partition key after the last one.
    pub end: Bytes,
}

impl Partition {
    pub(crate) fn from_pb(pb: &PartitionPb) -> Partition {
        Partition {
            // A negative number names no bucket; the largest one never matches a row.
            hash_buckets: pb
                .hash_buckets
                .iter()
                .map(|bucket| u32::try_from(*bucket).unwrap_or(u32::MAX))
                .collect(),
            start: pb.partition_key_start.clone().unwrap_or_default(),
            end: pb.partition_key_end.clone().unwrap_or_default(),
        }
    }

    /// The range part of the start. Empty means that the range has no lower bound.
    pub(crate) fn range_start(&self) -> &[u8] {
        self.range_part(&self.start)
    }

    /// The range part of the end. Empty means that the range has no upper bound.
    pub(crate) fn range_end(&self) -> &[u8] {
        self.range_part(&self.end)
    }

    fn range_part<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.get(self.hash_buckets.len() * BUCKET_BYTES..).unwrap_or_default()
    }
}
