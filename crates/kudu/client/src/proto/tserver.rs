//! Messages of `kudu.tserver.TabletServerService`: writes, scans, lookups.
//!
//! The session, the scanner and the lookup code call it. On the fast path a Write is not built from
//! [`WriteRequestPb`]: the session lays out its pieces itself, and a test compares the two.

use bytes::Bytes;

use super::common::{
    AppStatusPb, ColumnPredicatePb, ColumnSchemaPb, ColumnarRowBlockPb, RowOperationsPb,
    RowwiseRowBlockPb, SchemaPb,
};
use super::rpc::SignedTokenPb;

/// The name of the service in a call's header.
pub(crate) const SERVICE_NAME: &str = "kudu.tserver.TabletServerService";

/// Features that a call may require of a tablet server; a server without one of them refuses the
/// call.
pub(crate) mod feature {
    pub(crate) const COLUMN_PREDICATES: u32 = 1;
    pub(crate) const COLUMNAR_LAYOUT: u32 = 5;
    pub(crate) const BLOOM_FILTER_PREDICATE_V2: u32 = 6;
}

/// Why a tablet server refused a request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TabletServerErrorPb {
    /// An enum of Kudu; see [`crate::TabletServerErrorCode`].
    #[prost(int32, required, tag = "1")]
    pub code: i32,
    #[prost(message, required, tag = "2")]
    pub status: AppStatusPb,
}

/// Asks whether the server answers; the client itself does not use it.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct PingRequestPb {}

/// The reply to [`PingRequestPb`].
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct PingResponsePb {}

/// Rows for one tablet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WriteRequestPb {
    /// 32 hexadecimal digits.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    /// The schema with which the rows were encoded, without column ids.
    #[prost(message, optional, tag = "2")]
    pub schema: Option<SchemaPb>,
    #[prost(message, optional, tag = "3")]
    pub row_operations: Option<RowOperationsPb>,
    /// See [`super::common::ExternalConsistencyModePb`].
    #[prost(enumeration = "super::common::ExternalConsistencyModePb", optional, tag = "4")]
    pub external_consistency_mode: Option<i32>,
    /// A hybrid time that the client has seen.
    #[prost(fixed64, optional, tag = "5")]
    pub propagated_timestamp: Option<u64>,
    #[prost(message, optional, tag = "6")]
    pub authz_token: Option<SignedTokenPb>,
    #[prost(int64, optional, tag = "7")]
    pub txn_id: Option<i64>,
}

/// The reply to [`WriteRequestPb`]: either all rows failed with `error`, or each of
/// `per_row_errors` names a row that failed while the others were applied.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct WriteResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerErrorPb>,
    #[prost(message, repeated, tag = "2")]
    pub per_row_errors: Vec<PerRowErrorPb>,
    /// The hybrid time of the write.
    #[prost(fixed64, optional, tag = "3")]
    pub timestamp: Option<u64>,
    #[prost(message, optional, tag = "4")]
    pub resource_metrics: Option<ResourceMetricsPb>,
}

/// The error of one row of a Write.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PerRowErrorPb {
    /// Counted from 0 in the order of the request.
    #[prost(int32, required, tag = "1")]
    pub row_index: i32,
    #[prost(message, required, tag = "2")]
    pub error: AppStatusPb,
}

/// The cost of a request on the server.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ResourceMetricsPb {
    #[prost(int64, optional, tag = "1")]
    pub cfile_cache_miss_bytes: Option<i64>,
    #[prost(int64, optional, tag = "2")]
    pub cfile_cache_hit_bytes: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub bytes_read: Option<i64>,
    #[prost(int64, optional, tag = "4")]
    pub queue_duration_nanos: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub total_duration_nanos: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub cpu_user_nanos: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub cpu_system_nanos: Option<i64>,
    #[prost(int64, optional, tag = "8")]
    pub successful_inserts: Option<i64>,
    #[prost(int64, optional, tag = "9")]
    pub insert_ignore_errors: Option<i64>,
    #[prost(int64, optional, tag = "10")]
    pub successful_upserts: Option<i64>,
    #[prost(int64, optional, tag = "11")]
    pub successful_updates: Option<i64>,
    #[prost(int64, optional, tag = "12")]
    pub update_ignore_errors: Option<i64>,
    #[prost(int64, optional, tag = "13")]
    pub successful_deletes: Option<i64>,
    #[prost(int64, optional, tag = "14")]
    pub delete_ignore_errors: Option<i64>,
    #[prost(int64, optional, tag = "15")]
    pub commit_wait_duration_usec: Option<i64>,
    #[prost(int64, optional, tag = "16")]
    pub upsert_ignore_errors: Option<i64>,
}

/// Bits of [`NewScanRequestPb::row_format_flags`].
pub(crate) mod row_format {
    pub(crate) const COLUMNAR_LAYOUT: u64 = 2;
}

/// Opens a scanner on one tablet.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct NewScanRequestPb {
    /// 32 hexadecimal digits.
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    /// In rows.
    #[prost(uint64, optional, tag = "2")]
    pub limit: Option<u64>,
    /// Without column ids; none at all counts rows.
    #[prost(message, repeated, tag = "4")]
    pub projected_columns: Vec<ColumnSchemaPb>,
    /// See [`super::common::ReadModePb`].
    #[prost(enumeration = "super::common::ReadModePb", optional, tag = "5")]
    pub read_mode: Option<i32>,
    #[prost(fixed64, optional, tag = "6")]
    pub snap_timestamp: Option<u64>,
    /// A hybrid time that the client has seen.
    #[prost(fixed64, optional, tag = "7")]
    pub propagated_timestamp: Option<u64>,
    /// Inclusive.
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub start_primary_key: Option<Bytes>,
    /// Exclusive.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub stop_primary_key: Option<Bytes>,
    /// The server's default is true.
    #[prost(bool, optional, tag = "10")]
    pub cache_blocks: Option<bool>,
    /// See [`super::common::OrderModePb`].
    #[prost(enumeration = "super::common::OrderModePb", optional, tag = "11")]
    pub order_mode: Option<i32>,
    /// Resumes an ordered scan after this key.
    #[prost(bytes = "bytes", optional, tag = "12")]
    pub last_primary_key: Option<Bytes>,
    #[prost(message, repeated, tag = "13")]
    pub column_predicates: Vec<ColumnPredicatePb>,
    /// See [`row_format`].
    #[prost(uint64, optional, tag = "14")]
    pub row_format_flags: Option<u64>,
    #[prost(message, optional, tag = "15")]
    pub authz_token: Option<SignedTokenPb>,
    /// Turns the scan into a diff scan from this hybrid time to `snap_timestamp`.
    #[prost(fixed64, optional, tag = "16")]
    pub snap_start_timestamp: Option<u64>,
}

/// Opens a scanner and reads from it, reads on, or closes it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ScanRequestPb {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub scanner_id: Option<Bytes>,
    #[prost(message, optional, tag = "2")]
    pub new_scan_request: Option<NewScanRequestPb>,
    /// 0 opens the scanner; a wrong number kills it.
    #[prost(uint32, optional, tag = "3")]
    pub call_seq_id: Option<u32>,
    /// A hint, in bytes, that the server checks only after each block of rows.
    #[prost(uint32, optional, tag = "4")]
    pub batch_size_bytes: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub close_scanner: Option<bool>,
}

/// The reply to [`ScanRequestPb`]; the rows are in sidecars.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ScanResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerErrorPb>,
    /// Only in the first reply of a scanner.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub scanner_id: Option<Bytes>,
    #[prost(bool, optional, tag = "3")]
    pub has_more_results: Option<bool>,
    #[prost(message, optional, tag = "4")]
    pub data: Option<RowwiseRowBlockPb>,
    #[prost(message, optional, tag = "5")]
    pub columnar_data: Option<ColumnarRowBlockPb>,
    #[prost(fixed64, optional, tag = "6")]
    pub snap_timestamp: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub last_primary_key: Option<Bytes>,
    #[prost(message, optional, tag = "8")]
    pub resource_metrics: Option<ResourceMetricsPb>,
    #[prost(fixed64, optional, tag = "9")]
    pub propagated_timestamp: Option<u64>,
}

/// Keeps an idle scanner from expiring.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ScannerKeepAliveRequestPb {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub scanner_id: Bytes,
}

/// The reply to [`ScannerKeepAliveRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ScannerKeepAliveResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerErrorPb>,
}

/// Asks for ranges of primary keys of about one size, to scan a tablet in parallel.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SplitKeyRangeRequestPb {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub start_primary_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub stop_primary_key: Option<Bytes>,
    #[prost(uint64, optional, tag = "4")]
    pub target_chunk_size_bytes: Option<u64>,
    #[prost(message, repeated, tag = "5")]
    pub columns: Vec<ColumnSchemaPb>,
    #[prost(message, optional, tag = "6")]
    pub authz_token: Option<SignedTokenPb>,
}

/// The reply to [`SplitKeyRangeRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SplitKeyRangeResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<TabletServerErrorPb>,
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<KeyRangePb>,
}

/// A range of primary keys: start inclusive, stop exclusive.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct KeyRangePb {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub start_primary_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub stop_primary_key: Option<Bytes>,
    #[prost(uint64, required, tag = "3")]
    pub size_bytes_estimates: u64,
}
