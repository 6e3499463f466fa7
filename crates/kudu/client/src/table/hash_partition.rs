//! A level of hashing in the description of a table or of a partition.

use crate::proto::common::{
    ColumnIdentifierPb, HashBucketSchemaPb, column_identifier_pb::Identifier,
};

/// One level of hashing: it spreads rows over buckets by some columns of the primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPartition {
    pub(super) columns: Vec<String>,
    num_buckets: u32,
    seed: u32,
}

impl HashPartition {
    /// Spreads rows over `num_buckets` buckets, at least 2, by these columns.
    pub fn new<C: Into<String>>(
        columns: impl IntoIterator<Item = C>,
        num_buckets: u32,
    ) -> HashPartition {
        HashPartition {
            columns: columns.into_iter().map(Into::into).collect(),
            num_buckets,
            seed: 0,
        }
    }

    /// Changes the hash function, so that two levels do not spread in the same way; 0 by default.
    pub fn with_seed(mut self, seed: u32) -> HashPartition {
        self.seed = seed;
        self
    }

    pub(super) fn to_pb(&self) -> HashBucketSchemaPb {
        HashBucketSchemaPb {
            columns: identifiers(&self.columns),
            // Kudu allows fewer than 2^31 buckets; the server refuses more.
            num_buckets: i32::try_from(self.num_buckets).unwrap_or(i32::MAX),
            seed: Some(self.seed),
        }
    }
}

/// Columns by name, in the form of requests.
pub(super) fn identifiers(columns: &[String]) -> Vec<ColumnIdentifierPb> {
    columns
        .iter()
        .map(|name| ColumnIdentifierPb { identifier: Some(Identifier::Name(name.clone())) })
        .collect()
}
