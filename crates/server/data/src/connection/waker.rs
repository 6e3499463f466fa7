//! How other threads reach a connection: its id, and the waker of its worker.
//!
//! Invariant: a waker never blocks on the connection. The worker's mailbox implements it; memory
//! and DCP call it.

use std::fmt::Debug;
use std::sync::Arc;

use super::memory::budget::Grant;

/// Identifies a connection of one worker. A slot is reused, a generation is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId {
    /// Position in the worker's slab.
    pub slot: u32,
    /// Distinguishes successive connections in this slot.
    pub generation: u32,
}

/// Wakes connections of one worker.
pub trait ConnectionWaker: Debug + Send + Sync {
    /// Memory that a connection waited for is reserved for it. The worker returns the memory if the
    /// connection is gone.
    fn memory_granted(&self, connection: ConnectionId, grant: Grant);

    /// DCP streams of a connection have something to send, or the connection has to end.
    fn dcp_ready(&self, connection: ConnectionId);
}

/// True when both are the waker of one worker.
pub(crate) fn is_same(one: &Arc<dyn ConnectionWaker>, other: &Arc<dyn ConnectionWaker>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// Records the calls, for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct WakerLog {
    pub grants: parking_lot::Mutex<Vec<(ConnectionId, Grant)>>,
    pub dcp: parking_lot::Mutex<Vec<ConnectionId>>,
}

#[cfg(test)]
impl ConnectionWaker for WakerLog {
    fn memory_granted(&self, connection: ConnectionId, grant: Grant) {
        self.grants.lock().push((connection, grant));
    }

    fn dcp_ready(&self, connection: ConnectionId) {
        self.dcp.lock().push(connection);
    }
}
