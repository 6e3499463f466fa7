//! How many logs of a store are opened at once.
//!
//! Owns: the threads. Logs share nothing that an opening changes but counters and the memory of the
//! index, so they can be opened in any order. All openings under way are waited for, also when one
//! has failed. Caller: the opening of a store.

use super::log::Log;
use crate::StoreError;

/// The opening of one log, still to be done.
pub(super) type LogOpening = Box<dyn FnOnce() -> Result<Log, StoreError> + Send>;

/// Opens one after the other, until one fails.
pub(super) fn in_turn(openings: Vec<LogOpening>) -> Result<Vec<Log>, StoreError> {
    openings.into_iter().map(|opening| opening()).collect()
}

/// Opens several at once by threads; the error of the first that fails, in the order of the logs.
pub(super) fn side_by_side(
    openings: Vec<LogOpening>,
    at_once: usize,
) -> Result<Vec<Log>, StoreError> {
    if openings.len() == 1 || at_once <= 1 {
        return in_turn(openings);
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
