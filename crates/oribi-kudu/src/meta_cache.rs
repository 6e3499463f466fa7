//! Where the tablets of each table are.
//!
//! Owns: the ordered tablets of every table that was used, with the gaps between them, and the questions to
//! the master that fill it. Sessions and scanners take a [`snapshot`](Table::snapshot) and choose tablets in it
//! without any lock; the replicas inside are shared, so they follow a leader that moves. Invariants: at most 50
//! questions are under way at a time, and one per table, because an answer about one key usually answers
//! those that wait behind it; what was learnt is used no longer than the master allows. Called by the retry
//! executor, sessions, scanners and whatever alters tables. It does not choose replicas.

mod decode;
#[cfg(any(test, feature = "harness"))]
pub(crate) mod harness;
mod locations;
mod tablet;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Semaphore};
use tokio::time::Instant;

#[cfg(test)]
pub(crate) use tablet::tests::replicas as test_replicas;
pub(crate) use tablet::{Replica, ReplicaSet, Tablet};

use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::partition::BUCKET_BYTES;
use crate::proto::common::PartitionKeyPb;
use crate::proto::master::{GetTableLocationsRequestPb, GetTableLocationsResponsePb};
use crate::retry::backoff::until;
use crate::rpc::Method;
use crate::table::Table;
use locations::{Location, TableLocations};

static GET_TABLE_LOCATIONS: Method = method("GetTableLocations");

/// Questions to the master under way at a time, over all tables.
const LOOKUPS_MAX: usize = 50;
/// Tablets asked for when the replicas of one are wanted; its neighbours have usually moved as well.
const POINT_LOOKUP_TABLETS: u32 = 10;
/// Tablets asked for when the whole table is wanted.
const RANGE_LOOKUP_TABLETS: u32 = 1000;
/// A shorter time to live would expire before its answer can be used.
const TTL_MIN: Duration = Duration::from_secs(1);

/// What is known about the tablets of all tables.
#[derive(Debug)]
pub(crate) struct MetaCache {
    /// By table id. An entry is small and stays until the client goes.
    tables: Mutex<HashMap<String, Arc<CachedTable>>>,
    permits: Semaphore,
}

/// What is known about the tablets of one table.
#[derive(Debug, Default)]
pub(crate) struct CachedTable {
    locations: Mutex<TableLocations>,
    /// Held while the master is asked about this table.
    question: tokio::sync::Mutex<()>,
}

impl MetaCache {
    /// A cache that knows nothing.
    pub(crate) fn new() -> MetaCache {
        MetaCache { tables: Mutex::default(), permits: Semaphore::new(LOOKUPS_MAX) }
    }

    /// The part of the cache about one table.
    pub(crate) fn table(&self, table_id: &str) -> Arc<CachedTable> {
        self.tables.lock().entry(table_id.to_owned()).or_default().clone()
    }

    /// Forgets a table that was altered or deleted.
    pub(crate) fn forget_table(&self, table_id: &str) {
        if let Some(table) = self.tables.lock().get(table_id) {
            *table.locations.lock() = TableLocations::default();
        }
    }
}

impl CachedTable {
    /// Forgets the ranges that no tablet covers; somebody may have added partitions.
    pub(crate) fn forget_gaps(&self) {
        self.locations.lock().forget_gaps();
    }

    fn mark_stale(&self) {
        self.locations.lock().tablets().for_each(Tablet::mark_stale);
    }
}

impl Table {
    /// Has the master asked where the tablets are, and who leads them, before the next call to each. For whoever
    /// knows that something has happened since it was asked last, such as that another client altered the table.
    pub fn locate_again(&self) {
        self.cache().mark_stale();
    }

    /// All tablets of the table, in the order of their partition keys.
    pub(crate) async fn snapshot(&self, deadline: Instant) -> Result<Arc<[Arc<Tablet>]>, Error> {
        if let Ok(tablets) = self.cache().locations.lock().complete(Instant::now()) {
            return Ok(tablets);
        }
        let _one_at_a_time = self.turn_to_ask(deadline).await?;
        let mut last_unknown: Option<Bytes> = None;
        loop {
            let unknown = match self.cache().locations.lock().complete(Instant::now()) {
                Ok(tablets) => return Ok(tablets),
                Err(unknown) => unknown,
            };
            // Each answer says at least something about the key asked for, so the next unknown key is
            // another one; a master for which that is not so must not keep the client busy for ever.
            if last_unknown.as_ref() == Some(&unknown) {
                return Err(self.nonsense("the tablets in its answer do not answer the question"));
            }
            self.ask(&unknown, RANGE_LOOKUP_TABLETS, deadline).await?;
            last_unknown = Some(unknown);
        }
    }

    /// Newer replicas for a tablet whose replicas of this generation were of no use.
    pub(crate) async fn refresh_tablet(
        &self,
        tablet: &Arc<Tablet>,
        generation: u64,
        deadline: Instant,
    ) -> Result<(), Error> {
        let _one_at_a_time = self.turn_to_ask(deadline).await?;
        if tablet.generation() != generation && !tablet.is_stale() {
            return Ok(());
        }
        let start = &tablet.partition().start;
        self.cache().locations.lock().forget_gaps();
        self.ask(start, POINT_LOOKUP_TABLETS, deadline).await?;
        let mut locations = self.cache().locations.lock();
        let Location::Tablet(found) = locations.find(start, Instant::now()) else {
            locations.forget_tablet(tablet.id());
            return Err(self.gone(tablet));
        };
        if found.id() != tablet.id() {
            return Err(self.gone(tablet));
        }
        if !Arc::ptr_eq(&found, tablet) {
            // The entry was dropped and learnt anew while somebody held the old one.
            tablet.refresh(found.replicas());
        }
        Ok(())
    }

    /// Asks the master for some tablets from a key on, and keeps the answer.
    async fn ask(
        &self,
        partition_key: &[u8],
        tablets: u32,
        deadline: Instant,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let permit = until(deadline, shared.meta_cache().permits.acquire()).await;
        let _permit =
            permit.ok_or_else(|| self.too_late())?.expect("the semaphore is never closed");
        let hash_bytes = (self.partition_schema().hash_dimensions().len() * BUCKET_BYTES)
            .min(partition_key.len());
        let (hash_key, range_key) = partition_key.split_at(hash_bytes);
        let request = GetTableLocationsRequestPb {
            table: crate::table::by_id(self.id()),
            // Servers before 1.17 know only this form, which cannot express tables whose ranges are hashed in
            // different ways; later ones prefer the other.
            partition_key_start: Some(Bytes::copy_from_slice(partition_key)),
            key_start: Some(PartitionKeyPb {
                hash_key: Some(Bytes::copy_from_slice(hash_key)),
                range_key: Some(Bytes::copy_from_slice(range_key)),
            }),
            max_returned_locations: Some(tablets),
            intern_ts_infos_in_response: Some(true),
            ..GetTableLocationsRequestPb::default()
        };
        let call = MasterCall {
            operation: Operation::LocateTablets,
            subject: self.name(),
            deadline,
            features: &[],
        };
        let response: GetTableLocationsResponsePb =
            shared.call_master(&GET_TABLE_LOCATIONS, &request, call).await?;
        let ttl = Duration::from_millis(response.ttl_millis.unwrap_or(0).into()).max(TTL_MIN);
        let answer = decode::located_tablets(response).map_err(|reason| self.nonsense(reason))?;
        let expires = Instant::now() + ttl;
        self.cache().locations.lock().absorb(partition_key, tablets as usize, answer, expires);
        Ok(())
    }

    /// Waits until nobody else asks about this table; what they asked may have answered this question as well.
    async fn turn_to_ask(&self, deadline: Instant) -> Result<MutexGuard<'_, ()>, Error> {
        until(deadline, self.cache().question.lock()).await.ok_or_else(|| self.too_late())
    }

    fn too_late(&self) -> Error {
        Error::timeout(Operation::LocateTablets, self.name(), None)
    }

    fn gone(&self, tablet: &Tablet) -> Error {
        Error::TabletGone { table: self.name().to_owned(), tablet_id: tablet.id().to_owned() }
    }

    fn nonsense(&self, reason: &str) -> Error {
        let leader = self.shared().masters().known_leader().map(|leader| leader.address.clone());
        let server = leader.unwrap_or_else(|| crate::types::HostPort::new("master", 0));
        Error::Malformed {
            server,
            reason: format!("places of the tablets of {:?}: {reason}", self.name()),
        }
    }
}
