//! Asserts the invariants of a connection's state between two turns.
//!
//! Owns: the check of the state and of the requests that wait. It visits every parked request, so
//! only three callers use it: the in-memory harness, the fuzzer, and the end of connections in
//! debug builds.

use super::{ConnectionState, Pending};
use crate::limits::PARKED_MAX;

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
            self.wait != Pending::Memory || !self.reserved.is_any(),
            "memory is waited for while some is reserved"
        );
        let parked = self.parked.as_ref().map_or(0, |parked| parked.len());
        assert!(parked <= PARKED_MAX, "{parked} writes are parked");
        if let Some(fetches) = &self.fetches {
            fetches.check_invariants();
        }
    }
}
