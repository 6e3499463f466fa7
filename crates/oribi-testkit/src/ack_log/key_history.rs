//! What one key may look like: its attempts since the last restart, in the order of their requests.
//!
//! Index 0 is the state that the last check found (or "never written"); it is on disk by definition.
//! One writer issues one operation at a time, so the order of requests is the order of effects.

use oribi_types::{Cas, Seqno};

use super::{Acknowledgement, Ending, Found};

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    /// No answer: it may have happened.
    InDoubt,
    /// It happened.
    Acknowledged(Acknowledgement),
    /// It did not happen.
    Refused,
}

#[derive(Clone, Debug)]
struct Attempt {
    /// Value written; `None` is a deletion.
    value: Option<Vec<u8>>,
    resolution: Resolution,
}

#[derive(Clone, Debug)]
pub(super) struct KeyHistory {
    start: Found,
    attempts: Vec<Attempt>,
}

impl Default for KeyHistory {
    fn default() -> KeyHistory {
        KeyHistory::starting_with(None)
    }
}

impl KeyHistory {
    pub(super) fn starting_with(start: Found) -> KeyHistory {
        KeyHistory { start, attempts: Vec::new() }
    }

    /// Adds an attempt in doubt; returns its index.
    pub(super) fn push(&mut self, value: Option<Vec<u8>>) -> usize {
        self.attempts.push(Attempt { value, resolution: Resolution::InDoubt });
        self.attempts.len()
    }

    pub(super) fn resolve(&mut self, index: usize, resolution: Resolution) {
        if let Some(attempt) = index.checked_sub(1).and_then(|at| self.attempts.get_mut(at)) {
            attempt.resolution = resolution;
        }
    }

    pub(super) fn acknowledgement(&self, index: usize) -> Option<Acknowledgement> {
        match self.attempts.get(index.checked_sub(1)?)?.resolution {
            Resolution::Acknowledged(ack) => Some(ack),
            Resolution::InDoubt | Resolution::Refused => None,
        }
    }

    pub(super) fn persisted_acknowledgements(&self) -> impl Iterator<Item = Acknowledgement> + '_ {
        (1..=self.attempts.len())
            .filter_map(|index| self.acknowledgement(index))
            .filter(|ack| ack.persisted)
    }

    /// The latest attempt whose result is `found`, by value and, where it is known, by CAS.
    pub(super) fn matching(&self, found: &Found) -> Option<usize> {
        let of_attempts = (1..=self.attempts.len()).rev().find(|index| {
            let attempt = &self.attempts[index - 1];
            match (attempt.resolution, &attempt.value, found) {
                (Resolution::Refused, _, _) => false,
                (_, None, None) => true,
                (resolution, Some(value), Some((found_value, cas))) => {
                    value == found_value && cas_fits(resolution, *cas)
                }
                _ => false,
            }
        });
        of_attempts.or_else(|| (self.start == *found).then_some(0))
    }

    /// The oldest attempt that may be what is found; `None` when nothing after the start is promised.
    pub(super) fn floor(&self, ending: Ending, vbucket_high: Seqno) -> Option<usize> {
        (1..=self.attempts.len()).rev().find(|index| {
            self.acknowledgement(*index).is_some_and(|ack| {
                ack.persisted || ending == Ending::CleanStop || ack.seqno <= vbucket_high
            })
        })
    }

    /// True when a write that was acknowledged, but not as persisted, is not there any more.
    pub(super) fn lost_an_acknowledged_write(&self, matched: Option<usize>) -> bool {
        let last_acknowledged =
            (1..=self.attempts.len()).rev().find(|index| self.acknowledgement(*index).is_some());
        last_acknowledged > matched
    }

    /// What is wrong with finding `found`, which attempt `matched` explains, when nothing older than `floor` may be
    /// there.
    pub(super) fn judge(
        &self,
        found: &Found,
        matched: Option<usize>,
        floor: Option<usize>,
    ) -> Option<String> {
        let floor = floor.unwrap_or(0);
        match matched {
            Some(index) if index >= floor => None,
            Some(index) => Some(format!(
                "state {index} of {} is there although state {floor} was promised ({:?})",
                self.attempts.len(),
                self.acknowledgement(floor)
            )),
            None => Some(format!(
                "no attempt explains {} (promised: state {floor} of {}, {:?})",
                describe(found),
                self.attempts.len(),
                self.acknowledgement(floor)
            )),
        }
    }
}

fn cas_fits(resolution: Resolution, cas: Cas) -> bool {
    match resolution {
        Resolution::Acknowledged(ack) => ack.cas == cas,
        Resolution::InDoubt => true,
        Resolution::Refused => false,
    }
}

fn describe(found: &Found) -> String {
    match found {
        None => "that there is no document".to_owned(),
        Some((value, cas)) => {
            let shown = &value[..value.len().min(40)];
            format!("{:?} with CAS {}", String::from_utf8_lossy(shown), cas.0)
        }
    }
}
