//! The request ids of writes, by which a server recognises a write that it has already executed.
//!
//! A client has one id for its lifetime and gives each write the next sequence number. A retry
//! keeps the number, so the server answers it with the first outcome. With each request the client
//! sends the lowest number without a known outcome, and servers forget everything below it.
//! Invariant: that number never passes a request in flight, which is why [`TrackedRequest`] ends
//! its request only on drop. Servers only log the attempt number.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::proto::rpc::RequestIdPb;

/// Gives out request ids; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct RequestTracker {
    client_id: Arc<str>,
    window: Arc<Mutex<Window>>,
}

/// The sequence numbers from the first incomplete one on.
#[derive(Debug, Default)]
struct Window {
    first_incomplete: i64,
    /// For each issued number from `first_incomplete` on: whether it is complete.
    complete: VecDeque<bool>,
}

impl RequestTracker {
    /// A tracker with a random client id of 32 hexadecimal digits, as in the C++ client.
    pub(crate) fn new() -> Result<RequestTracker, getrandom::Error> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random)?;
        let client_id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(RequestTracker { client_id: client_id.into(), window: Arc::default() })
    }

    /// The next request; it counts as in flight until the result is dropped.
    pub(crate) fn start(&self) -> TrackedRequest {
        let mut window = self.window.lock();
        let seq_no = window.first_incomplete + window.complete.len() as i64;
        window.complete.push_back(false);
        TrackedRequest { tracker: self.clone(), seq_no, attempt_no: 0 }
    }

    fn finish(&self, seq_no: i64) {
        let mut window = self.window.lock();
        let index = (seq_no - window.first_incomplete) as usize;
        window.complete[index] = true;
        while window.complete.front() == Some(&true) {
            window.complete.pop_front();
            window.first_incomplete += 1;
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct TrackedRequest {
    tracker: RequestTracker,
    seq_no: i64,
    attempt_no: i64,
}

impl TrackedRequest {
    /// The id to send with the next attempt.
    pub(crate) fn next_attempt(&mut self) -> RequestIdPb {
        let attempt_no = self.attempt_no;
        self.attempt_no += 1;
        RequestIdPb {
            client_id: self.tracker.client_id.to_string(),
            seq_no: self.seq_no,
            first_incomplete_seq_no: self.tracker.window.lock().first_incomplete,
            attempt_no,
        }
    }
}

impl Drop for TrackedRequest {
    fn drop(&mut self) {
        self.tracker.finish(self.seq_no);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_keeps_its_number_and_counts_its_attempts() {
        let tracker = RequestTracker::new().unwrap();
        let mut request = tracker.start();
        let first = request.next_attempt();
        let second = request.next_attempt();
        assert_eq!((first.seq_no, first.attempt_no), (0, 0));
        assert_eq!((second.seq_no, second.attempt_no), (0, 1));
        assert_eq!(first.client_id, second.client_id);
        assert_eq!(first.client_id.len(), 32);
        assert_ne!(
            first.client_id,
            RequestTracker::new().unwrap().start().next_attempt().client_id
        );
    }

    #[test]
    fn the_first_incomplete_seq_no_follows_the_oldest() {
        let tracker = RequestTracker::new().unwrap();
        let mut oldest = tracker.start();
        let middle = tracker.start();
        let mut newest = tracker.start();
        drop(middle);
        assert_eq!(newest.next_attempt().first_incomplete_seq_no, 0);
        assert_eq!(oldest.next_attempt().first_incomplete_seq_no, 0);
        drop(oldest);
        assert_eq!(newest.next_attempt().first_incomplete_seq_no, 2);
        drop(newest);
        let mut next = tracker.start();
        let id = next.next_attempt();
        assert_eq!((id.seq_no, id.first_incomplete_seq_no), (3, 3));
    }
}
