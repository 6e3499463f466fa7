//! Memory for large records on their way to readers of DCP, asked for before a record is read.
//!
//! A backfill copies records of the store. Small ones count in the bucket's memory; a large one
//! ([`oribi_storage::LARGE_RECORD_BYTES`]) needs a grant of the process's budget first. The grant
//! lives as long as the copy. The server implements the traits over its budget, tests over their
//! own.

/// The budget. A bucket without one grants everything, and counts large records as its own.
pub trait ReaderMemory: Send + Sync {
    /// Queues the calling thread for `bytes`, first come, first served. A grant unparks it.
    fn request(&self, bytes: usize) -> Box<dyn MemoryRequest>;
}

/// A place in the queue. Dropping it leaves the queue.
pub trait MemoryRequest {
    /// The grant, once it is made.
    fn poll(&mut self) -> Option<Box<dyn MemoryGrant>>;
}

/// Granted memory. Dropping it returns the memory.
pub trait MemoryGrant: Send + Sync {
    /// Returns all but `bytes`.
    fn shrink_to(&mut self, bytes: usize);
}
