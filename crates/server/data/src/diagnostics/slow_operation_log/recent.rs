//! The last slow operations, for the console.
//!
//! Owns: a bounded list that all workers share. Invariant: it takes its lock for an operation that
//! was slow and logged, at most some hundred times a second, and for nothing else. Written by
//! [`super::SlowOperationLog`], read by the admin HTTP.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::{Value, json};

use oribi_system::clock::wall_clock;

/// Operations that are remembered.
const REMEMBERED_MAX: usize = 256;
const _: () = assert!(REMEMBERED_MAX > 0);

/// See the module text.
#[derive(Debug, Default)]
pub struct RecentSlowOperations(Mutex<VecDeque<Value>>);

impl RecentSlowOperations {
    /// Remembers the line of an operation, with the time of day.
    pub(super) fn push(&self, line: &Value) {
        let mut line = line.clone();
        line["unix_ms"] = json!(wall_clock().unix_ns / 1_000_000);
        let mut recent = self.0.lock();
        if recent.len() >= REMEMBERED_MAX {
            recent.pop_front();
        }
        recent.push_back(line);
        assert!(recent.len() <= REMEMBERED_MAX, "remembered operations are bounded");
    }

    /// The operations, newest first.
    pub fn list(&self) -> Vec<Value> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_operations_are_remembered() {
        let recent = RecentSlowOperations::default();
        for number in 0..REMEMBERED_MAX + 3 {
            recent.push(&json!({ "number": number }));
        }
        let listed = recent.list();
        assert_eq!(listed.len(), REMEMBERED_MAX);
        assert_eq!(listed[0]["number"], REMEMBERED_MAX + 2);
        assert_eq!(listed[REMEMBERED_MAX - 1]["number"], 3);
        assert!(listed[0]["unix_ms"].as_u64() > Some(0));
    }
}
