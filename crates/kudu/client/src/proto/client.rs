//! Messages between clients: a part of a scan for another client.
//!
//! The format is that of Kudu's own clients, so tokens work in both directions. The client reads
//! but does not write the fields that only save the receiver a question to the master.

use bytes::Bytes;

use super::common::{ColumnPredicatePb, ColumnSchemaPb, SchemaPb};
use super::rpc::SignedTokenPb;

/// A part of a scan.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ScanTokenPb {
    /// Features that the receiver must know; none is defined yet.
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub feature_flags: Vec<i32>,
    #[prost(string, optional, tag = "2")]
    pub table_name: Option<String>,
    /// Without column ids; none at all counts rows.
    #[prost(message, repeated, tag = "3")]
    pub projected_columns: Vec<ColumnSchemaPb>,
    #[prost(message, repeated, tag = "4")]
    pub column_predicates: Vec<ColumnPredicatePb>,
    /// Inclusive.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub lower_bound_primary_key: Option<Bytes>,
    /// Exclusive.
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub upper_bound_primary_key: Option<Bytes>,
    /// Inclusive.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub lower_bound_partition_key: Option<Bytes>,
    /// Exclusive.
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub upper_bound_partition_key: Option<Bytes>,
    /// In rows.
    #[prost(uint64, optional, tag = "9")]
    pub limit: Option<u64>,
    /// See [`super::common::ReadModePb`].
    #[prost(enumeration = "super::common::ReadModePb", optional, tag = "10")]
    pub read_mode: Option<i32>,
    #[prost(fixed64, optional, tag = "11")]
    pub snap_timestamp: Option<u64>,
    /// A hybrid time that the sender has seen.
    #[prost(fixed64, optional, tag = "12")]
    pub propagated_timestamp: Option<u64>,
    /// Absent means true.
    #[prost(bool, optional, tag = "13")]
    pub cache_blocks: Option<bool>,
    #[prost(bool, optional, tag = "14")]
    pub fault_tolerant: Option<bool>,
    #[prost(uint32, optional, tag = "15")]
    pub batch_size_bytes: Option<u32>,
    /// See [`ReplicaSelectionPb`]; absent means the leader.
    #[prost(enumeration = "ReplicaSelectionPb", optional, tag = "16")]
    pub replica_selection: Option<i32>,
    #[prost(int64, optional, tag = "17")]
    pub scan_request_timeout_ms: Option<i64>,
    /// The start of a diff scan, which this client does not do.
    #[prost(fixed64, optional, tag = "19")]
    pub snap_start_timestamp: Option<u64>,
    #[prost(string, optional, tag = "20")]
    pub table_id: Option<String>,
    #[prost(message, optional, tag = "21")]
    pub table_metadata: Option<TableMetadataPb>,
    /// Positions in the schema of `table_metadata`, instead of `projected_columns`.
    #[prost(int32, repeated, packed = "false", tag = "23")]
    pub projected_column_idx: Vec<i32>,
    #[prost(message, optional, tag = "24")]
    pub authz_token: Option<SignedTokenPb>,
}

/// The sender's view of the table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TableMetadataPb {
    #[prost(string, optional, tag = "1")]
    pub table_id: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub table_name: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub schema: Option<SchemaPb>,
}

/// Which replicas may serve a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ReplicaSelectionPb {
    Unknown = 0,
    LeaderOnly = 1,
    ClosestReplica = 2,
    FirstReplica = 3,
}
