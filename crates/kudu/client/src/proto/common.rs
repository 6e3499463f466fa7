//! Messages that masters and tablet servers share: columns and schemas, partitioning, encoded rows,
//! predicates, the status of an operation, addresses.
//!
//! The schema, partition, session, scanner and table code calls it; each converts its own types.

use bytes::Bytes;

/// The type of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum DataTypePb {
    Uint8 = 0,
    Int8 = 1,
    Uint16 = 2,
    Int16 = 3,
    Uint32 = 4,
    Int32 = 5,
    Uint64 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float = 10,
    Double = 11,
    Binary = 12,
    UnixtimeMicros = 13,
    Int128 = 14,
    Decimal32 = 15,
    Decimal64 = 16,
    Decimal128 = 17,
    /// A column that exists only in the results of a diff scan.
    IsDeleted = 18,
    Varchar = 19,
    Date = 20,
    Unknown = 999,
}

/// How the server encodes a column on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum EncodingTypePb {
    Auto = 0,
    Plain = 1,
    Prefix = 2,
    Rle = 4,
    Dict = 5,
    BitShuffle = 6,
    Unknown = 999,
}

/// How the server compresses a column on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum CompressionTypePb {
    Default = 0,
    None = 1,
    Snappy = 2,
    Lz4 = 3,
    Zlib = 4,
    Unknown = 999,
}

/// Precision and scale of a decimal, length of a varchar.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnTypeAttributesPb {
    #[prost(int32, optional, tag = "1")]
    pub precision: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub scale: Option<i32>,
    /// In characters.
    #[prost(int32, optional, tag = "3")]
    pub length: Option<i32>,
}

/// One column. `id` is set by the server and must not be sent in a Write or a Scan.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnSchemaPb {
    #[prost(uint32, optional, tag = "1")]
    pub id: Option<u32>,
    #[prost(string, required, tag = "2")]
    pub name: String,
    /// See [`DataTypePb`].
    #[prost(enumeration = "DataTypePb", required, tag = "3")]
    pub r#type: i32,
    #[prost(bool, optional, tag = "4")]
    pub is_key: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub is_nullable: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub read_default_value: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub write_default_value: Option<Bytes>,
    /// See [`EncodingTypePb`].
    #[prost(enumeration = "EncodingTypePb", optional, tag = "8")]
    pub encoding: Option<i32>,
    /// See [`CompressionTypePb`].
    #[prost(enumeration = "CompressionTypePb", optional, tag = "9")]
    pub compression: Option<i32>,
    /// In bytes; 0 leaves the choice to the server.
    #[prost(int32, optional, tag = "10")]
    pub cfile_block_size: Option<i32>,
    #[prost(message, optional, tag = "11")]
    pub type_attributes: Option<ColumnTypeAttributesPb>,
    #[prost(string, optional, tag = "12")]
    pub comment: Option<String>,
    #[prost(bool, optional, tag = "13")]
    pub immutable: Option<bool>,
    #[prost(bool, optional, tag = "14")]
    pub is_auto_incrementing: Option<bool>,
}

/// A change of one column.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnSchemaDeltaPb {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub new_name: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub default_value: Option<Bytes>,
    #[prost(bool, optional, tag = "5")]
    pub remove_default: Option<bool>,
    /// See [`EncodingTypePb`].
    #[prost(enumeration = "EncodingTypePb", optional, tag = "6")]
    pub encoding: Option<i32>,
    /// See [`CompressionTypePb`].
    #[prost(enumeration = "CompressionTypePb", optional, tag = "7")]
    pub compression: Option<i32>,
    /// In bytes.
    #[prost(int32, optional, tag = "8")]
    pub block_size: Option<i32>,
    #[prost(string, optional, tag = "9")]
    pub new_comment: Option<String>,
    #[prost(bool, optional, tag = "10")]
    pub immutable: Option<bool>,
}

/// The columns of a table or of a projection; key columns first.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SchemaPb {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnSchemaPb>,
}

/// A host name or address and a port.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub(crate) struct HostPortPb {
    #[prost(string, required, tag = "1")]
    pub host: String,
    #[prost(uint32, required, tag = "2")]
    pub port: u32,
}

/// A column of a partition schema: requests name it, replies give its id.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnIdentifierPb {
    #[prost(oneof = "column_identifier_pb::Identifier", tags = "1, 2")]
    pub identifier: Option<column_identifier_pb::Identifier>,
}

/// The choices of [`ColumnIdentifierPb`].
pub(crate) mod column_identifier_pb {
    /// The id or the name of a column.
    #[derive(Clone, PartialEq, Eq, prost::Oneof)]
    pub(crate) enum Identifier {
        #[prost(int32, tag = "1")]
        Id(i32),
        #[prost(string, tag = "2")]
        Name(String),
    }
}

/// One dimension of hash partitioning.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct HashBucketSchemaPb {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnIdentifierPb>,
    #[prost(int32, required, tag = "2")]
    pub num_buckets: i32,
    #[prost(uint32, optional, tag = "3")]
    pub seed: Option<u32>,
}

/// The columns of range partitioning; present and empty means none, absent means the whole primary
/// key.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeSchemaPb {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnIdentifierPb>,
}

/// A range partition with its own hash dimensions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RangeWithHashSchemaPb {
    #[prost(message, optional, tag = "1")]
    pub range_bounds: Option<RowOperationsPb>,
    #[prost(message, repeated, tag = "2")]
    pub hash_schema: Vec<HashBucketSchemaPb>,
}

/// How a table is divided into tablets.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PartitionSchemaPb {
    #[prost(message, repeated, tag = "1")]
    pub hash_schema: Vec<HashBucketSchemaPb>,
    #[prost(message, optional, tag = "2")]
    pub range_schema: Option<RangeSchemaPb>,
    #[prost(message, repeated, tag = "5")]
    pub custom_hash_schema_ranges: Vec<RangeWithHashSchemaPb>,
}

/// The part of a table that one tablet holds: start inclusive, end exclusive, both as partition
/// keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PartitionPb {
    #[prost(int32, repeated, packed = "true", tag = "1")]
    pub hash_buckets: Vec<i32>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub partition_key_start: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub partition_key_end: Option<Bytes>,
}

/// A partition key in its two parts, as `GetTableLocations` wants it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PartitionKeyPb {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub range_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub hash_key: Option<Bytes>,
}

/// The kind of an encoded row: the first byte of each row of [`RowOperationsPb`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum RowOperationTypePb {
    Unknown = 0,
    Insert = 1,
    Update = 2,
    Delete = 3,
    SplitRow = 4,
    Upsert = 5,
    /// Inclusive.
    RangeLowerBound = 6,
    /// Exclusive.
    RangeUpperBound = 7,
    ExclusiveRangeLowerBound = 8,
    InclusiveRangeUpperBound = 9,
    InsertIgnore = 10,
    UpdateIgnore = 11,
    DeleteIgnore = 12,
    UpsertIgnore = 13,
}

/// Encoded rows end to end, and the bytes that their variable-length cells point at.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RowOperationsPb {
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub rows: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub indirect_data: Option<Bytes>,
}

/// The status of an operation.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AppStatusPb {
    /// An enum of Kudu; see [`crate::StatusCode`].
    #[prost(int32, required, tag = "1")]
    pub code: i32,
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
    #[prost(int32, optional, tag = "4")]
    pub posix_code: Option<i32>,
}

/// A server as one of its starts: the number grows with every restart.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct NodeInstancePb {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub permanent_uuid: Bytes,
    #[prost(int64, required, tag = "2")]
    pub instance_seqno: i64,
}

/// Addresses and version of a server.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ServerRegistrationPb {
    #[prost(message, repeated, tag = "1")]
    pub rpc_addresses: Vec<HostPortPb>,
    #[prost(message, repeated, tag = "2")]
    pub http_addresses: Vec<HostPortPb>,
    #[prost(string, optional, tag = "3")]
    pub software_version: Option<String>,
    #[prost(bool, optional, tag = "4")]
    pub https_enabled: Option<bool>,
    /// Seconds since 1970-01-01T00:00:00Z.
    #[prost(int64, optional, tag = "5")]
    pub start_time: Option<i64>,
}

/// When the server may answer a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ExternalConsistencyModePb {
    Unknown = 0,
    ClientPropagated = 1,
    CommitWait = 2,
}

/// A scan's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ReadModePb {
    Unknown = 0,
    ReadLatest = 1,
    ReadAtSnapshot = 2,
    ReadYourWrites = 3,
}

/// Whether a scan returns rows in the order of the primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum OrderModePb {
    Unknown = 0,
    Unordered = 1,
    Ordered = 2,
}

/// A condition on one column. Values are raw bytes for strings, else little-endian fixed width.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnPredicatePb {
    #[prost(string, optional, tag = "1")]
    pub column: Option<String>,
    #[prost(oneof = "column_predicate_pb::Predicate", tags = "2, 3, 4, 5, 6, 7")]
    pub predicate: Option<column_predicate_pb::Predicate>,
}

/// The choices of [`ColumnPredicatePb`].
pub(crate) mod column_predicate_pb {
    use bytes::Bytes;

    /// The condition.
    #[derive(Clone, PartialEq, Eq, prost::Oneof)]
    pub(crate) enum Predicate {
        #[prost(message, tag = "2")]
        Range(Range),
        #[prost(message, tag = "3")]
        Equality(Equality),
        #[prost(message, tag = "4")]
        IsNotNull(IsNotNull),
        #[prost(message, tag = "5")]
        InList(InList),
        #[prost(message, tag = "6")]
        IsNull(IsNull),
        #[prost(message, tag = "7")]
        InBloomFilter(InBloomFilter),
    }

    /// At least `lower`, less than `upper`.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct Range {
        #[prost(bytes = "bytes", optional, tag = "1")]
        pub lower: Option<Bytes>,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub upper: Option<Bytes>,
    }

    /// Equal to the value.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct Equality {
        #[prost(bytes = "bytes", optional, tag = "1")]
        pub value: Option<Bytes>,
    }

    /// Not NULL.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(crate) struct IsNotNull {}

    /// Equal to one of the values, which are sorted and unique.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct InList {
        #[prost(bytes = "bytes", repeated, tag = "1")]
        pub values: Vec<Bytes>,
    }

    /// NULL.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(crate) struct IsNull {}

    /// In every filter, and within the bounds when there are any.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct InBloomFilter {
        #[prost(message, repeated, tag = "1")]
        pub bloom_filters: Vec<BlockBloomFilterPb>,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub lower: Option<Bytes>,
        #[prost(bytes = "bytes", optional, tag = "3")]
        pub upper: Option<Bytes>,
    }

    /// A block bloom filter.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct BlockBloomFilterPb {
        /// The base-2 logarithm of the size in bytes.
        #[prost(int32, optional, tag = "1")]
        pub log_space_bytes: Option<i32>,
        #[prost(bytes = "bytes", optional, tag = "2")]
        pub bloom_data: Option<Bytes>,
        /// No value is in the filter.
        #[prost(bool, optional, tag = "3")]
        pub always_false: Option<bool>,
        /// See [`super::HashAlgorithmPb`]; servers accept only `FastHash` here.
        #[prost(enumeration = "super::HashAlgorithmPb", optional, tag = "4")]
        pub hash_algorithm: Option<i32>,
        #[prost(uint32, optional, tag = "5")]
        pub hash_seed: Option<u32>,
    }
}

/// The hash function of a bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum HashAlgorithmPb {
    Unknown = 0,
    MurmurHash2 = 1,
    CityHash = 2,
    FastHash = 3,
}

/// Rows end to end in one sidecar, their variable-length cells in another.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct RowwiseRowBlockPb {
    #[prost(int32, optional, tag = "1")]
    pub num_rows: Option<i32>,
    /// An index into the reply's sidecars, as are all fields with this ending.
    #[prost(int32, optional, tag = "2")]
    pub rows_sidecar: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub indirect_data_sidecar: Option<i32>,
}

/// Rows column by column.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnarRowBlockPb {
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnarColumnPb>,
    #[prost(int64, optional, tag = "2")]
    pub num_rows: Option<i64>,
}

/// The sidecars of one column of a [`ColumnarRowBlockPb`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ColumnarColumnPb {
    #[prost(int32, optional, tag = "1")]
    pub data_sidecar: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub varlen_data_sidecar: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub non_null_bitmap_sidecar: Option<i32>,
}
