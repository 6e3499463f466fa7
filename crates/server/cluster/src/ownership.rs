//! Takeover and hand-over of vbuckets.
//!
//! Owns: the order of steps. Hand-over: stop serving, flush, forget, and only then delete the key
//! in etcd. Takeover: acquire the key, which is free only after the last owner has deleted it or
//! its lease has ended; read the manifest; fence and read the store; serve (`takeovers`, in the
//! background).
//!
//! Invariants: this node serves a vbucket only between the two. The next tick removes a key of this
//! session whose vbucket the node neither owns nor is going to take over, whatever has failed
//! before, because no other node could take it over while the session lasts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oribi_engine::{Bucket, VBucket};
use oribi_storage::VbucketPhase;
use oribi_types::Vbid;
use tokio::time::Instant;

use crate::agent::{Agent, ClusterView};
use crate::agreement::{AgreementError, RecordChange, RecordComparison};
use crate::buckets::SharedBucket;
use crate::records::VbucketPlace;
use crate::signals::LeaveStage;

/// Vbuckets of one transaction: etcd's default limit is 128 operations.
const TRANSACTION_VBUCKETS: usize = 60;
/// How long one tick waits for the flush of a hand-over; the next tick continues.
const FLUSH_WAIT: Duration = Duration::from_secs(2);
const FLUSH_LOOK: Duration = Duration::from_millis(2);

impl Agent {
    /// Makes this node own the vbuckets that the map assigns to it.
    pub(crate) async fn own(
        &mut self,
        view: &ClusterView,
        is_member: bool,
    ) -> Result<(), AgreementError> {
        let may_take = is_member && self.stage() == LeaveStage::Serving;
        if !may_take {
            self.takeovers.call_off_all();
        }
        self.let_go_of_leftovers(view, may_take).await?;
        for handle in self.buckets.shared() {
            let (bucket, uuid) = (handle.bucket(), handle.uuid());
            // A node must not take a vbucket over before its store knows how to check ownership.
            let is_other = handle.copies().is_some() || !self.followed.contains(uuid);
            if is_other || self.changing.contains_key(handle.name()) {
                continue;
            }
            let is_served = |vbid: Vbid| {
                bucket.vbucket(vbid).is_some_and(|vbucket| vbucket.phase() == VbucketPhase::Active)
            };
            let is_planned = |vbid: Vbid| is_member && self.is_planned(view, &*handle, vbid);
            // A hand-over under way is completed, even if the map assigns the vbucket here again.
            let surplus: Vec<Vbid> = bucket
                .owned()
                .into_iter()
                .filter(|vbid| !self.takeovers.is_taking_over(uuid, *vbid))
                .filter(|vbid| !is_planned(*vbid) || !is_served(*vbid))
                .collect();
            if !surplus.is_empty() {
                self.hand_over(&handle, &surplus).await?;
            }
            let missing: Vec<Vbid> = (0..bucket.config().vbuckets)
                .map(Vbid)
                .filter(|vbid| is_planned(*vbid) && !is_owned(bucket, *vbid))
                .collect();
            if !missing.is_empty() && may_take && !self.takeovers.has(uuid) {
                self.take(&handle, &missing).await?;
            }
        }
        Ok(())
    }

    /// True when the map assigns a vbucket to this node.
    fn is_planned(&self, view: &ClusterView, handle: &dyn SharedBucket, vbid: Vbid) -> bool {
        let planned = view.map.buckets.get(handle.name());
        let planned = planned.filter(|planned| planned.uuid == handle.bucket().config().uuid);
        let owner = planned.and_then(|planned| planned.owner(&view.map, usize::from(vbid.0)));
        owner == Some(self.settings.node.name.as_str())
    }

    /// Removes this session's keys, of any bucket, whose vbuckets this node does not own and will
    /// not own: those given up out of order, and those handed over while etcd was unreachable.
    async fn let_go_of_leftovers(
        &self,
        view: &ClusterView,
        may_take: bool,
    ) -> Result<(), AgreementError> {
        let shared = self.buckets.shared();
        let is_used = |place: &VbucketPlace| {
            // The keys tell other nodes that the bucket may be open here.
            if self.closing.contains_key(&place.uuid) {
                return true;
            }
            let handle = shared.iter().find(|handle| handle.bucket().config().uuid == place.uuid);
            handle.is_some_and(|handle| {
                if handle.copies().is_some() {
                    // Its keys are released one by one.
                    return true;
                }
                let is_next = may_take
                    && self.is_planned(view, &**handle, place.vbid)
                    && !self.takeovers.is_stuck(&place.uuid);
                is_owned(handle.bucket(), place.vbid) || is_next
            })
        };
        let token = self.token();
        let unused = view.held.iter().filter(|(_, holder)| holder.token == token);
        let unused = unused.filter(|(place, _)| !is_used(place));
        let keys: Vec<String> = unused.map(|(_, holder)| holder.key.clone()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.let_go(&keys).await?;
        tracing::info!(vbuckets = keys.len(), "released vbuckets that are not served here");
        Ok(())
    }

    async fn hand_over(
        &self,
        handle: &Arc<dyn SharedBucket>,
        surplus: &[Vbid],
    ) -> Result<(), AgreementError> {
        let bucket = handle.bucket();
        assert!(handle.copies().is_none(), "copies are handed over by their records");
        surplus.iter().for_each(|vbid| bucket.stop_serving(*vbid));
        let is_flushed = |vbid: &Vbid| bucket.vbucket(*vbid).is_none_or(VBucket::is_flushed);
        let give_up = Instant::now() + FLUSH_WAIT;
        while !surplus.iter().all(is_flushed) && Instant::now() < give_up && self.is_current() {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
        let flushed: Vec<Vbid> = surplus.iter().copied().filter(is_flushed).collect();
        debug_assert!(flushed.len() <= surplus.len(), "only vbuckets to hand over are given up");
        let (freed, to_free) = (Arc::clone(handle), flushed.clone());
        let freeing = tokio::task::spawn_blocking(move || {
            to_free.into_iter().for_each(|vbid| freed.bucket().deactivate(vbid));
        });
        if freeing.await.is_err() {
            tracing::error!("a thread that gave vbuckets up panicked");
        }
        let key = |vbid: &Vbid| self.held_key(&**handle, *vbid);
        self.let_go(&flushed.iter().map(key).collect::<Vec<String>>()).await?;
        let (bucket, left) = (handle.name(), surplus.len() - flushed.len());
        tracing::info!(bucket, vbuckets = flushed.len(), left, "handed vbuckets over");
        Ok(())
    }

    fn held_key(&self, handle: &dyn SharedBucket, vbid: Vbid) -> String {
        self.keys.held(handle.name(), handle.uuid(), vbid)
    }

    /// Removes keys that are this session's.
    pub(crate) async fn let_go(&self, keys: &[String]) -> Result<(), AgreementError> {
        for part in keys.chunks(TRANSACTION_VBUCKETS) {
            let still_ours: Vec<RecordComparison> = part
                .iter()
                .map(|key| RecordComparison::HasValue(key.clone(), self.token()))
                .collect();
            let gone: Vec<RecordChange> = part.iter().map(RecordChange::delete).collect();
            if self.agreement.transact(&still_ours, &gone, self.limit()).await?.is_some() {
                continue;
            }
            // Some keys may be gone already; remove the others anyway.
            for (condition, change) in still_ours.into_iter().zip(gone) {
                self.agreement.transact(&[condition], &[change], self.limit()).await?;
            }
        }
        Ok(())
    }

    async fn take(
        &mut self,
        handle: &Arc<dyn SharedBucket>,
        missing: &[Vbid],
    ) -> Result<(), AgreementError> {
        assert!(!self.takeovers.has(handle.uuid()), "a bucket has one takeover at a time");
        let got = self.get_hold(&**handle, missing).await?;
        assert!(got.len() <= missing.len(), "a node acquires only keys that it lacks");
        if got.is_empty() || !self.is_current() {
            return Ok(());
        }
        self.refresh_manifest(&**handle).await?;
        self.takeovers.begin(handle, got, &self.wake);
        Ok(())
    }

    /// Writes this session's token to the free keys; returns the keys that it then holds.
    async fn get_hold(
        &self,
        handle: &dyn SharedBucket,
        missing: &[Vbid],
    ) -> Result<Vec<Vbid>, AgreementError> {
        let of_bucket = self.keys.held_of(handle.name(), handle.uuid());
        let held = self.agreement.list(&of_bucket, self.limit()).await?.records;
        let held: HashMap<String, Vec<u8>> =
            held.into_iter().map(|entry| (entry.key, entry.value)).collect();
        let mut got = Vec::new();
        let mut free = Vec::new();
        for vbid in missing {
            let key = self.held_key(handle, *vbid);
            match held.get(&key) {
                None => free.push((*vbid, key)),
                Some(holder) if *holder == self.token() => got.push(*vbid),
                Some(_) => {}
            }
        }
        for part in free.chunks(TRANSACTION_VBUCKETS) {
            let absent: Vec<RecordComparison> =
                part.iter().map(|(_, key)| RecordComparison::Absent(key.clone())).collect();
            let puts: Vec<RecordChange> = part
                .iter()
                .map(|(_, key)| self.put_in_session(key.clone(), self.token()))
                .collect();
            if self.agreement.transact(&absent, &puts, self.limit()).await?.is_some() {
                got.extend(part.iter().map(|(vbid, _)| *vbid));
            }
        }
        Ok(got)
    }
}

/// Whether this node owns a vbucket, if only to flush it.
fn is_owned(bucket: &Bucket, vbid: Vbid) -> bool {
    bucket.vbucket(vbid).is_some_and(VBucket::is_owned)
}
