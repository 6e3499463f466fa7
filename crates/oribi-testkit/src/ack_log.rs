//! The oracle of crash tests: what was attempted, what was acknowledged, and so what may be found.
//!
//! Each key has one writer, which issues one operation at a time. An attempt is noted before its
//! request is sent and resolved by the answer; what has no answer when the server dies stays *in doubt*
//! and may or may not have happened. After a restart the document of every key must be the result of one
//! attempt, and that attempt must not be older than
//!
//! 1. the last one acknowledged as persisted,
//! 2. the last acknowledged one whose seqno is at or below the highest seqno found in its vbucket (a
//!    vbucket recovers a prefix of its history, it has no holes),
//! 3. after a clean stop, the last acknowledged one.
//!
//! An acknowledged attempt is found with the very CAS that was acknowledged. In the life after a restart,
//! seqnos are above every persisted one, CAS above every surviving one, no seqno is given twice, and
//! the vbucket uuid changes exactly when the server had crashed. What a check finds becomes the
//! start of the next life, so that cycles can be chained on one directory.
//!
//! The oracle does no I/O: whoever uses it reads the documents back and hands them in.

mod key_history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use oribi_types::{Cas, Seqno, VbUuid, Vbid};

use key_history::{KeyHistory, Resolution};

/// A document as it was read back: value and CAS, or `None` when there is none.
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

/// How the server ended before the documents were read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Killed: whatever was not acknowledged as persisted may be gone.
    Crash,
    /// Stopped in order: nothing acknowledged may be gone.
    CleanStop,
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
    key: Vec<u8>,
    index: usize,
}

/// What a check looked at, to show that it looked at something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Keys read back.
    pub keys: usize,
    /// Keys for which a promise held that named one exact document or a later one.
    pub bound: usize,
    /// Keys whose last acknowledged write was not persisted and was rightly lost.
    pub lost: usize,
}

/// What is known of one vbucket.
#[derive(Debug, Default)]
struct VbucketHistory {
    /// Seqnos given since the last restart, to see that none is given twice.
    seqnos: BTreeSet<Seqno>,
    /// History identity of this life, once a mutation showed it.
    uuid: Option<VbUuid>,
    /// Identity and ending of the life before.
    previous: Option<(VbUuid, Ending)>,
    /// Every new seqno has to be above this one.
    seqno_floor: Seqno,
    /// Every new CAS has to be above this one.
    cas_floor: Cas,
}

/// The record of one data directory's life. See the module's description.
#[derive(Debug, Default)]
pub struct AckLog {
    keys: BTreeMap<(Vbid, Vec<u8>), KeyHistory>,
    vbuckets: BTreeMap<Vbid, VbucketHistory>,
    violations: Vec<Violation>,
}

impl AckLog {
    /// A record of an empty data directory.
    pub fn new() -> AckLog {
        AckLog::default()
    }

    /// Notes that a mutation is about to be sent; `None` as value means deletion.
    pub fn attempt(&mut self, vbid: Vbid, key: &[u8], value: Option<&[u8]>) -> AttemptId {
        let history = self.keys.entry((vbid, key.to_vec())).or_default();
        let index = history.push(value.map(<[u8]>::to_vec));
        AttemptId { vbid, key: key.to_vec(), index }
    }

    /// Notes the success of an attempt and checks what its answer says.
    pub fn acknowledged(&mut self, attempt: &AttemptId, ack: Acknowledgement) {
        if let Some(history) = self.keys.get_mut(&(attempt.vbid, attempt.key.clone())) {
            history.resolve(attempt.index, Resolution::Acknowledged(ack));
        }
        let broken = self.vbuckets.entry(attempt.vbid).or_default().note(ack);
        for text in broken {
            self.violations.push(Violation(format!(
                "{} key {}: {text}",
                attempt.vbid,
                String::from_utf8_lossy(&attempt.key)
            )));
        }
    }

    /// Notes that the server refused an attempt without doing it.
    pub fn refused(&mut self, attempt: &AttemptId) {
        if let Some(history) = self.keys.get_mut(&(attempt.vbid, attempt.key.clone())) {
            history.resolve(attempt.index, Resolution::Refused);
        }
    }

    /// Number of acknowledgements of this life.
    pub fn acknowledged_in_this_life(&self) -> usize {
        self.vbuckets.values().map(|vbucket| vbucket.seqnos.len()).sum()
    }

    /// Compares what `read` finds after a restart with the record, and begins the next life.
    ///
    /// Returns every violation since the last check, those of the answers included.
    pub fn verify(
        &mut self,
        ending: Ending,
        mut read: impl FnMut(Vbid, &[u8]) -> Found,
    ) -> Result<Verified, Vec<Violation>> {
        let mut verified = Verified::default();
        let mut readings = Vec::new();
        for ((vbid, key), history) in &self.keys {
            let found = read(*vbid, key);
            let matched = history.matching(&found);
            verified.keys += 1;
            readings.push((*vbid, key.clone(), found, matched));
        }
        let found_high = self.highest_found(&readings);
        for (vbid, key, found, matched) in &readings {
            let Some(history) = self.keys.get(&(*vbid, key.clone())) else { continue };
            let high = found_high.get(vbid).copied().unwrap_or_default();
            let floor = history.floor(ending, high);
            verified.bound += usize::from(floor.is_some());
            verified.lost += usize::from(history.lost_an_acknowledged_write(*matched));
            if let Some(text) = history.judge(found, *matched, floor) {
                let key = String::from_utf8_lossy(key);
                self.violations.push(Violation(format!("{vbid} key {key}: {text}")));
            }
        }
        self.begin_next_life(ending, readings);
        let violations = std::mem::take(&mut self.violations);
        if violations.is_empty() { Ok(verified) } else { Err(violations) }
    }

    /// Highest seqno of a found acknowledged attempt, by vbucket.
    fn highest_found(&self, readings: &[Reading]) -> BTreeMap<Vbid, Seqno> {
        let mut highest = BTreeMap::new();
        for (vbid, key, _, matched) in readings {
            let ack = matched
                .and_then(|index| self.keys.get(&(*vbid, key.clone()))?.acknowledgement(index));
            if let Some(ack) = ack {
                let high: &mut Seqno = highest.entry(*vbid).or_default();
                *high = (*high).max(ack.seqno);
            }
        }
        highest
    }

    fn begin_next_life(&mut self, ending: Ending, readings: Vec<Reading>) {
        for (vbid, key, found, matched) in readings {
            let Some(history) = self.keys.get_mut(&(vbid, key)) else { continue };
            let vbucket = self.vbuckets.entry(vbid).or_default();
            let survivor = matched.and_then(|index| history.acknowledgement(index));
            for ack in history.persisted_acknowledgements().chain(survivor) {
                vbucket.seqno_floor = vbucket.seqno_floor.max(ack.seqno);
                vbucket.cas_floor = vbucket.cas_floor.max(ack.cas);
            }
            if let Some((_, cas)) = &found {
                vbucket.cas_floor = vbucket.cas_floor.max(*cas);
            }
            *history = KeyHistory::starting_with(found);
        }
        for vbucket in self.vbuckets.values_mut() {
            vbucket.seqnos.clear();
            vbucket.previous = match (vbucket.uuid.take(), vbucket.previous) {
                (Some(uuid), _) => Some((uuid, ending)),
                // No mutation showed this life's identity: the older one is still what we know, and it
                // changed if any ending since was a crash.
                (None, Some((uuid, Ending::CleanStop))) => Some((uuid, ending)),
                (None, previous) => previous,
            };
        }
    }
}

/// Vbucket, key, document found, and the attempt that explains it.
type Reading = (Vbid, Vec<u8>, Found, Option<usize>);

impl VbucketHistory {
    /// Takes in one acknowledgement; returns what is wrong with it.
    fn note(&mut self, ack: Acknowledgement) -> Vec<String> {
        let mut broken = Vec::new();
        if !self.seqnos.insert(ack.seqno) {
            broken.push(format!("seqno {} was given twice", ack.seqno.0));
        }
        if ack.seqno <= self.seqno_floor {
            broken.push(format!("seqno {} is not above {}", ack.seqno.0, self.seqno_floor.0));
        }
        if ack.cas <= self.cas_floor {
            broken.push(format!("CAS {} is not above {}", ack.cas.0, self.cas_floor.0));
        }
        match (self.uuid, self.previous) {
            (Some(uuid), _) if uuid != ack.vb_uuid => {
                broken.push("the vbucket uuid changed while the server ran".to_owned());
            }
            (None, Some((uuid, Ending::Crash))) if uuid == ack.vb_uuid => {
                broken.push("the vbucket uuid is the same after a crash".to_owned());
            }
            (None, Some((uuid, Ending::CleanStop))) if uuid != ack.vb_uuid => {
                broken.push("the vbucket uuid changed over a clean stop".to_owned());
            }
            _ => {}
        }
        self.uuid = Some(ack.vb_uuid);
        broken
    }
}
