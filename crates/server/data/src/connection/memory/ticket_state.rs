//! State of a ticket in the queue for memory.
//!
//! Owns: the grant, from the moment it is made until the ticket takes it, and the notification of
//! the ticket's owner.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::budget::Grant;

/// See the module text.
pub struct TicketState {
    granted: Mutex<Option<Grant>>,
    notify: Box<dyn Fn() + Send + Sync>,
}

impl TicketState {
    pub fn new(notify: impl Fn() + Send + Sync + 'static) -> Arc<TicketState> {
        Arc::new(TicketState { granted: Mutex::default(), notify: Box::new(notify) })
    }

    /// Keeps a grant that was made at once.
    pub fn put(&self, grant: Grant) {
        let before = self.granted.lock().replace(grant);
        assert!(before.is_none(), "a ticket is granted once");
    }

    /// Keeps a grant and notifies the owner of the ticket.
    pub fn granted(&self, grant: Grant) {
        self.put(grant);
        (self.notify)();
    }

    pub fn take(&self) -> Option<Grant> {
        self.granted.lock().take()
    }
}

impl fmt::Debug for TicketState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketState").field("granted", &self.granted).finish_non_exhaustive()
    }
}
