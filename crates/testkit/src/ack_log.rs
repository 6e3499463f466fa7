//! The oracle of crash tests: records attempts and acknowledgements, and derives the valid states.
//!
//! Each document has one writer, which issues one operation on it at a time. The writer notes an
//! attempt before it sends the request, and resolves it with the answer. An attempt without an
//! answer when the server dies stays *in doubt*: it may or may not have happened. After a restart
//! the server reports how far each vbucket came back, its high seqno `H`, and then everything
//! follows:
//!
//! 1. `H` is at or above every seqno that was acknowledged or shown as persisted, and after an
//!    orderly stop at or above every seqno that was given;
//! 2. a vbucket recovers a prefix of its history: an acknowledged write at or below `H` is there,
//!    one above is gone, and an attempt in doubt may be either;
//! 3. there is no gap: between the high seqno of the life before and `H` there are no more seqnos
//!    than writes that were acknowledged or are in doubt;
//! 4. the failover table has grown by a history that begins at `H`, once for each start after a
//!    crash, and is unchanged after an orderly stop;
//! 5. in the new life seqnos are above `H`, CAS above every CAS up to `H`, and no seqno is given
//!    twice.
//!
//! A read, after a restart or in between, returns the newest certain version with its exact CAS, or
//! a later one in doubt. Lives can be chained without reading anything back, so a server can also
//! be killed while it warms up. The oracle does no I/O: its caller does, and reports the results.
//!
//! If several servers serve a bucket at once ([`AckLog::of_cluster`]), each vbucket has its own
//! lives, and the histories in its failover table say which writes survive (`branches.rs`).

mod branches;
mod evidence;
mod key_history;
#[cfg(test)]
mod tests;
mod vbucket_history;
mod writes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use oribi_types::{Seqno, VbUuid, Vbid};

use branches::Branches;
use key_history::{KeyHistory, Resolution};
use vbucket_history::VbucketHistory;

pub use evidence::{Acknowledgement, ReadResult, RunEnd, VbucketReport};
pub use writes::{ValueHash, Write, Writes, value_hash};

/// One broken promise, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies an attempt between its request and its answer.
#[derive(Clone, Debug)]
pub struct AttemptId {
    vbid: Vbid,
    name: Vec<u8>,
    index: usize,
    value: ValueHash,
}

/// Counts of what the record has seen, to show that it checked something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub acknowledged: u64,
    /// Of these, acknowledged as persisted.
    pub persisted: u64,
    /// Attempts that had no answer when the server ended.
    pub in_doubt: u64,
    /// Writes acknowledged, but not as persisted, and rightly lost by a crash.
    pub lost: u64,
    /// Documents read and found in a valid state.
    pub read: u64,
}

/// The record of one data directory's life. See the module's description.
#[derive(Debug, Default)]
pub struct AckLog {
    documents: BTreeMap<(Vbid, Vec<u8>), KeyHistory>,
    vbuckets: BTreeMap<Vbid, VbucketHistory>,
    violations: Vec<Violation>,
    tally: Tally,
    /// Every start begins a new history, because other servers may have had the vbuckets
    /// concurrently.
    is_shared: bool,
    /// Expected state for comparing DCP streams.
    writes: Writes,
    /// Replaces `vbuckets` when several servers serve at once.
    branches: Option<BTreeMap<Vbid, Branches>>,
}

impl AckLog {
    /// A record of an empty data directory.
    pub fn new() -> AckLog {
        AckLog::default()
    }

    /// A record of an empty bucket whose store several servers share: even an orderly stop ends its
    /// histories.
    pub fn of_shared_store() -> AckLog {
        AckLog { is_shared: true, ..AckLog::default() }
    }

    /// A record of an empty bucket that several servers serve at once, with vbuckets that move
    /// between them. Its lives end with [`AckLog::settled`].
    pub fn of_cluster() -> AckLog {
        AckLog { branches: Some(BTreeMap::new()), ..AckLog::default() }
    }

    /// Every document that certainly exists, with its value.
    pub fn documents(&self) -> impl Iterator<Item = (Vbid, &[u8], &[u8])> {
        self.documents.iter().filter_map(|((vbid, name), history)| {
            Some((*vbid, name.as_slice(), history.certain()??))
        })
    }

    /// Notes that a mutation of the document `name` is about to be sent; `None` as value means
    /// deletion. A name is any bytes that distinguish documents of a vbucket.
    pub fn attempt(&mut self, vbid: Vbid, name: &[u8], value: Option<&[u8]>) -> AttemptId {
        let history = self.documents.entry((vbid, name.to_vec())).or_default();
        let index = history.push(value.map(<[u8]>::to_vec));
        let value = value_hash(value);
        self.writes.attempt(vbid, name, value);
        AttemptId { vbid, name: name.to_vec(), index, value }
    }

    /// Notes the success of an attempt and checks its answer.
    pub fn acknowledged(&mut self, attempt: &AttemptId, ack: Acknowledgement) {
        self.tally.acknowledged += 1;
        self.tally.persisted += u64::from(ack.persisted);
        self.resolve(attempt, Resolution::Acknowledged(ack));
        self.writes.acknowledged(attempt.vbid, &attempt.name, attempt.value, ack);
        let broken = match &mut self.branches {
            Some(branches) => branches.entry(attempt.vbid).or_default().note(ack),
            None => self.vbuckets.entry(attempt.vbid).or_default().note(ack),
        };
        for text in broken {
            self.complain(attempt.vbid, &attempt.name, &text);
        }
    }

    /// Notes that the server refused an attempt without applying it.
    pub fn refused(&mut self, attempt: &AttemptId) {
        self.resolve(attempt, Resolution::NotDone);
    }

    /// Notes that the running server shows everything up to `persisted` as durable.
    pub fn shown_as_persisted(&mut self, vbid: Vbid, persisted: Seqno) {
        self.vbuckets.entry(vbid).or_default().shown_as_persisted(persisted);
    }

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

    /// Compares a document with the record. The document was read while no attempt on it was in
    /// flight. From then on the state found is certain.
    pub fn read(&mut self, vbid: Vbid, name: &[u8], found: &ReadResult) {
        let history = self.documents.entry((vbid, name.to_vec())).or_default();
        match history.judge(found) {
            Ok(()) => self.tally.read += 1,
            Err(text) => self.complain(vbid, name, &text),
        }
    }

    /// Begins the next life: the server ended, was started again and reports what came back.
    /// Vbuckets that are not mentioned came back empty.
    pub fn restarted(&mut self, ending: RunEnd, recovered: &BTreeMap<Vbid, VbucketReport>) {
        let mut in_doubt: BTreeMap<Vbid, u64> = BTreeMap::new();
        for ((vbid, _), history) in &self.documents {
            *in_doubt.entry(*vbid).or_default() += history.in_doubt();
        }
        let all = self.vbuckets.keys().chain(recovered.keys()).copied();
        for vbid in all.collect::<BTreeSet<_>>() {
            let found = recovered.get(&vbid).cloned().unwrap_or_default();
            let doubtful = in_doubt.get(&vbid).copied().unwrap_or(0);
            self.writes.restarted(vbid, found.high_seqno);
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

    /// For a record of [`AckLog::of_cluster`]: all servers are idle, no request is in flight, and
    /// `tables` holds the failover tables of all vbuckets, newest history first. Then documents can
    /// be read and compared.
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

    /// Expected state for comparing DCP streams.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Identity of the vbucket's current life, once something showed it.
    pub fn vb_uuid(&self, vbid: Vbid) -> Option<VbUuid> {
        self.vbuckets.get(&vbid)?.uuid()
    }

    /// The counts so far.
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
