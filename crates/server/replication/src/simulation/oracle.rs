//! Oracle of the whole simulated world: which writes are committed, which are acknowledged,
//! who lost what, and which content each seqno of each history has.

use std::collections::BTreeMap;

use oribi_types::{DurabilityLevel, Seqno, VbUuid};

use super::checker::Register;
use super::data::CopyData;
use crate::copies::{CopiesEpoch, CopiesRecord, CopyId};

pub(super) struct KnownWrite {
    pub(super) level: DurabilityLevel,
    pub(super) acknowledged: bool,
    /// More memories were lost than the level survives.
    pub(super) is_excused: bool,
    losses: usize,
    /// The epoch that committed the write first.
    committed_in: Option<CopiesEpoch>,
}

pub(super) struct Oracle {
    pub(super) registers: Vec<Register>,
    pub(super) writes: BTreeMap<u64, KnownWrite>,
    /// Committed writes of each key in their order.
    pub(super) committed: Vec<Vec<u64>>,
    contents: BTreeMap<(VbUuid, Seqno), CopyData>,
    /// Acknowledgements of members, by epoch.
    acknowledged: BTreeMap<(CopyId, CopiesEpoch), Seqno>,
}

impl Oracle {
    pub(super) fn new(keys: usize) -> Oracle {
        Oracle {
            registers: vec![Register::new(); keys],
            writes: BTreeMap::new(),
            committed: vec![Vec::new(); keys],
            contents: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    pub(super) fn prepared(&mut self, write: u64, level: DurabilityLevel) {
        let known = KnownWrite {
            level,
            acknowledged: false,
            is_excused: false,
            losses: 0,
            committed_in: None,
        };
        self.writes.insert(write, known);
    }

    pub(super) fn committed(&mut self, key: u8, write: u64, epoch: CopiesEpoch) {
        self.writes.get_mut(&write).expect("it was prepared").committed_in.get_or_insert(epoch);
        let committed = &mut self.committed[usize::from(key)];
        if !committed.contains(&write) {
            committed.push(write);
        }
    }

    fn rank(&self, key: u8, write: u64) -> Option<usize> {
        self.committed[usize::from(key)].iter().position(|other| *other == write)
    }

    /// How much of a key's committed writes a copy holds.
    fn held(&self, data: &CopyData, key: u8) -> Option<usize> {
        let prepare = data.prepare_of(key).and_then(|(_, it)| self.rank(key, it.write));
        self.rank(key, data.last_write(key)).max(prepare)
    }

    /// The newest write of a key that must still be there.
    pub(super) fn required(&self, key: u8) -> Option<usize> {
        let committed = &self.committed[usize::from(key)];
        committed.iter().rposition(|write| {
            let known = &self.writes[write];
            known.acknowledged && !known.is_excused
        })
    }

    /// The same, of the writes that epochs before `epoch` committed.
    fn required_before(&self, key: u8, epoch: CopiesEpoch) -> Option<usize> {
        let committed = &self.committed[usize::from(key)];
        committed.iter().rposition(|write| {
            let known = &self.writes[write];
            let is_earlier = known.committed_in.is_some_and(|it| it < epoch);
            known.acknowledged && !known.is_excused && is_earlier
        })
    }

    /// A read at the active saw a write: it is committed, and none that is required is newer.
    pub(super) fn read(&self, key: u8, last_write: u64, required_at_call: Option<usize>) {
        let rank = self.rank(key, last_write);
        assert!(last_write == 0 || rank.is_some(), "a read shows the prepare {last_write}");
        if self.registers[usize::from(key)].is_checked {
            assert!(rank >= required_at_call, "key {key}: a read is stale");
        }
    }

    /// The active of `epoch` holds all that earlier epochs committed and acknowledged. It may begin
    /// late, when a later epoch committed more; then no member grants it anything.
    pub(super) fn promoted(&self, data: &CopyData, winner: CopyId, epoch: CopiesEpoch) {
        for key in 0..self.committed.len() as u8 {
            let (held, required) = (self.held(data, key), self.required_before(key, epoch));
            if !self.registers[usize::from(key)].is_checked {
                continue;
            }
            assert!(held >= required, "{winner:?} lacks {required:?} of key {key}, has {held:?}");
        }
    }

    /// A copy's process stopped without a flush, or its disk was wiped.
    pub(super) fn lost(&mut self, before: &CopyData, after: &CopyData, record: &CopiesRecord) {
        let holds = |oracle: &Oracle, data: &CopyData, key: u8, write: u64| {
            data.prepares.values().any(|it| it.write == write)
                || data.last_write(key) == write
                || oracle.rank(key, write).is_some_and(|rank| oracle.held(data, key) >= Some(rank))
        };
        let members = record.majority().min(record.members.len());
        let survived = match record.is_joint() {
            true => members.min(record.joining_majority()).min(record.joining.len()),
            false => members,
        };
        for key in 0..self.committed.len() as u8 {
            let mut writes = self.committed[usize::from(key)].clone();
            writes.extend(before.prepare_of(key).map(|(_, it)| it.write));
            for write in writes {
                let is_lost = holds(self, before, key, write) && !holds(self, after, key, write);
                let known = self.writes.get_mut(&write).expect("durable writes are known");
                known.losses += usize::from(is_lost);
                if known.level != DurabilityLevel::PersistToMajority
                    && !known.is_excused
                    && known.losses >= survived
                    && is_lost
                {
                    known.is_excused = true;
                    self.registers[usize::from(key)].is_checked = false;
                }
            }
        }
    }

    /// The same seqno of the same history is the same content, on every copy.
    pub(super) fn content(&mut self, uuid: VbUuid, seqno: Seqno, data: &CopyData) {
        let known = self.contents.entry((uuid, seqno)).or_insert_with(|| data.clone());
        let is_equal = known == data;
        assert!(is_equal, "contents differ at {seqno:?} of {uuid:?}: {known:?} {data:?}");
    }

    pub(super) fn acknowledged(&mut self, member: CopyId, epoch: CopiesEpoch, seqno: Seqno) {
        let known = self.acknowledged.entry((member, epoch)).or_default();
        *known = (*known).max(seqno);
    }

    /// A prepare may be committed: counted without the code under test.
    pub(super) fn may_commit(&self, record: &CopiesRecord, prepared: Seqno) {
        let joining_configured = record.joining_configured.unwrap_or(record.configured);
        let sets = [(&record.members, record.configured), (&record.joining, joining_configured)];
        for (set, configured) in sets {
            let holds = |member: &&CopyId| {
                let acknowledged = self.acknowledged.get(&(**member, record.epoch));
                **member == record.active || acknowledged.is_some_and(|seqno| *seqno >= prepared)
            };
            let wanted = (configured / 2 + 1).min(set.len());
            let held = set.iter().filter(holds).count();
            assert!(held >= wanted, "{prepared:?} is committed by {held} of {wanted} copies");
        }
    }
}
