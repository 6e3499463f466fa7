//! What a stream of changes holds for a client: one piece of events at a time.
//!
//! Owns: the reservation of a piece in the connections' memory, from before its events are made
//! until the socket has taken it. Invariant: a piece never holds more than its reservation, except
//! that one larger than the whole budget reserves all of it. The follower and statements of SQL
//! fill pieces; hyper drops them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Bytes;

use super::wakeups::Wakeups;
use crate::connection_memory::ConnectionMemory;

/// Bytes that wait for a client.
pub(in crate::admin) struct Outgoing {
    memory: Arc<ConnectionMemory>,
    held_bytes: AtomicUsize,
    wakeups: Arc<Wakeups>,
}

/// A piece that is being filled.
pub(in crate::admin) struct Piece {
    /// Events.
    pub bytes: Vec<u8>,
    reserved: usize,
    outgoing: Arc<Outgoing>,
}

impl Outgoing {
    /// Nothing waits.
    pub fn new(memory: Arc<ConnectionMemory>, wakeups: Arc<Wakeups>) -> Arc<Outgoing> {
        Arc::new(Outgoing { memory, held_bytes: AtomicUsize::new(0), wakeups })
    }

    /// Bytes that the socket has not taken yet.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Acquire)
    }

    /// True while others wait for memory.
    pub fn has_others_waiting(&self) -> bool {
        self.memory.has_waiters()
    }

    /// Bytes of the largest piece that there can be.
    #[cfg(feature = "sql")]
    pub fn largest_piece(&self) -> usize {
        self.memory.counted(usize::MAX)
    }

    /// An empty piece that may grow to `bytes`; `None` while there is no memory.
    pub fn piece(self: &Arc<Self>, bytes: usize) -> Option<Piece> {
        let reserved = self.memory.try_reserve(bytes)?;
        Some(Piece { bytes: Vec::new(), reserved, outgoing: Arc::clone(self) })
    }
}

impl Piece {
    /// Bytes that may be added.
    #[cfg(feature = "sql")]
    pub fn room(&self) -> usize {
        self.reserved.saturating_sub(self.bytes.len())
    }

    /// The piece as hyper takes it. What it does not need is given back.
    pub fn into_bytes(mut self) -> Bytes {
        self.bytes.shrink_to_fit();
        let needed = self.outgoing.memory.counted(self.bytes.len());
        if let Some(surplus) = self.reserved.checked_sub(needed).filter(|surplus| *surplus > 0) {
            self.outgoing.memory.release(surplus);
            self.reserved = needed;
        }
        self.outgoing.held_bytes.fetch_add(self.bytes.len(), Ordering::AcqRel);
        Bytes::from_owner(Sent(self))
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.reserved > 0 {
            self.outgoing.memory.release(self.reserved);
        }
    }
}

/// A piece on its way.
struct Sent(Piece);

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let outgoing = &self.0.outgoing;
        outgoing.held_bytes.fetch_sub(self.0.bytes.len(), Ordering::AcqRel);
        outgoing.wakeups.wake();
    }
}
