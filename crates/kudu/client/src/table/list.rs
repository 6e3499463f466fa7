//! Lists tables, their statistics and tablet servers; deletes and recalls tables.

use std::time::Duration;

use super::{by_id, by_name};
use crate::client::Client;
use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::proto::common::HostPortPb;
use crate::proto::master::{
    DeleteTableRequestPb, DeleteTableResponsePb, GetTableStatisticsRequestPb,
    GetTableStatisticsResponsePb, ListTablesRequestPb, ListTablesResponsePb,
    ListTabletServersRequestPb, ListTabletServersResponsePb, RecallDeletedTableRequestPb,
    RecallDeletedTableResponsePb, TableIdentifierPb, TabletServerEntryPb,
};
use crate::rpc::Method;
use crate::types::HostPort;

static LIST_TABLES: Method = method("ListTables");
static DELETE_TABLE: Method = method("DeleteTable");
static RECALL_DELETED_TABLE: Method = method("RecallDeletedTable");
static GET_TABLE_STATISTICS: Method = method("GetTableStatistics");
static LIST_TABLET_SERVERS: Method = method("ListTabletServers");

/// A table in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSummary {
    /// 32 hexadecimal digits.
    pub id: String,
    /// Name of the table.
    pub name: String,
    /// Rows, if the cluster counts them.
    pub live_row_count: Option<u64>,
    /// Tablets, if the master reports them.
    pub num_tablets: Option<u32>,
    /// Replicas of each tablet, if the master reports them.
    pub num_replicas: Option<u32>,
}

/// Size of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStatistics {
    /// Bytes on the disks of the tablets' leaders, if known. It lags behind by the servers'
    /// heartbeats.
    pub on_disk_bytes: Option<u64>,
    /// Rows, if known.
    pub live_row_count: Option<u64>,
    /// Limit of bytes on disk, if there is one.
    pub on_disk_bytes_max: Option<u64>,
    /// Limit of rows, if there is one.
    pub row_count_max: Option<u64>,
}

/// A tablet server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TabletServer {
    /// Permanent id of the server.
    pub uuid: String,
    /// The addresses of its RPC service.
    pub rpc_addresses: Vec<HostPort>,
    /// The addresses of its web pages.
    pub http_addresses: Vec<HostPort>,
    /// Version of its software.
    pub software_version: String,
    /// Its location, such as `/rack1`; empty when the cluster assigns none.
    pub location: String,
    /// Time since the master last heard from it.
    pub since_heartbeat: Duration,
}

impl Client {
    /// The tables whose name contains `filter`, which may be empty.
    pub async fn list_tables(&self, filter: &str) -> Result<Vec<TableSummary>, Error> {
        self.list(filter, false).await
    }

    /// The deleted tables that can still be recalled and whose name contains `filter`.
    pub async fn list_soft_deleted_tables(&self, filter: &str) -> Result<Vec<TableSummary>, Error> {
        self.list(filter, true).await
    }

    async fn list(
        &self,
        filter: &str,
        show_soft_deleted: bool,
    ) -> Result<Vec<TableSummary>, Error> {
        let request = ListTablesRequestPb {
            name_filter: Some(filter.to_owned()).filter(|filter| !filter.is_empty()),
            show_soft_deleted: Some(show_soft_deleted),
        };
        let response: ListTablesResponsePb = self
            .shared()
            .masters()
            .call(&LIST_TABLES, &request, self.call(Operation::ListTables, ""))
            .await?;
        let summary = |table: crate::proto::master::TableInfoPb| TableSummary {
            id: String::from_utf8_lossy(&table.id).into_owned(),
            name: table.name,
            live_row_count: table.live_row_count,
            num_tablets: table.num_tablets.and_then(|count| count.try_into().ok()),
            num_replicas: table.num_replicas.and_then(|count| count.try_into().ok()),
        };
        Ok(response.tables.into_iter().map(summary).collect())
    }

    /// Deletes a table and its rows.
    pub async fn delete_table(&self, name: &str) -> Result<(), Error> {
        self.delete(by_name(name), name, None).await
    }

    /// Deletes the table of this id and its rows, under any name.
    pub async fn delete_table_by_id(&self, id: &str) -> Result<(), Error> {
        self.delete(by_id(id), id, None).await
    }

    /// Deletes a table so that it can be recalled within `reserve`, which is rounded down to
    /// seconds.
    pub async fn soft_delete_table(&self, name: &str, reserve: Duration) -> Result<(), Error> {
        let seconds = u32::try_from(reserve.as_secs()).unwrap_or(u32::MAX);
        self.delete(by_name(name), name, Some(seconds)).await
    }

    async fn delete(
        &self,
        table: TableIdentifierPb,
        subject: &str,
        reserve_seconds: Option<u32>,
    ) -> Result<(), Error> {
        let request =
            DeleteTableRequestPb { table, modify_external_catalogs: Some(true), reserve_seconds };
        let call = self.call(Operation::DeleteTable, subject);
        let outcome = self
            .shared()
            .masters()
            .call_for_outcome::<_, DeleteTableResponsePb>(&DELETE_TABLE, &request, call)
            .await;
        match outcome.result {
            // The answer to an earlier attempt was lost, and that attempt deleted the table.
            Err(Error::TableNotFound { .. }) if outcome.may_have_run_before => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Brings a softly deleted table back, by its id from [`Client::list_soft_deleted_tables`],
    /// under its old name or a new one.
    pub async fn recall_table(&self, id: &str, new_name: Option<&str>) -> Result<(), Error> {
        let request = RecallDeletedTableRequestPb {
            table: by_id(id),
            new_table_name: new_name.map(str::to_owned),
        };
        let call = self.call(Operation::RecallTable, id);
        let _: RecallDeletedTableResponsePb =
            self.shared().masters().call(&RECALL_DELETED_TABLE, &request, call).await?;
        Ok(())
    }

    /// Size and row count of a table. They lag behind by the servers' heartbeats.
    pub async fn table_statistics(&self, name: &str) -> Result<TableStatistics, Error> {
        let request = GetTableStatisticsRequestPb { table: by_name(name) };
        let call = self.call(Operation::TableStatistics, name);
        let response: GetTableStatisticsResponsePb =
            self.shared().masters().call(&GET_TABLE_STATISTICS, &request, call).await?;
        // A server reports an unknown number as a negative one.
        let known = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        Ok(TableStatistics {
            on_disk_bytes: known(response.on_disk_size),
            live_row_count: known(response.live_row_count),
            on_disk_bytes_max: known(response.disk_size_limit),
            row_count_max: known(response.row_count_limit),
        })
    }

    /// The tablet servers that are registered with the master.
    pub async fn list_tablet_servers(&self) -> Result<Vec<TabletServer>, Error> {
        let call = self.call(Operation::ListTabletServers, "");
        let request = ListTabletServersRequestPb::default();
        let response: ListTabletServersResponsePb =
            self.shared().masters().call(&LIST_TABLET_SERVERS, &request, call).await?;
        Ok(response.servers.into_iter().map(tablet_server).collect())
    }

    fn call<'a>(&self, operation: Operation, subject: &'a str) -> MasterCall<'a> {
        MasterCall { operation, subject, deadline: self.shared().admin_deadline(), features: &[] }
    }
}

fn tablet_server(entry: TabletServerEntryPb) -> TabletServer {
    let registration = entry.registration.unwrap_or_default();
    let millis =
        entry.millis_since_heartbeat.and_then(|millis| millis.try_into().ok()).unwrap_or(0);
    TabletServer {
        uuid: String::from_utf8_lossy(&entry.instance_id.permanent_uuid).into_owned(),
        rpc_addresses: addresses(registration.rpc_addresses),
        http_addresses: addresses(registration.http_addresses),
        software_version: registration.software_version.unwrap_or_default(),
        location: entry.location.unwrap_or_default(),
        since_heartbeat: Duration::from_millis(millis),
    }
}

/// The addresses with a valid port.
fn addresses(list: Vec<HostPortPb>) -> Vec<HostPort> {
    list.into_iter()
        .filter_map(|address| Some(HostPort::new(address.host, address.port.try_into().ok()?)))
        .collect()
}
