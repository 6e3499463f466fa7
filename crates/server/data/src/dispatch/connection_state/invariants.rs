//! Asserts the invariants of a connection's state between two turns.
//!
//! Owns: the check of the parts against each other, and of the deferred requests. It visits every
//! parked request, so only three callers use it: the in-memory harness, the fuzzer, and the end of
//! connections in debug builds.

use super::ConnectionState;

impl ConnectionState {
    /// Panics unless the parts of the state agree with each other.
    pub fn check_invariants(&self) {
        assert!(
            self.user.is_known() || self.bucket().is_none(),
            "a bucket is selected without a user"
        );
        assert!(
            !self.features().is_negotiated() || !self.is_memcached(),
            "a client that said HELLO is taken for one of memcached"
        );
        // Otherwise two connections could wait for each other's memory.
        assert!(
            !self.pending.waits_for_memory() || !self.reserved.is_any(),
            "memory is waited for while some is reserved"
        );
        self.deferred.check_invariants();
    }
}
