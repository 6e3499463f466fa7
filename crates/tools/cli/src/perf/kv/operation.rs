//! One operation of the load, and the generator of a worker's operations.

use std::ops::{Range, RangeInclusive};

use rand::RngExt;

use crate::perf::key_choice::{KeyChoice, KeyGenerator};

/// Kind of an operation on a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationKind {
    Get,
    Set,
}

/// One operation. Small, because a batch of them is kept until its answers are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KvOperation {
    /// Number of the document.
    pub index: u64,
    /// When it was due, in nanoseconds from the start of the phase; only with a schedule.
    pub due_ns: u64,
    /// Bytes of the value that is written.
    pub value_bytes: u32,
    /// Which of the writes of this worker it is.
    pub version: u32,
    /// Position of the collection among those of the run.
    pub collection: u16,
    /// How often the server has asked to try again later.
    pub attempts: u16,
    pub kind: OperationKind,
}

/// The operations of one worker in one phase.
#[derive(Clone, Debug)]
pub enum OperationSource {
    /// Writes each document of a share once, into every collection.
    Population {
        /// Documents that are left.
        left: Range<u64>,
        /// The collection to come.
        collection: u16,
    },
    /// Reads and writes of chosen documents, without end.
    Mixed {
        choice: KeyChoice,
        /// Of a hundred operations, writes.
        set_pct: u8,
    },
}

/// Generates the operations of one worker, by its source.
#[derive(Clone, Debug)]
pub struct OperationGenerator {
    pub source: OperationSource,
    /// Number of collections; at least 1.
    pub collections: u16,
    /// Smallest and largest value.
    pub sizes: RangeInclusive<usize>,
    /// Source of random numbers.
    pub random: KeyGenerator,
    /// Writes generated so far.
    pub versions: u32,
}

impl OperationGenerator {
    /// The next operation, due at `due_ns`; `None` once everything is populated.
    #[inline]
    pub fn next(&mut self, due_ns: u64) -> Option<KvOperation> {
        let (kind, index, collection) = match &mut self.source {
            OperationSource::Population { left, collection } => {
                if left.is_empty() {
                    return None;
                }
                let chosen = (OperationKind::Set, left.start, *collection);
                *collection += 1;
                if *collection == self.collections {
                    *collection = 0;
                    left.start += 1;
                }
                chosen
            }
            OperationSource::Mixed { choice, set_pct } => {
                let is_set = self.random.random_range(0..100) < *set_pct;
                let collection = match self.collections {
                    1 => 0,
                    many => self.random.random_range(0..many),
                };
                let index = choice.next(&mut self.random);
                (if is_set { OperationKind::Set } else { OperationKind::Get }, index, collection)
            }
        };
        let (value_bytes, version) = match kind {
            OperationKind::Get => (0, 0),
            OperationKind::Set => self.next_value(),
        };
        Some(KvOperation { index, due_ns, value_bytes, version, collection, attempts: 0, kind })
    }

    /// Size and version of the next write.
    fn next_value(&mut self) -> (u32, u32) {
        self.versions = self.versions.wrapping_add(1);
        let (min, max) = (*self.sizes.start(), *self.sizes.end());
        let bytes = if min == max { min } else { self.random.random_range(min..=max) };
        // Sizes are limited to far less than this type holds.
        (bytes as u32, self.versions)
    }
}

#[cfg(test)]
mod tests {
    //! Everything is populated once; shares of reads and writes are as asked for.

    use super::*;
    use crate::perf::key_choice::{Popularity, generator};

    fn generate(source: OperationSource, collections: u16) -> OperationGenerator {
        let random = generator(1, 0);
        OperationGenerator { source, collections, sizes: 10..=20, random, versions: 0 }
    }

    #[test]
    fn population_writes_each_document_once() {
        let mut operations = generate(OperationSource::Population { left: 5..8, collection: 0 }, 2);
        let all: Vec<KvOperation> = std::iter::from_fn(|| operations.next(0)).collect();
        let places: Vec<_> = all.iter().map(|op| (op.index, op.collection)).collect();
        assert_eq!(places, [(5, 0), (5, 1), (6, 0), (6, 1), (7, 0), (7, 1)]);
        assert!(
            all.iter()
                .all(|op| op.kind == OperationKind::Set && (10..=20).contains(&op.value_bytes))
        );
        assert_eq!(all.iter().map(|op| op.version).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_share_of_writes_is_as_asked_for() {
        for set_pct in [0, 20, 100] {
            let choice = KeyChoice::new(Popularity::Uniform, 100, 0..100);
            let mut operations = generate(OperationSource::Mixed { choice, set_pct }, 3);
            let all: Vec<KvOperation> = (0..50_000).map(|_| operations.next(0).unwrap()).collect();
            let sets = all.iter().filter(|op| op.kind == OperationKind::Set).count() as f64;
            let expected = f64::from(set_pct) / 100.0;
            assert!((sets / 50_000.0 - expected).abs() < 0.01, "{sets}");
            let first = all.iter().filter(|op| op.collection == 0).count() as f64;
            assert!((first / 50_000.0 - 1.0 / 3.0).abs() < 0.02, "{first}");
        }
    }
}
