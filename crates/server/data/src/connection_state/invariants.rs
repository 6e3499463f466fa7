//! Asserts the invariants of a connection's state between two turns.
//!
//! Owns: the check of the state and of the requests that wait. It visits every parked request, so
//! only three callers use it: the in-memory harness, the fuzzer, and the end of connections in
//! debug builds.

use super::fetches::Fetches;
use super::{ConnectionState, Wait};
use crate::limits::{PARKED_MAX, PARKED_REQUEST_BYTES_MAX, PARKED_REQUESTS_MAX};

impl ConnectionState {
    /// Panics unless the current wait and the parked requests agree with each other.
    pub fn check_invariants(&self) {
        assert!(self.identity.is_some() || self.bucket.is_none(), "a bucket of nobody's");
        assert!(
            !self.features.is_negotiated() || !self.is_memcached(),
            "a client that said HELLO is taken for one of memcached"
        );
        // Otherwise two connections could wait for each other's memory.
        assert!(
            self.wait != Wait::Memory || !self.reserved.is_any(),
            "memory is waited for while some is reserved"
        );
        let parked = self.parked.as_ref().map_or(0, |parked| parked.len());
        assert!(parked <= PARKED_MAX, "{parked} writes are parked");
        if let Some(fetches) = &self.fetches {
            fetches.check_invariants();
        }
    }
}

impl Fetches {
    fn check_invariants(&self) {
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
