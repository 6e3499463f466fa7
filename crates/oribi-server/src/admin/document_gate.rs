//! The bound on requests for documents over HTTP.
//!
//! Owns: the places. Invariant: a request without a place is refused at once and waits for nothing,
//! so what these requests hold is bounded, and the threads for other blocking calls are not all
//! taken by pages. Caller: `documents`.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::message::{Refusal, busy};

/// Requests at a time; others are told to come again.
const REQUESTS_MAX: usize = 16;

/// Pages at a time; each may keep a thread busy for seconds.
const PAGES_MAX: usize = 2;

/// Long values on their way at a time, in either direction; each holds a document of the largest
/// size, twice while it is collected or inflated.
const TRANSFERS_MAX: usize = 2;

/// The bounds on these requests.
pub(crate) struct DocumentGate {
    requests: Semaphore,
    pages: Semaphore,
    transfers: Arc<Semaphore>,
}

impl Default for DocumentGate {
    fn default() -> DocumentGate {
        DocumentGate {
            requests: Semaphore::new(REQUESTS_MAX),
            pages: Semaphore::new(PAGES_MAX),
            transfers: Arc::new(Semaphore::new(TRANSFERS_MAX)),
        }
    }
}

impl DocumentGate {
    pub(crate) fn enter(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        self.requests.try_acquire().map_err(|_| busy("too many requests for documents").into())
    }

    pub(crate) fn enter_page(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        self.pages.try_acquire().map_err(|_| busy("too many lists of documents").into())
    }

    /// A place that lasts as long as the value is on its way.
    pub(crate) fn enter_transfer(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let place = Arc::clone(&self.transfers).try_acquire_owned();
        place.map_err(|_| busy("too many long values are on their way").into())
    }
}
