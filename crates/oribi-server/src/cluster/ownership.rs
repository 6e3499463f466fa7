//! Taking vbuckets over and handing them over.
//!
//! Owns: the order. To hand over: stop serving, flush, forget, and only then let go of the key in etcd. To take over:
//! get hold of the key, which is not there before the last owner has let go or its lease has ended; read the
//! manifest; fence and read the store; serve. Invariant: this node serves a vbucket only between the two.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use oribi_storage::VbucketPhase;
use oribi_types::Vbid;
use tokio::time::Instant;

use super::Stage;
use super::agent::{Agent, View};
use super::etcd::{Change, Condition, EtcdError};
use crate::buckets::BucketHandle;

/// Vbuckets of one transaction: etcd takes 128 operations, unless it is told otherwise.
const TRANSACTION_VBUCKETS: usize = 60;
/// How long one tick waits for what is handed over to be flushed; the next one goes on.
const FLUSH_WAIT: Duration = Duration::from_secs(2);
const FLUSH_LOOK: Duration = Duration::from_millis(2);

impl Agent {
    /// Makes this node own what the map says.
    pub(super) async fn own(&self, view: &View, is_member: bool) -> Result<(), EtcdError> {
        let name = self.settings.node.name.as_str();
        for handle in self.shared_buckets() {
            let bucket = handle.bucket();
            let planned = view.map.buckets.get(handle.name());
            let planned = planned.filter(|planned| planned.uuid == bucket.config().uuid);
            let is_wanted = |vbid: Vbid| {
                let owner = planned.and_then(|p| p.owner(&view.map, usize::from(vbid.0)));
                is_member && owner == Some(name)
            };
            let is_served = |vbid: Vbid| {
                bucket.vbucket(vbid).is_some_and(|vbucket| vbucket.phase() == VbucketPhase::Active)
            };
            // One that was being handed over and is wanted again goes all the way and comes back.
            let surplus: Vec<Vbid> = bucket
                .owned()
                .into_iter()
                .filter(|vbid| !is_wanted(*vbid) || !is_served(*vbid))
                .collect();
            if !surplus.is_empty() {
                self.hand_over(&handle, &surplus).await?;
            }
            let missing: Vec<Vbid> = (0..handle.vbuckets())
                .map(Vbid)
                .filter(|vbid| is_wanted(*vbid) && !bucket.is_owned(*vbid))
                .collect();
            if !missing.is_empty() && self.stage() == Stage::Serving {
                self.take(&handle, &missing).await?;
            }
        }
        Ok(())
    }

    async fn hand_over(
        &self,
        handle: &Arc<BucketHandle>,
        surplus: &[Vbid],
    ) -> Result<(), EtcdError> {
        let bucket = handle.bucket();
        surplus.iter().for_each(|vbid| bucket.stop_serving(*vbid));
        let give_up = Instant::now() + FLUSH_WAIT;
        while surplus.iter().any(|vbid| !bucket.is_flushed(*vbid))
            && Instant::now() < give_up
            && self.is_current()
        {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
        let flushed: Vec<Vbid> =
            surplus.iter().copied().filter(|vbid| bucket.is_flushed(*vbid)).collect();
        let (freed, to_free) = (Arc::clone(handle), flushed.clone());
        let freeing = tokio::task::spawn_blocking(move || {
            to_free.into_iter().for_each(|vbid| freed.bucket().deactivate(vbid));
        });
        if freeing.await.is_err() {
            tracing::error!("a thread that gave vbuckets up panicked");
        }
        self.let_go(handle, &flushed).await?;
        let (bucket, left) = (handle.name(), surplus.len() - flushed.len());
        tracing::info!(bucket, vbuckets = flushed.len(), left, "handed vbuckets over");
        Ok(())
    }

    /// Removes this session's keys of vbuckets.
    async fn let_go(&self, handle: &BucketHandle, vbuckets: &[Vbid]) -> Result<(), EtcdError> {
        let key = |vbid: &Vbid| self.keys.held(handle.name(), vbid.0);
        for part in vbuckets.chunks(TRANSACTION_VBUCKETS) {
            let still_ours: Vec<Condition> =
                part.iter().map(|vbid| Condition::Holds(key(vbid), self.token())).collect();
            let gone: Vec<Change> = part.iter().map(|vbid| Change::Delete(key(vbid))).collect();
            if self.etcd.transact(&still_ours, &gone, self.limit()).await?.is_some() {
                continue;
            }
            // Some of them are not there any more; the others still are to go.
            for (condition, change) in still_ours.into_iter().zip(gone) {
                self.etcd.transact(&[condition], &[change], self.limit()).await?;
            }
        }
        Ok(())
    }

    async fn take(&self, handle: &Arc<BucketHandle>, missing: &[Vbid]) -> Result<(), EtcdError> {
        let got = self.get_hold(handle, missing).await?;
        if got.is_empty() || !self.is_current() {
            return Ok(());
        }
        self.refresh_manifest(handle).await?;
        let (begun, bucket, count) = (Instant::now(), Arc::clone(handle), got.len());
        let taking = tokio::task::spawn_blocking(move || {
            bucket.bucket().take_over(&got)?;
            // A node without vbuckets may have changed the collections and could not store them.
            let manifest = bucket.bucket().manifest().to_stored_json();
            if let Err(error) = bucket.bucket().install_manifest(&manifest, true) {
                tracing::info!(bucket = bucket.name(), %error, "the store has no copy of the collections");
            }
            Ok::<(), oribi_storage::StoreError>(())
        });
        let bucket = handle.name();
        match taking.await {
            Ok(Ok(())) => {
                let took_ms = begun.elapsed().as_millis() as u64;
                tracing::info!(bucket, vbuckets = count, took_ms, "took vbuckets over");
            }
            // The keys stay this node's, and the next tick tries again.
            Ok(Err(error)) => {
                tracing::warn!(bucket, %error, "vbuckets could not be taken over yet")
            }
            Err(_) => tracing::error!(bucket, "a thread that took vbuckets over panicked"),
        }
        Ok(())
    }

    /// Writes this session's name to the keys of those that nobody holds; those that it holds then.
    async fn get_hold(
        &self,
        handle: &BucketHandle,
        missing: &[Vbid],
    ) -> Result<Vec<Vbid>, EtcdError> {
        let name = handle.name();
        let (held, _) = self.etcd.list(&self.keys.held_of(name), self.limit()).await?;
        let held: HashMap<String, Vec<u8>> =
            held.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let mut got = Vec::new();
        let mut free = BTreeMap::new();
        for vbid in missing {
            let key = self.keys.held(name, vbid.0);
            match held.get(&key) {
                None => drop(free.insert(*vbid, key)),
                Some(holder) if *holder == self.token() => got.push(*vbid),
                Some(_) => {}
            }
        }
        let free: Vec<(Vbid, String)> = free.into_iter().collect();
        for part in free.chunks(TRANSACTION_VBUCKETS) {
            let absent: Vec<Condition> =
                part.iter().map(|(_, key)| Condition::Absent(key.clone())).collect();
            let puts: Vec<Change> = part
                .iter()
                .map(|(_, key)| Change::Put(key.clone(), self.token(), self.lease_id))
                .collect();
            if self.etcd.transact(&absent, &puts, self.limit()).await?.is_some() {
                got.extend(part.iter().map(|(vbid, _)| *vbid));
            }
        }
        Ok(got)
    }
}
