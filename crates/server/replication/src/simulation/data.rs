//! Documents of one simulated copy.

use std::collections::BTreeMap;

use oribi_types::{DurabilityLevel, Seqno};

use crate::change::CopyChangeKind;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Version {
    pub(super) seqno: Seqno,
    /// The operation that wrote it; 0 for none.
    pub(super) write: u64,
    pub(super) deleted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PreparedWrite {
    pub(super) key: u8,
    pub(super) write: u64,
    pub(super) deleted: bool,
    pub(super) level: DurabilityLevel,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ModelChange {
    pub(super) seqno: Seqno,
    pub(super) key: u8,
    pub(super) kind: CopyChangeKind,
    pub(super) write: u64,
    pub(super) deleted: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CopyData {
    pub(super) table: BTreeMap<u8, Version>,
    pub(super) prepares: BTreeMap<Seqno, PreparedWrite>,
}

impl CopyData {
    pub(super) fn apply(&mut self, change: &ModelChange) {
        let ModelChange { seqno, key, kind, write, deleted } = *change;
        match kind {
            CopyChangeKind::Mutation => {
                self.prepares.retain(|prepare, it| it.key != key || *prepare > seqno);
                self.table.insert(key, Version { seqno, write, deleted });
            }
            CopyChangeKind::Prepare(level) => {
                self.prepares.insert(seqno, PreparedWrite { key, write, deleted, level });
            }
            CopyChangeKind::Commit { prepared } => {
                let oldest = self.prepares.first_key_value().map(|(seqno, _)| *seqno);
                assert_eq!(oldest, Some(prepared), "a commit is for the oldest open prepare");
                let PreparedWrite { key, write, deleted, .. } =
                    self.prepares.remove(&prepared).expect("it is the oldest");
                self.table.insert(key, Version { seqno, write, deleted });
            }
            CopyChangeKind::Abort { prepared } => {
                let oldest = self.prepares.first_key_value().map(|(seqno, _)| *seqno);
                assert_eq!(oldest, Some(prepared), "an abort is for the oldest open prepare");
                self.prepares.remove(&prepared);
            }
        }
    }

    pub(super) fn open(&self) -> Vec<(Seqno, DurabilityLevel)> {
        self.prepares.iter().map(|(seqno, prepare)| (*seqno, prepare.level)).collect()
    }

    pub(super) fn prepare_of(&self, key: u8) -> Option<(Seqno, PreparedWrite)> {
        let found = self.prepares.iter().find(|(_, prepare)| prepare.key == key);
        found.map(|(seqno, prepare)| (*seqno, *prepare))
    }

    /// Result of a read: the write, or 0 for a miss.
    pub(super) fn visible(&self, key: u8) -> u64 {
        self.table.get(&key).filter(|version| !version.deleted).map_or(0, |version| version.write)
    }

    /// The last write of a key, deletions included.
    pub(super) fn last_write(&self, key: u8) -> u64 {
        self.table.get(&key).map_or(0, |version| version.write)
    }
}
