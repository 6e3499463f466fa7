//! The seam between a session and the rest of the client.
//!
//! A session sees a table as a list of tablets with their partitions, and a way to write a batch to
//! one of them. Leaders, retries, tokens and request ids are on the other side. The tests
//! substitute a table in memory.

use std::collections::HashMap;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{Error, Operation};
use crate::meta_cache::Tablet;
use crate::partition::{Partition, PartitionSchema};
use crate::proto::tserver::{SERVICE_NAME, WriteResponsePb};
use crate::retry::{ReplicaSelection, TabletCall, call_tablet};
use crate::rpc::Method;
use crate::schema::Schema;
use crate::table::Table;

use super::write_request::WriteRequest;

static WRITE: Method = Method { service: SERVICE_NAME, name: "Write" };

/// The future result of a target's operation.
pub(crate) type TargetFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// A table that takes batches.
pub(crate) trait WriteTarget: Debug + Send + Sync + 'static {
    /// The table's current view. With `reload` the target fetches it from the master again.
    fn view(&self, reload: bool, deadline: Instant) -> TargetFuture<'_, TableView>;

    /// Writes a batch to a tablet of a view.
    fn write<'a>(
        &'a self,
        tablet_id: &'a str,
        request: &'a WriteRequest,
        deadline: Instant,
    ) -> TargetFuture<'a, WriteResponsePb>;

    /// The default timeout of a request.
    fn timeout(&self) -> Duration;

    /// Largest request, in bytes.
    fn request_bytes_max(&self) -> usize;
}

/// A table at one moment.
#[derive(Debug)]
pub(crate) struct TableView {
    pub schema: Schema,
    pub partition_schema: PartitionSchema,
    pub tablets: Vec<TabletView>,
}

/// A tablet at one moment.
#[derive(Clone, Debug)]
pub(crate) struct TabletView {
    pub id: String,
    pub partition: Partition,
}

/// A table of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterTarget {
    table: Table,
    /// The tablets of all views so far.
    tablets: Mutex<HashMap<String, Arc<Tablet>>>,
}

impl ClusterTarget {
    pub(crate) fn new(table: Table) -> ClusterTarget {
        ClusterTarget { table, tablets: Mutex::default() }
    }

    async fn view(&self, reload: bool, deadline: Instant) -> Result<TableView, Error> {
        let table = match reload {
            true => self.table.client().open_table_by_id(self.table.id()).await?,
            false => self.table.clone(),
        };
        let snapshot = table.snapshot(deadline).await?;
        let mut known = self.tablets.lock();
        for tablet in snapshot.iter() {
            known.insert(tablet.id().to_owned(), tablet.clone());
        }
        Ok(TableView {
            schema: table.schema().clone(),
            partition_schema: table.partition_schema().clone(),
            tablets: snapshot
                .iter()
                .map(|tablet| TabletView {
                    id: tablet.id().to_owned(),
                    partition: tablet.partition().clone(),
                })
                .collect(),
        })
    }

    async fn write(
        &self,
        tablet_id: &str,
        request: &WriteRequest,
        deadline: Instant,
    ) -> Result<WriteResponsePb, Error> {
        let tablet = self.tablets.lock().get(tablet_id).cloned();
        let tablet = tablet.ok_or_else(|| Error::TabletGone {
            table: self.table.name().to_owned(),
            tablet_id: tablet_id.to_owned(),
        })?;
        let call = TabletCall {
            table: &self.table,
            tablet: &tablet,
            operation: Operation::Write,
            method: &WRITE,
            selection: ReplicaSelection::Leader,
            deadline,
            exactly_once: true,
            features: &[],
            body_bytes: request.body_bytes(),
        };
        let reply = call_tablet(call, |attempt| {
            request.pieces(attempt.tablet_id, attempt.authz_token, attempt.propagated_timestamp)
        });
        Ok(reply.await?.message)
    }
}

impl WriteTarget for ClusterTarget {
    fn view(&self, reload: bool, deadline: Instant) -> TargetFuture<'_, TableView> {
        Box::pin(self.view(reload, deadline))
    }

    fn write<'a>(
        &'a self,
        tablet_id: &'a str,
        request: &'a WriteRequest,
        deadline: Instant,
    ) -> TargetFuture<'a, WriteResponsePb> {
        Box::pin(self.write(tablet_id, request, deadline))
    }

    fn timeout(&self) -> Duration {
        self.table.client().rpc_timeout()
    }

    fn request_bytes_max(&self) -> usize {
        crate::rpc::MESSAGE_BYTES_MAX
    }
}
