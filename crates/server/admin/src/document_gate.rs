//! The bound on requests for documents over HTTP.
//!
//! Owns: the places. Invariant: a request without a place is refused at once and waits for nothing,
//! so what these requests hold is bounded, and the threads for other blocking calls are not all
//! taken by pages. Caller: `documents`.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::message::{HttpRejection, busy};

/// Requests at a time; excess requests get "busy" and retry.
pub(crate) const REQUESTS_MAX: usize = 16;

/// Pages at a time; each may keep a thread busy for seconds.
const PAGES_MAX: usize = 2;

/// The bounds on these requests.
pub(crate) struct DocumentGate {
    requests: Semaphore,
    pages: Semaphore,
}

impl Default for DocumentGate {
    fn default() -> DocumentGate {
        DocumentGate { requests: Semaphore::new(REQUESTS_MAX), pages: Semaphore::new(PAGES_MAX) }
    }
}

impl DocumentGate {
    pub(crate) fn enter(&self) -> Result<SemaphorePermit<'_>, HttpRejection> {
        self.requests.try_acquire().map_err(|_| busy("too many requests for documents").into())
    }

    pub(crate) fn enter_page(&self) -> Result<SemaphorePermit<'_>, HttpRejection> {
        self.pages.try_acquire().map_err(|_| busy("too many lists of documents").into())
    }
}
