//! The cost of a scan so far.
//!
//! The client counts requests, rows and bytes; the rest is what the tablet servers report with each
//! answer.

use std::ops::AddAssign;

use crate::proto::tserver::ResourceMetricsPb;

/// Figures of one scan, summed over its tablets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScanMetrics {
    /// Answered requests, including those that opened scanners.
    pub requests: u64,
    /// Tablets with an opened scanner; a scanner resumed on another server counts again.
    pub tablets: u64,
    /// Rows received.
    pub rows: u64,
    /// Bytes of rows received.
    pub bytes: u64,
    /// Bytes that servers read from disk because of block cache misses.
    pub cfile_cache_miss_bytes: u64,
    /// Block cache hits of the servers, in bytes.
    pub cfile_cache_hit_bytes: u64,
    /// Bytes that servers read from blocks in any way.
    pub bytes_read: u64,
    /// Nanoseconds that requests waited in servers' queues.
    pub queue_duration_nanos: u64,
    /// Nanoseconds that servers spent on requests, including the time in their queues.
    pub total_duration_nanos: u64,
    /// Nanoseconds of servers' CPU time in user mode.
    pub cpu_user_nanos: u64,
    /// Nanoseconds of servers' CPU time in the kernel.
    pub cpu_system_nanos: u64,
}

impl ScanMetrics {
    /// Adds a server's figures.
    pub(crate) fn add_reported(&mut self, reported: &ResourceMetricsPb) {
        // A negative figure is a server's mistake and counts as zero.
        let unsigned =
            |figure: Option<i64>| figure.and_then(|figure| u64::try_from(figure).ok()).unwrap_or(0);
        self.cfile_cache_miss_bytes += unsigned(reported.cfile_cache_miss_bytes);
        self.cfile_cache_hit_bytes += unsigned(reported.cfile_cache_hit_bytes);
        self.bytes_read += unsigned(reported.bytes_read);
        self.queue_duration_nanos += unsigned(reported.queue_duration_nanos);
        self.total_duration_nanos += unsigned(reported.total_duration_nanos);
        self.cpu_user_nanos += unsigned(reported.cpu_user_nanos);
        self.cpu_system_nanos += unsigned(reported.cpu_system_nanos);
    }
}

impl AddAssign for ScanMetrics {
    fn add_assign(&mut self, other: ScanMetrics) {
        self.requests += other.requests;
        self.tablets += other.tablets;
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.cfile_cache_miss_bytes += other.cfile_cache_miss_bytes;
        self.cfile_cache_hit_bytes += other.cfile_cache_hit_bytes;
        self.bytes_read += other.bytes_read;
        self.queue_duration_nanos += other.queue_duration_nanos;
        self.total_duration_nanos += other.total_duration_nanos;
        self.cpu_user_nanos += other.cpu_user_nanos;
        self.cpu_system_nanos += other.cpu_system_nanos;
    }
}
