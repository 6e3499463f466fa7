//! Messages of `kudu.master.MasterService`: finding the leader, tables, the locations of tablets,
//! the list of tablet servers.
//!
//! Every reply may have an error instead of its other fields. The master, table and meta cache code
//! calls it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::common::{
    AppStatusPb, ColumnSchemaDeltaPb, ColumnSchemaPb, HashBucketSchemaPb, HostPortPb,
    NodeInstancePb, PartitionKeyPb, PartitionPb, PartitionSchemaPb, RowOperationsPb, SchemaPb,
    ServerRegistrationPb,
};
use super::rpc::SignedTokenPb;

/// The name of the service in a call's header.
pub(crate) const SERVICE_NAME: &str = "kudu.master.MasterService";

/// Features that a call may require of a master; a server without one of them refuses the call.
pub(crate) mod feature {
    pub(crate) const RANGE_PARTITION_BOUNDS: u32 = 1;
    pub(crate) const ADD_DROP_RANGE_PARTITIONS: u32 = 2;
    pub(crate) const RANGE_SPECIFIC_HASH_SCHEMA: u32 = 8;
}

/// Why a master refused a request.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct MasterErrorPb {
    /// An enum of Kudu; see [`crate::MasterErrorCode`].
    #[prost(int32, required, tag = "1")]
    pub code: i32,
    #[prost(message, required, tag = "2")]
    pub status: AppStatusPb,
}

/// The role of a replica in its consensus group; also the role of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum RaftRolePb {
    Follower = 0,
    Leader = 1,
    Learner = 2,
    NonParticipant = 3,
    Unknown = 999,
}

/// A table by id or by name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TableIdentifierPb {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub table_id: Option<Bytes>,
    #[prost(string, optional, tag = "2")]
    pub table_name: Option<String>,
}

/// Asks a master for its role and for the client's credentials.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ConnectToMasterRequestPb {}

/// The reply; a follower answers too, without an error.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ConnectToMasterResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    /// See [`RaftRolePb`].
    #[prost(enumeration = "RaftRolePb", optional, tag = "2")]
    pub role: Option<i32>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub ca_cert_der: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "4")]
    pub authn_token: Option<SignedTokenPb>,
    #[prost(message, repeated, tag = "5")]
    pub master_addrs: Vec<HostPortPb>,
    #[prost(string, optional, tag = "7")]
    pub client_location: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub cluster_id: Option<String>,
}

/// Creates a table; done only when [`IsCreateTableDoneResponsePb`] says so.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct CreateTableRequestPb {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(message, required, tag = "2")]
    pub schema: SchemaPb,
    #[prost(int32, optional, tag = "4")]
    pub num_replicas: Option<i32>,
    #[prost(message, optional, tag = "6")]
    pub split_rows_range_bounds: Option<RowOperationsPb>,
    #[prost(message, optional, tag = "7")]
    pub partition_schema: Option<PartitionSchemaPb>,
    #[prost(string, optional, tag = "8")]
    pub owner: Option<String>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub extra_configs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "10")]
    pub dimension_label: Option<String>,
    #[prost(string, optional, tag = "13")]
    pub comment: Option<String>,
    /// Allows a table without any range partition.
    #[prost(bool, optional, tag = "14")]
    pub allow_empty_partition: Option<bool>,
}

/// The reply to [`CreateTableRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct CreateTableResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub table_id: Option<Bytes>,
}

/// Asks whether all tablets of a new table run.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct IsCreateTableDoneRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
}

/// The reply to [`IsCreateTableDoneRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct IsCreateTableDoneResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(bool, optional, tag = "3")]
    pub done: Option<bool>,
}

/// Asks for the schema and the properties of a table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GetTableSchemaRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
}

/// The reply to [`GetTableSchemaRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GetTableSchemaResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(message, optional, tag = "2")]
    pub schema: Option<SchemaPb>,
    #[prost(int32, optional, tag = "3")]
    pub num_replicas: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub table_id: Option<Bytes>,
    #[prost(message, optional, tag = "5")]
    pub partition_schema: Option<PartitionSchemaPb>,
    #[prost(string, optional, tag = "7")]
    pub table_name: Option<String>,
    /// Good for minutes only; tablet servers that control access want it in every request.
    #[prost(message, optional, tag = "8")]
    pub authz_token: Option<SignedTokenPb>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub extra_configs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "10")]
    pub owner: Option<String>,
    #[prost(string, optional, tag = "11")]
    pub comment: Option<String>,
}

/// Changes a table; done only when [`IsAlterTableDoneResponsePb`] says so.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AlterTableRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
    #[prost(message, repeated, tag = "2")]
    pub alter_schema_steps: Vec<alter_table_request_pb::Step>,
    #[prost(string, optional, tag = "3")]
    pub new_table_name: Option<String>,
    /// The schema with which the range bounds of the steps were encoded.
    #[prost(message, optional, tag = "4")]
    pub schema: Option<SchemaPb>,
    #[prost(bool, optional, tag = "5")]
    pub modify_external_catalogs: Option<bool>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub new_extra_configs: BTreeMap<String, String>,
    #[prost(string, optional, tag = "7")]
    pub new_table_owner: Option<String>,
    /// In bytes.
    #[prost(int64, optional, tag = "8")]
    pub disk_size_limit: Option<i64>,
    #[prost(int64, optional, tag = "9")]
    pub row_count_limit: Option<i64>,
    #[prost(string, optional, tag = "10")]
    pub new_table_comment: Option<String>,
    #[prost(int32, optional, tag = "11")]
    pub num_replicas: Option<i32>,
}

/// The steps of [`AlterTableRequestPb`].
pub(crate) mod alter_table_request_pb {
    use super::{ColumnSchemaDeltaPb, ColumnSchemaPb, HashBucketSchemaPb, RowOperationsPb};

    /// Work of one step.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub(crate) enum StepType {
        Unknown = 0,
        AddColumn = 1,
        DropColumn = 2,
        RenameColumn = 3,
        AlterColumn = 4,
        AddRangePartition = 5,
        DropRangePartition = 6,
    }

    /// One step: its kind, and the one message that belongs to the kind.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct Step {
        /// See [`StepType`].
        #[prost(enumeration = "StepType", optional, tag = "1")]
        pub r#type: Option<i32>,
        #[prost(message, optional, tag = "2")]
        pub add_column: Option<AddColumn>,
        #[prost(message, optional, tag = "3")]
        pub drop_column: Option<DropColumn>,
        #[prost(message, optional, tag = "4")]
        pub rename_column: Option<RenameColumn>,
        #[prost(message, optional, tag = "5")]
        pub add_range_partition: Option<AddRangePartition>,
        #[prost(message, optional, tag = "6")]
        pub drop_range_partition: Option<DropRangePartition>,
        #[prost(message, optional, tag = "7")]
        pub alter_column: Option<AlterColumn>,
    }

    /// Adds a column, without an id.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct AddColumn {
        #[prost(message, required, tag = "1")]
        pub schema: ColumnSchemaPb,
    }

    /// Drops a column.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct DropColumn {
        #[prost(string, required, tag = "1")]
        pub name: String,
    }

    /// Renames a column.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct RenameColumn {
        #[prost(string, required, tag = "1")]
        pub old_name: String,
        #[prost(string, required, tag = "2")]
        pub new_name: String,
    }

    /// Changes a column.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct AlterColumn {
        #[prost(message, optional, tag = "1")]
        pub delta: Option<ColumnSchemaDeltaPb>,
    }

    /// Adds a range partition, perhaps with its own hash dimensions.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct AddRangePartition {
        #[prost(message, optional, tag = "1")]
        pub range_bounds: Option<RowOperationsPb>,
        #[prost(string, optional, tag = "2")]
        pub dimension_label: Option<String>,
        #[prost(message, optional, tag = "3")]
        pub custom_hash_schema: Option<CustomHashSchema>,
    }

    /// The hash dimensions of one range.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct CustomHashSchema {
        #[prost(message, repeated, tag = "1")]
        pub hash_schema: Vec<HashBucketSchemaPb>,
    }

    /// Drops a range partition and its rows.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct DropRangePartition {
        #[prost(message, optional, tag = "1")]
        pub range_bounds: Option<RowOperationsPb>,
    }
}

/// The reply to [`AlterTableRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct AlterTableResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(uint32, optional, tag = "2")]
    pub schema_version: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub table_id: Option<Bytes>,
}

/// Asks whether every tablet has the new schema.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct IsAlterTableDoneRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
}

/// The reply to [`IsAlterTableDoneRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct IsAlterTableDoneResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(uint32, optional, tag = "2")]
    pub schema_version: Option<u32>,
    #[prost(bool, optional, tag = "3")]
    pub done: Option<bool>,
}

/// Deletes a table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeleteTableRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
    #[prost(bool, optional, tag = "2")]
    pub modify_external_catalogs: Option<bool>,
    /// How long the table can be recalled, in seconds.
    #[prost(uint32, optional, tag = "3")]
    pub reserve_seconds: Option<u32>,
}

/// The reply to [`DeleteTableRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct DeleteTableResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
}

/// Brings a deleted table back while it is reserved.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RecallDeletedTableRequestPb {
    /// By id, because another table may have the name by now.
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
    #[prost(string, optional, tag = "2")]
    pub new_table_name: Option<String>,
}

/// The reply to [`RecallDeletedTableRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct RecallDeletedTableResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
}

/// Asks for the tables whose name contains the filter.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ListTablesRequestPb {
    #[prost(string, optional, tag = "1")]
    pub name_filter: Option<String>,
    #[prost(bool, optional, tag = "4")]
    pub show_soft_deleted: Option<bool>,
}

/// The reply to [`ListTablesRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ListTablesResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(message, repeated, tag = "2")]
    pub tables: Vec<TableInfoPb>,
}

/// One table of [`ListTablesResponsePb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TableInfoPb {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub id: Bytes,
    #[prost(string, required, tag = "2")]
    pub name: String,
    #[prost(uint64, optional, tag = "3")]
    pub live_row_count: Option<u64>,
    #[prost(int32, optional, tag = "4")]
    pub num_tablets: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub num_replicas: Option<i32>,
}

/// Asks for size and row count of a table.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GetTableStatisticsRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
}

/// The reply to [`GetTableStatisticsRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GetTableStatisticsResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    /// In bytes, of all replicas' leaders.
    #[prost(int64, optional, tag = "2")]
    pub on_disk_size: Option<i64>,
    #[prost(int64, optional, tag = "3")]
    pub live_row_count: Option<i64>,
    /// In bytes.
    #[prost(int64, optional, tag = "4")]
    pub disk_size_limit: Option<i64>,
    #[prost(int64, optional, tag = "5")]
    pub row_count_limit: Option<i64>,
}

/// Which replicas a reply lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum ReplicaTypeFilterPb {
    Any = 0,
    Voter = 1,
    Unknown = 999,
}

/// Asks for the tablets of a range of partition keys: by plain keys, or, for tables whose ranges
/// have their own hash dimensions, by keys in two parts.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GetTableLocationsRequestPb {
    #[prost(message, required, tag = "1")]
    pub table: TableIdentifierPb,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub partition_key_start: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub partition_key_end: Option<Bytes>,
    /// The server's default is 10.
    #[prost(uint32, optional, tag = "5")]
    pub max_returned_locations: Option<u32>,
    /// See [`ReplicaTypeFilterPb`]; the server's default is voters only.
    #[prost(enumeration = "ReplicaTypeFilterPb", optional, tag = "6")]
    pub replica_type_filter: Option<i32>,
    #[prost(bool, optional, tag = "7")]
    pub intern_ts_infos_in_response: Option<bool>,
    #[prost(message, optional, tag = "8")]
    pub key_start: Option<PartitionKeyPb>,
    #[prost(message, optional, tag = "9")]
    pub key_end: Option<PartitionKeyPb>,
}

/// The reply to [`GetTableLocationsRequestPb`]: tablets in the order of their partition keys; a gap
/// between two of them is a range without a partition.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct GetTableLocationsResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(message, repeated, tag = "2")]
    pub tablet_locations: Vec<TabletLocationsPb>,
    /// How long the locations may be cached, in milliseconds.
    #[prost(uint32, optional, tag = "3")]
    pub ttl_millis: Option<u32>,
    #[prost(message, repeated, tag = "4")]
    pub ts_infos: Vec<TsInfoPb>,
}

/// One tablet and the locations of its replicas.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TabletLocationsPb {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub tablet_id: Bytes,
    #[prost(message, optional, tag = "6")]
    pub partition: Option<PartitionPb>,
    #[prost(message, repeated, tag = "7")]
    pub interned_replicas: Vec<InternedReplicaPb>,
}

/// A replica: an index into the reply's `ts_infos`, and a role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct InternedReplicaPb {
    #[prost(uint32, required, tag = "1")]
    pub ts_info_idx: u32,
    /// See [`RaftRolePb`].
    #[prost(enumeration = "RaftRolePb", required, tag = "2")]
    pub role: i32,
    #[prost(string, optional, tag = "3")]
    pub dimension_label: Option<String>,
}

/// A tablet server.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TsInfoPb {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub permanent_uuid: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub rpc_addresses: Vec<HostPortPb>,
    #[prost(string, optional, tag = "3")]
    pub location: Option<String>,
}

/// Asks for all tablet servers.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct ListTabletServersRequestPb {
    #[prost(bool, optional, tag = "1")]
    pub include_states: Option<bool>,
}

/// The reply to [`ListTabletServersRequestPb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ListTabletServersResponsePb {
    #[prost(message, optional, tag = "1")]
    pub error: Option<MasterErrorPb>,
    #[prost(message, repeated, tag = "2")]
    pub servers: Vec<TabletServerEntryPb>,
}

/// One tablet server of [`ListTabletServersResponsePb`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct TabletServerEntryPb {
    #[prost(message, required, tag = "1")]
    pub instance_id: NodeInstancePb,
    #[prost(message, optional, tag = "2")]
    pub registration: Option<ServerRegistrationPb>,
    #[prost(int32, optional, tag = "3")]
    pub millis_since_heartbeat: Option<i32>,
    #[prost(string, optional, tag = "4")]
    pub location: Option<String>,
    /// See [`TabletServerStatePb`].
    #[prost(enumeration = "TabletServerStatePb", optional, tag = "5")]
    pub state: Option<i32>,
}

/// The state that an administrator has set for a tablet server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum TabletServerStatePb {
    Unknown = 0,
    None = 1,
    MaintenanceMode = 2,
}
