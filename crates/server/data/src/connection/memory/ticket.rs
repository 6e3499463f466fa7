//! A place in the queue for memory, for threads and tasks that are no connections of a worker.
//!
//! Dropping a ticket leaves the queue, or returns the grant. Callers: streams of changes over HTTP,
//! range scans, and backfills of the engine, which use it as [`ReaderMemory`].

use std::sync::Arc;
use std::time::Duration;

use oribi_engine::{MemoryGrant, MemoryRequest, ReaderMemory};
use tokio::sync::Notify;

use super::budget::Demand;
use super::ticket_state::TicketState;
use super::{ConnectionMemory, Reservation};
use crate::limits::MEMORY_WAIT_MS;

/// See the module text.
#[derive(Debug)]
pub struct Ticket {
    memory: Arc<ConnectionMemory>,
    state: Arc<TicketState>,
}

impl Ticket {
    /// Queues for memory. `notify` is called when it is granted later, under a lock.
    pub fn new(
        memory: &Arc<ConnectionMemory>,
        demand: Demand,
        notify: impl Fn() + Send + Sync + 'static,
    ) -> Ticket {
        let state = TicketState::new(notify);
        memory.queue_ticket(&state, demand);
        Ticket { memory: Arc::clone(memory), state }
    }

    /// The reservation, once it is granted.
    pub fn poll(&mut self) -> Option<Reservation> {
        let grant = self.state.take()?;
        Some(Reservation { memory: Arc::clone(&self.memory), grant })
    }

    /// Waits for memory as long as a request does.
    pub async fn wait(memory: &Arc<ConnectionMemory>, demand: Demand) -> Option<Reservation> {
        let notify = Arc::new(Notify::new());
        let woken = Arc::clone(&notify);
        let mut ticket = Ticket::new(memory, demand, move || woken.notify_one());
        let granted = async {
            loop {
                if let Some(reservation) = ticket.poll() {
                    break reservation;
                }
                notify.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_millis(MEMORY_WAIT_MS), granted).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.memory.leave_ticket(&self.state);
    }
}

/// The budget's interface for backfills.
pub struct BackfillMemory(pub Arc<ConnectionMemory>);

impl ReaderMemory for BackfillMemory {
    fn request(&self, bytes: usize) -> Box<dyn MemoryRequest> {
        let thread = std::thread::current();
        Box::new(Ticket::new(&self.0, Demand::of_bytes(bytes), move || thread.unpark()))
    }
}

impl MemoryRequest for Ticket {
    fn poll(&mut self) -> Option<Box<dyn MemoryGrant>> {
        let reservation = Ticket::poll(self)?;
        Some(Box::new(reservation))
    }
}

impl MemoryGrant for Reservation {
    fn shrink_to(&mut self, bytes: usize) {
        self.keep(bytes);
    }
}
