//! How a bucket is opened.
//!
//! Owns: what the bucket reads from the store first, and which vbuckets begin a new history.
//! Invariant: the state of a vbucket is durable before the first write to it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use oribi_storage::{FailoverEntry, KvStore, StoreError, VbBatch, VbucketPhase, VbucketState};
use oribi_types::policy::Storage;
use oribi_types::{CollectionId, CopiesEpoch, DocKey, Seqno, VbUuid, Vbid};
use parking_lot::Mutex;

use super::Bucket;
use super::manifest::stored_manifest;
use crate::backfill::Backfiller;
use crate::background_fetch::Fetcher;
use crate::collections::BucketManifest;
use crate::config::BucketConfig;
use crate::core::Core;
use crate::error::BucketOpenError;
use crate::expiry_pager::ExpiryPager;
use crate::flusher::Flushers;
use crate::hash_table::HashSeed;
use crate::item_pager::ItemPager;
use crate::tasks::Task;
use crate::tombstone_purge::TombstonePurger;
use crate::vbucket::{OwnedPrepare, VBucket, push_history};
use crate::warmup::Warmup;

impl Bucket {
    /// Opens a bucket over its store: reads vbucket states and manifest, and makes the state of
    /// every vbucket durable. Warmup loads the documents. On a store that several nodes share no
    /// vbucket is active before [`Bucket::take_over`]. Unless the last run ended with a clean
    /// shutdown, every vbucket begins a new history, because acknowledged writes may be lost. A
    /// bucket in memory only has always lost them.
    pub fn open(
        config: BucketConfig,
        store: Arc<dyn KvStore>,
        entropy: Box<dyn FnMut() -> u64 + Send>,
        after_clean_shutdown: bool,
    ) -> Result<Arc<Bucket>, BucketOpenError> {
        Bucket::open_with(config, store, entropy, (after_clean_shutdown, false))
    }

    /// As [`Bucket::open`], for a bucket whose vbuckets have copies on other nodes: no vbucket is
    /// active, those with documents are replicas, and no history begins. After an unclean shutdown
    /// the copies are not intact.
    ///
    /// # Errors
    /// As [`Bucket::open`].
    pub fn open_copies(
        config: BucketConfig,
        store: Arc<dyn KvStore>,
        entropy: Box<dyn FnMut() -> u64 + Send>,
        after_clean_shutdown: bool,
    ) -> Result<Arc<Bucket>, BucketOpenError> {
        Bucket::open_with(config, store, entropy, (after_clean_shutdown, true))
    }

    fn open_with(
        config: BucketConfig,
        store: Arc<dyn KvStore>,
        mut entropy: Box<dyn FnMut() -> u64 + Send>,
        (after_clean_shutdown, has_copies): (bool, bool),
    ) -> Result<Arc<Bucket>, BucketOpenError> {
        config.check().map_err(BucketOpenError::Config)?;
        let manifest = stored_manifest(store.as_ref())?;
        let is_same_history = after_clean_shutdown && config.storage == Storage::Persistent;
        let states = match store.shared() {
            // This node owns no vbucket until it takes it over.
            Some(_) => vec![
                VbucketState { phase: VbucketPhase::Dead, ..VbucketState::empty() };
                usize::from(config.vbuckets)
            ],
            None if has_copies => prepare_copies(&config, store.as_ref(), is_same_history)?,
            None => prepare_states(&config, store.as_ref(), &mut entropy, is_same_history)?,
        };
        let seed = HashSeed::new(entropy());
        let vbuckets: Box<[VBucket]> = (0..config.vbuckets)
            .zip(&states)
            .map(|(id, state)| {
                let is_loading = state.high_seqno > Seqno(0) && state.phase != VbucketPhase::Dead;
                VBucket::new(Vbid(id), state, seed.clone(), config.storage, is_loading)
            })
            .collect();
        assert_eq!(vbuckets.len(), usize::from(config.vbuckets), "every vbucket has a state");
        for (vbucket, state) in vbuckets.iter().zip(&states) {
            if state.high_prepared_seqno > state.high_completed_seqno {
                let completed = state.high_completed_seqno;
                let prepares = stored_prepares(store.as_ref(), vbucket.id(), completed, &manifest)?;
                vbucket.hold_stored(&prepares);
            }
        }
        let to_load = vbuckets.iter().filter(|vbucket| vbucket.is_loading()).count();
        let flush_interval_ms = AtomicU64::new(config.flush_interval_ms);
        let flush_enabled = AtomicBool::new(config.flush_enabled);
        let flushers = Flushers::new(store.properties().commit_groups);
        let core = Core::new(config, vbuckets, manifest, store);
        if to_load == 0 {
            core.tasks().finish(Task::Warmup);
        }
        let bucket = Arc::new(Bucket {
            core,
            flushers,
            warmup: Warmup::of(to_load),
            fetcher: Fetcher::default(),
            pager: ItemPager::default(),
            expiry_pager: ExpiryPager::default(),
            tombstone_purge: TombstonePurger::default(),
            backfiller: Backfiller::default(),
            flush_enabled,
            flush_interval_ms,
            manifest_copy: Mutex::new(()),
            entropy: Mutex::new(entropy),
        });
        bucket.reconcile(bucket.vbuckets().iter().filter(|vbucket| vbucket.is_owned()));
        Ok(bucket)
    }

    /// The id of a history that begins here.
    pub(super) fn new_uuid(&self) -> VbUuid {
        vb_uuid(&mut *self.entropy.lock())
    }
}

/// The open prepares that the store has of a vbucket, in order of seqno. Those up to `completed`
/// are not open. A backfill completes prepares in another order: one whose document has a newer
/// version is not open, either.
fn stored_prepares(
    store: &dyn KvStore,
    vbid: Vbid,
    completed: Seqno,
    manifest: &BucketManifest,
) -> Result<Vec<OwnedPrepare>, StoreError> {
    let mut prepares = Vec::new();
    let from = DocKey { collection: CollectionId::PREPARES, key: &[] };
    let reserve = &mut |_| ControlFlow::Continue(());
    store.scan_collection(vbid, from, reserve, &mut |record| {
        if record.seqno > completed {
            // Of a long history there may be more than fits into memory.
            prepares.extend(OwnedPrepare::of(&record).map(OwnedPrepare::without_value));
        }
        ControlFlow::Continue(())
    })?;
    let mut open = Vec::with_capacity(prepares.len());
    for prepare in prepares {
        let mut newest = Seqno(0);
        store.get(vbid, prepare.key(), reserve, &mut |record| newest = record.seqno)?;
        if newest < prepare.seqno() && manifest.contains(prepare.key().collection) {
            open.push(prepare);
        }
    }
    open.sort_unstable_by_key(OwnedPrepare::seqno);
    debug_assert!(
        open.iter().all(|prepare| prepare.seqno() > completed),
        "a completed prepare is not open"
    );
    Ok(open)
}

/// States of all vbuckets in order of id. New and changed states are durable when this returns.
fn prepare_states(
    config: &BucketConfig,
    store: &dyn KvStore,
    entropy: &mut dyn FnMut() -> u64,
    after_clean_shutdown: bool,
) -> Result<Vec<VbucketState>, BucketOpenError> {
    prepare_each(config, store, |found| {
        let known = found.is_some();
        let mut state = found.unwrap_or_else(VbucketState::empty);
        // A copy has what its active sent: its histories are those of the active.
        let is_active = state.phase == VbucketPhase::Active;
        if is_active && (!known || !after_clean_shutdown) {
            let entry = FailoverEntry {
                uuid: vb_uuid(entropy),
                seqno: state.high_seqno,
                epoch: CopiesEpoch(0),
            };
            push_history(&mut state.failover_table, entry);
            assert_eq!(
                state.failover_table.first(),
                Some(&entry),
                "the newest history comes first"
            );
        }
        state
    })
}

/// The same for a bucket with copies on other nodes, which say what is active.
fn prepare_copies(
    config: &BucketConfig,
    store: &dyn KvStore,
    after_clean_shutdown: bool,
) -> Result<Vec<VbucketState>, BucketOpenError> {
    prepare_each(config, store, |found| {
        let none = || VbucketState { phase: VbucketPhase::Dead, ..VbucketState::empty() };
        let mut state = found.unwrap_or_else(none);
        if state.phase != VbucketPhase::Dead {
            state.phase = VbucketPhase::Replica;
            state.is_intact &= after_clean_shutdown;
        }
        state
    })
}

/// `prepare` of each stored state; commits those that it changes.
fn prepare_each(
    config: &BucketConfig,
    store: &dyn KvStore,
    mut prepare: impl FnMut(Option<VbucketState>) -> VbucketState,
) -> Result<Vec<VbucketState>, BucketOpenError> {
    let (mut changed, mut prepared) = (Vec::new(), Vec::new());
    for (id, before) in (0..config.vbuckets).zip(stored_states(config, store)?) {
        let state = prepare(before.clone());
        if before.as_ref() != Some(&state) {
            changed.push(VbBatch { vbid: Vbid(id), records: Vec::new(), state: state.clone() });
        }
        prepared.push(state);
    }
    assert_eq!(prepared.len(), usize::from(config.vbuckets), "every vbucket has a state");
    if !changed.is_empty() {
        store.commit(&changed)?;
    }
    Ok(prepared)
}

/// The states in the store, in order of id.
fn stored_states(
    config: &BucketConfig,
    store: &dyn KvStore,
) -> Result<Vec<Option<VbucketState>>, BucketOpenError> {
    let mut states: Vec<Option<VbucketState>> = vec![None; usize::from(config.vbuckets)];
    for (vbid, state) in store.vbucket_states()? {
        match states.get_mut(usize::from(vbid.0)) {
            Some(slot) => *slot = Some(state),
            None => {
                let text = format!("the store has {vbid}, the bucket {} vbuckets", config.vbuckets);
                return Err(BucketOpenError::Config(text));
            }
        }
    }
    Ok(states)
}

/// A random history id. 48 bits, like the ids that clients see from Couchbase, and never 0.
fn vb_uuid(entropy: &mut (dyn FnMut() -> u64 + '_)) -> VbUuid {
    VbUuid((entropy() & 0xffff_ffff_ffff).max(1))
}
