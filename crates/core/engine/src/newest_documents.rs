//! The documents of a cache that its pager spares because they were written last.
//!
//! Owns: the CAS from which on documents are spared. An eviction from a cache loses the document,
//! and the pager's hand meets documents in the order of their hashes. Without this the hand would
//! evict documents that were stored a moment ago.
//!
//! The CAS of a write is its time. The hand notes the CAS of the documents that it spares, and from
//! time to time moves the limit so that the newer half of all documents is spared. Each whole round
//! of a run that does not free enough halves that share. The newest document is left to the caller:
//! it is spared until [`SpareLimit::None`] is asked for.
//!
//! Invariants: a document that was written after the limit was set is spared; at most
//! [`WINDOW_DOCUMENTS`] CAS are kept.

use oribi_types::Cas;

/// Documents after which the limit moves. So many show the median to a few per cent.
const WINDOW_DOCUMENTS: usize = 1024;
/// Rounds after which only the newest document of a window is spared.
const ROUNDS_MAX: u32 = WINDOW_DOCUMENTS.ilog2();
const _: () = assert!(WINDOW_DOCUMENTS.is_power_of_two());

/// How many documents of a window are spared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpareLimit {
    /// Half of them after no round, a quarter after one, ..., at least the newest.
    AfterRounds(u32),
    /// Not even the newest.
    None,
}

/// The documents that were written last.
#[derive(Default)]
pub(crate) struct NewestDocuments {
    /// Documents of this CAS and newer ones are spared; at first all.
    spared_from: Cas,
    /// Documents that the hand has passed since the limit moved, and the CAS of the spared ones.
    passed: usize,
    spared: Vec<Cas>,
}

impl NewestDocuments {
    /// True when the document that the hand passes is spared.
    pub(crate) fn spares(&mut self, cas: Cas) -> bool {
        self.passed += 1;
        let is_spared = cas >= self.spared_from;
        if is_spared && self.spared.len() < WINDOW_DOCUMENTS {
            self.spared.push(cas);
        }
        debug_assert!(self.spared.len() <= self.passed, "a spared document was passed");
        debug_assert!(self.spared.len() <= WINDOW_DOCUMENTS, "a window is bounded");
        is_spared
    }

    /// The same without passing it again.
    pub(crate) fn is_spared(&self, cas: Cas) -> bool {
        cas >= self.spared_from
    }

    /// True when the hand has passed enough documents to move the limit.
    pub(crate) fn is_window_complete(&self) -> bool {
        self.passed >= WINDOW_DOCUMENTS
    }

    /// Moves the limit, and begins the next window.
    pub(crate) fn move_limit(&mut self, spared: SpareLimit) {
        let keep = match spared {
            SpareLimit::None => 0,
            SpareLimit::AfterRounds(rounds) => {
                let passed = self.passed.min(WINDOW_DOCUMENTS);
                (passed >> (1 + rounds.min(ROUNDS_MAX))).max(1)
            }
        };
        if keep < self.spared.len() {
            self.spared.sort_unstable();
            let newest = self.spared[self.spared.len() - 1];
            debug_assert!(newest >= self.spared_from, "a spared document is newer than the limit");
            self.spared_from = match keep {
                0 => Cas(newest.0.saturating_add(1)),
                _ => self.spared[self.spared.len() - keep],
            };
        }
        debug_assert!(keep <= WINDOW_DOCUMENTS / 2, "at most half of a window is spared");
        self.passed = 0;
        self.spared.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(newest: &mut NewestDocuments, all: &[u64]) -> Vec<u64> {
        all.iter().copied().filter(|cas| newest.spares(Cas(*cas))).collect()
    }

    #[test]
    fn each_round_halves_what_is_spared() {
        let mut newest = NewestDocuments::default();
        let all = [5, 8, 1, 4, 7, 2, 6, 3];
        assert_eq!(pass(&mut newest, &all), all, "all are spared before the first window");
        for (rounds, spared) in [(0, &[5, 8, 7, 6][..]), (1, &[8, 7]), (2, &[8]), (99, &[8])] {
            newest.move_limit(SpareLimit::AfterRounds(rounds));
            assert_eq!(pass(&mut newest, &all), spared, "{rounds}");
        }
        newest.move_limit(SpareLimit::None);
        assert!(pass(&mut newest, &all).is_empty());
        assert_eq!(pass(&mut newest, &[9]), [9], "it was written later");
    }

    #[test]
    fn a_single_document_is_the_newest() {
        let mut newest = NewestDocuments::default();
        for _ in 0..20 {
            assert_eq!(pass(&mut newest, &[3]), [3]);
            newest.move_limit(SpareLimit::AfterRounds(20));
        }
    }

    #[test]
    fn a_window_is_bounded() {
        let mut newest = NewestDocuments::default();
        (0..WINDOW_DOCUMENTS as u64 * 3).for_each(|cas| assert!(newest.spares(Cas(cas))));
        assert!(newest.is_window_complete());
        assert_eq!(newest.spared.len(), WINDOW_DOCUMENTS);
    }
}
