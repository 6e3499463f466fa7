//! Requests that wait for a document from the store.
//!
//! Owns: which requests of a connection wait for a background fetch, and when each is tried again. A request
//! that may be overtaken is copied and parked, and later ones are served meanwhile. Any other stays where
//! it is, at the head of the input, and the connection waits with it; what is behind it in the input is looked
//! at then, and what will need a fetch too is fetched along with it, so that a pipeline of misses costs a few
//! batches of the store and not a round trip each.
//!
//! Invariants: a completion finds its request by position *and* serial number, so that one which comes late,
//! or for a connection that had this slot before, finds nothing; nothing is answered here, a request whose
//! fetch is over is served again like any other; a request is tried again a bounded number of times, and
//! each time only after a fetch, so that it never keeps the worker; what is parked is bounded in number and
//! bytes. Called by the connection.

use std::collections::VecDeque;

use oribi_engine::FetchOutcome;
use slab::Slab;

use super::parked::ParkToken;
use crate::limits::{
    FETCH_ATTEMPTS_MAX, FETCH_TIMEOUT_MS, PARKED_REQUEST_BYTES_MAX, PARKED_REQUESTS_MAX,
};

/// Position in a token of the request at the head of the input.
pub(crate) const HEAD: u16 = 0xfff;

/// Position in a token of what is fetched ahead while that one waits.
pub(crate) const BEHIND_HEAD: u16 = 0xffe;

const _: () = assert!(PARKED_REQUESTS_MAX < BEHIND_HEAD as usize);

/// What happened to a request before this try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tries {
    /// Fetches that it has waited for.
    fetches: u8,
    /// The last of them failed.
    failed: bool,
    /// When it was first tried, on the latency clock; 0 when that is not measured.
    pub begun_ns: u64,
    /// When it began to wait, on the batch's clock; 0 when it did not.
    pub waiting_since_ms: u64,
    /// Weight with which its duration is recorded; 0 when it is not sampled.
    pub weight: u8,
}

impl Tries {
    /// True for a request that has just come.
    pub fn is_first(self) -> bool {
        self.fetches == 0
    }

    /// True when there is no sense in one more fetch.
    pub fn is_over(self) -> bool {
        self.failed || self.fetches >= FETCH_ATTEMPTS_MAX
    }

    fn after(self, outcome: FetchOutcome) -> Tries {
        Tries { failed: outcome == FetchOutcome::Failed, ..self }
    }

    fn with_one_more(self, now_ms: u64) -> Tries {
        let waiting_since_ms =
            if self.waiting_since_ms == 0 { now_ms } else { self.waiting_since_ms };
        Tries { fetches: self.fetches.saturating_add(1), waiting_since_ms, ..self }
    }
}

/// A copied request.
#[derive(Debug)]
pub(crate) struct ParkedRequest {
    serial: u32,
    deadline_ms: u64,
    /// The whole frame.
    pub frame: Box<[u8]>,
    /// How often it was tried.
    pub tries: Tries,
}

/// The request at the head of the input.
#[derive(Debug)]
struct Head {
    serial: u32,
    deadline_ms: u64,
    /// Completions that are missing, its own and those of what is fetched ahead.
    missing: usize,
    tries: Tries,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    parked: Slab<ParkedRequest>,
    parked_bytes: usize,
    /// Positions of parked requests that are to be tried again, in the order of completion.
    ready: VecDeque<u16>,
    head: Option<Head>,
}

impl Fetches {
    /// The position that a request of this length will be parked at; `None` when too much is parked.
    pub fn next_position(&self, frame_bytes: usize) -> Option<u16> {
        let fits = self.parked.len() < PARKED_REQUESTS_MAX
            && self.parked_bytes + frame_bytes <= PARKED_REQUEST_BYTES_MAX;
        fits.then(|| self.parked.vacant_key() as u16)
    }

    /// Parks a request at [`Fetches::next_position`]. Its fetch is to be asked for with this serial number.
    pub fn park(&mut self, serial: u32, now_ms: u64, frame: Box<[u8]>, tries: Tries) {
        self.parked_bytes += frame.len();
        let (deadline_ms, tries) = (now_ms + FETCH_TIMEOUT_MS, tries.with_one_more(now_ms));
        self.parked.insert(ParkedRequest { serial, deadline_ms, frame, tries });
    }

    /// Lets the request at the head wait for one completion.
    pub fn wait_at_head(&mut self, serial: u32, now_ms: u64, tries: Tries) {
        let (deadline_ms, tries) = (now_ms + FETCH_TIMEOUT_MS, tries.with_one_more(now_ms));
        self.head = Some(Head { serial, deadline_ms, missing: 1, tries });
    }

    /// Lets it wait for one more, of something behind it.
    pub fn wait_for_one_more(&mut self) {
        if let Some(head) = &mut self.head {
            head.missing += 1;
        }
    }

    /// What is known of the request at the head, which is tried now.
    pub fn take_head(&mut self) -> Tries {
        self.head.take().map_or(Tries::default(), |head| head.tries)
    }

    /// A fetch is over. True: nothing at the head is waited for any more.
    pub fn complete(&mut self, token: ParkToken, outcome: FetchOutcome) -> bool {
        if token.position != HEAD && token.position != BEHIND_HEAD {
            self.complete_parked(token, outcome);
            return false;
        }
        let head = self.head.as_mut().filter(|head| head.serial == token.serial);
        let Some(head) = head.filter(|head| head.missing > 0) else { return false };
        if token.position == HEAD {
            head.tries = head.tries.after(outcome);
        }
        head.missing -= 1;
        head.missing == 0
    }

    fn complete_parked(&mut self, token: ParkToken, outcome: FetchOutcome) {
        let parked = self.parked.get_mut(usize::from(token.position));
        let Some(parked) = parked.filter(|parked| parked.serial == token.serial) else { return };
        // No completion has the number 0, so a second one for this fetch finds nothing.
        parked.serial = 0;
        parked.tries = parked.tries.after(outcome);
        self.ready.push_back(token.position);
    }

    /// Gives up on fetches that take too long. True: nothing at the head is waited for any more.
    pub fn expire(&mut self, now_ms: u64) -> bool {
        for (position, parked) in &mut self.parked {
            if parked.serial != 0 && parked.deadline_ms <= now_ms {
                parked.serial = 0;
                parked.tries = parked.tries.after(FetchOutcome::Failed);
                self.ready.push_back(position as u16);
            }
        }
        let head = self.head.as_mut();
        let Some(head) = head.filter(|head| head.missing > 0 && head.deadline_ms <= now_ms) else {
            return false;
        };
        head.missing = 0;
        head.tries = head.tries.after(FetchOutcome::Failed);
        true
    }

    /// Takes the parked request that is to be tried next.
    pub fn take_ready(&mut self) -> Option<ParkedRequest> {
        let parked = self.parked.try_remove(usize::from(self.ready.pop_front()?))?;
        self.parked_bytes -= parked.frame.len();
        Some(parked)
    }

    /// True when some parked request is to be tried again.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// True while some request is parked, be its fetch over or not.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// True while some completion is missing.
    pub fn is_waiting(&self) -> bool {
        self.parked.len() > self.ready.len() || self.head.as_ref().is_some_and(|h| h.missing > 0)
    }

    /// Bytes of the parked requests.
    pub fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(position: u16, serial: u32) -> ParkToken {
        ParkToken { slot: 0, position, serial }
    }

    #[test]
    fn late_and_foreign_completions_find_nothing() {
        let mut fetches = Fetches::default();
        let position = fetches.next_position(3).unwrap();
        fetches.park(7, 0, Box::new(*b"abc"), Tries::default());
        assert!(!fetches.complete(token(position, 6), FetchOutcome::Ready));
        assert!(!fetches.complete(token(position + 1, 7), FetchOutcome::Ready));
        assert!(!fetches.has_ready() && fetches.is_waiting());
        fetches.complete(token(position, 7), FetchOutcome::Ready);
        fetches.complete(token(position, 7), FetchOutcome::Failed);
        assert_eq!(&*fetches.take_ready().unwrap().frame, b"abc");
        assert!(fetches.take_ready().is_none() && !fetches.has_parked());
        assert_eq!(fetches.parked_bytes(), 0);
        fetches.park(8, 0, Box::new(*b"abcd"), Tries::default());
        fetches.complete(token(position, 7), FetchOutcome::Ready);
        assert!(!fetches.has_ready(), "the position has another request by now");
    }

    #[test]
    fn head_waits_for_what_is_fetched_along_with_it_and_only_its_own_failure_counts() {
        let mut fetches = Fetches::default();
        fetches.wait_at_head(3, 0, Tries::default());
        fetches.wait_for_one_more();
        assert!(!fetches.complete(token(BEHIND_HEAD, 3), FetchOutcome::Failed));
        assert!(!fetches.complete(token(BEHIND_HEAD, 2), FetchOutcome::Failed));
        assert!(fetches.complete(token(HEAD, 3), FetchOutcome::Ready));
        assert!(!fetches.complete(token(BEHIND_HEAD, 3), FetchOutcome::Ready), "one too many");
        let tries = fetches.take_head();
        assert!(!tries.is_first() && !tries.is_over());
        fetches.wait_at_head(4, 0, tries);
        assert!(fetches.complete(token(HEAD, 4), FetchOutcome::Failed));
        assert!(fetches.take_head().is_over());
        assert!(fetches.take_head().is_first(), "the next request begins anew");
    }

    #[test]
    fn number_and_bytes_are_bounded() {
        let mut fetches = Fetches::default();
        assert!(fetches.next_position(PARKED_REQUEST_BYTES_MAX + 1).is_none());
        for serial in 1..=PARKED_REQUESTS_MAX as u32 {
            assert!(fetches.next_position(1).is_some());
            fetches.park(serial, 0, Box::new([0]), Tries::default());
        }
        assert!(fetches.next_position(1).is_none());
    }

    #[test]
    fn tries_end() {
        let mut tries = Tries::default();
        for _ in 0..FETCH_ATTEMPTS_MAX {
            assert!(!tries.is_over());
            tries = tries.with_one_more(1).after(FetchOutcome::Ready);
        }
        assert!(tries.is_over());
    }

    #[test]
    fn time_is_up_once() {
        let mut fetches = Fetches::default();
        fetches.park(1, 0, Box::new([0]), Tries::default());
        fetches.wait_at_head(2, 1, Tries::default());
        assert!(!fetches.expire(FETCH_TIMEOUT_MS - 1) && !fetches.has_ready());
        assert!(!fetches.expire(FETCH_TIMEOUT_MS) && fetches.has_ready());
        assert!(fetches.expire(FETCH_TIMEOUT_MS + 1));
        assert!(!fetches.expire(FETCH_TIMEOUT_MS + 2));
        assert!(fetches.take_ready().unwrap().tries.is_over() && fetches.take_ready().is_none());
        assert!(fetches.take_head().is_over());
    }
}
