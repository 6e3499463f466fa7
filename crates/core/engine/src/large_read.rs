//! Large documents that are read from the store.
//!
//! Owns: the turn to read one. Until such a document is an item, it is in memory beyond every
//! quota, so the process reads one at a time. Taken by fetchers, and flushers that read prepares.

use parking_lot::Mutex;

/// Held from before a document of more than [`oribi_storage::LARGE_RECORD_BYTES`] is read until it
/// is an item.
pub(crate) static LARGE_READ: Mutex<()> = Mutex::new(());
