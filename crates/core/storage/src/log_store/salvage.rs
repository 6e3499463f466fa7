//! Salvage: the data that an opening drops when it accepts damage.
//!
//! Owns: the account of lost bytes, frames and seqnos, and its log lines. [`Account`] takes frames
//! and damage in the order of the log. Two rules of the log show the losses between them:
//! - frames have consecutive numbers, also from one segment to the next;
//! - a commit has the state of each of its vbuckets after their versions, with the highest seqno,
//!   and so has the root of a segment. So whatever is lost of a vbucket has seqnos above the last
//!   state before the damage, and below the first version or up to the first state after it.
//!
//! Seqnos of that range that the log never had, because memory had replaced their versions before
//! the commit, are in it as well. A damaged commit whose states can be read concerns their vbuckets
//! only ([`states_of_commit`]). Caller: opening.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;

use oribi_types::{Cas, Seqno, Vbid};

use super::bounds::{LogBounds, LogPosition};
use super::files::LogFile;
use super::layout::{
    FRAME_HEADER_BYTES, FRAME_TRAILER_BYTES, FrameHeader, Kind, RECORD_HEADER_BYTES, StoredRecord,
    decode_record, decode_unchecked, stored_bytes_of,
};
use crate::VbucketState;
use crate::state_layout::decode_state;

/// Longest damaged commit that is looked into.
const COMMIT_BYTES_MAX: usize = 64 << 20;

/// Data that an opening gave up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogLosses {
    /// Places of the log that cannot be read.
    pub places: u64,
    /// Their bytes, with those of files that are missing or cut off.
    pub bytes: u64,
    /// Frames that were in them, at least: what follows a missing file may have been removed.
    pub frames: u64,
    /// Seqnos between which versions may be lost. The end of a range is `u64::MAX` where no later
    /// state says how far the vbucket had come.
    pub seqnos: BTreeMap<Vbid, Vec<RangeInclusive<u64>>>,
}

impl LogLosses {
    /// Adds those of another log.
    pub(super) fn add(&mut self, other: &LogLosses) {
        self.places += other.places;
        self.bytes += other.bytes;
        self.frames += other.frames;
        for (vbid, ranges) in &other.seqnos {
            self.seqnos.entry(*vbid).or_default().extend(ranges.iter().cloned());
        }
    }
}

/// Parts of a segment, in the order of reading.
#[derive(Debug)]
pub(super) enum SalvageItem {
    Frame(PassedFrame),
    /// Bytes that cannot be read.
    Damage(Damage),
}

/// Bytes of a segment that cannot be read.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) what: &'static str,
    /// Highest seqnos by the states of the only commit in it; `None` when nothing is known.
    pub(super) states: Option<BTreeMap<Vbid, Seqno>>,
}

impl Damage {
    /// Of which nothing else is known.
    pub(super) fn new(offset: u64, bytes: u64, what: &'static str) -> Damage {
        Damage { offset, bytes, what, states: None }
    }

    /// Of a segment's header, which concerns no vbucket.
    pub(super) fn of_header(bytes: usize, what: &'static str) -> Damage {
        Damage { states: Some(BTreeMap::new()), ..Damage::new(0, bytes as u64, what) }
    }
}

/// A frame, as an account needs it.
#[derive(Debug, Default)]
pub(super) struct PassedFrame {
    at: u64,
    number: u64,
    vbuckets: BTreeMap<Vbid, Content>,
}

/// A vbucket's part of a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    /// Lowest and highest seqno.
    versions: Option<(Seqno, Seqno)>,
    cas: Cas,
    /// Highest seqno, by the state.
    state: Option<Seqno>,
}

impl PassedFrame {
    /// The frame of this place and number, without its records.
    pub(super) fn new(at: u64, number: u64) -> PassedFrame {
        PassedFrame { at, number, vbuckets: BTreeMap::new() }
    }

    /// Adds one of its records.
    pub(super) fn add(&mut self, stored: &StoredRecord<'_>) {
        if stored.kind.is_version() {
            let content = self.vbuckets.entry(stored.vbid).or_default();
            let seqno = stored.record.seqno;
            let (lowest, highest) = content.versions.unwrap_or((seqno, seqno));
            content.versions = Some((lowest.min(seqno), highest.max(seqno)));
            content.cas = content.cas.max(stored.record.cas);
        } else if stored.kind == Kind::State
            && let Ok(state) = decode_state(stored.record.value)
        {
            self.vbuckets.entry(stored.vbid).or_default().state = Some(state.high_seqno);
        }
    }
}

/// State of a vbucket up to a place in the log.
#[derive(Default)]
struct RecoveredVbucket {
    /// Highest seqno, by the last state.
    state: Seqno,
    /// Unknown damages before that state.
    unknown: u64,
    /// Highest seqno and CAS of all versions that count.
    versions: (Seqno, Cas),
}

/// See the module text.
#[derive(Default)]
pub(super) struct Account {
    known: BTreeMap<Vbid, RecoveredVbucket>,
    /// Segment and number of the last whole frame; zeros before the first one, which is frame 1 of
    /// segment 1.
    last: (u32, u64),
    /// No frame has followed the last damage yet.
    is_open: bool,
    /// Damages of unknown extent.
    unknown: u64,
    losses: LogLosses,
}

impl Account {
    /// Takes what comes next in the log.
    pub(super) fn take(&mut self, segment: u32, passed: SalvageItem, bounds: &LogBounds) {
        match passed {
            SalvageItem::Frame(frame) => self.take_frame(segment, frame, bounds),
            SalvageItem::Damage(damage) => self.take_damage(segment, damage),
        }
    }

    pub(super) fn take_damage(&mut self, segment: u32, damage: Damage) {
        let Damage { offset, bytes, what, states } = damage;
        tracing::warn!(
            segment,
            offset,
            bytes,
            what,
            "damage in the log; opened without these bytes, because damage is accepted"
        );
        self.losses.places += 1;
        self.losses.bytes += bytes;
        self.is_open = true;
        self.unknown += u64::from(states.is_none());
        for (vbid, state) in states.into_iter().flatten() {
            self.lose(vbid, state.0, state);
        }
        // The segment after one without any whole frame shows the numbers of its frames.
        if self.last.0.checked_add(1) == Some(segment) {
            self.last.0 = segment;
        }
    }

    fn take_frame(&mut self, segment: u32, frame: PassedFrame, bounds: &LogBounds) {
        if std::mem::take(&mut self.is_open) {
            let (id, number) = self.last;
            self.losses.frames += match id == segment || id.checked_add(1) == Some(segment) {
                true => frame.number.saturating_sub(number.saturating_add(1)),
                false => 1,
            };
        }
        self.last = (segment, frame.number);
        let position = LogPosition { segment, offset: frame.at };
        for (vbid, content) in frame.vbuckets {
            let is_gone = bounds.vbuckets.get(&vbid).is_some_and(|bound| position < *bound);
            let known = self.known.entry(vbid).or_default();
            if let (Some((_, highest)), false) = (content.versions, is_gone) {
                let (seqno, cas) = known.versions;
                known.versions = (seqno.max(highest), cas.max(content.cas));
            }
            // Copies of compaction come without a state, and say nothing about the order.
            let Some(state) = content.state else { continue };
            match content.versions {
                _ if known.unknown == self.unknown || is_gone => {
                    (known.state, known.unknown) = (state, self.unknown);
                }
                Some((lowest, _)) => self.lose(vbid, lowest.0.saturating_sub(1), state),
                None => self.lose(vbid, state.0, state),
            }
        }
    }

    /// Versions of the vbucket up to seqno `last` may be lost; `state` is its state after them.
    fn lose(&mut self, vbid: Vbid, last: u64, state: Seqno) {
        let known = self.known.entry(vbid).or_default();
        let first = known.state.0.saturating_add(1);
        if first <= last {
            self.losses.seqnos.entry(vbid).or_default().push(first..=last);
        }
        (known.state, known.unknown) = (state, self.unknown);
    }

    /// Raises the states of vbuckets whose newest one is lost to the versions that are there, so
    /// that no seqno and no CAS is given twice. `has_keys` says whether a vbucket has any.
    pub(super) fn raise(
        &self,
        states: &mut BTreeMap<Vbid, VbucketState>,
        has_keys: impl Fn(Vbid) -> bool,
    ) {
        for (vbid, known) in &self.known {
            let (seqno, cas) = known.versions;
            if !states.contains_key(vbid) && !has_keys(*vbid) {
                continue;
            }
            // Purges may be lost as well, so readers of a vbucket without a state begin anew.
            let empty = || VbucketState { purge_seqno: seqno, ..VbucketState::empty() };
            let state = states.entry(*vbid).or_insert_with(empty);
            if state.high_seqno < seqno {
                *state = state.clone().complete_at(seqno);
            }
            assert!(state.high_seqno >= seqno, "a state covers the versions that were found");
            state.max_cas = state.max_cas.max(cas);
            // Versions may be missing.
            state.is_intact = false;
        }
    }

    pub(super) fn finish(mut self) -> LogLosses {
        // Nothing follows that says how many.
        self.losses.frames += u64::from(self.is_open);
        let unclear = self.known.iter().filter(|(_, known)| known.unknown < self.unknown);
        for (vbid, known) in unclear {
            let range = known.state.0.saturating_add(1)..=u64::MAX;
            self.losses.seqnos.entry(*vbid).or_default().push(range);
        }
        self.losses
    }
}

/// The states in a commit whose frame is damaged and takes exactly the bytes from `at` to `end`.
/// `None` unless the lengths of its records lead from its header to its end, the states are whole,
/// and each version before a state is of its vbucket: damage of a value, say.
pub(super) fn states_of_commit(
    file: &dyn LogFile,
    seed: u64,
    (at, end): (u64, u64),
) -> io::Result<Option<BTreeMap<Vbid, Seqno>>> {
    assert!(at < end, "a commit has bytes");
    let length = usize::try_from(end - at).unwrap_or(usize::MAX);
    if length > COMMIT_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    match file.read_at(&mut bytes, at)? < length {
        true => Ok(None),
        false => Ok(read_states(&bytes, seed, at)),
    }
}

fn read_states(frame: &[u8], seed: u64, at: u64) -> Option<BTreeMap<Vbid, Seqno>> {
    let header = FrameHeader::decode(frame, seed, at)?;
    let (mut rest, _) = frame[FRAME_HEADER_BYTES..].split_last_chunk::<FRAME_TRAILER_BYTES>()?;
    let (mut states, mut versions_of) = (BTreeMap::new(), None);
    for _ in 0..header.records {
        let head = rest.first_chunk::<RECORD_HEADER_BYTES>()?;
        let (record, behind) = rest.split_at_checked(stored_bytes_of(head) as usize)?;
        let (stored, _) = decode_unchecked(record).ok()?;
        if versions_of.is_some_and(|vbid| vbid != stored.vbid) {
            return None;
        }
        versions_of = match stored.kind {
            kind if kind.is_version() => Some(stored.vbid),
            Kind::State => {
                let (whole, _) = decode_record(record).ok()?;
                let state = decode_state(whole.record.value).ok()?;
                states.insert(stored.vbid, state.high_seqno);
                None
            }
            _ => return None,
        };
        rest = behind;
    }
    (rest.is_empty() && versions_of.is_none()).then_some(states)
}
