//! The high prepared seqno of a replica: how far it acknowledges durable writes (R3).

use std::collections::VecDeque;

use oribi_types::{DurabilityLevel, Seqno};

/// Prepares that a replica received, in order, and how far they count.
#[derive(Clone, Debug, Default)]
pub struct HighPrepared {
    seqno: Seqno,
    pending: VecDeque<(Seqno, DurabilityLevel)>,
    complete_end: Seqno,
    persisted_end: Seqno,
}

impl HighPrepared {
    /// All prepares up to `high_completed` count; `open` are the others that the replica holds.
    /// The active sends those of an interrupted snapshot once more, unless they are completed.
    pub fn new(
        high_completed: Seqno,
        open: impl IntoIterator<Item = (Seqno, DurabilityLevel)>,
        complete_end: Seqno,
        persisted_end: Seqno,
    ) -> HighPrepared {
        let pending = open.into_iter().filter(|(seqno, _)| *seqno <= complete_end).collect();
        let seqno = high_completed;
        let mut prepared = HighPrepared { seqno, pending, complete_end, persisted_end };
        prepared.advance();
        prepared
    }

    /// A prepare came, which counts at the earliest when its snapshot is complete.
    pub fn received(&mut self, seqno: Seqno, level: DurabilityLevel) {
        debug_assert!(
            self.pending.back().is_none_or(|(last, _)| *last < seqno),
            "prepares come in order"
        );
        self.pending.push_back((seqno, level));
        self.advance();
    }

    /// The replica holds everything up to the end of a snapshot.
    pub fn complete(&mut self, end: Seqno) {
        self.complete_end = self.complete_end.max(end);
        self.advance();
    }

    pub fn persisted(&mut self, end: Seqno) {
        self.persisted_end = self.persisted_end.max(end);
        self.advance();
    }

    pub fn seqno(&self) -> Seqno {
        self.seqno
    }

    /// A prepare that waits for the disk is a fence for those after it.
    fn advance(&mut self) {
        while let Some((seqno, level)) = self.pending.front().copied() {
            let is_persisted = seqno <= self.persisted_end;
            let waits_for_disk = level == DurabilityLevel::PersistToMajority && !is_persisted;
            if seqno > self.complete_end || waits_for_disk {
                return;
            }
            self.seqno = self.seqno.max(seqno);
            self.pending.pop_front();
        }
    }
}
