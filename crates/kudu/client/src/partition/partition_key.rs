//! Where a row belongs: its hash buckets, then its range columns.
//!
//! Invariant: the hash part has four bytes for each hash dimension of the row's range, and the rest
//! is the range part. Keys are ordered by the hash part, then by the range part. A key of usual
//! size is held in place, without an allocation. Tests use it to check what [`super::TabletMap`]
//! finds.

use std::cmp::Ordering;

use smallvec::SmallVec;

/// Keys up to this size stay off the heap: one hash dimension and a string of 32 bytes.
const INLINE_BYTES: usize = 36;

/// An encoded partition key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PartitionKey {
    bytes: SmallVec<[u8; INLINE_BYTES]>,
    hash_bytes: usize,
}

impl PartitionKey {
    pub(crate) fn new(hash: &[u8], range: &[u8]) -> PartitionKey {
        let mut bytes = SmallVec::with_capacity(hash.len() + range.len());
        bytes.extend_from_slice(hash);
        bytes.extend_from_slice(range);
        PartitionKey { bytes, hash_bytes: hash.len() }
    }

    /// The numbers of the hash buckets, four bytes each, big-endian.
    pub(crate) fn hash(&self) -> &[u8] {
        &self.bytes[..self.hash_bytes]
    }

    /// The encoded range columns.
    pub(crate) fn range(&self) -> &[u8] {
        &self.bytes[self.hash_bytes..]
    }

    /// Both parts, one after the other.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Ord for PartitionKey {
    fn cmp(&self, other: &PartitionKey) -> Ordering {
        self.hash().cmp(other.hash()).then_with(|| self.range().cmp(other.range()))
    }
}

impl PartialOrd for PartitionKey {
    fn partial_cmp(&self, other: &PartitionKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
