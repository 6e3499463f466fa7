//! The copies of one bucket on this node, as the cluster decides about them.
//!
//! Owns: the cluster's interface over the engine's vbuckets and the links to other nodes.
//! Invariants:
//! - a vbucket serves only between `start_serving` and `stop_serving`;
//! - a copy counts as one only while `copies.json` has its number, which is durable before the
//!   cluster hears of the copy;
//! - no stream changes a copy while it promises, begins or is removed.
//!
//! Called by the cluster's agent and by the node's lease.

mod numbers;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use oribi_cluster::copies::{
    CopiesRecord, CopyFailure, CopyWaker, FollowingCopy, LocalCopy, PromiseReport, REPLICAS_MAX,
    VbucketCopies,
};
use oribi_cluster::topology::TopologyNode;
use oribi_engine::dcp::StreamPhase;
use oribi_engine::{
    Bucket, CopyStanding, PersistOutcome, PersistenceSink, PreparedPromotion, VBucket, WriteQuorum,
};
use oribi_system::clock::wall_clock;
use oribi_types::{CopiesEpoch, CopyId, Seqno, Vbid};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::copy_links::{CopyLinks, ReplicaSource};
use super::dcp_registry::DcpProducers;
pub(super) use numbers::CopyNumbers;

/// The links of the node, once it has some.
pub(crate) type LinksCell = Arc<OnceLock<Arc<dyn CopyLinks>>>;

/// Makes a vbucket of the bucket follow another node; false while the bucket is being closed.
pub(super) type FollowNode = Box<dyn Fn(&dyn CopyLinks, Vbid, ReplicaSource) -> bool + Send + Sync>;

/// An active copy that has begun an epoch.
struct ActiveCopy {
    epoch: CopiesEpoch,
    /// Until the copy serves; `None` when it served in an earlier epoch.
    prepared: Option<PreparedPromotion>,
    is_serving: bool,
}

/// Reports that a vbucket which hands over appends nothing any more.
struct WakingSink(CopyWaker);

impl PersistenceSink for WakingSink {
    fn persisted(&self, _token: u64, _outcome: PersistOutcome) {
        (self.0)();
    }
}

/// See the module text.
pub struct BucketCopies {
    bucket: Arc<Bucket>,
    follow: FollowNode,
    links: LinksCell,
    /// Those that feed copies of other nodes, among others.
    producers: Arc<DcpProducers>,
    numbers: CopyNumbers,
    /// True once the bucket closes. Held by whoever changes a copy on the disk.
    is_closing: RwLock<bool>,
    active: Mutex<BTreeMap<Vbid, ActiveCopy>>,
    /// Copies besides the active one that the bucket asks for.
    replicas: AtomicU8,
}

impl BucketCopies {
    pub(super) fn new(
        bucket: &Arc<Bucket>,
        follow: FollowNode,
        (links, producers): (LinksCell, Arc<DcpProducers>),
        (replicas, numbers): (u8, CopyNumbers),
    ) -> BucketCopies {
        BucketCopies {
            bucket: Arc::clone(bucket),
            follow,
            links,
            producers,
            numbers,
            is_closing: RwLock::new(false),
            active: Mutex::default(),
            replicas: AtomicU8::new(replicas),
        }
    }

    /// Copies besides the active one that the bucket asks for.
    pub fn replicas(&self) -> u8 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// The bucket asks for another number from here on; the leading node makes it so.
    pub(super) fn set_replicas(&self, replicas: u8) {
        assert!(replicas <= REPLICAS_MAX, "a bucket has at most so many");
        self.replicas.store(replicas, Ordering::Relaxed);
    }

    /// The numbers of the copies, which a restart has to find again.
    #[cfg(test)]
    pub(crate) fn known_numbers(&self) -> Vec<(Vbid, u64)> {
        self.numbers.all()
    }

    /// Puts back the numbers that a process before this one had.
    #[cfg(test)]
    pub(super) fn restore_numbers(&self, numbers: &[(Vbid, u64)]) {
        self.numbers.add(numbers).expect("they are in memory");
    }

    /// Ends every stream into the copies; nothing changes them on the disk from here on.
    pub(super) fn stop(&self) {
        *self.is_closing.write() = true;
        if let Some(links) = self.links.get() {
            links.stop_bucket(&self.bucket.config().uuid);
        }
    }

    /// Leave to change copies on the disk; the bucket does not close while the guard lives.
    fn enter(&self) -> Result<RwLockReadGuard<'_, bool>, CopyFailure> {
        let is_closing = self.is_closing.read_recursive();
        if *is_closing { Err("the bucket is being closed".into()) } else { Ok(is_closing) }
    }

    fn vbucket(&self, vbid: Vbid) -> Result<&VBucket, CopyFailure> {
        Ok(self.bucket.vbucket(vbid).ok_or("the bucket has no such vbucket")?)
    }

    /// The vbucket and its state, if it still accepts this epoch.
    fn accepting(
        &self,
        vbid: Vbid,
        epoch: CopiesEpoch,
    ) -> Result<(&VBucket, CopyStanding), CopyFailure> {
        let vbucket = self.vbucket(vbid)?;
        let standing = vbucket.copy_standing();
        if self.numbers.of(vbid).is_none() {
            return Err("there is no copy".into());
        }
        check_loads(&standing)?;
        if standing.promised > epoch {
            return Err(format!("{:?} is promised", standing.promised).into());
        }
        Ok((vbucket, standing))
    }

    /// Ends to serve clients and to feed copies.
    fn step_down(&self, vbid: Vbid) {
        let mut active = self.active.lock();
        active.remove(&vbid);
        self.bucket.step_down(vbid);
    }

    fn unfollow(&self, vbid: Vbid) {
        if let Some(links) = self.links.get() {
            links.stop(&self.bucket.config().uuid, vbid);
        }
    }
}

impl VbucketCopies for BucketCopies {
    fn local(&self) -> Vec<LocalCopy> {
        let local = |(vbid, copy): (Vbid, u64)| {
            // First: the end that is read after it is final.
            let hands_over = self.bucket.vbucket(vbid)?.has_final_seqno();
            let standing = self.bucket.vbucket(vbid)?.copy_standing();
            let CopyStanding { promised, recorded, complete_end, is_intact, .. } = standing;
            let is_unreadable = standing.is_unreadable;
            if standing.is_lost && !is_unreadable {
                return None;
            }
            let report = PromiseReport { recorded, complete_end, is_intact };
            Some(LocalCopy { vbid, copy, promised, report, hands_over, is_unreadable })
        };
        self.numbers.all().into_iter().filter_map(local).collect()
    }

    fn following(&self) -> Vec<FollowingCopy> {
        let mut following = Vec::new();
        for record in self.producers.list() {
            let Some(node) = &record.follower else { continue };
            for stream in record.published().streams {
                let is_live = stream.stats.phase != StreamPhase::Dead;
                let end = stream.acknowledged_seqno.filter(|_| is_live);
                following.extend(end.map(|complete_end| FollowingCopy {
                    vbid: stream.head.vbid,
                    node: node.clone(),
                    complete_end,
                }));
            }
        }
        following
    }

    fn acknowledged(&self, vbid: Vbid, copy: CopyId) -> Option<Seqno> {
        self.bucket.vbucket(vbid)?.acknowledged_by(copy)
    }

    fn create(&self, copies: &[(Vbid, u64)]) -> Result<(), CopyFailure> {
        let _open = self.enter()?;
        let mut created = Vec::new();
        for (vbid, copy) in copies {
            if self.numbers.of(*vbid) == Some(*copy) {
                continue;
            }
            self.remove(*vbid)?;
            // Whatever is left of a former copy is forgotten.
            self.bucket.become_replica(*vbid)?;
            created.push((*vbid, *copy));
        }
        Ok(self.numbers.add(&created)?)
    }

    fn found(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyFailure> {
        let _open = self.enter()?;
        self.accepting(vbid, epoch)?;
        Ok(self.bucket.record_epoch(vbid, epoch)?)
    }

    fn promise(&self, vbid: Vbid, epoch: CopiesEpoch) -> Result<(), CopyFailure> {
        let _open = self.enter()?;
        let (_, standing) = self.accepting(vbid, epoch)?;
        self.step_down(vbid);
        self.unfollow(vbid);
        if standing.promised < epoch {
            self.bucket.flush_copy(vbid)?;
            self.bucket.promise_epoch(vbid, epoch)?;
        }
        Ok(())
    }

    fn begin(&self, vbid: Vbid, record: &CopiesRecord) -> Result<(), CopyFailure> {
        let _open = self.enter()?;
        let epoch = record.epoch;
        let (vbucket, standing) = self.accepting(vbid, epoch)?;
        check_begins(record, &standing)?;
        self.unfollow(vbid);
        let begun = self.active.lock().get(&vbid).map(|active| active.epoch);
        if begun == Some(epoch) {
            return Ok(());
        }
        assert!(record.members.contains(&record.active), "the active copy is a member");
        // What the copies acknowledge in this epoch counts once its history begins.
        vbucket.set_quorum(WriteQuorum {
            epoch,
            active: record.active,
            members: record.members.clone(),
            joining: record.joining.clone(),
            majority: record.majority(),
            joining_majority: record.joining_majority(),
        });
        // The hand-over was withdrawn: durable writes that are open keep their clients.
        let returns = vbucket.is_handing_over();
        let prepared = match vbucket.is_serving() {
            true => {
                self.bucket.continue_in_epoch(vbid, epoch)?;
                vbucket.complete_prepares(&self.bucket.context(wall_clock()));
                None
            }
            false => {
                // The epoch first: it stores the state in memory, which is a replica's.
                self.bucket.record_epoch(vbid, epoch)?;
                Some(self.bucket.prepare_promotion(vbid, epoch)?)
            }
        };
        let mut active = self.active.lock();
        let before = active.get(&vbid).map(|active| active.is_serving);
        if prepared.is_some() || before.is_some() || returns {
            // A serving active continues in the next epoch without a pause.
            let is_serving = prepared.is_none() && before == Some(true);
            active.insert(vbid, ActiveCopy { epoch, prepared, is_serving });
        }
        Ok(())
    }

    fn start_serving(&self, vbid: Vbid, epoch: CopiesEpoch) {
        let mut all = self.active.lock();
        let Some(active) = all.get_mut(&vbid).filter(|active| active.epoch == epoch) else {
            return;
        };
        if let Some(prepared) = active.prepared.take()
            && !self.bucket.complete_promotion(vbid, &prepared)
        {
            // The copy has changed since; it begins again.
            all.remove(&vbid);
            return;
        }
        active.is_serving = true;
        drop(all);
        if let Some(vbucket) = self.bucket.vbucket(vbid) {
            vbucket.withdraw_hand_over();
            // A lone survivor commits its inherited prepares at once.
            vbucket.complete_prepares(&self.bucket.context(wall_clock()));
        }
    }

    fn replicate(
        &self,
        vbid: Vbid,
        record: &CopiesRecord,
        (own, source): (CopyId, &TopologyNode),
    ) -> Result<(), CopyFailure> {
        let _open = self.enter()?;
        let epoch = record.epoch;
        let (vbucket, standing) = self.accepting(vbid, epoch)?;
        self.step_down(vbid);
        if standing.promised < epoch {
            self.unfollow(vbid);
            self.bucket.promise_epoch(vbid, epoch)?;
        }
        if !vbucket.is_replica() {
            self.unfollow(vbid);
            self.bucket.become_replica(vbid)?;
        }
        // A copy that ended in disorder is intact once its stream has caught up.
        let is_behind = standing.recorded < epoch && standing.is_intact;
        if is_behind && has_beginning_of(vbucket, epoch) {
            self.bucket.record_epoch(vbid, epoch)?;
        }
        let links = self.links.get().ok_or("this node has no links to others")?;
        let (node, host) = (source.name.clone(), source.host.clone());
        let source = ReplicaSource { node, host, port: source.kv, epoch, copy: own };
        match (self.follow)(&**links, vbid, source) {
            true => Ok(()),
            false => Err("the bucket is being closed".into()),
        }
    }

    fn demand_storage(&self, vbid: Vbid, when_stored: Option<CopyWaker>) -> bool {
        let Some(vbucket) = self.bucket.vbucket(vbid) else { return false };
        let end = vbucket.demand_storage();
        let is_stored = vbucket.persisted_seqno() >= end;
        let Some(when_stored) = when_stored.filter(|_| !is_stored) else { return is_stored };
        let sink: Arc<dyn PersistenceSink> = Arc::new(WakingSink(when_stored));
        self.bucket.when_stored(vbid, end, &sink, 0)
    }

    fn waive_storage(&self, vbid: Vbid) {
        if let Some(vbucket) = self.bucket.vbucket(vbid) {
            vbucket.waive_storage();
            vbucket.complete_prepares(&self.bucket.context(wall_clock()));
        }
    }

    fn serves(&self, vbid: Vbid) -> Option<CopiesEpoch> {
        let active = self.active.lock();
        active.get(&vbid).filter(|active| active.is_serving).map(|active| active.epoch)
    }

    fn can_hand_over(&self, vbid: Vbid) -> bool {
        self.bucket.vbucket(vbid).is_some_and(VBucket::can_hand_over)
    }

    fn hand_over(&self, vbid: Vbid, when_final: CopyWaker) {
        let mut active = self.active.lock();
        if active.remove(&vbid).is_none() {
            return;
        }
        if !self.bucket.begin_hand_over(vbid) {
            self.bucket.step_down(vbid);
        }
        drop(active);
        let sink: Arc<dyn PersistenceSink> = Arc::new(WakingSink(when_final));
        self.bucket.when_final(vbid, &sink, 0);
    }

    fn stop_serving(&self, vbid: Vbid) {
        let mut active = self.active.lock();
        if active.remove(&vbid).is_some() {
            self.bucket.step_down(vbid);
        }
    }

    fn remove(&self, vbid: Vbid) -> Result<(), CopyFailure> {
        let _open = self.enter()?;
        check_loads(&self.vbucket(vbid)?.copy_standing())?;
        self.step_down(vbid);
        self.unfollow(vbid);
        self.numbers.remove(vbid)?;
        Ok(self.bucket.drop_copy(vbid)?)
    }
}

#[cfg(test)]
impl super::Buckets {
    /// [`Buckets::open_over`] for a bucket with copies, which have these numbers.
    pub(crate) fn open_copies_over(
        &self,
        (config, store): (oribi_engine::BucketConfig, Arc<dyn oribi_storage::KvStore>),
        (replicas, numbers): (u8, &[(Vbid, u64)]),
        was_clean: bool,
    ) -> Result<Arc<super::BucketHandle>, super::BucketError> {
        let place = (None, Some(replicas));
        let handle = self.register(
            config,
            (store, oribi_config::BucketStorage::Log),
            place,
            was_clean,
            false,
        )?;
        if let Some(copies) = handle.copies() {
            copies.restore_numbers(numbers);
        }
        Ok(handle)
    }
}

/// That a change of the copy takes no documents from the disk that could not be loaded.
fn check_loads(standing: &CopyStanding) -> Result<(), CopyFailure> {
    match standing.is_unreadable {
        true => Err("its documents are on the disk and cannot be loaded".into()),
        false => Ok(()),
    }
}

/// That a copy may begin an epoch: it did before, holds exactly what was handed over, or is not
/// known to lack anything. One that ended in disorder has to be elected, by its promise.
fn check_begins(record: &CopiesRecord, standing: &CopyStanding) -> Result<(), CopyFailure> {
    let CopyStanding { promised, recorded, complete_end, is_intact, .. } = *standing;
    let has_begun = recorded == record.epoch;
    let is_new = recorded == CopiesEpoch(0) && promised == CopiesEpoch(0);
    if !is_intact && !is_new && !has_begun && promised != record.epoch {
        return Err("it ended in disorder, and was not elected since".into());
    }
    match record.handover.filter(|last| !has_begun && *last != complete_end) {
        Some(last) => Err(format!("{last:?} was handed over, and {complete_end:?} is here").into()),
        None => Ok(()),
    }
}

/// True when a copy has everything up to the beginning of an epoch: the active's history of that
/// epoch is here, and what came before it.
fn has_beginning_of(vbucket: &VBucket, epoch: CopiesEpoch) -> bool {
    vbucket.replica_position().is_some_and(|position| {
        let newest = position.failover_table.first();
        newest.is_some_and(|entry| entry.epoch == epoch && position.complete_end >= entry.seqno)
    })
}
