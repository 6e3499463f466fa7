//! Opens the logs of a store, several at a time.
//!
//! Owns: the threads that do it. An opening changes only counters and the memory of the index of
//! what logs share, so the order is free. Every thread that was started is joined, also when an
//! opening has failed. Caller: the opening of a store.

use super::log::Log;
use crate::StoreError;

/// Opens one log when it is called.
pub(super) type LogOpening = Box<dyn FnOnce() -> Result<Log, StoreError> + Send>;

/// Opens one after the other, until one fails.
pub(super) fn sequentially(openings: Vec<LogOpening>) -> Result<Vec<Log>, StoreError> {
    openings.into_iter().map(|opening| opening()).collect()
}

/// Opens `at_once` logs at a time, a thread for each; the error of the first that fails, in the
/// order of the logs.
pub(super) fn concurrently(
    openings: Vec<LogOpening>,
    at_once: usize,
) -> Result<Vec<Log>, StoreError> {
    if openings.len() == 1 || at_once <= 1 {
        return sequentially(openings);
    }
    let count = openings.len();
    let mut logs = Vec::with_capacity(openings.len());
    let mut openings = openings.into_iter();
    while openings.len() > 0 {
        let threads = openings.by_ref().take(at_once).map(|opening| {
            let thread = oribi_supervisor::spawn("log-opening", opening);
            thread.map_err(|error| StoreError::Io(format!("no thread to open a log: {error}")))
        });
        let threads: Vec<_> = threads.collect();
        let opened = threads.into_iter().map(|thread| {
            let joined = thread?.join();
            joined.unwrap_or_else(|_| Err(StoreError::Poisoned("opening a log panicked".into())))
        });
        let opened: Vec<_> = opened.collect();
        for log in opened {
            logs.push(log?);
        }
    }
    assert_eq!(logs.len(), count, "every log was opened");
    Ok(logs)
}
