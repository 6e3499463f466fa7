//! The threads of the server and their work: listener, workers, connections, blocking jobs.
//!
//! Invariants: a worker owns its connections; workers share nothing per operation; work that would
//! block a worker runs on a blocking thread.

pub(crate) mod blocking_thread;
pub(crate) mod driver;
pub(crate) mod listener;
pub(crate) mod mailbox;
pub(crate) mod progress;
pub(crate) mod worker;
