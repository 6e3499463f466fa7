//! Tables: opening, creating, altering, deleting and listing them.
//!
//! It owns the [`Table`] that sessions and scanners start from: its schema at the time of opening,
//! its partitioning, and the authorization token. Invariant: a `Table` does not change; only the
//! token is renewed in place. After an `ALTER TABLE` that drops or renames a column, the program
//! has to open it again, because servers refuse rows in the old schema. The tablets are in the meta
//! cache.

mod alterer;
mod creator;
mod hash_partition;
mod list;
mod range_partition;
mod tablets;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use alterer::{ColumnChange, TableAlterer};
pub use creator::TableCreator;
pub use hash_partition::HashPartition;
pub use list::{TableStatistics, TableSummary, TabletServer};
pub use range_partition::RangePartition;

use crate::backoff::until;
use crate::client::{Client, ClientShared};
use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::meta_cache::CachedTable;
use crate::partition::PartitionSchema;
use crate::proto::master::{GetTableSchemaRequestPb, GetTableSchemaResponsePb, TableIdentifierPb};
use crate::proto::rpc::SignedTokenPb;
use crate::rpc::Method;
use crate::schema::Schema;

static GET_TABLE_SCHEMA: Method = method("GetTableSchema");

/// An open table; cheap to clone.
#[derive(Clone, Debug)]
pub struct Table {
    inner: Arc<TableInner>,
}

#[derive(Debug)]
struct TableInner {
    shared: Arc<ClientShared>,
    cache: Arc<CachedTable>,
    id: String,
    name: String,
    schema: Schema,
    partition_schema: PartitionSchema,
    num_replicas: u32,
    owner: String,
    comment: String,
    extra_configs: BTreeMap<String, String>,
    authz_token: Mutex<Option<Arc<SignedTokenPb>>>,
    /// Held during a request for a new token.
    renewal: tokio::sync::Mutex<()>,
}

impl Table {
    /// The id of the table, 32 hexadecimal digits; a rename does not change it.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// The name of the table when it was opened.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The columns of the table when it was opened.
    pub fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    /// How many replicas each tablet has.
    pub fn num_replicas(&self) -> u32 {
        self.inner.num_replicas
    }

    /// The owner of the table.
    pub fn owner(&self) -> &str {
        &self.inner.owner
    }

    /// The comment that the master keeps with the table.
    pub fn comment(&self) -> &str {
        &self.inner.comment
    }

    /// Settings of the table, such as `kudu.table.history_max_age_sec`.
    pub fn extra_configs(&self) -> &BTreeMap<String, String> {
        &self.inner.extra_configs
    }

    /// The client that opened the table.
    pub fn client(&self) -> Client {
        Client::from_shared(self.inner.shared.clone())
    }

    pub(crate) fn shared(&self) -> &Arc<ClientShared> {
        &self.inner.shared
    }

    pub(crate) fn partition_schema(&self) -> &PartitionSchema {
        &self.inner.partition_schema
    }

    pub(crate) fn cache(&self) -> &CachedTable {
        &self.inner.cache
    }

    /// The authorization token, if the cluster controls access.
    pub(crate) fn authz_token(&self) -> Option<Arc<SignedTokenPb>> {
        self.inner.authz_token.lock().clone()
    }

    /// Gets a new token, unless a newer one than `refused` is already here.
    pub(crate) async fn renew_authz_token(
        &self,
        refused: Option<Arc<SignedTokenPb>>,
        deadline: Instant,
    ) -> Result<(), Error> {
        let turn = until(deadline, self.inner.renewal.lock()).await;
        let _one_at_a_time =
            turn.ok_or_else(|| Error::timeout(Operation::OpenTable, self.name(), None))?;
        let current = self.authz_token();
        let is_newest = match (&current, &refused) {
            (Some(current), Some(refused)) => Arc::ptr_eq(current, refused),
            (current, refused) => current.is_none() && refused.is_none(),
        };
        if is_newest {
            let response =
                self.inner.shared.get_table_schema(by_id(self.id()), self.name(), deadline).await?;
            *self.inner.authz_token.lock() = response.authz_token.map(Arc::new);
        }
        Ok(())
    }
}

impl Client {
    /// Opens a table.
    ///
    /// It fails with [`Error::TableNotFound`] when there is no table of this name.
    pub async fn open_table(&self, name: &str) -> Result<Table, Error> {
        let deadline = self.shared().admin_deadline();
        let response = self.shared().get_table_schema(by_name(name), name, deadline).await?;
        self.table_from(response)
    }

    /// Opens a table by its id, which a rename does not change.
    pub async fn open_table_by_id(&self, id: &str) -> Result<Table, Error> {
        let deadline = self.shared().admin_deadline();
        let response = self.shared().get_table_schema(by_id(id), id, deadline).await?;
        self.table_from(response)
    }

    /// Whether a table of this name exists.
    pub async fn table_exists(&self, name: &str) -> Result<bool, Error> {
        let deadline = self.shared().admin_deadline();
        match self.shared().get_table_schema(by_name(name), name, deadline).await {
            Ok(_) => Ok(true),
            Err(Error::TableNotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn table_from(&self, response: GetTableSchemaResponsePb) -> Result<Table, Error> {
        let shared = self.shared().clone();
        let schema = Schema::from_pb(&response.schema.unwrap_or_default())?;
        let partition_schema =
            PartitionSchema::from_pb(&response.partition_schema.unwrap_or_default(), &schema)?;
        let id = String::from_utf8_lossy(&response.table_id.unwrap_or_default()).into_owned();
        let cache = shared.meta_cache().table(&id);
        // A caller that opens a table expects to see recently added partitions.
        cache.forget_gaps();
        let inner = TableInner {
            shared,
            cache,
            id,
            name: response.table_name.unwrap_or_default(),
            schema,
            partition_schema,
            num_replicas: response
                .num_replicas
                .and_then(|count| count.try_into().ok())
                .unwrap_or(0),
            owner: response.owner.unwrap_or_default(),
            comment: response.comment.unwrap_or_default(),
            extra_configs: response.extra_configs,
            authz_token: Mutex::new(response.authz_token.map(Arc::new)),
            renewal: tokio::sync::Mutex::default(),
        };
        Ok(Table { inner: Arc::new(inner) })
    }
}

impl ClientShared {
    async fn get_table_schema(
        &self,
        table: TableIdentifierPb,
        subject: &str,
        deadline: Instant,
    ) -> Result<GetTableSchemaResponsePb, Error> {
        let call = MasterCall { operation: Operation::OpenTable, subject, deadline, features: &[] };
        self.masters().call(&GET_TABLE_SCHEMA, &GetTableSchemaRequestPb { table }, call).await
    }
}

/// Names a table by its id, which a rename does not change.
pub(crate) fn by_id(id: &str) -> TableIdentifierPb {
    TableIdentifierPb { table_id: Some(Bytes::copy_from_slice(id.as_bytes())), table_name: None }
}

/// Names a table by its name.
fn by_name(name: &str) -> TableIdentifierPb {
    TableIdentifierPb { table_id: None, table_name: Some(name.to_owned()) }
}
