//! Memory of a stream of changes: one piece of events at a time.
//!
//! Owns: the reservation of a piece in the connections' memory, from before its events are made
//! until the socket has taken it, and how fast the client takes what there is. Invariant: a piece
//! never holds more than its reservation, except that one larger than the whole budget reserves all
//! of it. The follower and statements of SQL fill pieces; hyper drops them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Bytes;
use parking_lot::Mutex;

use super::wakeups::Wakeups;
use oribi_server::admin_api::memory::budget::Demand;
use oribi_server::admin_api::memory::lag::Lag;
use oribi_server::admin_api::memory::ticket::Ticket;
use oribi_server::admin_api::memory::{ConnectionMemory, Reservation};

/// Bytes that wait for a client.
pub(crate) struct Outgoing {
    memory: Arc<ConnectionMemory>,
    held_bytes: AtomicUsize,
    taken_bytes: Arc<AtomicUsize>,
    pace: Mutex<Pace>,
    wakeups: Arc<Wakeups>,
}

struct Pace {
    lag: Lag,
    taken_bytes: usize,
}

/// A piece that is being filled.
pub(crate) struct StreamPiece {
    pub bytes: Vec<u8>,
    reservation: Option<Reservation>,
    /// Bytes that are counted without a reservation.
    unreserved: usize,
    outgoing: Arc<Outgoing>,
}

impl Outgoing {
    pub fn new(memory: Arc<ConnectionMemory>, wakeups: Arc<Wakeups>) -> Arc<Outgoing> {
        let (held_bytes, taken_bytes) = (AtomicUsize::new(0), Arc::default());
        let pace = Mutex::new(Pace { lag: Lag::begin(), taken_bytes: 0 });
        Arc::new(Outgoing { memory, held_bytes, taken_bytes, pace, wakeups })
    }

    /// Bytes that the socket has not taken yet.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Acquire)
    }

    /// Counts, modulo its range, what the body of the answer has handed to the socket.
    pub fn taken_bytes(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.taken_bytes)
    }

    /// True when the client lags so far that others need not wait for it.
    pub fn is_client_behind(&self) -> bool {
        if self.held_bytes() == 0 {
            return false;
        }
        let mut pace = self.pace.lock();
        let taken_bytes = self.taken_bytes.load(Ordering::Acquire);
        let news = taken_bytes.wrapping_sub(pace.taken_bytes);
        pace.taken_bytes = taken_bytes;
        pace.lag.earn(news);
        pace.lag.is_too_long()
    }

    /// True while anyone waits for memory.
    pub fn has_waiters(&self) -> bool {
        self.memory.has_waiters()
    }

    /// Queues for memory; the task is woken when it is granted.
    pub fn queue(&self, demand: Demand) -> Ticket {
        let wakeups = Arc::clone(&self.wakeups);
        Ticket::new(&self.memory, demand, move || wakeups.wake())
    }

    /// Bytes of the largest piece that there can be.
    #[cfg(feature = "query")]
    pub fn largest_piece(&self) -> usize {
        self.memory.counted(usize::MAX)
    }

    /// An empty piece that may grow to `bytes`; `None` while there is no memory.
    pub fn piece(self: &Arc<Self>, bytes: usize) -> Option<StreamPiece> {
        Some(self.piece_of(Some(self.memory.hold(bytes)?)))
    }

    /// An empty piece with this reservation. One without it is for a stream that already has memory
    /// for which others may wait; it counts among the small ones.
    pub fn piece_of(self: &Arc<Self>, reservation: Option<Reservation>) -> StreamPiece {
        StreamPiece { bytes: Vec::new(), reservation, unreserved: 0, outgoing: Arc::clone(self) }
    }
}

impl StreamPiece {
    /// Bytes that may be added.
    #[cfg(feature = "query")]
    pub fn room(&self) -> usize {
        let reserved = self.reservation.as_ref().map_or(0, Reservation::bytes);
        reserved.saturating_sub(self.bytes.len())
    }

    /// The piece as hyper takes it. Returns its unused reservation.
    pub fn into_bytes(mut self) -> Bytes {
        assert_eq!(self.unreserved, 0, "a piece is sent once");
        self.bytes.shrink_to_fit();
        match &mut self.reservation {
            Some(reservation) => reservation.keep(self.outgoing.memory.counted(self.bytes.len())),
            None => {
                self.unreserved = self.bytes.len();
                self.outgoing.memory.note_unreserved(0, self.unreserved);
            }
        }
        if self.outgoing.held_bytes.fetch_add(self.bytes.len(), Ordering::AcqRel) == 0 {
            self.outgoing.pace.lock().lag = Lag::begin();
        }
        Bytes::from_owner(SentPiece(self))
    }
}

impl Drop for StreamPiece {
    fn drop(&mut self) {
        if self.unreserved > 0 {
            self.outgoing.memory.note_unreserved(self.unreserved, 0);
        }
    }
}

/// A piece on its way.
struct SentPiece(StreamPiece);

impl AsRef<[u8]> for SentPiece {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes
    }
}

impl Drop for SentPiece {
    fn drop(&mut self) {
        let outgoing = &self.0.outgoing;
        let before = outgoing.held_bytes.fetch_sub(self.0.bytes.len(), Ordering::AcqRel);
        assert!(before >= self.0.bytes.len(), "a piece on its way is counted");
        outgoing.wakeups.wake();
    }
}
