//! A table without a cluster: the session encodes rows, batches them, lays out requests, and drops
//! them.
//!
//! It serves benchmarks, and shows what a load costs the client apart from network and servers.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::partition::{Partition, PartitionSchema};
use crate::proto::common::column_identifier_pb::Identifier;
use crate::proto::common::{
    ColumnIdentifierPb, HashBucketSchemaPb, PartitionSchemaPb, RangeSchemaPb,
};
use crate::proto::tserver::WriteResponsePb;
use crate::schema::{Schema, SchemaError};

use super::write_request::WriteRequest;
use super::write_target::{TableView, TabletView, TargetFuture, WriteTarget};

/// A table that drops its rows.
#[derive(Debug)]
pub(super) struct DryRunTarget {
    schema: Schema,
    partition_schema: PartitionSchema,
}

impl DryRunTarget {
    /// A table that is hashed by its whole key; one bucket means no partitioning.
    pub(super) fn new(schema: &Schema, num_buckets: u32) -> Result<DryRunTarget, SchemaError> {
        let identify =
            |name: &str| ColumnIdentifierPb { identifier: Some(Identifier::Name(name.to_owned())) };
        let pb = PartitionSchemaPb {
            hash_schema: vec![HashBucketSchemaPb {
                columns: schema
                    .key_columns()
                    .iter()
                    .map(|column| identify(column.name()))
                    .collect(),
                num_buckets: i32::try_from(num_buckets).unwrap_or(i32::MAX),
                seed: None,
            }],
            range_schema: Some(RangeSchemaPb::default()),
            custom_hash_schema_ranges: Vec::new(),
        };
        Ok(DryRunTarget {
            schema: schema.clone(),
            partition_schema: PartitionSchema::from_pb(&pb, schema)?,
        })
    }

    pub(super) fn partition_schema(&self) -> &PartitionSchema {
        &self.partition_schema
    }
}

impl WriteTarget for DryRunTarget {
    fn view(&self, _reload: bool, _deadline: Instant) -> TargetFuture<'_, TableView> {
        let num_buckets = self
            .partition_schema
            .hash_dimensions()
            .iter()
            .map(|dimension| dimension.num_buckets)
            .product();
        let tablets = (0..num_buckets).map(|bucket| TabletView {
            id: format!("{bucket:032x}"),
            partition: Partition {
                hash_buckets: vec![bucket],
                start: Bytes::new(),
                end: Bytes::new(),
            },
        });
        let view = TableView {
            schema: self.schema.clone(),
            partition_schema: self.partition_schema.clone(),
            tablets: tablets.collect(),
        };
        Box::pin(std::future::ready(Ok(view)))
    }

    fn write<'a>(
        &'a self,
        tablet_id: &'a str,
        request: &'a WriteRequest,
        _deadline: Instant,
    ) -> TargetFuture<'a, WriteResponsePb> {
        drop(request.pieces(tablet_id, None, None));
        Box::pin(std::future::ready(Ok(WriteResponsePb::default())))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn request_bytes_max(&self) -> usize {
        crate::rpc::MESSAGE_BYTES_MAX
    }
}
