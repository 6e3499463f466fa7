//! The wall clock, for the times in manifests.

use std::time::{SystemTime, UNIX_EPOCH};

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
