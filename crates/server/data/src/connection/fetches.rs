//! Requests that wait for a document from the store.
//!
//! Owns: which requests of a connection wait for a background fetch, and when each is tried again.
//!
//! A request that may be overtaken is copied and parked, and later requests are served
//! concurrently. Any other request stays at the head of the input, and its connection waits.
//! The connection then looks at the requests after it, and fetches their documents along with it
//! where they will need one. A pipeline of misses thus costs a few batches of the store instead of
//! a round trip each.
//!
//! Invariants:
//! - a completion finds its request by position *and* serial number. A completion that is late, or
//!   was for a previous connection of this slot, finds nothing;
//! - this module answers nothing: a request whose fetch is over is served again like any other;
//! - a request is tried again a bounded number of times, each time only after a fetch, so it never
//!   monopolises the worker;
//! - a request waits no longer than the limit, counted from the start of its wait;
//! - the requests that waited along with it fail with it;
//! - parked requests are bounded in number and bytes.
//!
//! The connection calls this.

use std::collections::VecDeque;

use oribi_engine::FetchOutcome;
use slab::Slab;

use super::parked::ParkToken;
use crate::limits::{
    FETCH_ATTEMPTS_MAX, FETCH_TIMEOUT_MS, PARKED_REQUEST_BYTES_MAX, PARKED_REQUESTS_MAX,
};

/// Position in a token that stands for the request at the head of the input.
pub(crate) const HEAD: u16 = 0xfff;

/// Position in a token that stands for a fetch ahead of its request, while the head waits.
pub(crate) const BEHIND_HEAD: u16 = 0xffe;

const _: () = assert!(PARKED_REQUESTS_MAX < BEHIND_HEAD as usize);

/// The history of a request before this try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TryHistory {
    /// Fetches that the request has waited for.
    fetches: u8,
    /// The last of them failed.
    failed: bool,
    /// When the request was first tried, on the latency clock; 0 when it is not measured.
    pub begun_ns: u64,
    /// When the request began to wait, on the batch's clock; 0 when it did not wait.
    pub waiting_since_ms: u64,
    /// Weight with which its duration is recorded; 0 when it is not sampled.
    pub weight: u8,
    /// Later requests have overtaken it, so the connection may already wait for something else.
    pub is_overtaken: bool,
}

impl TryHistory {
    /// True for a request on its first try.
    pub fn is_first(self) -> bool {
        self.fetches == 0
    }

    /// True when another fetch would be useless.
    pub fn is_over(self) -> bool {
        self.failed || self.fetches >= FETCH_ATTEMPTS_MAX
    }

    fn after(self, outcome: FetchOutcome) -> TryHistory {
        TryHistory { failed: outcome == FetchOutcome::Failed, ..self }
    }

    fn with_one_more(self, now_ms: u64) -> TryHistory {
        let waiting_since_ms =
            if self.waiting_since_ms == 0 { now_ms } else { self.waiting_since_ms };
        TryHistory { fetches: self.fetches.saturating_add(1), waiting_since_ms, ..self }
    }
}

/// The kind of wait that a completion ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FetchCompletion {
    /// None: the completion was late, or for a previous connection of this slot.
    Stale,
    /// A request that is tried again, or one of several fetches that the head waits for.
    One,
    /// The last fetch that the request at the head waited for.
    Head,
}

#[derive(Debug)]
pub(crate) struct ParkedRequest {
    serial: u32,
    deadline_ms: u64,
    pub frame: Box<[u8]>,
    /// The history of its tries.
    pub tries: TryHistory,
}

impl ParkedRequest {
    /// True when no fetch is outstanding for the request: it is to be tried again.
    fn is_over(&self) -> bool {
        self.serial == 0
    }
}

/// The request at the head of the input.
#[derive(Debug)]
struct Head {
    serial: u32,
    deadline_ms: u64,
    /// Outstanding completions: its own and those of the fetches ahead.
    missing: usize,
    /// Number of requests after it that were examined for fetches ahead.
    behind: usize,
    /// Some fetch ahead failed.
    has_failed_behind: bool,
    tries: TryHistory,
}

/// The requests of one connection that wait for a fetch.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    parked: Slab<ParkedRequest>,
    parked_bytes: usize,
    /// Positions of parked requests that are to be tried again, in the order of completion.
    ready: VecDeque<u16>,
    head: Option<Head>,
    /// How many of the next requests waited along with one that has given up, and wait no more.
    given_up: usize,
}

impl Fetches {
    /// The position for the next parked request, of this length; `None` when too much is parked.
    pub fn next_position(&self, frame_bytes: usize) -> Option<u16> {
        let fits = self.parked.len() < PARKED_REQUESTS_MAX
            && self.parked_bytes + frame_bytes <= PARKED_REQUEST_BYTES_MAX;
        debug_assert!(
            !fits || self.parked.vacant_key() < PARKED_REQUESTS_MAX,
            "a position differs from those of the head"
        );
        fits.then(|| self.parked.vacant_key() as u16)
    }

    /// Parks a request at [`Fetches::next_position`]. The caller requests its fetch with this
    /// serial number.
    pub fn park(&mut self, serial: u32, now_ms: u64, frame: Box<[u8]>, tries: TryHistory) {
        assert!(!tries.is_over(), "another fetch would be useless");
        assert!(serial != 0, "serial 0 stands for a fetch that is over");
        debug_assert!(self.parked.len() < PARKED_REQUESTS_MAX, "the caller asked for a position");
        self.parked_bytes += frame.len();
        assert!(self.parked_bytes <= PARKED_REQUEST_BYTES_MAX, "the caller asked for a position");
        let tries = TryHistory { is_overtaken: true, ..tries.with_one_more(now_ms) };
        let deadline_ms = tries.waiting_since_ms + FETCH_TIMEOUT_MS;
        self.parked.insert(ParkedRequest { serial, deadline_ms, frame, tries });
    }

    /// Makes the request at the head wait for one completion.
    pub fn wait_at_head(&mut self, serial: u32, now_ms: u64, tries: TryHistory) {
        assert!(self.head.is_none(), "the history of the head was taken before it was tried");
        assert!(!tries.is_over(), "another fetch would be useless");
        debug_assert!(serial != 0, "serial 0 stands for a fetch that is over");
        let tries = tries.with_one_more(now_ms);
        let deadline_ms = tries.waiting_since_ms + FETCH_TIMEOUT_MS;
        let (missing, behind, has_failed_behind) = (1, 0, false);
        self.head = Some(Head { serial, deadline_ms, missing, behind, has_failed_behind, tries });
    }

    /// Makes the head wait for `missing` more completions, of the `behind` requests after it.
    pub fn wait_behind(&mut self, missing: usize, behind: usize) {
        if let Some(head) = &mut self.head {
            debug_assert!(missing <= behind, "a request asks for one document at most");
            debug_assert!(
                behind <= crate::limits::FETCH_AHEAD_FRAMES_MAX,
                "a look ahead is bounded"
            );
            debug_assert!(head.missing > 0, "the head waits for its own fetch");
            head.missing += missing;
            head.behind = behind;
        }
    }

    /// Takes the history of the request at the head, which is tried now.
    pub fn take_head(&mut self) -> TryHistory {
        if let Some(head) = self.head.take() {
            let gives_up = head.tries.failed && head.has_failed_behind;
            self.given_up = if gives_up { head.behind } else { 0 };
            return head.tries;
        }
        let has_given_up = self.given_up > 0;
        self.given_up = self.given_up.saturating_sub(1);
        TryHistory { failed: has_given_up, ..TryHistory::default() }
    }

    /// Records that a fetch is over.
    pub fn complete(&mut self, token: ParkToken, outcome: FetchOutcome) -> FetchCompletion {
        if token.position != HEAD && token.position != BEHIND_HEAD {
            return self.complete_parked(token, outcome);
        }
        let head = self.head.as_mut().filter(|head| head.serial == token.serial);
        let Some(head) = head.filter(|head| head.missing > 0) else {
            return FetchCompletion::Stale;
        };
        if token.position == HEAD {
            head.tries = head.tries.after(outcome);
        } else {
            head.has_failed_behind |= outcome == FetchOutcome::Failed;
        }
        head.missing -= 1;
        if head.missing == 0 { FetchCompletion::Head } else { FetchCompletion::One }
    }

    fn complete_parked(&mut self, token: ParkToken, outcome: FetchOutcome) -> FetchCompletion {
        let parked = self.parked.get_mut(usize::from(token.position));
        let Some(parked) = parked.filter(|parked| parked.serial == token.serial) else {
            return FetchCompletion::Stale;
        };
        // No completion has the number 0, so a second one for this fetch finds nothing.
        debug_assert!(!parked.is_over(), "a fetch completes once");
        parked.serial = 0;
        parked.tries = parked.tries.after(outcome);
        self.ready.push_back(token.position);
        FetchCompletion::One
    }

    /// Ends the waits for fetches that have passed their deadline. True when the wait of the head
    /// ended.
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
        (head.missing, head.has_failed_behind) = (0, true);
        head.tries = head.tries.after(FetchOutcome::Failed);
        true
    }

    /// Takes the next parked request to try again.
    pub fn take_ready(&mut self) -> Option<ParkedRequest> {
        let parked = self.parked.try_remove(usize::from(self.ready.pop_front()?))?;
        assert!(parked.is_over(), "a request is tried again after its fetch");
        assert!(parked.frame.len() <= self.parked_bytes, "parked bytes were counted");
        self.parked_bytes -= parked.frame.len();
        Some(parked)
    }

    /// True when some parked request is ready to be tried again.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// True while some request is parked, whether or not its fetch is over.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// True while some completion is outstanding.
    pub fn is_waiting(&self) -> bool {
        debug_assert!(
            self.ready.len() <= self.parked.len(),
            "only parked requests are tried again"
        );
        self.parked.len() > self.ready.len() || self.head.as_ref().is_some_and(|h| h.missing > 0)
    }

    /// Bytes of the parked requests.
    pub fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }

    /// Panics unless the parked requests and their sums agree. Visits every request.
    pub fn check_invariants(&self) {
        let frames = self.parked.iter().map(|(_, parked)| parked.frame.len());
        assert_eq!(self.parked_bytes, frames.sum::<usize>(), "bytes of parked requests");
        assert!(self.parked_bytes <= PARKED_REQUEST_BYTES_MAX, "{} bytes", self.parked_bytes);
        assert!(self.parked.len() <= PARKED_REQUESTS_MAX, "{} requests", self.parked.len());
        let mut over: Vec<usize> =
            self.parked.iter().filter(|(_, one)| one.is_over()).map(|one| one.0).collect();
        let mut ready: Vec<usize> =
            self.ready.iter().map(|position| usize::from(*position)).collect();
        over.sort_unstable();
        ready.sort_unstable();
        assert_eq!(over, ready, "each request whose fetch is over is tried again, once");
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
        fetches.park(7, 0, Box::new(*b"abc"), TryHistory::default());
        let stale = FetchCompletion::Stale;
        assert_eq!(fetches.complete(token(position, 6), FetchOutcome::Ready), stale);
        assert_eq!(fetches.complete(token(position + 1, 7), FetchOutcome::Ready), stale);
        assert!(!fetches.has_ready() && fetches.is_waiting());
        let done = fetches.complete(token(position, 7), FetchOutcome::Ready);
        assert_eq!(done, FetchCompletion::One);
        assert_eq!(fetches.complete(token(position, 7), FetchOutcome::Failed), stale);
        assert_eq!(&*fetches.take_ready().unwrap().frame, b"abc");
        assert!(fetches.take_ready().is_none() && !fetches.has_parked());
        assert_eq!(fetches.parked_bytes(), 0);
        fetches.park(8, 0, Box::new(*b"abcd"), TryHistory::default());
        assert_eq!(fetches.complete(token(position, 7), FetchOutcome::Ready), stale);
        assert!(!fetches.has_ready(), "the position has another request by now");
    }

    #[test]
    fn only_its_own_fetch_failure_fails_the_head() {
        let mut fetches = Fetches::default();
        fetches.wait_at_head(3, 0, TryHistory::default());
        fetches.wait_behind(1, 1);
        let mut complete =
            |position, serial, outcome| fetches.complete(token(position, serial), outcome);
        assert_eq!(complete(BEHIND_HEAD, 3, FetchOutcome::Failed), FetchCompletion::One);
        assert_eq!(complete(BEHIND_HEAD, 2, FetchOutcome::Failed), FetchCompletion::Stale);
        assert_eq!(complete(HEAD, 3, FetchOutcome::Ready), FetchCompletion::Head);
        assert_eq!(
            complete(BEHIND_HEAD, 3, FetchOutcome::Ready),
            FetchCompletion::Stale,
            "one too many"
        );
        let tries = fetches.take_head();
        assert!(!tries.is_first() && !tries.is_over());
        fetches.wait_at_head(4, 0, tries);
        assert_eq!(fetches.complete(token(HEAD, 4), FetchOutcome::Failed), FetchCompletion::Head);
        assert!(fetches.take_head().is_over());
        assert!(fetches.take_head().is_first(), "the next request begins anew");
    }

    #[test]
    fn repeated_fetches_do_not_extend_the_wait_limit() {
        let mut fetches = Fetches::default();
        fetches.wait_at_head(3, 1000, TryHistory::default());
        assert!(!fetches.expire(999 + FETCH_TIMEOUT_MS));
        assert_eq!(fetches.complete(token(HEAD, 3), FetchOutcome::Ready), FetchCompletion::Head);
        let tries = fetches.take_head();
        fetches.wait_at_head(4, 900 + FETCH_TIMEOUT_MS, tries);
        assert!(fetches.expire(1000 + FETCH_TIMEOUT_MS), "since it began to wait");
        assert!(fetches.take_head().is_over());
        let position = fetches.next_position(1).unwrap();
        fetches.park(5, 5000, Box::new([0]), tries);
        fetches.expire(1000 + FETCH_TIMEOUT_MS);
        assert!(fetches.take_ready().is_some_and(|parked| parked.tries.is_over()));
        assert_eq!(
            fetches.complete(token(position, 5), FetchOutcome::Ready),
            FetchCompletion::Stale
        );
    }

    #[test]
    fn queued_requests_time_out_with_their_head() {
        let mut fetches = Fetches::default();
        for (serial, is_late) in [(3, false), (4, true)] {
            fetches.wait_at_head(serial, 1000, TryHistory::default());
            fetches.wait_behind(1, 2);
            if is_late {
                assert!(fetches.expire(1000 + FETCH_TIMEOUT_MS));
            } else {
                let failed = fetches.complete(token(BEHIND_HEAD, serial), FetchOutcome::Failed);
                assert_eq!(failed, FetchCompletion::One);
                let failed = fetches.complete(token(HEAD, serial), FetchOutcome::Failed);
                assert_eq!(failed, FetchCompletion::Head);
            }
            assert!(fetches.take_head().is_over());
            assert!(fetches.take_head().is_over() && fetches.take_head().is_over());
            assert!(!fetches.take_head().is_over(), "it came later");
        }
    }

    #[test]
    fn number_and_bytes_are_bounded() {
        let mut fetches = Fetches::default();
        assert!(fetches.next_position(PARKED_REQUEST_BYTES_MAX + 1).is_none());
        for serial in 1..=PARKED_REQUESTS_MAX as u32 {
            assert!(fetches.next_position(1).is_some());
            fetches.park(serial, 0, Box::new([0]), TryHistory::default());
        }
        assert!(fetches.next_position(1).is_none());
    }

    #[test]
    fn tries_end() {
        let mut tries = TryHistory::default();
        for _ in 0..FETCH_ATTEMPTS_MAX {
            assert!(!tries.is_over());
            tries = tries.with_one_more(1).after(FetchOutcome::Ready);
        }
        assert!(tries.is_over());
    }

    #[test]
    fn time_is_up_once() {
        let mut fetches = Fetches::default();
        fetches.park(1, 0, Box::new([0]), TryHistory::default());
        fetches.wait_at_head(2, 1, TryHistory::default());
        assert!(!fetches.expire(FETCH_TIMEOUT_MS - 1) && !fetches.has_ready());
        assert!(!fetches.expire(FETCH_TIMEOUT_MS) && fetches.has_ready());
        assert!(fetches.expire(FETCH_TIMEOUT_MS + 1));
        assert!(!fetches.expire(FETCH_TIMEOUT_MS + 2));
        assert!(fetches.take_ready().unwrap().tries.is_over() && fetches.take_ready().is_none());
        assert!(fetches.take_head().is_over());
    }
}
