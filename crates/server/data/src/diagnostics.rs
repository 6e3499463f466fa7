//! Figures and logs about the server itself: counters, slow operations, rejections, CPU times.
//!
//! Invariant: every other module may count and log here, so nothing here knows another module.

pub mod counters;
pub mod cpu_times;
pub(crate) mod rejection_log;
pub(crate) mod slow_operation_log;
