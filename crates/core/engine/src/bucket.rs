//! A bucket: the tenant, as the server sees it.
//!
//! Owns: the [`Core`], each piece of background work that stands on it, and the order in which they
//! are used together (opening, emptying, taking over). Operations of clients are [`VBucket`]'s: the
//! caller looks the vbucket up and hands it [`Bucket::context`]. Background work, a step at a time,
//! is in [`steps`]; a thread drives a step in production, a test by hand. Invariant: it never reads
//! a clock, a file or a wire byte; time, entropy and the store are handed in.

mod copies;
mod copy_epochs;
mod events;
#[cfg(test)]
mod invariants;
mod key_ahead;
mod listing;
mod manifest;
mod opening;
mod ownership;
mod sampling;
mod scanning;
mod stats;
mod steps;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use oribi_storage::{StoreError, VbBatch};
use oribi_types::policy::EvictionPolicy;
use oribi_types::{DocKey, Seqno, Timestamp, VbUuid, Vbid};
use parking_lot::Mutex;

use crate::backfill::Backfiller;
use crate::background_fetch::Fetcher;
use crate::collections::{AnnouncedEvents, BucketManifest};
use crate::compression::CompressionMode;
use crate::config::BucketConfig;
use crate::core::Core;
use crate::dense::MemoryTier;
use crate::error::FlushAllError;
use crate::expiry_pager::ExpiryPager;
use crate::flusher::Flushers;
use crate::flusher_signal::FlusherSignal;
use crate::item::FillingItem;
use crate::item_pager::ItemPager;
use crate::outcome::{OperationRejection, StoreRequest};
use crate::persistence::{PersistOutcome, PersistenceSink};
use crate::tombstone_purge::TombstonePurger;
use crate::vbucket::{Context, VBucket, store_fields};
use crate::warmup::Warmup;

pub use copies::CopyRoleError;
pub use copy_epochs::PreparedPromotion;
pub use key_ahead::KeyAhead;
pub use listing::{ListError, ListRequest, ListedDocument, ListedPage};
pub use scanning::SnapshotScan;
pub use stats::{BucketStats, DiskState, KeyOnDisk};

pub struct Bucket {
    core: Core,
    flushers: Flushers,
    warmup: Warmup,
    fetcher: Fetcher,
    pager: ItemPager,
    expiry_pager: ExpiryPager,
    tombstone_purge: TombstonePurger,
    backfiller: Backfiller,
    flush_enabled: AtomicBool,
    flush_interval_ms: AtomicU64,
    /// Held while the current manifest is copied to the store.
    manifest_copy: Mutex<()>,
    entropy: Mutex<Box<dyn FnMut() -> u64 + Send>>,
}

impl Bucket {
    pub fn config(&self) -> &BucketConfig {
        self.core.config()
    }

    /// Context of background work.
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// True when a command may empty the bucket.
    pub fn is_flush_enabled(&self) -> bool {
        self.flush_enabled.load(Ordering::Relaxed)
    }

    /// Allows or forbids commands that empty the bucket.
    pub fn set_flush_enabled(&self, enabled: bool) {
        self.flush_enabled.store(enabled, Ordering::Relaxed);
    }

    /// How long writes gather before a flush that no operation waits for.
    pub fn flush_interval_ms(&self) -> u64 {
        self.flush_interval_ms.load(Ordering::Relaxed)
    }

    /// Changes how long writes gather, also for those that are gathering.
    pub fn set_flush_interval_ms(&self, interval_ms: u64) {
        self.flush_interval_ms.store(interval_ms, Ordering::Relaxed);
        self.core.signals().all().iter().for_each(FlusherSignal::wake);
    }

    /// True while writes are refused for lack of memory, and for some seconds afterwards.
    pub fn lacks_memory(&self) -> bool {
        self.core.memory().has_refusals()
    }

    pub fn eviction(&self) -> EvictionPolicy {
        self.core.memory().policy()
    }

    /// Changes the eviction policy. False, and nothing changes, when it does not fit the storage.
    /// Documents that were evicted stay in the store until they are asked for.
    pub fn set_eviction(&self, policy: EvictionPolicy) -> bool {
        let fits = policy.fits(self.config().storage);
        if fits {
            self.core.memory().set_policy(policy);
        }
        fits
    }

    /// Begins a purge of old tombstones, and asks the store to give space back. Both continue in
    /// the background. Waits for a purge step under way.
    pub fn compact(&self) {
        self.tombstone_purge.ask();
        self.core.store().request_compaction();
    }

    pub fn compression_mode(&self) -> CompressionMode {
        self.core.compression().get()
    }

    /// Changes the compression mode, for values stored from now on.
    pub fn set_compression_mode(&self, mode: CompressionMode) {
        self.core.compression().set(mode);
    }

    pub fn memory_tier(&self) -> MemoryTier {
        self.core.memory().dense().tier()
    }

    /// Changes what happens to cold values from now on. Values that are dense stay so until they
    /// are used or leave memory.
    pub fn set_memory_tier(&self, tier: MemoryTier) {
        self.core.memory().set_tier(tier);
    }

    /// Longest life of a document in seconds, where its collection has no rule; 0 for any.
    pub fn max_ttl_s(&self) -> u32 {
        self.core.max_ttl_s().load(Ordering::Relaxed)
    }

    /// Changes the longest life, for documents written from now on.
    pub fn set_max_ttl_s(&self, max_ttl_s: u32) {
        self.core.max_ttl_s().store(max_ttl_s, Ordering::Relaxed);
    }

    pub fn memory_quota_bytes(&self) -> u64 {
        self.core.memory().quota_bytes()
    }

    /// Changes the quota. It refuses writes at once; the item pager evicts what is above it.
    pub fn set_memory_quota(&self, bytes: u64) {
        self.core.memory().set_quota(bytes);
    }

    /// Reserves memory of the bucket's quota for the entries of a query index. False when it does
    /// not fit now.
    pub fn reserve_for_index(&self, bytes: u64) -> bool {
        self.core.memory().reserve_for_index(bytes)
    }

    pub fn release_from_index(&self, bytes: u64) {
        self.core.memory().release_from_index(bytes);
    }

    /// Bound on the memory of the query indexes of the bucket.
    pub fn indexes_bytes_max(&self) -> u64 {
        self.core.memory().indexes_bytes_max()
    }

    /// Bytes that all queues together may take, queued items included.
    pub fn checkpoint_quota_bytes(&self) -> u64 {
        self.core.memory().queue_quota().bytes
    }

    /// All vbuckets, by id.
    pub fn vbuckets(&self) -> &[VBucket] {
        self.core.vbuckets()
    }

    /// One vbucket, or `None` outside the map.
    #[inline]
    pub fn vbucket(&self, vbid: Vbid) -> Option<&VBucket> {
        self.core.vbucket(vbid)
    }

    /// As [`Bucket::vbucket`], for requests: one outside the map is answered like one that another
    /// node has.
    #[inline]
    pub fn vbucket_or_rejection(&self, vbid: Vbid) -> Result<&VBucket, OperationRejection> {
        self.core.vbucket(vbid).ok_or(OperationRejection::NotMyVbucket)
    }

    /// A vbucket that serves clients on this node.
    pub fn serving_vbucket(&self, vbid: Vbid) -> Result<&VBucket, OperationRejection> {
        let vbucket = self.vbucket(vbid).filter(|vbucket| vbucket.is_serving());
        vbucket.ok_or(OperationRejection::NotMyVbucket)
    }

    /// A vbucket whose documents clients may scan. One that commits what it inherited has older
    /// versions than its predecessor may have shown.
    pub fn scannable_vbucket(&self, vbid: Vbid) -> Result<&VBucket, OperationRejection> {
        let vbucket = self.serving_vbucket(vbid)?;
        match vbucket.serves_clients() {
            true => Ok(vbucket),
            false => Err(OperationRejection::Recommitting),
        }
    }

    /// A vbucket that serves clients on this node, or that is a copy of another node's.
    pub fn readable_vbucket(&self, vbid: Vbid) -> Result<&VBucket, OperationRejection> {
        let is_readable = |vbucket: &&VBucket| vbucket.is_serving() || vbucket.is_replica();
        self.vbucket(vbid).filter(is_readable).ok_or(OperationRejection::NotMyVbucket)
    }

    /// The context of an operation at `now`.
    #[inline]
    pub fn context(&self, now: Timestamp) -> Context<'_> {
        self.core.context(now)
    }

    /// A block for a value of `value_bytes` that is still being received; `request.value` is
    /// ignored. `None` when the request would be refused: no memory is taken then, and
    /// [`VBucket::store`] returns the reason.
    pub fn begin_store(
        &self,
        key: DocKey<'_>,
        request: &StoreRequest<'_>,
        value_bytes: usize,
        now: Timestamp,
    ) -> Option<FillingItem> {
        let context = self.core.context(now);
        if value_bytes > context.value_bytes_max || context.memory.refuses(false).is_some() {
            return None;
        }
        Some(FillingItem::new(key, store_fields(&context, key, request), value_bytes))
    }

    /// Registers a wait until `seqno` is durable. True: it already is, and `sink` is not called.
    /// False: `sink` is called once with `token`, possibly from another thread and before this
    /// returns. `history` names the history that gave out the seqno, if the caller knows it.
    pub fn when_persisted(
        &self,
        vbid: Vbid,
        (seqno, history): (Seqno, Option<VbUuid>),
        sink: &Arc<dyn PersistenceSink>,
        token: u64,
    ) -> bool {
        debug_assert!(seqno > Seqno(0), "a write has a seqno");
        let Some(vbucket) = self.vbucket(vbid) else { return true };
        let standing = || {
            // Read before the history, which a new owner writes first: so it belongs to no later
            // history.
            let persisted = vbucket.persisted_seqno();
            if history.is_some_and(|history| history != vbucket.uuid()) {
                // Its history has ended, and how much of it is durable is unknown.
                return Some(PersistOutcome::Failed);
            }
            if vbucket.is_replica() {
                // Another node is active, whose history may lack the write.
                return Some(PersistOutcome::Failed);
            }
            (persisted >= seqno).then_some(PersistOutcome::Persisted)
        };
        match vbucket.waiters().register(seqno, sink, token, standing) {
            Some(PersistOutcome::Failed) => sink.persisted(token, PersistOutcome::Failed),
            Some(_) => return true,
            None => {
                if !vbucket.is_owned() {
                    // If ownership ended before the registration, no flush will end this wait.
                    vbucket.waiters().fail_all();
                }
                self.core.signals().of(vbid).hurry();
            }
        }
        false
    }

    /// As [`Bucket::when_persisted`], until a prepare is committed. Returns the seqno of the commit
    /// if it is by then. With `needs_store` the level asks for the store of this node.
    pub fn when_committed(
        &self,
        vbid: Vbid,
        ((seqno, history), needs_store): ((Seqno, Option<VbUuid>), bool),
        sink: &Arc<dyn PersistenceSink>,
        token: u64,
    ) -> Option<Seqno> {
        debug_assert!(seqno > Seqno(0), "a write has a seqno");
        let Some(vbucket) = self.vbucket(vbid) else {
            sink.persisted(token, PersistOutcome::Failed);
            return None;
        };
        let standing = || {
            let is_same = history.is_none_or(|history| vbucket.continues(history, seqno));
            if !is_same || !vbucket.is_serving() {
                // Another epoch decides about it.
                return Some(PersistOutcome::Failed);
            }
            vbucket.prepare_outcome(seqno)
        };
        match vbucket.commit_waiters().register(seqno, sink, token, standing) {
            Some(PersistOutcome::Committed(at)) => return Some(at),
            Some(_) => sink.persisted(token, PersistOutcome::Failed),
            None if !vbucket.is_serving() => vbucket.commit_waiters().fail_all(),
            None if needs_store => self.core.signals().of(vbid).hurry(),
            None => {}
        }
        None
    }

    /// Registers a wait of a copy until the store has everything up to `seqno`. True when it has;
    /// otherwise `sink` is called once with `token`.
    pub fn when_stored(
        &self,
        vbid: Vbid,
        seqno: Seqno,
        sink: &Arc<dyn PersistenceSink>,
        token: u64,
    ) -> bool {
        let Some(vbucket) = self.vbucket(vbid) else { return true };
        let standing = || (vbucket.persisted_seqno() >= seqno).then_some(PersistOutcome::Persisted);
        if vbucket.waiters().register(seqno, sink, token, standing).is_some() {
            return true;
        }
        self.core.signals().of(vbid).hurry();
        false
    }

    /// Removes every document, in memory and on disk. Seqnos and CAS values continue; every vbucket
    /// begins a new history. Blocks for the store.
    pub fn flush_all(&self) -> Result<(), FlushAllError> {
        if !self.is_flush_enabled() {
            return Err(FlushAllError::Disabled);
        }
        if self.vbuckets().iter().any(|vbucket| !vbucket.is_owned() || vbucket.is_replica()) {
            return Err(FlushAllError::NotAllHere);
        }
        if self.vbuckets().iter().any(VBucket::is_loading) {
            return Err(FlushAllError::WarmingUp);
        }
        let _no_flush_step = self.flushers.hold_all();
        Ok(self.core.collections().between_changes(|manifest| self.empty(manifest))?)
    }

    /// Empties every vbucket. Each history begins with the events of the manifest. A store of this
    /// node alone goes first, in one step: a vbucket that fails there keeps its documents. A shared
    /// one removes them in many steps, after memory, so that nothing reads between two of them.
    fn empty(&self, manifest: &BucketManifest) -> Result<(), StoreError> {
        let context = self.core.context(self.core.latest_time());
        let _change = self.core.ownership_changes().begin();
        for vbucket in self.vbuckets() {
            let (uuid, events) = (self.new_uuid(), AnnouncedEvents::default().missing(manifest));
            let (store, vbid) = (self.core.store(), vbucket.id());
            if store.shared().is_some() {
                let state = vbucket.clear(&context, uuid, &events);
                store.drop_vbucket(vbid, Some(&state))?;
                continue;
            }
            let stored = vbucket.emptied_state(uuid);
            store.drop_vbucket(vbid, Some(&stored))?;
            let state = vbucket.clear(&context, uuid, &events);
            if state.high_seqno > stored.high_seqno {
                // Writes since have used seqnos that readers know.
                store.commit(&[VbBatch { vbid, records: Vec::new(), state }])?;
            }
        }
        Ok(())
    }

    /// A number from the source of entropy.
    fn random_number(&self) -> u64 {
        (self.entropy.lock())()
    }
}
