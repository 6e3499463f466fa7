//! Limits of changes that nodes agree on.

use std::time::Duration;

/// Longest time that a change waits for etcd.
pub(crate) const CHANGE_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for the agreement of a request that can do without.
pub(crate) const REFRESH_LIMIT: Duration = Duration::from_secs(1);
const _: () = assert!(REFRESH_LIMIT.as_secs() < CHANGE_LIMIT.as_secs());
/// Attempts at changing a record while other nodes change it concurrently.
pub(crate) const CHANGE_TRIES: usize = 16;
/// Longest wait of an answer for nodes that follow a change by themselves: more than opening 1024
/// vbuckets takes, and less than clients wait for an answer.
pub(crate) const ARRIVAL_LIMIT: Duration = Duration::from_secs(5);
