//! Failover tables: which history a seqno belongs to, and where two copies have all in common.

use oribi_types::{Seqno, VbUuid};

use crate::copies::CopiesEpoch;

/// Most entries of a failover table.
pub const HISTORY_ENTRIES_MAX: usize = 25;
const _: () = assert!(HISTORY_ENTRIES_MAX > 1, "a promotion keeps the history before it");

/// The history `uuid` began after `seqno`, in `epoch`, or continued there in a later epoch; then
/// the next older entry has the same uuid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryEntry {
    pub uuid: VbUuid,
    pub seqno: Seqno,
    pub epoch: CopiesEpoch,
}

/// A failover table, newest entry first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    pub entries: Vec<HistoryEntry>,
}

/// A copy's state when it asks for a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResumePoint {
    /// History of `complete_end`, if the copy holds anything.
    pub uuid: Option<VbUuid>,
    pub complete_end: Seqno,
    /// End of the snapshot of which the copy holds a part.
    pub partial_end: Option<Seqno>,
}

/// Where a stream begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    From(Seqno),
    Rollback(Seqno),
}

impl History {
    /// Begins a history after `entry.seqno`, or continues the newest one. Entries above it are
    /// void, and of the epochs in which a history continued only the newest matters.
    pub fn begin(&mut self, entry: HistoryEntry) {
        self.entries.retain(|older| older.seqno <= entry.seqno);
        if let [newest, before, ..] = &self.entries[..]
            && newest.uuid == before.uuid
        {
            self.entries.remove(0);
        }
        self.entries.insert(0, entry);
        self.entries.truncate(HISTORY_ENTRIES_MAX);
        assert!((1..=HISTORY_ENTRIES_MAX).contains(&self.entries.len()), "a history is bounded");
        assert_eq!(self.entries.first(), Some(&entry), "the newest history comes first");
    }

    /// The history that the change at `seqno` belongs to.
    pub fn uuid_at(&self, seqno: Seqno) -> Option<VbUuid> {
        let entry = self.entries.iter().find(|entry| entry.seqno < seqno)?;
        Some(entry.uuid)
    }

    /// How far the owner of this table has what the other copy holds; `high` is the owner's.
    pub fn resume(&self, high: Seqno, point: ResumePoint) -> Resume {
        let Some(uuid) = point.uuid else {
            let is_empty = point.complete_end == Seqno(0) && point.partial_end.is_none();
            return if is_empty { Resume::From(Seqno(0)) } else { Resume::Rollback(Seqno(0)) };
        };
        let Some(at) = self.entries.iter().position(|entry| entry.uuid == uuid) else {
            return Resume::Rollback(Seqno(0));
        };
        let upper = if at == 0 { high } else { self.entries[at - 1].seqno };
        let held = point.partial_end.unwrap_or(point.complete_end);
        match held <= upper {
            true => Resume::From(point.complete_end),
            false => Resume::Rollback(point.complete_end.min(upper)),
        }
    }
}
