//! Waits that keep a connection from its next request, with their data and timers.
//!
//! A connection waits for one thing at a time. Requests that later ones may overtake do not make
//! the connection wait; [`super::deferred`] has them.
//!
//! Invariants:
//! - no request at the head of the input is served during a wait or a long answer;
//! - a wait begins only when the last one has ended. A late completion of an earlier wait changes
//!   nothing.

use super::continued_scan::ContinuedScan;
use super::request_id::RequestId;
use super::stat_cursor::StatCursor;

/// See the module text.
#[derive(Default)]
pub(crate) enum Pending {
    #[default]
    Nothing,
    /// The request at the head of the input is served again after a wait. This is no wait.
    Retry(HeadHistory),
    /// The request at the head of the input waits.
    Head { wait: HeadWait, history: HeadHistory },
    /// A job of another thread answers this request, or prepares the next part of its answer.
    Job { request: RequestId, answer: Option<LongAnswer> },
    /// The next part of an answer is due once the output is sent. This is no wait either.
    Answer(LongAnswer),
    /// Every deferred request has to be answered first, because the client did not allow
    /// reordering.
    Deferred,
}

/// The wait of the request at the head of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadWait {
    /// Its document, and those of some requests after it.
    Fetch,
    /// A reservation of memory, since this time on the worker's monotonic clock.
    Memory { since_ms: u64 },
    /// The output has to be sent before the request may reserve memory.
    Drain,
    /// Its bucket: a write until there may be capacity, a stream request until its vbucket may be
    /// loaded.
    Bucket,
}

/// Earlier waits of the request at the head of the input, as far as the next try depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HeadHistory {
    /// When the request first waited for its bucket; 0 when it has not.
    bucket_since_ms: u64,
    /// Its wait for memory took too long, so the next try is answered without memory.
    memory_timed_out: bool,
}

/// An answer that is sent in parts, each after the last one has been sent.
pub(crate) enum LongAnswer {
    Stat(Box<StatCursor>),
    RangeScan(Box<ContinuedScan>),
}

impl Pending {
    /// True when nothing is pending, as for most requests.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        matches!(self, Pending::Nothing)
    }

    /// True while the connection waits: no request at the head of the input may be served.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Pending::Head { .. } | Pending::Job { .. } | Pending::Deferred)
    }

    /// The wait of the request at the head of the input, if it waits.
    pub fn head_wait(&self) -> Option<HeadWait> {
        match self {
            Pending::Head { wait, .. } => Some(*wait),
            _ => None,
        }
    }

    /// True while the request at the head of the input waits for memory.
    pub fn waits_for_memory(&self) -> bool {
        matches!(self, Pending::Head { wait: HeadWait::Memory { .. }, .. })
    }

    /// True while a long answer is being sent or prepared.
    #[inline]
    pub fn is_answering(&self) -> bool {
        matches!(self, Pending::Answer(_) | Pending::Job { answer: Some(_), .. })
    }

    fn history(&self) -> HeadHistory {
        match self {
            Pending::Retry(history) | Pending::Head { history, .. } => *history,
            _ => HeadHistory::default(),
        }
    }

    /// The state in which the request at the head of the input is served next.
    fn after(history: HeadHistory) -> Pending {
        match history == HeadHistory::default() {
            true => Pending::Nothing,
            false => Pending::Retry(history),
        }
    }

    /// Makes the request at the head of the input wait.
    pub fn wait_at_head(&mut self, wait: HeadWait) {
        assert!(
            matches!(self, Pending::Nothing | Pending::Retry(_)),
            "a request waits only when it could be served"
        );
        *self = Pending::Head { wait, history: self.history() };
    }

    /// Ends the wait of the request at the head of the input if `is_over`; true when it did.
    pub fn end_head_wait(&mut self, is_over: impl FnOnce(HeadWait) -> bool) -> bool {
        match *self {
            Pending::Head { wait, history } if is_over(wait) => {
                *self = Pending::after(history);
                debug_assert!(!self.is_waiting(), "a wait that is over lets the head be served");
                true
            }
            _ => false,
        }
    }

    /// Makes the request at the head of the input wait for its bucket. False when it has waited
    /// for longer than `wait_max_ms` already: it is then answered.
    pub fn wait_for_bucket(&mut self, now_ms: u64, wait_max_ms: u64) -> bool {
        let mut history = self.history();
        let since_ms = history.bucket_since_ms;
        if since_ms != 0 && now_ms.saturating_sub(since_ms) > wait_max_ms {
            history.bucket_since_ms = 0;
            *self = Pending::after(history);
            return false;
        }
        self.wait_at_head(HeadWait::Bucket);
        if let (Pending::Head { history, .. }, 0) = (self, since_ms) {
            history.bucket_since_ms = now_ms;
        }
        true
    }

    /// Ends a wait for memory that has taken longer than `wait_max_ms`; true when it did.
    pub fn time_out_memory(&mut self, now_ms: u64, wait_max_ms: u64) -> bool {
        let Pending::Head { wait: HeadWait::Memory { since_ms }, history } = *self else {
            return false;
        };
        if now_ms.saturating_sub(since_ms) <= wait_max_ms {
            return false;
        }
        *self = Pending::Retry(HeadHistory { memory_timed_out: true, ..history });
        true
    }

    /// True once after [`Pending::time_out_memory`].
    pub fn take_memory_timeout(&mut self) -> bool {
        let Pending::Retry(history) = *self else { return false };
        *self = Pending::after(HeadHistory { memory_timed_out: false, ..history });
        history.memory_timed_out
    }

    /// Ends the history of a request that was served. A request that waits for its bucket has
    /// waited since now at the longest.
    pub fn head_served(&mut self, now_ms: u64) {
        match self {
            Pending::Retry(_) => *self = Pending::Nothing,
            Pending::Head { wait, history } => {
                let bucket_since_ms = if *wait == HeadWait::Bucket { now_ms } else { 0 };
                *history = HeadHistory { bucket_since_ms, memory_timed_out: false };
            }
            _ => {}
        }
    }

    /// Makes the connection wait until all deferred requests are answered.
    pub fn wait_for_deferred(&mut self) {
        assert!(
            matches!(self, Pending::Nothing | Pending::Retry(_)),
            "a request waits for deferred ones only when it could be served"
        );
        *self = Pending::Deferred;
    }

    /// Ends the wait for deferred requests.
    pub fn end_deferred_wait(&mut self) {
        if matches!(self, Pending::Deferred) {
            *self = Pending::Nothing;
        }
    }

    /// Begins an answer that is sent in parts.
    pub fn begin_answer(&mut self, answer: LongAnswer) {
        assert!(
            matches!(self, Pending::Nothing | Pending::Retry(_)),
            "a connection sends one long answer at a time"
        );
        *self = Pending::Answer(answer);
    }

    /// Makes the connection wait for a job that answers `request`. A long answer continues when
    /// the job is done.
    pub fn wait_for_job(&mut self, request: RequestId) {
        let answer = match std::mem::take(self) {
            Pending::Nothing | Pending::Retry(_) => None,
            Pending::Answer(answer) => Some(answer),
            Pending::Head { .. } | Pending::Job { .. } | Pending::Deferred => {
                panic!("a connection that waits starts no job")
            }
        };
        *self = Pending::Job { request, answer };
    }

    /// Ends the wait for a job and returns its request; `None` when the connection waits for none.
    pub fn end_job(&mut self) -> Option<RequestId> {
        if !matches!(self, Pending::Job { .. }) {
            return None;
        }
        let Pending::Job { request, answer } = std::mem::take(self) else { return None };
        *self = answer.map_or(Pending::Nothing, Pending::Answer);
        debug_assert!(!self.is_waiting(), "a job that ends lets the next request be served");
        Some(request)
    }

    /// The answer whose next part is due.
    #[inline]
    pub fn due_answer(&self) -> Option<&LongAnswer> {
        match self {
            Pending::Answer(answer) => Some(answer),
            _ => None,
        }
    }

    /// The STAT whose next part is due.
    pub fn stat(&mut self) -> Option<&mut StatCursor> {
        match self {
            Pending::Answer(LongAnswer::Stat(stat)) => Some(stat),
            _ => None,
        }
    }

    /// The range scan whose next page is due.
    pub fn range_scan(&mut self) -> Option<&mut ContinuedScan> {
        match self {
            Pending::Answer(LongAnswer::RangeScan(scan)) => Some(scan),
            _ => None,
        }
    }

    /// Takes the long answer out, because it is complete or cannot continue.
    pub fn end_answer(&mut self) -> Option<LongAnswer> {
        if !matches!(self, Pending::Answer(_)) {
            return None;
        }
        match std::mem::take(self) {
            Pending::Answer(answer) => Some(answer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
