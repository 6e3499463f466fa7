//! Requests of a connection that are answered out of order: writes that wait for the store, and
//! requests that wait for a document.
//!
//! Invariant: a connection without such requests allocates nothing for them.

use super::fetches::{Fetches, TryHistory};
use super::held_answer::TextWrites;
use super::parked::ParkedWrites;
use crate::limits::PARKED_MAX;

/// See the module text.
#[derive(Default)]
pub(crate) struct DeferredRequests {
    writes: Option<Box<ParkedWrites>>,
    fetches: Option<Box<Fetches>>,
    text: Option<Box<TextWrites>>,
}

impl DeferredRequests {
    /// Writes that wait for the store, if there were any so far.
    pub fn writes(&mut self) -> Option<&mut ParkedWrites> {
        self.writes.as_deref_mut()
    }

    pub fn writes_or_new(&mut self) -> &mut ParkedWrites {
        self.writes.get_or_insert_default()
    }

    /// Writes of a client of the text protocol in a bucket that raises them.
    pub fn text(&mut self) -> &mut TextWrites {
        self.text.get_or_insert_default()
    }

    /// Requests that wait for a document, if there were any so far.
    pub fn fetches(&mut self) -> Option<&mut Fetches> {
        self.fetches.as_deref_mut()
    }

    pub fn fetches_or_new(&mut self) -> &mut Fetches {
        self.fetches.get_or_insert_default()
    }

    /// Takes the history of the request at the head of the input, which is tried now.
    #[inline]
    pub fn take_head(&mut self) -> TryHistory {
        self.fetches.as_mut().map_or(TryHistory::default(), |fetches| fetches.take_head())
    }

    /// True while some write waits for the store, or some overtaken request waits for a fetch.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.has_writes() || self.fetches.as_ref().is_some_and(|fetches| fetches.has_parked())
    }

    /// True while some write waits for the store.
    #[inline]
    pub fn has_writes(&self) -> bool {
        self.writes.as_ref().is_some_and(|writes| !writes.is_empty())
    }

    /// True when no other write may wait for the store.
    pub fn is_full(&self) -> bool {
        self.writes.as_ref().is_some_and(|writes| writes.next_position().is_none())
    }

    /// True when a parked request is to be tried again.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.fetches.as_ref().is_some_and(|fetches| fetches.has_ready())
    }

    /// True while some fetch is outstanding.
    pub fn waits_for_fetch(&self) -> bool {
        self.fetches.as_ref().is_some_and(|fetches| fetches.is_waiting())
    }

    /// Bytes of the parked requests, and of the answers that are held.
    pub fn bytes(&self) -> usize {
        let held = self.text.as_ref().map_or(0, |text| text.held_bytes());
        let parked = self.writes.as_ref().map_or(0, |writes| writes.held_bytes());
        held + parked + self.fetches.as_ref().map_or(0, |fetches| fetches.parked_bytes())
    }

    /// Panics unless the limits hold. Visits every parked request.
    pub fn check_invariants(&self) {
        let writes = self.writes.as_ref().map_or(0, |writes| writes.len());
        assert!(writes <= PARKED_MAX, "{writes} writes are parked");
        self.writes.iter().for_each(|writes| writes.check_invariants());
        if let Some(fetches) = &self.fetches {
            fetches.check_invariants();
        }
    }
}
