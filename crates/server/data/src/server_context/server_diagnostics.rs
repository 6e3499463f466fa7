//! Counters, slow operations and the server's age: what operators read and no request depends on.

use std::sync::Arc;

use oribi_system::clock::wall_clock;
use oribi_types::Timestamp;

use crate::diagnostics::counters::ServerCounters;
use crate::diagnostics::slow_operation_log::RecentSlowOperations;

/// See the module text.
pub struct ServerDiagnostics {
    pub counters: Arc<ServerCounters>,
    /// The last slow operations.
    pub recent_slow: Arc<RecentSlowOperations>,
    /// When the server started.
    pub started: Timestamp,
    /// Random, so that references to log lines are unique across restarts. 0 in tests, which need
    /// equal answers to equal requests.
    pub(crate) reference_seed: u64,
}

impl ServerDiagnostics {
    /// Diagnostics of a server that `started` then.
    pub fn new(counters: Arc<ServerCounters>, started: Timestamp) -> ServerDiagnostics {
        ServerDiagnostics { counters, recent_slow: Arc::default(), started, reference_seed: 0 }
    }

    /// Whole seconds since the start, by the wall clock.
    pub fn uptime_s(&self) -> u32 {
        wall_clock().unix_s().saturating_sub(self.started.unix_s())
    }
}
