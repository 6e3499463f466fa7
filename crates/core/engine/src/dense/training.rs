//! Training of dictionaries: samples of a collection's values, and the verdict whether they pay.
//!
//! Owns: the bounds on samples, and the trial on values that the training did not see. A training
//! takes some ten milliseconds and a few MiB of working memory, on the pager's thread.

use super::dictionary::DictionaryEncoder;

/// Bytes of samples, and how many are too few for a dictionary.
pub(crate) const SAMPLE_BYTES_MAX: usize = 512 << 10;
const SAMPLE_BYTES_MIN: usize = 16 << 10;
const SAMPLES_MIN: usize = 32;

/// A dictionary is at most this long, and at most this part of its samples.
const DICTIONARY_BYTES_MAX: usize = 16 << 10;
const DICTIONARY_PART: usize = 8;

/// One sample in so many is kept for the trial.
const TRIAL_PART: usize = 8;

/// What no dictionary makes shorter than so many per cent, so many bytes of it end to end stay
/// longer than this without one.
const NOISE_BYTES: usize = 64 << 10;
const NOISE_PERCENT: usize = 95;

/// A collection becomes dense when its values shrink to at most so many per cent.
const DENSE_PERCENT_MAX: u64 = 75;

/// A newer dictionary is used when values take at most so many per cent of what they take with the
/// one before.
const BETTER_PERCENT: u64 = 90;

/// Values of one collection, laid end to end.
#[derive(Default)]
pub(crate) struct Samples {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Samples {
    /// Adds a value; false when there are enough.
    pub(crate) fn add(&mut self, value: &[u8]) -> bool {
        if self.bytes.len() + value.len() > SAMPLE_BYTES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(value);
        self.lengths.push(value.len());
        true
    }

    #[cfg(test)]
    pub(crate) fn is_at_least(&self, bytes: usize) -> bool {
        self.bytes.len() >= bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() + crate::limits::DENSE_PLAIN_BYTES_MAX > SAMPLE_BYTES_MAX
    }

    /// A dictionary of all samples but the last eighth; `None` when they are too few, too alike, or
    /// noise.
    pub(crate) fn train(&self) -> Option<Vec<u8>> {
        let is_enough = self.bytes.len() >= SAMPLE_BYTES_MIN && self.lengths.len() >= SAMPLES_MIN;
        if !is_enough || self.is_noise() {
            return None;
        }
        let lengths = &self.lengths[..self.trial_begin()];
        let bytes = &self.bytes[..lengths.iter().sum()];
        let mut trained =
            Vec::with_capacity(DICTIONARY_BYTES_MAX.min(bytes.len() / DICTIONARY_PART));
        zstd::zstd_safe::train_from_buffer(&mut trained, bytes, lengths).ok()?;
        Some(trained)
    }

    /// True when the values have nothing in common, neither with each other nor within themselves.
    /// It takes a hundredth of a training.
    fn is_noise(&self) -> bool {
        let some = &self.bytes[..self.bytes.len().min(NOISE_BYTES)];
        let compressed = zstd::bulk::compress(some, 1);
        compressed.is_ok_and(|frame| frame.len() * 100 > some.len() * NOISE_PERCENT)
    }

    /// The length, in per cent of their plain one, that the trial's values have with a dictionary.
    fn trial_percent(&self, encoder: &DictionaryEncoder) -> u64 {
        let begin = self.trial_begin();
        let mut at: usize = self.lengths[..begin].iter().sum();
        let (mut plain_bytes, mut dense_bytes) = (0, 0);
        let mut scratch = Vec::new();
        for length in &self.lengths[begin..] {
            let plain = &self.bytes[at..at + length];
            at += length;
            plain_bytes += length;
            let dense = encoder.compress(plain, &mut scratch).map_or(*length, <[u8]>::len);
            dense_bytes += dense.min(*length);
        }
        debug_assert!(dense_bytes <= plain_bytes, "a value that does not shrink stays plain");
        (dense_bytes * 100 / plain_bytes.max(1)) as u64
    }

    /// The per cent of [`Samples::trial_percent`]; `None` when a dictionary does not pay, by itself
    /// or for what it saves beyond an earlier one.
    pub(crate) fn paying_percent(
        &self,
        encoder: &DictionaryEncoder,
        earlier: Option<&DictionaryEncoder>,
    ) -> Option<u64> {
        let percent = self.trial_percent(encoder);
        let least = earlier.map_or(DENSE_PERCENT_MAX, |earlier| {
            DENSE_PERCENT_MAX.min(self.trial_percent(earlier) * BETTER_PERCENT / 100)
        });
        (percent <= least).then_some(percent)
    }

    fn trial_begin(&self) -> usize {
        self.lengths.len() - (self.lengths.len() / TRIAL_PART).max(1).min(self.lengths.len())
    }
}
