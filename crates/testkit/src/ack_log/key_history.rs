//! The valid states of one document: its certain state, and the attempts since, in the order of
//! their requests.
//!
//! One writer issues one operation at a time, so the order of requests is the order of effects.

use oribi_types::Cas;

use super::evidence::{Acknowledgement, ReadResult};

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    /// No answer: it may have happened.
    InDoubt,
    Acknowledged(Acknowledgement),
    /// No answer, but a read has shown its result with this CAS. A crash may still lose it.
    Seen(Cas),
    /// It did not happen, or was lost by a crash.
    NotDone,
}

#[derive(Clone, Debug)]
struct Attempt {
    /// Value written; `None` is a deletion.
    value: Option<Vec<u8>>,
    resolution: Resolution,
    /// Made in a life that has ended.
    is_past: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct KeyHistory {
    /// The state if none of the attempts happened.
    start: ReadResult,
    attempts: Vec<Attempt>,
}

impl KeyHistory {
    /// Adds an attempt in doubt; returns its index.
    pub(super) fn push(&mut self, value: Option<Vec<u8>>) -> usize {
        self.attempts.push(Attempt { value, resolution: Resolution::InDoubt, is_past: false });
        self.attempts.len() - 1
    }

    pub(super) fn resolve(&mut self, index: usize, resolution: Resolution) {
        if let Some(attempt) = self.attempts.get_mut(index) {
            attempt.resolution = resolution;
        }
    }

    /// Attempts of this life without an answer, whose seqnos, if any, are unknown.
    pub(super) fn in_doubt(&self) -> u64 {
        let open = |attempt: &&Attempt| {
            let is_answered =
                matches!(attempt.resolution, Resolution::Acknowledged(_) | Resolution::NotDone);
            !is_answered && !attempt.is_past
        };
        self.attempts.iter().filter(open).count() as u64
    }

    /// Index and CAS of the newest attempt that is known to have happened.
    fn newest(&self) -> Option<(usize, Cas)> {
        let found = self.attempts.iter().enumerate().rev();
        found
            .filter_map(|(index, attempt)| match attempt.resolution {
                Resolution::Acknowledged(ack) => Some((index, ack.cas)),
                Resolution::Seen(cas) => Some((index, cas)),
                Resolution::InDoubt | Resolution::NotDone => None,
            })
            .next()
    }

    /// The state unless a later attempt in doubt happened, and the index at which those begin.
    fn newest_certain(&self) -> (ReadResult, usize) {
        match self.newest() {
            Some((index, cas)) => {
                (self.attempts[index].value.clone().map(|value| (value, cas)), index + 1)
            }
            None => (self.start.clone(), 0),
        }
    }

    /// The value, when no attempt in doubt came after it.
    pub(super) fn certain(&self) -> Option<Option<&[u8]>> {
        let newest = self.newest();
        let after = newest.map_or(0, |(index, _)| index + 1);
        let doubtful =
            self.attempts[after..].iter().any(|attempt| attempt.resolution == Resolution::InDoubt);
        let value = match newest {
            Some((index, _)) => self.attempts[index].value.as_deref(),
            None => self.start.as_ref().map(|(value, _)| value.as_slice()),
        };
        (!doubtful).then_some(value)
    }

    /// Compares the state that was read; an error when it is invalid. The read settles attempts in
    /// doubt, but a crash may still lose what is not persisted.
    pub(super) fn judge(&mut self, found: &ReadResult) -> Result<(), String> {
        let (certain, after) = self.newest_certain();
        let explained_by =
            self.attempts.iter().enumerate().skip(after).rposition(|(_, attempt)| {
                attempt.resolution == Resolution::InDoubt && explains(attempt, found, &certain)
            });
        if *found == certain {
            self.settle(after);
            return Ok(());
        }
        let Some(index) = explained_by.map(|index| after + index) else {
            let text = self.complaint(found, &certain, after);
            *self = KeyHistory { start: found.clone(), attempts: Vec::new() };
            return Err(text);
        };
        self.settle(index + 1);
        if self.attempts[index].is_past {
            // A state that came back after a crash came from the disk.
            self.attempts.drain(..=index);
            self.start = found.clone();
        } else {
            let cas = found.as_ref().map_or(Cas(0), |(_, cas)| *cas);
            self.attempts[index].resolution = Resolution::Seen(cas);
        }
        Ok(())
    }

    /// Marks attempts in doubt from `first` on as not done.
    fn settle(&mut self, first: usize) {
        for attempt in &mut self.attempts[first..] {
            if attempt.resolution == Resolution::InDoubt {
                attempt.resolution = Resolution::NotDone;
            }
        }
    }

    fn complaint(&self, found: &ReadResult, certain: &ReadResult, after: usize) -> String {
        format!(
            "found {}, promised was {} and {} attempts are in doubt since; {}",
            describe(found),
            describe(certain),
            self.attempts.len() - after,
            self.past_of(found),
        )
    }

    /// The origin of an invalid state.
    fn past_of(&self, found: &ReadResult) -> String {
        let value = found.as_ref().map(|(value, _)| value);
        let from = self.attempts.iter().rposition(|attempt| attempt.value.as_ref() == value);
        match from {
            Some(index) => format!(
                "attempt {index} of {} would look like that ({:?})",
                self.attempts.len(),
                self.attempts[index].resolution
            ),
            None if self.start.as_ref().map(|(value, _)| value) == value => {
                "it looks like the state before all attempts".to_owned()
            }
            None => "no attempt explains it".to_owned(),
        }
    }

    /// Drops acknowledged writes that are gone; returns the number of those attempts.
    pub(super) fn restarted(&mut self, is_there: impl Fn(&Acknowledgement) -> bool) -> u64 {
        let mut lost = 0;
        for attempt in &mut self.attempts {
            attempt.is_past = true;
            match attempt.resolution {
                Resolution::Acknowledged(ack) if !is_there(&ack) => {
                    attempt.resolution = Resolution::NotDone;
                    lost += 1;
                }
                // Its seqno is not known.
                Resolution::Seen(_) => attempt.resolution = Resolution::InDoubt,
                _ => {}
            }
        }
        let (certain, after) = self.newest_certain();
        self.start = certain;
        self.attempts.drain(..after);
        self.attempts.retain(|attempt| attempt.resolution == Resolution::InDoubt);
        lost
    }
}

/// True when `found` can be the result of an attempt in doubt that came after `certain`.
fn explains(attempt: &Attempt, found: &ReadResult, certain: &ReadResult) -> bool {
    match (&attempt.value, found) {
        (None, None) => true,
        (Some(value), Some((found_value, cas))) => {
            let before = certain.as_ref().map_or(Cas(0), |(_, cas)| *cas);
            value == found_value && *cas > before
        }
        _ => false,
    }
}

fn describe(found: &ReadResult) -> String {
    match found {
        None => "no document".to_owned(),
        Some((value, cas)) => {
            let shown = &value[..value.len().min(40)];
            let shown = String::from_utf8_lossy(shown);
            format!("{shown:?} ({} bytes) with CAS {}", value.len(), cas.0)
        }
    }
}
