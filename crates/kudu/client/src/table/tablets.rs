//! The questions to the master that fill the cache of a table's tablets.
//!
//! Sessions and scanners take a [`snapshot`](Table::snapshot) and choose tablets in it without any
//! lock. Invariants: at most 50 questions are in flight at a time, and one per table, because an
//! answer about one key usually answers the waiting questions too. The retry executor, sessions and
//! scanners call it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::{Table, by_id};
use crate::backoff::until;
use crate::error::{Error, Operation};
use crate::master::{MasterCall, method};
use crate::meta_cache::{Location, TableLocations, Tablet, located_tablets};
use crate::partition::BUCKET_BYTES;
use crate::proto::common::PartitionKeyPb;
use crate::proto::master::{GetTableLocationsRequestPb, GetTableLocationsResponsePb};
use crate::rpc::Method;
use crate::types::HostPort;

static GET_TABLE_LOCATIONS: Method = method("GetTableLocations");

/// Tablets to request when one tablet's replicas are needed; its neighbours have usually moved as
/// well.
const POINT_LOOKUP_TABLETS: u32 = 10;
/// Tablets to request when the whole table is needed.
const RANGE_LOOKUP_TABLETS: u32 = 1000;
/// A shorter time to live would expire before the client can use the answer.
const TTL_MIN: Duration = Duration::from_secs(1);

impl Table {
    /// Makes the client ask the master for the tablets and their leaders again before the next call
    /// to each. Use it after an event that the client cannot see, such as another client's change
    /// of the table.
    pub fn locate_again(&self) {
        self.cache().mark_stale();
    }

    /// All tablets of the table, ordered by partition key.
    pub(crate) async fn snapshot(&self, deadline: Instant) -> Result<Arc<[Arc<Tablet>]>, Error> {
        if let Ok(tablets) = self.cache().locations.lock().complete(Instant::now()) {
            return Ok(tablets);
        }
        let _one_at_a_time = self.turn_to_ask(deadline).await?;
        let mut known = self.cache().locations.lock().complete(Instant::now());
        loop {
            match known {
                Ok(tablets) => return Ok(tablets),
                Err(unknown) => {
                    let complete = |locations: &mut TableLocations, now| locations.complete(now);
                    known = self.ask(&unknown, RANGE_LOOKUP_TABLETS, deadline, complete).await?;
                }
            }
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
        let find = |locations: &mut TableLocations, now| locations.find(start, now);
        let found = self.ask(start, POINT_LOOKUP_TABLETS, deadline, find).await?;
        let Location::Tablet(found) = found else {
            self.cache().locations.lock().forget_tablet(tablet.id());
            return Err(self.gone(tablet));
        };
        if found.id() != tablet.id() {
            return Err(self.gone(tablet));
        }
        if !Arc::ptr_eq(&found, tablet) {
            // The entry was dropped and learnt again while the caller held the old one.
            tablet.refresh(found.replicas());
        }
        Ok(())
    }

    /// Fetches some tablets from a key on from the master, caches the answer, and looks at the
    /// cache before anybody else can: whoever opens the table again forgets some of it.
    async fn ask<T>(
        &self,
        partition_key: &[u8],
        tablets: u32,
        deadline: Instant,
        look: impl FnOnce(&mut TableLocations, Instant) -> T,
    ) -> Result<T, Error> {
        let shared = self.shared();
        let permit = until(deadline, shared.meta_cache().permits.acquire()).await;
        let _permit =
            permit.ok_or_else(|| self.too_late())?.expect("the semaphore is never closed");
        let hash_bytes = (self.partition_schema().hash_dimensions().len() * BUCKET_BYTES)
            .min(partition_key.len());
        let (hash_key, range_key) = partition_key.split_at(hash_bytes);
        let request = GetTableLocationsRequestPb {
            table: by_id(self.id()),
            // Servers before 1.17 support only this form, which cannot express tables with
            // different hash schemas per range; later ones prefer the other.
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
            shared.masters().call(&GET_TABLE_LOCATIONS, &request, call).await?;
        let ttl = Duration::from_millis(response.ttl_millis.unwrap_or(0).into()).max(TTL_MIN);
        let answer = located_tablets(response).map_err(|reason| self.nonsense(reason))?;
        let cache = self.cache();
        let mut locations = cache.locations.lock();
        let now = Instant::now();
        locations.absorb(partition_key, tablets as usize, answer, now + ttl);
        // Each answer says at least something about the requested key. A faulty master must not
        // keep the client busy forever.
        if matches!(locations.find(partition_key, now), Location::Unknown) {
            return Err(self.nonsense("the tablets in its answer do not answer the question"));
        }
        Ok(look(&mut locations, now))
    }

    /// Waits for the question in flight about this table; its answer may answer this one as well.
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
        let server = leader.unwrap_or_else(|| HostPort::new("master", 0));
        Error::Malformed {
            server,
            reason: format!("places of the tablets of {:?}: {reason}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests;
