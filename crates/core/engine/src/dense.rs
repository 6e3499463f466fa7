//! The dense tier: cold values stay in memory, compressed with a dictionary of their collection.
//!
//! Owns: the bucket's setting, the list of its dictionaries, and the figures. Between "in memory"
//! and "in the store" there is a form that costs a microsecond to read. Invariants:
//! 1. Every reader sees plain documents: a dense item counts as evicted for all who do not know
//!    better ([`crate::Item::is_dense`]), and vbuckets inflate it where they would ask for a fetch.
//! 2. Dictionaries are counted in the quota before they are used, and have at most a part of it.
//! 3. Only clean versions become dense, so queue, flusher and store have plain values only.
//!
//! The item pager compresses on its thread; readers inflate on theirs.

mod dictionary;
mod frame_check;
mod training;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use oribi_types::CollectionId;
pub use oribi_types::policy::MemoryTier;
use parking_lot::Mutex;

#[cfg(test)]
pub(crate) use dictionary::DictionaryFault;
pub use dictionary::{DenseError, DictionaryName};
pub(crate) use dictionary::{
    Dictionary, DictionaryEncoder, count_value, release_value, with_inflated,
};
pub use frame_check::check_frame;
pub(crate) use training::Samples;

/// Dictionaries have at most this part of the quota, and a bucket at most so many.
const DICTIONARIES_PART: u64 = 32;
const DICTIONARIES_MAX: usize = 64;

/// Bytes of a new dictionary at most, with the tables of its encoder and decoder.
const DICTIONARY_BYTES: u64 = 192 << 10;
const _: () = assert!(DICTIONARIES_MAX <= crate::limits::DENSE_DICTIONARIES_MAX);

/// Figures of dense values, of a bucket or of one collection. Counts are since the bucket was
/// opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DenseStats {
    /// Dense values, the sum of their plain lengths, and of their dense ones.
    pub values: u64,
    pub plain_bytes: u64,
    pub dense_bytes: u64,
    pub dictionaries: u64,
    /// Values that readers inflated.
    pub inflations: u64,
}

impl DenseStats {
    fn add(&mut self, dictionary: &Dictionary) {
        self.values += dictionary.values();
        self.plain_bytes += dictionary.plain_bytes();
        self.dense_bytes += dictionary.dense_bytes();
        self.inflations += dictionary.inflations();
        self.dictionaries += 1;
    }
}

/// The dense tier of one bucket: what its readers, its pager and its statistics share.
#[derive(Default)]
pub(crate) struct DenseTier {
    tier: AtomicU8,
    dictionaries: Mutex<Vec<Arc<Dictionary>>>,
    /// Bytes of dictionaries, those of encoders included.
    bytes: Arc<AtomicU64>,
    /// Inflations with dictionaries that are gone.
    past_inflations: AtomicU64,
    compressions: AtomicU64,
}

impl DenseTier {
    pub(crate) fn tier(&self) -> MemoryTier {
        match self.tier.load(Ordering::Relaxed) {
            tier if tier == MemoryTier::Dense as u8 => MemoryTier::Dense,
            _ => MemoryTier::Off,
        }
    }

    /// Values that are dense stay so until they are used or leave.
    pub(crate) fn set_tier(&self, tier: MemoryTier) {
        self.tier.store(tier as u8, Ordering::Relaxed);
    }

    pub(crate) fn dictionary_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Values that were made dense since the bucket was opened.
    pub(crate) fn compressions(&self) -> u64 {
        self.compressions.load(Ordering::Relaxed)
    }

    pub(crate) fn count_compression(&self) {
        self.compressions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dictionaries(&self) -> &Mutex<Vec<Arc<Dictionary>>> {
        &self.dictionaries
    }

    /// Where the bytes of dictionaries are counted.
    pub(crate) fn account(&self) -> &Arc<AtomicU64> {
        &self.bytes
    }

    /// True when one more dictionary fits its bounds.
    pub(crate) fn has_place(&self, quota_bytes: u64) -> bool {
        let bytes = self.dictionary_bytes() + DICTIONARY_BYTES;
        self.dictionaries.lock().len() < DICTIONARIES_MAX
            && bytes <= quota_bytes / DICTIONARIES_PART
    }

    /// Figures of all collections together.
    pub(crate) fn stats(&self) -> DenseStats {
        let mut stats = DenseStats::default();
        self.dictionaries.lock().iter().for_each(|dictionary| stats.add(dictionary));
        stats.inflations += self.past_inflations.load(Ordering::Relaxed);
        stats
    }

    /// Figures of each collection that has a dictionary.
    pub(crate) fn collection_stats(&self) -> BTreeMap<CollectionId, DenseStats> {
        let mut all: BTreeMap<CollectionId, DenseStats> = BTreeMap::new();
        for dictionary in self.dictionaries.lock().iter() {
            all.entry(dictionary.name().collection).or_default().add(dictionary);
        }
        all
    }

    /// Removes dictionaries that no value names, unless `is_current` keeps them.
    pub(crate) fn retire_unused(&self, is_current: impl Fn(&Dictionary) -> bool) {
        self.dictionaries.lock().retain(|dictionary| {
            let is_gone = !is_current(dictionary) && dictionary.retire_unused();
            if is_gone {
                let inflations = dictionary.inflations();
                self.past_inflations.fetch_add(inflations, Ordering::Relaxed);
            }
            !is_gone
        });
    }
}

impl Drop for DenseTier {
    fn drop(&mut self) {
        self.dictionaries.get_mut().iter().for_each(|dictionary| dictionary.orphan());
    }
}

/// Opens a bucket whose quota covers the memory that tests of this process take without one.
/// Nothing is compressed where the process has no memory left.
#[cfg(test)]
pub(crate) fn cover_process_memory() {
    use crate::{Bucket, BucketConfig};
    use oribi_storage::{MemoryMedium, MemoryStore};
    static COVER: std::sync::LazyLock<Arc<Bucket>> = std::sync::LazyLock::new(|| {
        let quota = 4 << 30;
        let config =
            BucketConfig { vbuckets: 1, memory_quota_bytes: quota, ..BucketConfig::default() };
        let store = Arc::new(MemoryStore::on(Arc::new(MemoryMedium::default())));
        Bucket::open(config, store, Box::new(|| 7), true).expect("the bucket opens")
    });
    std::sync::LazyLock::force(&COVER);
}
