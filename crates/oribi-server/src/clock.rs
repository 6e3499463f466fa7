//! The time of day.
//!
//! Callers read it once per batch or event and pass it down; measurements of duration use the
//! monotonic [`crate::environment::LatencyClock`].

use std::time::{SystemTime, UNIX_EPOCH};

use oribi_types::Timestamp;

/// The wall clock. A clock set before 1970 counts as 1970.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { unix_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX) }
}
