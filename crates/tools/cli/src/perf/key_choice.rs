//! Chooses the next document: uniform, zipfian or sequential.
//!
//! A zipfian choice takes document `k` with a probability proportional to `1 / (k + 1)^s`: document
//! 0 is the hottest. The numbers are not scattered over the key space, because keys are hashed to
//! vbuckets and slots anyway. Sampling is exact (rejection from the inverse of the integral, in
//! crate `rand_distr`). It needs no table, and its set-up time does not grow with the number of
//! documents.
//!
//! Everything here is a function of the seed: two runs with the same options make the same choices.

use std::ops::Range;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

/// Smallest and largest exponent of the zipfian distribution. Below, it is practically uniform;
/// above, nearly every choice is the first document.
pub const ZIPF_EXPONENT_MIN: f64 = 0.01;
pub const ZIPF_EXPONENT_MAX: f64 = 10.0;
/// Default exponent: that of the benchmark that made the distribution popular.
pub const ZIPF_EXPONENT_DEFAULT: f64 = 0.99;

/// How documents are chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Popularity {
    Uniform,
    /// The first ones more often, with this exponent.
    Zipf(f64),
    /// In order, again from the start after the last.
    Sequential,
}

/// A worker's random generator; portable, so a seed means the same everywhere.
pub type KeyGenerator = Xoshiro256PlusPlus;

/// The generator of worker `number` in a run with `seed`.
pub fn generator(seed: u64, number: usize) -> KeyGenerator {
    // Seeding mixes the bits, so neighbouring seeds give unrelated sequences.
    KeyGenerator::seed_from_u64(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A worker's choice of documents.
#[derive(Clone, Debug)]
pub enum KeyChoice {
    Uniform {
        items: u64,
    },
    Zipf {
        /// Ranks from 1 on.
        ranks: Zipf<f64>,
        items: u64,
    },
    Sequential {
        /// The documents of this worker.
        range: Range<u64>,
        /// The one to come.
        next: u64,
    },
}

impl KeyChoice {
    /// The choice among documents 0 to `items - 1`; a sequential worker has the documents in
    /// `share`. Neither may be empty, and the exponent is within its limits.
    pub fn new(popularity: Popularity, items: u64, share: Range<u64>) -> KeyChoice {
        match popularity {
            Popularity::Uniform => KeyChoice::Uniform { items },
            Popularity::Zipf(exponent) => {
                let ranks = Zipf::new(items as f64, exponent)
                    .expect("there are documents and the exponent is positive");
                KeyChoice::Zipf { ranks, items }
            }
            Popularity::Sequential => KeyChoice::Sequential { next: share.start, range: share },
        }
    }

    #[inline]
    pub fn next(&mut self, generator: &mut KeyGenerator) -> u64 {
        match self {
            KeyChoice::Uniform { items } => generator.random_range(0..*items),
            KeyChoice::Zipf { ranks, items } => {
                let rank = ranks.sample(generator);
                // Rounding of very large numbers could exceed the last document.
                (rank as u64).clamp(1, *items) - 1
            }
            KeyChoice::Sequential { range, next } => {
                let index = *next;
                *next = if index + 1 < range.end { index + 1 } else { range.start };
                index
            }
        }
    }
}

/// The documents of worker `number` of `workers`. Empty when there are fewer documents than
/// workers.
pub fn share(items: u64, number: usize, workers: usize) -> Range<u64> {
    let bound = |n: usize| (u128::from(items) * n as u128 / workers as u128) as u64;
    bound(number)..bound(number + 1)
}

#[cfg(test)]
mod tests {
    //! Frequencies against theory, with a fixed seed, and shares that leave nothing out.

    use super::*;

    const SAMPLES: usize = 400_000;

    fn frequencies(popularity: Popularity, items: u64) -> Vec<f64> {
        let mut generator = generator(42, 0);
        let mut choice = KeyChoice::new(popularity, items, 0..items);
        let mut counts = vec![0u32; items as usize];
        for _ in 0..SAMPLES {
            counts[choice.next(&mut generator) as usize] += 1;
        }
        counts.iter().map(|&count| f64::from(count) / SAMPLES as f64).collect()
    }

    /// Five standard deviations of a binomial count.
    fn tolerance(probability: f64) -> f64 {
        5.0 * (probability * (1.0 - probability) / SAMPLES as f64).sqrt()
    }

    #[test]
    fn zipfian_frequencies_are_those_of_theory() {
        for exponent in [0.5, 0.99, 1.0, 1.4] {
            let items = 1000;
            let weight = |index: usize| ((index + 1) as f64).powf(-exponent);
            let total: f64 = (0..items).map(weight).sum();
            let measured = frequencies(Popularity::Zipf(exponent), items as u64);
            for (index, frequency) in measured.iter().enumerate() {
                let expected = weight(index) / total;
                let apart = (frequency - expected).abs();
                assert!(apart < tolerance(expected), "s={exponent} document {index}: {frequency}");
            }
        }
    }

    /// The check above can fail: another exponent is not taken for this one.
    #[test]
    fn another_exponent_is_told_apart() {
        let measured = frequencies(Popularity::Zipf(0.95), 1000);
        let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        let expected = 1.0 / total;
        assert!((measured[0] - expected).abs() > tolerance(expected));
    }

    #[test]
    fn uniform_frequencies_are_equal() {
        for frequency in frequencies(Popularity::Uniform, 500) {
            assert!((frequency - 0.002).abs() < tolerance(0.002), "{frequency}");
        }
    }

    #[test]
    fn one_document_is_always_chosen() {
        for popularity in [Popularity::Uniform, Popularity::Zipf(0.99), Popularity::Sequential] {
            let mut generator = generator(1, 0);
            let mut choice = KeyChoice::new(popularity, 1, 0..1);
            assert!((0..100).all(|_| choice.next(&mut generator) == 0));
        }
    }

    #[test]
    fn shares_cover_every_document_once() {
        for (items, workers) in [(1000, 7), (3, 5), (1, 1), (u64::MAX, 3)] {
            let shares: Vec<_> = (0..workers).map(|n| share(items, n, workers)).collect();
            assert_eq!(shares[0].start, 0);
            assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!(shares[workers - 1].end, items);
        }
    }

    #[test]
    fn sequences_begin_again() {
        let mut generator = generator(1, 0);
        let mut choice = KeyChoice::new(Popularity::Sequential, 10, 4..7);
        let taken: Vec<u64> = (0..7).map(|_| choice.next(&mut generator)).collect();
        assert_eq!(taken, [4, 5, 6, 4, 5, 6, 4]);
    }

    /// Two runs with one seed make the same choices, two workers do not.
    #[test]
    fn choices_follow_from_the_seed() {
        let take = |seed, number| {
            let mut generator = generator(seed, number);
            let mut choice = KeyChoice::new(Popularity::Zipf(0.99), 1 << 40, 0..1);
            (0..50).map(|_| choice.next(&mut generator)).collect::<Vec<_>>()
        };
        assert_eq!(take(7, 1), take(7, 1));
        assert_ne!(take(7, 1), take(7, 2));
        assert_ne!(take(7, 1), take(8, 1));
    }
}
