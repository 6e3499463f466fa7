//! The durability monitor of the active: which prepares are committed or aborted (R4, R6).

use std::collections::{BTreeMap, VecDeque};

use oribi_types::{DurabilityLevel, Seqno};

use crate::copies::{CopiesEpoch, CopiesRecord, CopyId};

/// A prepare without an outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenPrepare {
    pub seqno: Seqno,
    pub level: DurabilityLevel,
    /// When the write is aborted; a prepare of an earlier epoch has no limit.
    pub deadline_ms: Option<u64>,
}

/// DurabilityOutcome of the oldest open prepare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurabilityOutcome {
    Commit(Seqno),
    Abort(Seqno),
}

/// Open prepares of one epoch, and what members acknowledged in it.
#[derive(Clone, Debug)]
pub struct DurabilityMonitor {
    record: CopiesRecord,
    open: VecDeque<OpenPrepare>,
    acknowledged: BTreeMap<CopyId, Seqno>,
    persisted: Seqno,
}

impl DurabilityMonitor {
    /// Begins an epoch; acknowledgements of earlier ones do not count in it.
    pub fn new(
        record: CopiesRecord,
        open: impl IntoIterator<Item = (Seqno, DurabilityLevel)>,
    ) -> DurabilityMonitor {
        let open = open
            .into_iter()
            .map(|(seqno, level)| OpenPrepare { seqno, level, deadline_ms: None })
            .collect();
        let acknowledged = BTreeMap::new();
        DurabilityMonitor { record, open, acknowledged, persisted: Seqno(0) }
    }

    /// The active continues in the next epoch with another record. Members acknowledge again.
    pub fn continue_with(&mut self, record: CopiesRecord) {
        self.record = record;
        self.acknowledged.clear();
        self.persisted = Seqno(0);
    }

    pub fn track(&mut self, prepare: OpenPrepare) {
        debug_assert!(
            self.open.back().is_none_or(|last| last.seqno < prepare.seqno),
            "prepares are tracked in order"
        );
        self.open.push_back(prepare);
    }

    /// A member's high prepared seqno, in the epoch of its stream.
    pub fn acknowledged(&mut self, member: CopyId, epoch: CopiesEpoch, seqno: Seqno) {
        if epoch != self.record.epoch {
            return;
        }
        let known = self.acknowledged.entry(member).or_default();
        *known = (*known).max(seqno);
    }

    /// The active itself stores everything up to here, and the record of its epoch.
    pub fn persisted(&mut self, seqno: Seqno) {
        self.persisted = self.persisted.max(seqno);
    }

    pub fn open(&self) -> impl Iterator<Item = &OpenPrepare> {
        self.open.iter()
    }

    /// Takes the oldest prepare if its outcome is known: outcomes have the order of prepares.
    pub fn next_outcome(&mut self, now_ms: u64) -> Option<DurabilityOutcome> {
        let head = *self.open.front()?;
        let outcome = if self.is_committed(&head) {
            DurabilityOutcome::Commit(head.seqno)
        } else if head.deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms) {
            DurabilityOutcome::Abort(head.seqno)
        } else {
            return None;
        };
        self.open.pop_front();
        Some(outcome)
    }

    fn is_committed(&self, prepare: &OpenPrepare) -> bool {
        let active = self.record.active;
        let is_held = prepare.level == DurabilityLevel::Majority || prepare.seqno <= self.persisted;
        is_held
            && self.record.is_write_quorum(|member| {
                let acknowledged = self.acknowledged.get(&member);
                member == active || acknowledged.is_some_and(|seqno| *seqno >= prepare.seqno)
            })
    }
}
