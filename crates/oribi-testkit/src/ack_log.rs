//! The oracle of crash tests: what was attempted, what was acknowledged, and so what may be found.
//!
//! Each document has one writer, which issues one operation on it at a time. An attempt is noted before
//! its request is sent and resolved by the answer; what has no answer when the server dies stays *in
//! doubt* and may or may not have happened. After a restart the server says how far each vbucket came
//! back, its high seqno `H`, and then everything follows:
//!
//! 1. `H` is at or above every seqno that was acknowledged or shown as persisted, and after an orderly
//!    stop at or above every seqno that was given;
//! 2. a vbucket recovers a prefix of its history: an acknowledged write at or below `H` is there, one
//!    above is gone, and what is in doubt may be either;
//! 3. there is no gap: between the high seqno of the life before and `H` there are no more seqnos than
//!    writes that were acknowledged or are in doubt;
//! 4. the failover table has grown by a history that begins at `H`, once for each start after a crash, and is
//!    unchanged after an orderly stop;
//! 5. in the new life seqnos are above `H`, CAS above every CAS up to `H`, and no seqno is given twice.
//!
//! Whenever a document is read, after a restart or in between, it is the newest certain version with its
//! exact CAS, or one that is in doubt since. Lives can be chained without reading anything back, so a
//! server can also be killed while it warms up. The oracle does no I/O: whoever uses it reads and hands in.
//!
//! Of several servers that serve a bucket at once ([`AckLog::of_cluster`]) each vbucket has a life of its own, and what went on
//! is told by the histories in its failover table (`branches.rs`).

mod branches;
mod key_history;
#[cfg(test)]
mod tests;
mod vbucket_history;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use oribi_types::{Cas, Seqno, VbUuid, Vbid};

use branches::Branches;
use key_history::{KeyHistory, Resolution};
use vbucket_history::VbucketHistory;

/// A document as it was read: value and CAS, or `None` when there is none.
pub type Found = Option<(Vec<u8>, Cas)>;

/// What the server answered to a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Version given to the document or its tombstone.
    pub cas: Cas,
    /// Place of the mutation in its vbucket's history.
    pub seqno: Seqno,
    /// History that the seqno belongs to.
    pub vb_uuid: VbUuid,
    /// True when the answer promises that the mutation is on disk.
    pub persisted: bool,
}

/// How the server ended before it was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Killed: whatever was not acknowledged as persisted may be gone. It was started this often since
    /// and killed again each time but the last.
    Crash {
        /// Starts, at least 1.
        starts: usize,
    },
    /// Stopped in order: nothing acknowledged may be gone. Perhaps it was killed while it started again,
    /// before anybody could write.
    CleanStop {
        /// Starts that were killed; usually 0.
        killed_starts: usize,
    },
}

/// What the server says of a vbucket when it serves again.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Highest seqno that came back.
    pub high_seqno: Seqno,
    /// The failover table, newest first: identity and the seqno at which it began.
    pub histories: Vec<(VbUuid, Seqno)>,
}

/// One broken promise, told for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names an attempt between its request and its answer.
#[derive(Clone, Debug)]
pub struct AttemptId {
    vbid: Vbid,
    name: Vec<u8>,
    index: usize,
}

/// What the record has seen, to show that it looked at something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Mutations acknowledged.
    pub acknowledged: u64,
    /// Of these, as persisted.
    pub persisted: u64,
    /// Attempts that had no answer when the server ended.
    pub in_doubt: u64,
    /// Acknowledged, but not as persisted, and rightly lost by a crash.
    pub lost: u64,
    /// Documents read and found as they may be.
    pub read: u64,
}

/// The record of one data directory's life. See the module's description.
#[derive(Debug, Default)]
pub struct AckLog {
    documents: BTreeMap<(Vbid, Vec<u8>), KeyHistory>,
    vbuckets: BTreeMap<Vbid, VbucketHistory>,
    violations: Vec<Violation>,
    tally: Tally,
    /// Every start begins a new history, because others may have had the vbuckets meanwhile.
    is_shared: bool,
    /// In place of `vbuckets`, when several servers serve at once.
    branches: Option<BTreeMap<Vbid, Branches>>,
}

impl AckLog {
    /// A record of an empty data directory.
    pub fn new() -> AckLog {
        AckLog::default()
    }

    /// A record of an empty bucket whose store several servers share: also an orderly stop ends its histories.
    pub fn of_shared_store() -> AckLog {
        AckLog { is_shared: true, ..AckLog::default() }
    }

    /// A record of an empty bucket that several servers serve at once, each its own vbuckets, by turns. Its lives end
    /// with [`AckLog::settled`].
    pub fn of_cluster() -> AckLog {
        AckLog { branches: Some(BTreeMap::new()), ..AckLog::default() }
    }

    /// Every document that certainly is there, with its value.
    pub fn documents(&self) -> impl Iterator<Item = (Vbid, &[u8], &[u8])> {
        self.documents.iter().filter_map(|((vbid, name), history)| {
            Some((*vbid, name.as_slice(), history.certain()??))
        })
    }

    /// Notes that a mutation of the document `name` is about to be sent; `None` as value means deletion. A name is
    /// any bytes that tell documents of a vbucket apart.
    pub fn attempt(&mut self, vbid: Vbid, name: &[u8], value: Option<&[u8]>) -> AttemptId {
        let history = self.documents.entry((vbid, name.to_vec())).or_default();
        let index = history.push(value.map(<[u8]>::to_vec));
        AttemptId { vbid, name: name.to_vec(), index }
    }

    /// Notes the success of an attempt and checks what its answer says.
    pub fn acknowledged(&mut self, attempt: &AttemptId, ack: Acknowledgement) {
        self.tally.acknowledged += 1;
        self.tally.persisted += u64::from(ack.persisted);
        self.resolve(attempt, Resolution::Acknowledged(ack));
        let broken = match &mut self.branches {
            Some(branches) => branches.entry(attempt.vbid).or_default().note(ack),
            None => self.vbuckets.entry(attempt.vbid).or_default().note(ack),
        };
        for text in broken {
            self.complain(attempt.vbid, &attempt.name, &text);
        }
    }

    /// Notes that the server refused an attempt without doing it.
    pub fn refused(&mut self, attempt: &AttemptId) {
        self.resolve(attempt, Resolution::NotDone);
    }

    /// Notes that the running server shows everything up to `persisted` as durable.
    pub fn shown_as_persisted(&mut self, vbid: Vbid, persisted: Seqno) {
        self.vbuckets.entry(vbid).or_default().shown_as_persisted(persisted);
    }

    /// Notes something else that no server may do.
    pub fn complain(&mut self, vbid: Vbid, name: &[u8], text: &str) {
        let name = String::from_utf8_lossy(name);
        self.violations.push(Violation(format!("{vbid} document {name}: {text}")));
    }

    /// The document's value (`None`: there is no document), when it is certain.
    pub fn certain(&self, vbid: Vbid, name: &[u8]) -> Option<Option<&[u8]>> {
        match self.documents.get(&(vbid, name.to_vec())) {
            Some(history) => history.certain(),
            None => Some(None),
        }
    }

    /// Compares a document that was read, while no attempt on it was under way, with the record. From
    /// then on what was found is certain.
    pub fn read(&mut self, vbid: Vbid, name: &[u8], found: &Found) {
        let history = self.documents.entry((vbid, name.to_vec())).or_default();
        match history.judge(found) {
            Ok(()) => self.tally.read += 1,
            Err(text) => self.complain(vbid, name, &text),
        }
    }

    /// Begins the next life: the server ended, was started again and says what came back. Vbuckets that
    /// are not mentioned came back empty.
    pub fn restarted(&mut self, ending: Ending, recovered: &BTreeMap<Vbid, Recovered>) {
        let mut in_doubt: BTreeMap<Vbid, u64> = BTreeMap::new();
        for ((vbid, _), history) in &self.documents {
            *in_doubt.entry(*vbid).or_default() += history.in_doubt();
        }
        let all = self.vbuckets.keys().chain(recovered.keys()).copied();
        for vbid in all.collect::<BTreeSet<_>>() {
            let found = recovered.get(&vbid).cloned().unwrap_or_default();
            let doubtful = in_doubt.get(&vbid).copied().unwrap_or(0);
            let broken = self.vbuckets.entry(vbid).or_default().restarted(
                ending,
                self.is_shared,
                &found,
                doubtful,
            );
            self.violations
                .extend(broken.into_iter().map(|text| Violation(format!("{vbid}: {text}"))));
        }
        for ((vbid, _), history) in &mut self.documents {
            let high = recovered.get(vbid).map_or(Seqno(0), |found| found.high_seqno);
            self.tally.lost += history.restarted(|ack| ack.seqno <= high);
        }
        self.tally.in_doubt += in_doubt.values().sum::<u64>();
    }

    /// For a record of [`AckLog::of_cluster`]: all servers are at rest, nothing is under way, and these are the failover tables of
    /// all vbuckets, newest history first. Then documents can be read and compared.
    pub fn settled(&mut self, tables: &BTreeMap<Vbid, Vec<(VbUuid, Seqno)>>) {
        let branches = self.branches.get_or_insert_default();
        for (vbid, table) in tables {
            let broken = branches.entry(*vbid).or_default().settled(table);
            self.violations
                .extend(broken.into_iter().map(|text| Violation(format!("{vbid}: {text}"))));
        }
        for ((vbid, _), history) in &mut self.documents {
            let table = tables.get(vbid).map(Vec::as_slice).unwrap_or_default();
            self.tally.in_doubt += history.in_doubt();
            self.tally.lost += history.restarted(|ack| branches::went_on(table, ack));
        }
    }

    /// Identity of the vbucket's current life, once something showed it.
    pub fn vb_uuid(&self, vbid: Vbid) -> Option<VbUuid> {
        self.vbuckets.get(&vbid)?.uuid()
    }

    /// What was seen so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes the violations so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    fn resolve(&mut self, attempt: &AttemptId, resolution: Resolution) {
        let key = (attempt.vbid, attempt.name.clone());
        if let Some(history) = self.documents.get_mut(&key) {
            history.resolve(attempt.index, resolution);
        }
    }
}
