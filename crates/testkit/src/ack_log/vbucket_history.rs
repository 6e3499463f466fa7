//! The known state of one vbucket: the seqnos and CAS it gave, its histories, and its promises of
//! persistence.

use std::collections::BTreeMap;

use oribi_types::{Cas, Seqno, VbUuid};

use super::evidence::{Acknowledgement, RunEnd, VbucketReport};

/// Events of collections that a start may give seqnos again, because a crash took them: those of a
/// scope and of a collection.
const EVENTS_MAX: u64 = 2;

/// Entries that a failover table keeps.
const HISTORIES_MAX: usize = 25;

#[derive(Debug, Default)]
pub(super) struct VbucketHistory {
    /// Seqnos given in this life, with their CAS.
    given: BTreeMap<Seqno, Cas>,
    /// Identity of this life, once something showed it.
    uuid: Option<VbUuid>,
    /// Failover table at the start of this life, if the server was asked.
    histories: Option<Vec<(VbUuid, Seqno)>>,
    /// High seqno at the start of this life.
    high_at_start: Seqno,
    /// Every CAS of this life has to be above this one.
    cas_floor: Cas,
    /// Everything up to here was acknowledged or shown as persisted.
    persisted: Seqno,
}

impl VbucketHistory {
    pub(super) fn uuid(&self) -> Option<VbUuid> {
        self.uuid
    }

    pub(super) fn shown_as_persisted(&mut self, persisted: Seqno) {
        self.persisted = self.persisted.max(persisted);
    }

    /// Checks and records one acknowledgement; returns what is wrong with it.
    pub(super) fn note(&mut self, ack: Acknowledgement) -> Vec<String> {
        let mut broken = Vec::new();
        if self.given.insert(ack.seqno, ack.cas).is_some() {
            broken.push(format!("seqno {} was given twice", ack.seqno.0));
        }
        if ack.seqno <= self.high_at_start {
            let floor = self.high_at_start.0;
            broken.push(format!("seqno {} is not above {floor}", ack.seqno.0));
        }
        if ack.cas <= self.cas_floor {
            broken.push(format!("CAS {} is not above {}", ack.cas.0, self.cas_floor.0));
        }
        let before = self.given.range(..ack.seqno).next_back();
        let after = self.given.range(Seqno(ack.seqno.0 + 1)..).next();
        if before.is_some_and(|(_, cas)| *cas >= ack.cas)
            || after.is_some_and(|(_, cas)| *cas <= ack.cas)
        {
            broken.push(format!("CAS {} is out of the order of seqnos", ack.cas.0));
        }
        if self.uuid.is_some_and(|uuid| uuid != ack.vb_uuid) {
            broken.push("the vbucket uuid changed while the server ran".to_owned());
        }
        self.uuid = Some(ack.vb_uuid);
        if ack.persisted {
            self.shown_as_persisted(ack.seqno);
        }
        broken
    }

    /// Begins the next life with what was `found`; `in_doubt` attempts of the last one had no
    /// answer.
    pub(super) fn restarted(
        &mut self,
        ending: RunEnd,
        is_shared: bool,
        found: &VbucketReport,
        in_doubt: u64,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        let high = found.high_seqno;
        let promised = match (ending, self.given.last_key_value()) {
            (RunEnd::CleanStop { .. }, Some((last, _))) => self.persisted.max(*last),
            _ => self.persisted,
        };
        if high < promised {
            broken.push(format!("came back up to seqno {}, promised was {}", high.0, promised.0));
        }
        if high < self.high_at_start {
            let before = self.high_at_start.0;
            broken.push(format!(
                "came back up to seqno {}, in the life before up to {before}",
                high.0
            ));
        }
        let known = self.given.range(..=high).count() as u64 + in_doubt;
        // Before the first look at a vbucket, collections may have been created.
        let is_known = self.histories.is_some();
        if is_known && high.0.saturating_sub(self.high_at_start.0) > known {
            broken.push(format!(
                "has seqnos up to {}, but only {known} writes since {} can explain them",
                high.0, self.high_at_start.0
            ));
        }
        let ended_histories = match ending {
            // A server that takes over begins a history, even after an orderly stop.
            RunEnd::CleanStop { killed_starts } if is_shared => {
                RunEnd::Crash { starts: killed_starts + 1 }
            }
            other => other,
        };
        broken.extend(self.check_histories(ended_histories, found));
        let newest_cas = self.given.range(..=high).map(|(_, cas)| *cas).max();
        self.cas_floor = self.cas_floor.max(newest_cas.unwrap_or_default());
        self.given.clear();
        self.high_at_start = high;
        self.persisted = high;
        self.histories = Some(found.histories.clone());
        self.uuid = found.histories.first().map(|(uuid, _)| *uuid);
        broken
    }

    /// Fault of the failover table.
    fn check_histories(&self, ending: RunEnd, found: &VbucketReport) -> Option<String> {
        let table = &found.histories;
        let newest = table.first().map(|(uuid, _)| *uuid);
        let complaint = |text: &str| {
            Some(format!(
                "{text}: {table:?} after {:?}, high seqno {}",
                self.histories, found.high_seqno.0
            ))
        };
        let Some(before) = &self.histories else {
            // At most the identity is known.
            return match (ending, self.uuid, newest) {
                (RunEnd::Crash { .. }, Some(old), Some(new)) if old == new => {
                    complaint("the vbucket uuid is the same after a crash")
                }
                (RunEnd::CleanStop { .. }, Some(old), Some(new)) if old != new => {
                    complaint("the vbucket uuid changed over a clean stop")
                }
                _ => None,
            };
        };
        let grown = match ending {
            // A start may have been killed before it recorded the crash.
            RunEnd::CleanStop { killed_starts } => 0..=killed_starts,
            RunEnd::Crash { starts } => 1..=starts,
        };
        let continues = |new: usize| {
            let kept = before.len().min(HISTORIES_MAX.saturating_sub(new));
            table.len() == new + kept
                && table[new..] == before[..kept]
                && table[..new].iter().all(|(uuid, seqno)| {
                    self.comes_back_to(*seqno, found.high_seqno)
                        && before.iter().all(|(known, _)| known != uuid)
                })
        };
        match grown.clone().any(continues) {
            true => None,
            false => complaint("the failover table did not grow as it must"),
        }
    }

    /// True when a history that begins at `seqno` may have reached `high` before it took a write:
    /// the server gives seqnos again to events that a crash took, and to nothing else.
    fn comes_back_to(&self, seqno: Seqno, high: Seqno) -> bool {
        let events = high.0.checked_sub(seqno.0);
        let has_writes =
            self.given.range(Seqno(seqno.0 + 1)..=high.max(Seqno(seqno.0 + 1))).count();
        events == Some(0) || events.is_some_and(|events| events <= EVENTS_MAX) && has_writes == 0
    }
}
