//! The dense tier in a simulation: trainings, compression, tight loads, dictionaries with a fault.
//!
//! Owns: the steps, and the check that every dense value is the one that the model has. The quota
//! of a simulated bucket is too small for a training, so dictionaries come from here.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use oribi_storage::SeededRandom;
use oribi_types::{CollectionId, Seqno, Vbid};

use super::model::ModelKey;
use super::world::World;
use crate::dense::{DenseError, Dictionary, DictionaryFault, Samples, cover_process_memory};

/// Trained dictionaries, of different texts.
static DICTIONARIES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let trained = |seed| {
        let (mut random, mut samples) = (SeededRandom::new(seed), Samples::default());
        while samples.add(&random_text(&mut random)) && !samples.is_at_least(64 << 10) {}
        samples.train().expect("alike texts make a dictionary")
    };
    (0..3).map(trained).collect()
});

/// A text that a dictionary helps with.
pub(super) fn random_text(random: &mut SeededRandom) -> Vec<u8> {
    let words = "order invoice delivered packed Berlin Paris Madrid Prague keyboard monitor cable \
                 notebook customer warehouse returned shipped"
        .split_whitespace()
        .collect::<Vec<_>>();
    let mut text = format!("{{\"type\":\"order\",\"id\":{},\"notes\":[", random.below(1_000_000));
    for _ in 0..3 + random.below(30) {
        let word = words[random.below(words.len() as u64) as usize];
        text.push_str(&format!("\"{word}-{}\",", random.below(100)));
    }
    text.push_str("\"end\"],\"currency\":\"EUR\"}");
    text.into_bytes()
}

impl World {
    pub(super) fn dense_step(&self) {
        match self.below(12) {
            0..3 => self.train(),
            3..9 => self.densify(),
            9 | 10 => self.warm_up_tight(),
            _ => self.break_dictionaries(),
        }
    }

    /// A collection gets a dictionary, the first or a newer one.
    fn train(&self) {
        cover_process_memory();
        let collection = match self.below(2) {
            0 => CollectionId::DEFAULT,
            _ => self.collection.get(),
        };
        let mut trained = DICTIONARIES[self.below(DICTIONARIES.len() as u64) as usize].clone();
        let bucket = self.bucket();
        bucket.pager().adopt(bucket.core(), collection, &mut trained, self.now.get());
        self.count(|counts| counts.trained += 1);
    }

    /// Memory is above the high watermark, so that the pager compresses before it evicts.
    pub(super) fn densify(&self) {
        let (bucket, now) = (self.bucket(), self.now.get());
        let quota = bucket.memory_quota_bytes();
        let (before, slots) = (self.compressions(), self.slots());
        bucket.set_memory_quota(bucket.core().memory().used_bytes() * 100 / (86 + self.below(12)));
        for _ in 0..=self.below(2) {
            let report = bucket.page_items_step(&|| now);
            self.count(|counts| counts.evicted += report.evicted);
        }
        bucket.set_memory_quota(quota);
        let densified = self.compressions() - before;
        let is_recoded = |(version, slot)| slots.get(&version).is_some_and(|old| *old != slot);
        let recoded = self.slots().into_iter().filter(|found| is_recoded(*found)).count();
        self.count(|counts| {
            counts.densified += densified;
            counts.recoded += recoded as u64;
        });
        self.check_dense_values();
    }

    /// Warmup finds memory at the low watermark.
    fn warm_up_tight(&self) {
        let bucket = self.bucket();
        let (quota, before) = (bucket.memory_quota_bytes(), self.compressions());
        bucket.set_memory_quota(bucket.core().memory().used_bytes() * 100 / (76 + self.below(30)));
        self.warm_up();
        bucket.set_memory_quota(quota);
        let densified = self.compressions() - before;
        self.count(|counts| counts.loaded_dense += densified);
        self.check_dense_values();
    }

    /// The dictionaries of all dense versions.
    fn slots(&self) -> BTreeMap<(Vbid, Seqno), Option<u16>> {
        let bucket = self.bucket();
        let slots = bucket.vbuckets().iter().flat_map(|vbucket| {
            let items = vbucket.dense_items().into_iter();
            items.map(|item| ((vbucket.id(), item.seqno()), item.dictionary_slot()))
        });
        slots.collect()
    }

    fn compressions(&self) -> u64 {
        self.bucket().core().memory().dense().compressions()
    }

    /// Each dictionary is missing or damaged for some steps: errors name it, and clients get what
    /// the store has.
    fn break_dictionaries(&self) {
        let bucket = self.bucket();
        let dictionaries = bucket.core().memory().dense().dictionaries().lock().clone();
        let fault = match self.below(2) {
            0 => DictionaryFault::Missing,
            _ => DictionaryFault::Damaged,
        };
        set_faults(&dictionaries, fault);
        self.is_broken.set(true);
        for vbucket in bucket.vbuckets() {
            for item in vbucket.dense_items() {
                let slot = item.dictionary_slot().expect("it is dense");
                let of_slot = dictionaries.iter().find(|dictionary| dictionary.slot() == slot);
                let name = of_slot.expect("the bucket has it").name();
                match item.to_plain().expect_err("the dictionary has a fault") {
                    DenseError::Missing { slot: named } => assert_eq!(named, slot),
                    DenseError::Damaged { dictionary, .. } => assert_eq!(dictionary, name),
                }
                self.count(|counts| counts.faults += 1);
            }
        }
        for _ in 0..self.below(12) {
            self.operate();
        }
        self.fetch();
        if self.below(2) == 0 {
            // The pager cannot recode what it cannot read.
            self.densify();
        }
        set_faults(&dictionaries, DictionaryFault::None);
        self.is_broken.set(false);
        self.check_dense_values();
    }

    /// Every dense value in the tables is the one of its version.
    fn check_dense_values(&self) {
        if self.is_broken.get() {
            return;
        }
        let bucket = self.bucket();
        let models = self.vbuckets.borrow();
        for vbucket in bucket.vbuckets() {
            for item in vbucket.dense_items() {
                let name = item.key().key.to_vec();
                let key = ModelKey { vbid: vbucket.id(), collection: item.key().collection, name };
                let version = models[&key.vbid].current.get(&key);
                let version = version.filter(|version| version.seqno == item.seqno());
                let version = version.unwrap_or_else(|| panic!("{key:?} is dense: {item:?}"));
                let document = version.document.as_ref().expect("a tombstone is not dense");
                let plain = item.to_plain().unwrap_or_else(|error| panic!("{key:?}: {error}"));
                assert_eq!(plain.value(), document.value.0, "{key:?} is dense");
                assert!(item.block_bytes() < plain.block_bytes(), "{key:?} is not smaller");
            }
        }
    }

    pub(super) fn count_inflations(&self) {
        let life = self.life.borrow();
        let Some(life) = life.as_ref() else { return };
        let inflations = life.bucket.core().memory().dense().stats().inflations;
        self.count(|counts| counts.inflated += inflations);
    }
}

fn set_faults(dictionaries: &[Arc<Dictionary>], fault: DictionaryFault) {
    dictionaries.iter().for_each(|dictionary| dictionary.set_fault(fault));
}
