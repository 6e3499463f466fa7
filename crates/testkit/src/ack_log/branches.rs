//! The known state of a vbucket that moves between several servers: the acknowledgements of each
//! server, by history.
//!
//! Every ownership has its own history, whose name is in each acknowledgement. The failover table
//! at the end says at which seqno each history ended, and so exactly which writes survive. An
//! acknowledged write is there if its history is in the table and did not end before its seqno. A
//! write acknowledged as persisted has to be there. The oracle ignores clocks and the order of
//! events between servers, so it need not know who owned the vbucket when.

use std::collections::BTreeMap;

use oribi_types::{Cas, Seqno, VbUuid};

use super::evidence::Acknowledgement;

/// Entries that a failover table keeps.
const HISTORIES_MAX: usize = 25;

#[derive(Debug, Default)]
pub(super) struct Branches {
    /// Acknowledgements since the last look at the table.
    given: BTreeMap<(VbUuid, Seqno), Acknowledgement>,
    /// The failover table at that time, newest first.
    table: Vec<(VbUuid, Seqno)>,
}

impl Branches {
    /// Checks and records one acknowledgement; returns what is wrong with it.
    pub(super) fn note(&mut self, ack: Acknowledgement) -> Vec<String> {
        let mut broken = Vec::new();
        let (history, seqno) = (ack.vb_uuid, ack.seqno);
        if self.given.insert((history, seqno), ack).is_some() {
            broken.push(format!("seqno {} was given twice in one history", seqno.0));
        }
        let before = self.given.range((history, Seqno(0))..(history, seqno)).next_back();
        let after = self.given.range((history, Seqno(seqno.0 + 1))..(history, Seqno(u64::MAX)));
        let is_before = before.is_some_and(|(_, other)| other.cas >= ack.cas);
        let is_after = after.into_iter().next().is_some_and(|(_, other)| other.cas <= ack.cas);
        if is_before || is_after {
            broken.push(format!("CAS {} is out of the order of seqnos", ack.cas.0));
        }
        broken
    }

    /// Compares the failover table, read while all servers are idle, with the record. Returns what
    /// is wrong with it.
    pub(super) fn settled(&mut self, table: &[(VbUuid, Seqno)]) -> Vec<String> {
        let mut broken = Vec::new();
        if !continues(table, &self.table) {
            broken.push(format!("the table {table:?} does not continue {:?}", self.table));
        }
        let mut last = (Seqno(0), Cas(0));
        let mut there: Vec<&Acknowledgement> = Vec::new();
        for ack in self.given.values() {
            match went_on(table, ack) {
                true => there.push(ack),
                false if ack.persisted => broken.push(format!(
                    "seqno {} of history {:x} was acknowledged as persisted and is not in {table:?}",
                    ack.seqno.0, ack.vb_uuid.0
                )),
                false => {}
            }
        }
        there.sort_by_key(|ack| ack.seqno);
        for ack in there {
            if ack.seqno <= last.0 || ack.cas <= last.1 {
                broken.push(format!("{ack:?} is not behind {last:?}, and both are there"));
            }
            last = (ack.seqno, ack.cas);
        }
        self.given.clear();
        self.table = table.to_vec();
        broken
    }
}

/// True when the acknowledged write is part of the history that this table describes.
pub(super) fn went_on(table: &[(VbUuid, Seqno)], ack: &Acknowledgement) -> bool {
    let at = table.iter().position(|(uuid, _)| *uuid == ack.vb_uuid);
    match at {
        None => false,
        Some(0) => true,
        // The entry before belongs to the next history, which began where this one ended.
        Some(at) => ack.seqno <= table[at - 1].1,
    }
}

/// True when `table` is `before` with newer histories in front, which begin one after the other.
fn continues(table: &[(VbUuid, Seqno)], before: &[(VbUuid, Seqno)]) -> bool {
    let new = match before.first() {
        None => table.len(),
        Some((newest, _)) => match table.iter().position(|(uuid, _)| uuid == newest) {
            Some(at) => at,
            // The table forgot it after as many take-overs as it has entries.
            None => return table.len() == HISTORIES_MAX,
        },
    };
    let kept = before.len().min(HISTORIES_MAX - new);
    table[new..] == before[..kept] && table.windows(2).all(|pair| pair[0].1 >= pair[1].1)
}
