//! Making values dense: which collections, with which dictionary, and when to train again.
//!
//! Owns: the newest dictionary of each collection and the verdict about it. A collection that the
//! pager meets is sampled once. If a dictionary pays, its values become dense; else the collection
//! is left alone for some minutes. Values that shrink less than the trial's did are a reason to
//! train again; values of earlier dictionaries are recoded when the pager meets them, so an earlier
//! dictionary ends. A value that did not become smaller is tried again after a training only. One
//! thread calls at a time: the pager's, or while the bucket loads a loader's.

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_types::{CollectionId, Datatype, Timestamp};

use crate::block_arena;
use crate::core::Core;
use crate::dense::{DenseTier, Dictionary, DictionaryEncoder, DictionaryName, MemoryTier, Samples};
use crate::hash_table::ScanCursor;
use crate::item::{ItemRef, NewItem};
use crate::limits::{DENSE_PLAIN_BYTES_MAX, DENSE_PLAIN_BYTES_MIN};
use crate::vbucket::Densify;

/// Seconds after which a collection that does not compress is sampled again.
const RECHECK_S: u32 = 600;

/// Values after which the ratio is looked at, and seconds from a training to the next.
const WINDOW_VALUES: u64 = 4096;
const RETRAIN_S: u32 = 60;

/// The ratio has fallen when values take this many per cent of what the trial's took.
const FALLEN_PERCENT: u64 = 125;

/// Dictionaries of one collection that values may still name when it is trained again.
const VERSIONS_MAX: usize = 3;

/// Of the values of a window, so many per cent may stay as they are.
const FAILED_PERCENT_MAX: u64 = 50;

/// Groups of one vbucket that are sampled, and visits of vbuckets for one training.
const SAMPLED_GROUPS: usize = 8;
const SAMPLED_VBUCKETS: usize = 1024;

/// Working memory of a training: tables of some 10 MiB, and copies of the samples.
const TRAINING_BYTES: u64 = 12 << 20;

/// Verdict about one collection.
enum Verdict {
    /// It does not pay; looked at again later.
    LeftAlone {
        until_s: u32,
    },
    Dense(DenseCollection),
}

struct DenseCollection {
    encoder: DictionaryEncoder,
    trained_s: u32,
    /// The least time to the next training: twice as long after each that was of no use.
    patience_s: u32,
    /// Length of the trial's values, in per cent of their plain one.
    trial_percent: u64,
    window: Window,
    /// Until the hand has passed so many vbuckets, what failed with an earlier dictionary is tried.
    retries_until: u64,
}

/// Values since the ratio was looked at.
#[derive(Default)]
struct Window {
    values: u64,
    failed: u64,
    plain_bytes: u64,
    dense_bytes: u64,
}

/// The pager's knowledge of each collection of its bucket.
#[derive(Default)]
pub(super) struct DenseCompressor {
    collections: BTreeMap<CollectionId, Verdict>,
    versions: BTreeMap<CollectionId, u32>,
    /// A collection that was met and is not known yet, or has to be trained again.
    untrained: Option<CollectionId>,
    /// Values that were compressed, with or without success.
    attempts: u64,
    frame: Vec<u8>,
}

/// When and where the pager's hand is.
#[derive(Clone, Copy)]
pub(super) struct HandMoment {
    pub(super) now: Timestamp,
    /// Vbuckets that the hand has passed since the bucket was opened.
    pub(super) vbuckets_passed: u64,
}

/// The compressor at work on one slice of a table.
pub(super) struct DensePass<'a> {
    pub(super) compressor: &'a mut DenseCompressor,
    pub(super) tier: &'a DenseTier,
    pub(super) moment: HandMoment,
}

impl Densify for DensePass<'_> {
    fn wants(&self, item: &ItemRef) -> bool {
        self.compressor.wants(item, self.moment)
    }

    fn densified(&mut self, item: &ItemRef) -> Option<ItemRef> {
        let dense = self.compressor.densified(self.tier, item, self.moment);
        assert!(dense.as_ref().is_none_or(|dense| dense.seqno() == item.seqno()), "one version");
        dense
    }
}

impl DenseCompressor {
    fn wants(&self, item: &ItemRef, moment: HandMoment) -> bool {
        let is_eligible = !item.is_deleted()
            && !item.is_in_store_only()
            && !item.datatype().contains(Datatype::SNAPPY)
            && (DENSE_PLAIN_BYTES_MIN..=DENSE_PLAIN_BYTES_MAX).contains(&item.value_bytes());
        is_eligible
            && match self.collections.get(&item.key().collection) {
                Some(Verdict::Dense(found)) => {
                    let is_tried =
                        item.is_incompressible() && moment.vbuckets_passed >= found.retries_until;
                    let slot = found.encoder.dictionary().slot();
                    !is_tried && item.dictionary_slot() != Some(slot)
                }
                Some(Verdict::LeftAlone { until_s }) => moment.now.unix_s() >= *until_s,
                None => true,
            }
    }

    fn densified(
        &mut self,
        tier: &DenseTier,
        item: &ItemRef,
        moment: HandMoment,
    ) -> Option<ItemRef> {
        if !self.wants(item, moment) {
            return None;
        }
        let collection = item.key().collection;
        let Some(Verdict::Dense(found)) = self.collections.get_mut(&collection) else {
            self.untrained = Some(collection);
            return None;
        };
        let slot = found.encoder.dictionary().slot();
        self.attempts += 1;
        let plain = match item.to_plain() {
            Ok(plain) => plain,
            Err(error) => {
                tracing::error!("{error}; the document is left as it is");
                return None;
            }
        };
        let dense = found
            .encoder
            .compress(plain.value(), &mut self.frame)
            .and_then(|frame| NewItem::dense(&plain, slot, frame, plain.value().len()))
            .filter(|dense| dense.as_item().block_bytes() < plain.block_bytes());
        let dense_bytes = dense.as_ref().map_or(plain.value().len(), |_| self.frame.len());
        found.window.count(plain.value().len(), dense_bytes, dense.is_none());
        if found.window.values >= WINDOW_VALUES {
            if found.has_fallen() {
                self.untrained = Some(collection);
            }
            found.window = Window::default();
        }
        debug_assert!(found.window.values < WINDOW_VALUES, "a full window begins again");
        let Some(mut dense) = dense else {
            // The same block, unless the value was dense.
            plain.note_incompressible();
            // An earlier dictionary ends also with values that have no use for the new one.
            return item.is_dense().then_some(plain);
        };
        dense.copy_frequency(item);
        tier.count_compression();
        Some(dense.publish())
    }

    /// Values that were compressed since the bucket was opened, with or without success.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Trains a dictionary for the collection that was met without one, if there is one.
    pub(crate) fn train(&mut self, core: &Core, moment: HandMoment) {
        let Some(collection) = self.untrained.take() else { return };
        let tier = core.memory().dense();
        if let Some(Verdict::Dense(found)) = self.collections.get(&collection)
            && moment.now.unix_s().saturating_sub(found.trained_s) < found.patience_s
        {
            return;
        }
        // Of the process only: the quota would refuse writes for the milliseconds that it takes.
        // The collection is met again.
        if !block_arena::take_outside(TRAINING_BYTES) {
            return;
        }
        self.retire(tier);
        let of_collection = |found: &Arc<Dictionary>| found.name().collection == collection;
        let versions =
            tier.dictionaries().lock().iter().filter(|found| of_collection(found)).count();
        let has_place = versions <= VERSIONS_MAX && tier.has_place(core.memory().quota_bytes());
        let trained = if has_place { self.trained(core, collection, moment) } else { None };
        block_arena::return_outside(TRAINING_BYTES);
        self.judge(core, collection, trained, moment);
    }

    /// The dictionary that a simulation has trained.
    #[cfg(test)]
    pub(crate) fn adopt(
        &mut self,
        core: &Core,
        collection: CollectionId,
        trained: &mut [u8],
        moment: HandMoment,
    ) {
        let published = self.published(core, collection, trained);
        let found = published.map(|encoder| DenseCollection::new(core, encoder, 50, moment));
        self.judge(core, collection, found, moment);
    }

    /// Decides whether the collection becomes dense.
    fn judge(
        &mut self,
        core: &Core,
        collection: CollectionId,
        trained: Option<DenseCollection>,
        moment: HandMoment,
    ) {
        let now_s = moment.now.unix_s();
        match (trained, self.collections.get_mut(&collection)) {
            (Some(trained), _) => {
                self.collections.insert(collection, Verdict::Dense(trained));
            }
            // The dictionary that it has pays as well as a newer one.
            (None, Some(Verdict::Dense(found))) => {
                found.trained_s = now_s;
                found.patience_s = (2 * found.patience_s).min(RECHECK_S);
            }
            (None, _) => {
                let until_s = now_s.saturating_add(RECHECK_S);
                self.collections.insert(collection, Verdict::LeftAlone { until_s });
            }
        }
        self.retire(core.memory().dense());
        debug_assert!(self.collections.contains_key(&collection), "training ends with a verdict");
        core.memory().report(0);
    }

    fn trained(
        &mut self,
        core: &Core,
        collection: CollectionId,
        moment: HandMoment,
    ) -> Option<DenseCollection> {
        let samples = sample(core, collection, moment.now);
        let mut trained = samples.train()?;
        let encoder = self.published(core, collection, &mut trained)?;
        let earlier = match self.collections.get(&collection) {
            Some(Verdict::Dense(found)) => Some(&found.encoder),
            _ => None,
        };
        let trial_percent = samples.paying_percent(&encoder, earlier)?;
        tracing::debug!(
            bucket = core.name(),
            dictionary = %encoder.dictionary().name(),
            trial_percent,
            "values of a collection become dense"
        );
        Some(DenseCollection::new(core, encoder, trial_percent, moment))
    }

    fn published(
        &mut self,
        core: &Core,
        collection: CollectionId,
        trained: &mut [u8],
    ) -> Option<DictionaryEncoder> {
        let tier = core.memory().dense();
        let version = self.versions.entry(collection).or_default();
        *version += 1;
        let name = DictionaryName { collection, version: *version };
        let encoder = DictionaryEncoder::new(name, trained, tier.account())?;
        assert!(encoder.dictionary().values() == 0, "a new dictionary has no values");
        tier.dictionaries().lock().push(Arc::clone(encoder.dictionary()));
        Some(encoder)
    }

    /// Samples collections anew that did not pay, and removes dictionaries without values.
    /// A collection whose last dense value has gone begins anew.
    pub(crate) fn review(&mut self, core: &Core, now: Timestamp) {
        let tier = core.memory().dense();
        let is_on = tier.tier() == MemoryTier::Dense;
        self.collections.retain(|_, verdict| match verdict {
            Verdict::LeftAlone { until_s } => now.unix_s() < *until_s,
            Verdict::Dense(found) => {
                let is_idle = now.unix_s().saturating_sub(found.trained_s) >= RECHECK_S || !is_on;
                !(is_idle && found.encoder.dictionary().values() == 0)
            }
        });
        self.retire(tier);
    }

    /// Removes dictionaries whose last value has gone, except the newest of each collection.
    pub(super) fn retire(&self, tier: &DenseTier) {
        tier.retire_unused(|dictionary| {
            matches!(
                self.collections.get(&dictionary.name().collection),
                Some(Verdict::Dense(found))
                    if found.encoder.dictionary().slot() == dictionary.slot()
            )
        });
    }
}

impl Window {
    fn count(&mut self, plain_bytes: usize, dense_bytes: usize, is_failed: bool) {
        self.values += 1;
        self.failed += u64::from(is_failed);
        debug_assert!(self.failed <= self.values, "a failed attempt is an attempt");
        self.plain_bytes += plain_bytes as u64;
        self.dense_bytes += dense_bytes as u64;
    }
}

impl DenseCollection {
    fn new(
        core: &Core,
        encoder: DictionaryEncoder,
        trial_percent: u64,
        moment: HandMoment,
    ) -> DenseCollection {
        assert!(trial_percent <= 100, "a dictionary that enlarges values is not used");
        DenseCollection {
            encoder,
            trained_s: moment.now.unix_s(),
            patience_s: RETRAIN_S,
            trial_percent,
            window: Window::default(),
            // A whole round, whatever part of a vbucket the hand is in.
            retries_until: moment.vbuckets_passed + core.vbuckets().len() as u64 + 1,
        }
    }

    /// True when the window's values shrank less than the trial's.
    fn has_fallen(&self) -> bool {
        let Window { values, failed, plain_bytes, dense_bytes } = self.window;
        dense_bytes * 100 * 100 > plain_bytes * self.trial_percent * FALLEN_PERCENT
            || failed * 100 > values * FAILED_PERCENT_MAX
    }
}

/// Values of a collection from all over the bucket.
fn sample(core: &Core, collection: CollectionId, now: Timestamp) -> Samples {
    let vbuckets = core.vbuckets();
    let mut samples = Samples::default();
    let mut cursors = vec![ScanCursor::default(); vbuckets.len()];
    let mut complete = vec![false; vbuckets.len()];
    for visit in 0..SAMPLED_VBUCKETS.max(vbuckets.len()) {
        let at = visit % vbuckets.len();
        if samples.is_full() || complete.iter().all(|complete| *complete) {
            break;
        }
        if !complete[at] {
            let cursor = &mut cursors[at];
            let wish = (collection, now);
            complete[at] = vbuckets[at].sample_values(wish, cursor, SAMPLED_GROUPS, &mut samples);
        }
    }
    samples
}
