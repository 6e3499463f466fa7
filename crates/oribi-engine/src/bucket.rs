//! A bucket: the tenant. Its vbuckets, its collections manifest, its store.
//!
//! Owns: the vbuckets, the manifest, opening from the store, and the pressure flag that refuses writes when
//! memory or the disk queue is full. Operations of clients are in [`operations`]. Background work is in
//! [`crate::flusher`] and [`crate::warmup`]; each is a step that a thread drives in production and a
//! test drives by hand. Invariant: it never reads a clock, a file or a wire byte; time, entropy and
//! the store are handed in.

mod operations;
mod ownership;
mod scanning;
mod stats;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption};
use oribi_storage::{
    FailoverEntry, KvStore, Ownership, StoreError, VbBatch, VbucketPhase, VbucketState,
};
use oribi_types::{CollectionId, Seqno, Timestamp, VbUuid, Vbid};
use parking_lot::Mutex;

use crate::background_fetch::FetchQueue;
use crate::collections::{Manifest, ManifestChange, ManifestError};
use crate::compression::{CompressionMode, CompressionSwitch};
use crate::eviction::EvictionPolicy;
use crate::expiry_pager::ExpiryPager;
use crate::flush_pass::FlushPass;
use crate::flusher::FlusherSignal;
use crate::hash_table::HashSeed;
use crate::item_pager::ItemPager;
use crate::limits::{VALUE_BYTES_MAX, VBUCKETS_MAX};
use crate::memory::Memory;
use crate::persistence::{PersistOutcome, PersistenceSink};
use crate::planted::{self, Bug};
use crate::tasks::{Task, Tasks};
use crate::timings::BucketTimings;
use crate::tombstone_purge::TombstonePurge;
use crate::upkeep::Upkeep;
use crate::vbucket::{Context, VBucket, push_history};
use crate::warmup::Warmup;

pub use stats::{DiskState, KeyOnDisk};

/// Name of the manifest among the store's local documents.
const MANIFEST: &str = "manifest";

/// Settings of a bucket, fixed while it is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketConfig {
    /// Name that clients select.
    pub name: String,
    /// 32 hexadecimal digits, chosen at creation.
    pub uuid: String,
    /// Number of vbuckets: a power of two up to 1024, fixed for the bucket's life.
    pub vbuckets: u16,
    /// Bytes of items and tables in memory beyond which writes are refused.
    pub memory_quota_bytes: u64,
    /// Whether the memcached flush command may empty the bucket, at first; see
    /// [`Bucket::set_flush_enabled`].
    pub flush_enabled: bool,
    /// Longest value, at most 20 MiB.
    pub value_bytes_max: usize,
    /// How long writes gather before a flush begins when nobody waits for one, in milliseconds.
    pub flush_interval_ms: u64,
    /// Where documents are kept.
    pub storage: Storage,
    /// What leaves memory when it runs short.
    pub eviction: EvictionPolicy,
    /// Part of the quota, in per cent, beyond which the item pager begins to evict.
    pub high_watermark_percent: u8,
    /// Part of the quota, in per cent, at which it stops.
    pub low_watermark_percent: u8,
    /// Of work in the background.
    pub upkeep: Upkeep,
}

/// Where a bucket keeps its documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Storage {
    /// In memory and in the store: what was flushed is there after a restart.
    #[default]
    Persistent,
    /// In memory only, like memcached: a restart begins empty. The store holds the collections.
    Memory,
}

/// Why a bucket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration is not possible.
    #[error("bucket configuration: {0}")]
    Config(String),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stored manifest could not be read.
    #[error("stored collections manifest: {0}")]
    Manifest(ManifestError),
}

/// Why a manifest was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ManifestUpdateError {
    /// The change is not possible.
    #[error("{0}")]
    Change(ManifestError),
    /// The new manifest could not be made durable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a bucket was not emptied.
#[derive(Debug, thiserror::Error)]
pub enum FlushAllError {
    /// The bucket's settings do not allow it.
    #[error("flush is disabled for this bucket")]
    Disabled,
    /// Some of it belongs to other nodes.
    #[error("a part of the bucket belongs to other nodes")]
    NotAllHere,
    /// Documents are still being loaded.
    #[error("the bucket is warming up")]
    WarmingUp,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// One tenant.
pub struct Bucket {
    config: BucketConfig,
    vbuckets: Box<[VBucket]>,
    manifest: ArcSwap<Manifest>,
    /// Serialises manifest changes.
    manifest_update: Mutex<()>,
    /// Held while the store's copy of a manifest that was agreed on elsewhere is written.
    manifest_copy: Mutex<()>,
    pub(crate) store: Arc<dyn KvStore>,
    pub(crate) signal: FlusherSignal,
    /// Held for a flush step and for emptying the bucket, which exclude each other. What is left of the flusher's pass.
    pub(crate) flush_lock: Mutex<FlushPass>,
    /// Collections that left the manifest and are to be purged from memory and store.
    pub(crate) purges: Mutex<Vec<CollectionId>>,
    flush_enabled: AtomicBool,
    /// Who knows how long vbuckets of a shared store are this node's.
    ownership: ArcSwapOption<Arc<dyn Ownership>>,
    compression: CompressionSwitch,
    pub(crate) memory: Memory,
    pub(crate) pager: ItemPager,
    pub(crate) storage_failed: AtomicBool,
    pub(crate) warmup: Warmup,
    /// Keys whose documents are to be read from the store.
    pub(crate) fetches: FetchQueue,
    pub(crate) expiry_pager: ExpiryPager,
    pub(crate) tombstone_purge: TombstonePurge,
    pub(crate) tasks: Tasks,
    pub(crate) timings: Mutex<BucketTimings>,
    entropy: Mutex<Box<dyn FnMut() -> u64 + Send>>,
}

impl Bucket {
    /// Opens a bucket over its store: reads vbucket states and manifest, and makes the state of
    /// every vbucket durable. Documents come by warmup. On a store that several nodes share no vbucket is
    /// active before [`Bucket::take_over`]. Unless the last run ended with a clean
    /// shutdown every vbucket begins a new history, because acknowledged writes may be gone; in a bucket
    /// in memory only they are.
    pub fn open(
        config: BucketConfig,
        store: Arc<dyn KvStore>,
        mut entropy: Box<dyn FnMut() -> u64 + Send>,
        after_clean_shutdown: bool,
    ) -> Result<Arc<Bucket>, OpenError> {
        check_config(&config)?;
        let manifest = match store.get_local(MANIFEST)? {
            None => Manifest::initial(),
            Some(bytes) => Manifest::from_stored_bytes(&bytes).map_err(OpenError::Manifest)?,
        };
        let is_same_history = after_clean_shutdown && config.storage == Storage::Persistent;
        let states = match store.is_shared() {
            // Nothing is this node's until it takes it over.
            true => vec![
                VbucketState { phase: VbucketPhase::Dead, ..VbucketState::empty() };
                usize::from(config.vbuckets)
            ],
            false => prepare_states(&config, store.as_ref(), &mut entropy, is_same_history)?,
        };
        let seed = HashSeed::new(entropy());
        let vbuckets: Box<[VBucket]> = (0..config.vbuckets)
            .zip(&states)
            .map(|(id, state)| {
                let is_loading = state.high_seqno > Seqno(0);
                VBucket::new(Vbid(id), state, seed.clone(), config.storage, is_loading)
            })
            .collect();
        let to_load = vbuckets.iter().filter(|vbucket| vbucket.is_loading()).count();
        let warmup = Warmup::of(to_load);
        let tasks = Tasks::default();
        if warmup.stats().done {
            tasks.finish(Task::Warmup);
        }
        let flush_enabled = AtomicBool::new(config.flush_enabled);
        let memory = Memory::new(&config, Arc::clone(&store));
        Ok(Arc::new(Bucket {
            config,
            vbuckets,
            manifest: ArcSwap::from_pointee(manifest),
            manifest_update: Mutex::new(()),
            manifest_copy: Mutex::new(()),
            store,
            signal: FlusherSignal::default(),
            flush_lock: Mutex::default(),
            purges: Mutex::new(Vec::new()),
            flush_enabled,
            ownership: ArcSwapOption::empty(),
            compression: CompressionSwitch::default(),
            memory,
            pager: ItemPager::default(),
            storage_failed: AtomicBool::new(false),
            warmup,
            fetches: FetchQueue::default(),
            expiry_pager: ExpiryPager::default(),
            tombstone_purge: TombstonePurge::default(),
            tasks,
            timings: Mutex::new(BucketTimings::default()),
            entropy: Mutex::new(entropy),
        }))
    }

    /// Settings.
    pub fn config(&self) -> &BucketConfig {
        &self.config
    }

    /// True when a command may empty the bucket.
    pub fn is_flush_enabled(&self) -> bool {
        self.flush_enabled.load(Ordering::Relaxed)
    }

    /// Lets commands empty the bucket, or not any more.
    pub fn set_flush_enabled(&self, enabled: bool) {
        self.flush_enabled.store(enabled, Ordering::Relaxed);
    }

    /// What is done about compression.
    pub fn compression_mode(&self) -> CompressionMode {
        self.compression.get()
    }

    /// Changes what is done about compression, for what is stored from now on.
    pub fn set_compression_mode(&self, mode: CompressionMode) {
        self.compression.set(mode);
    }

    /// All vbuckets, by id.
    pub fn vbuckets(&self) -> &[VBucket] {
        &self.vbuckets
    }

    /// One vbucket, or `None` outside the map.
    pub fn vbucket(&self, vbid: Vbid) -> Option<&VBucket> {
        self.vbuckets.get(usize::from(vbid.0))
    }

    /// Asks to be told when `seqno` is durable. True: it already is, and `sink` is not called.
    /// False: `sink` is called once with `token`, possibly from another thread and before this returns.
    /// `history` is the one in which the seqno was given out, where it is known.
    pub fn when_persisted(
        &self,
        vbid: Vbid,
        (seqno, history): (Seqno, Option<VbUuid>),
        sink: &Arc<dyn PersistenceSink>,
        token: u64,
    ) -> bool {
        let Some(vbucket) = self.vbucket(vbid) else { return true };
        let standing = || {
            // Read before the history, which a new owner writes first: it is not that of a later history then.
            let persisted = vbucket.persisted_seqno();
            if history.is_some_and(|history| history != vbucket.uuid()) {
                // Its history has ended; how much of it is durable nobody knows any more.
                return Some(PersistOutcome::Failed);
            }
            (persisted >= seqno).then_some(PersistOutcome::Persisted)
        };
        match vbucket.waiters().register(seqno, sink, token, standing) {
            Some(PersistOutcome::Persisted) => return true,
            Some(PersistOutcome::Failed) => sink.persisted(token, PersistOutcome::Failed),
            None => {
                if !vbucket.is_owned() {
                    // Ownership may have ended before the registration, and nobody will come to tell.
                    vbucket.waiters().fail_all();
                }
                self.signal.hurry();
            }
        }
        false
    }

    /// The current collections manifest.
    pub fn manifest(&self) -> Arc<Manifest> {
        self.manifest.load_full()
    }

    /// Changes the manifest; durable and in force when it returns. Documents of dropped collections
    /// are unreachable from then on and purged in the background.
    pub fn update_manifest(
        &self,
        change: &ManifestChange,
    ) -> Result<Arc<Manifest>, ManifestUpdateError> {
        let _one_at_a_time = self.manifest_update.lock();
        let before = self.manifest();
        let after = before.apply(change).map_err(ManifestUpdateError::Change)?;
        self.store.put_local(MANIFEST, after.to_stored_json().as_bytes())?;
        Ok(self.put_in_force(&before, after))
    }

    /// Puts a manifest in force that was agreed on elsewhere, unless it is older than the one that is. The one in
    /// force then. Waits for no store.
    ///
    /// # Errors
    /// The manifest cannot be read.
    pub fn install_manifest(
        &self,
        stored_json: &str,
    ) -> Result<Arc<Manifest>, ManifestUpdateError> {
        let after = Manifest::from_stored_json(stored_json).map_err(ManifestUpdateError::Change)?;
        let _one_at_a_time = self.manifest_update.lock();
        let before = self.manifest();
        if after.uid() <= before.uid() {
            return Ok(before);
        }
        Ok(self.put_in_force(&before, after))
    }

    /// Writes the manifest that is in force to the store. Blocks for the store, but nobody who changes the manifest
    /// waits for that.
    ///
    /// # Errors
    /// The store's.
    pub fn store_manifest(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.manifest_copy.lock();
        // Asked for under the lock, so that a copy is never replaced by an older one.
        let in_force = self.manifest();
        self.store.put_local(MANIFEST, in_force.to_stored_json().as_bytes())
    }

    fn put_in_force(&self, before: &Manifest, after: Manifest) -> Arc<Manifest> {
        let after = Arc::new(after);
        self.manifest.store(Arc::clone(&after));
        let all = before.scopes().iter().flat_map(|scope| &scope.collections);
        let dropped = all.map(|collection| collection.id).filter(|id| !after.contains(*id));
        self.purges.lock().extend(dropped);
        self.signal.notify();
        after
    }

    /// Removes every document, in memory and on disk. Seqnos and CAS values go on; every vbucket
    /// begins a new history. Blocks for the store.
    pub fn flush_all(&self) -> Result<(), FlushAllError> {
        if !self.is_flush_enabled() {
            return Err(FlushAllError::Disabled);
        }
        if !self.vbuckets.iter().all(VBucket::is_owned) {
            return Err(FlushAllError::NotAllHere);
        }
        if self.vbuckets.iter().any(VBucket::is_loading) {
            return Err(FlushAllError::WarmingUp);
        }
        let _no_flush_step = self.flush_lock.lock();
        let mut batches = Vec::with_capacity(self.vbuckets.len());
        for vbucket in &self.vbuckets {
            let state = vbucket.clear(self.new_uuid());
            self.store.drop_vbucket(vbucket.id())?;
            batches.push(VbBatch { vbid: vbucket.id(), records: Vec::new(), state });
        }
        self.store.commit(&batches)?;
        for vbucket in &self.vbuckets {
            vbucket.waiters().persisted(vbucket.persisted_seqno());
        }
        Ok(())
    }

    pub(crate) fn context(&self, now: Timestamp) -> Context<'_> {
        Context {
            manifest: &self.manifest,
            signal: &self.signal,
            now,
            value_bytes_max: self.config.value_bytes_max,
            memory: &self.memory,
            compression: &self.compression,
        }
    }

    /// A number from the source of entropy.
    pub(crate) fn random_number(&self) -> u64 {
        (self.entropy.lock())()
    }

    fn new_uuid(&self) -> VbUuid {
        vb_uuid(&mut *self.entropy.lock())
    }
}

fn check_config(config: &BucketConfig) -> Result<(), OpenError> {
    let vbuckets = config.vbuckets;
    if !vbuckets.is_power_of_two() || vbuckets > VBUCKETS_MAX {
        let text = format!("vbuckets = {vbuckets} is not a power of two from 1 to {VBUCKETS_MAX}");
        return Err(OpenError::Config(text));
    }
    if config.value_bytes_max > VALUE_BYTES_MAX {
        let text = format!("value_bytes_max is over {VALUE_BYTES_MAX}");
        return Err(OpenError::Config(text));
    }
    if !config.eviction.fits(config.storage) {
        let text = format!("eviction {:?} with storage {:?}", config.eviction, config.storage);
        return Err(OpenError::Config(text));
    }
    let (low, high) = (config.low_watermark_percent, config.high_watermark_percent);
    if low >= high || high > 100 {
        let text = format!("watermarks of {low} and {high} % are not in ascending order up to 100");
        return Err(OpenError::Config(text));
    }
    let percent = config.upkeep.checkpoint_quota_percent;
    if !(1..=100).contains(&percent) {
        let text = format!("a checkpoint quota of {percent} % is not between 1 and 100");
        return Err(OpenError::Config(text));
    }
    Ok(())
}

/// States of all vbuckets in order of id; new and changed ones are durable when it returns.
fn prepare_states(
    config: &BucketConfig,
    store: &dyn KvStore,
    entropy: &mut dyn FnMut() -> u64,
    after_clean_shutdown: bool,
) -> Result<Vec<VbucketState>, OpenError> {
    let mut states: Vec<Option<VbucketState>> = vec![None; usize::from(config.vbuckets)];
    for (vbid, state) in store.vbucket_states()? {
        match states.get_mut(usize::from(vbid.0)) {
            Some(slot) => *slot = Some(state),
            None => {
                let text = format!("the store has {vbid}, the bucket {} vbuckets", config.vbuckets);
                return Err(OpenError::Config(text));
            }
        }
    }
    let mut changed = Vec::new();
    let mut prepared = Vec::with_capacity(states.len());
    for (id, found) in (0..config.vbuckets).zip(states) {
        let known = found.is_some();
        let mut state = found.unwrap_or_else(VbucketState::empty);
        let is_same = after_clean_shutdown || planted::has(Bug::KeepsTheHistoryOverACrash);
        if !known || !is_same {
            let entry = FailoverEntry { uuid: vb_uuid(entropy), seqno: state.high_seqno };
            push_history(&mut state.failover_table, entry);
            changed.push(VbBatch { vbid: Vbid(id), records: Vec::new(), state: state.clone() });
        }
        prepared.push(state);
    }
    if !changed.is_empty() && !planted::has(Bug::LosesVbucketStates) {
        store.commit(&changed)?;
    }
    Ok(prepared)
}

/// A random history id. 48 bits, like the ids that clients see from Couchbase, and never 0.
fn vb_uuid(entropy: &mut (dyn FnMut() -> u64 + '_)) -> VbUuid {
    VbUuid((entropy() & 0xffff_ffff_ffff).max(1))
}
