//! The results: counts, and kinds of problems with the first examples of each.
//!
//! Each connection counts for itself; sums are made between batches and at the end.

use std::collections::BTreeMap;

use oribi_client::RejectionKind;

use super::value::Corruption;

/// Examples of problems that are kept.
const EXAMPLES_MAX: usize = 5;

/// Counts of one phase.
#[derive(Clone, Debug, Default)]
pub struct KvCounts {
    pub gets: u64,
    pub sets: u64,
    /// Reads that found a document.
    pub hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Writes that were stored.
    pub stored: u64,
    /// Times that the server asked to try again later, and that was done.
    pub retries: u64,
    /// Operations that were given up after that many retries.
    pub given_up: u64,
    /// Operations whose answer was not waited for, because of Ctrl-C or a broken connection.
    pub unanswered: u64,
    /// Values that are wrong, by kind, in the order of [`Corruption::ALL`].
    pub corrupt: [u64; Corruption::ALL.len()],
    /// Statuses that the server refused with, and how often. Includes those that were tried again.
    pub refused: BTreeMap<u16, u64>,
    /// Bytes of values read, as they came.
    pub read_bytes: u64,
    /// Bytes of values written, as they were sent.
    pub written_bytes: u64,
    /// The first problems, in words.
    pub examples: Vec<String>,
}

impl KvCounts {
    /// Operations that were answered for good.
    pub fn operations(&self) -> u64 {
        self.gets + self.sets
    }

    /// Operations with a successful outcome.
    pub fn succeeded(&self) -> u64 {
        self.hits - self.corrupt_values() + self.stored
    }

    /// Values that differ from the written ones.
    pub fn corrupt_values(&self) -> u64 {
        self.corrupt.iter().sum()
    }

    /// Operations that were refused and are not tried again, but for those given up.
    pub fn refused_operations(&self) -> u64 {
        self.operations() - self.hits - self.misses - self.stored - self.given_up
    }

    /// Everything that makes the run a failure.
    pub fn problems(&self, misses_allowed: bool) -> u64 {
        let misses = if misses_allowed { 0 } else { self.misses };
        misses + self.corrupt_values() + self.refused_operations()
    }

    /// Counts a wrong value; `describe` is called for the first few problems only.
    pub fn corrupt(&mut self, kind: Corruption, describe: impl FnOnce() -> String) {
        self.corrupt[kind as usize] += 1;
        self.example(describe);
    }

    pub fn refuse(&mut self, status: u16) {
        *self.refused.entry(status).or_default() += 1;
    }

    /// Keeps one of the first problems in words.
    pub fn example(&mut self, describe: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(describe());
        }
    }

    /// Adds the counts of another connection.
    pub fn add(&mut self, other: &KvCounts) {
        self.gets += other.gets;
        self.sets += other.sets;
        self.hits += other.hits;
        self.misses += other.misses;
        self.stored += other.stored;
        self.retries += other.retries;
        self.given_up += other.given_up;
        self.unanswered += other.unanswered;
        self.corrupt.iter_mut().zip(other.corrupt).for_each(|(sum, count)| *sum += count);
        for (&status, &count) in &other.refused {
            *self.refused.entry(status).or_default() += count;
        }
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        for example in &other.examples {
            self.example(|| example.clone());
        }
    }
}

/// A status in words.
pub fn describe_status(status: u16) -> String {
    RejectionKind::from_status(status).err().unwrap_or(RejectionKind::Other(status)).to_string()
}

#[cfg(test)]
mod tests {
    //! Sums are sums, and each kind of problem is one.

    use super::*;

    #[test]
    fn failed_runs_are_recognised() {
        let good =
            KvCounts { gets: 5, hits: 5, sets: 2, stored: 1, given_up: 1, ..KvCounts::default() };
        assert_eq!((good.problems(false), good.succeeded()), (0, 6));
        let miss = KvCounts { gets: 5, hits: 4, misses: 1, ..KvCounts::default() };
        assert_eq!((miss.problems(false), miss.problems(true)), (1, 0));
        let mut corrupt = KvCounts { gets: 1, hits: 1, ..KvCounts::default() };
        corrupt.corrupt(Corruption::Checksum, || "first".to_owned());
        assert_eq!((corrupt.problems(true), corrupt.succeeded()), (1, 0));
        let refused = KvCounts { sets: 1, ..KvCounts::default() };
        assert_eq!(refused.problems(true), 1);
    }

    #[test]
    fn counts_of_connections_add_up() {
        let mut counts = KvCounts { gets: 3, ..KvCounts::default() };
        counts.refuse(0x86);
        counts.corrupt(Corruption::Length, || "one".to_owned());
        let mut sum = counts.clone();
        sum.add(&counts);
        assert_eq!((sum.gets, sum.refused[&0x86], sum.corrupt_values()), (6, 2, 2));
        assert_eq!(sum.examples, ["one", "one"]);
    }

    #[test]
    fn only_the_first_examples_are_made() {
        let mut counts = KvCounts::default();
        let mut made = 0;
        for _ in 0..100 {
            counts.corrupt(Corruption::Pattern, || {
                made += 1;
                String::new()
            });
        }
        assert_eq!((made, counts.corrupt_values()), (EXAMPLES_MAX, 100));
    }
}
