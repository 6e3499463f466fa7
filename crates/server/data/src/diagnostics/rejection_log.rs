//! The log of refused requests, and the references to its lines.
//!
//! Owns: the reference that an error context carries (`error.ref`) and the log line shows, so an
//! operator finds the request that a client reports; and the limit on a worker's lines. Invariants:
//! a reference is unique while the server runs (across restarts it repeats with a chance of 2^-64);
//! a request that is not logged has none. One per worker, used by the dispatcher. It allocates
//! nothing.

use std::fmt;

/// Maximum lines of a worker per second.
const LINES_PER_SECOND: u32 = 10;

/// Identifies one request in the log. Its form is that of a UUID, which tools can search for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    seed: u64,
    number: u64,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, number) = (self.seed, self.number);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            seed >> 32,
            seed >> 16 & 0xffff,
            seed & 0xffff,
            number >> 48,
            number & 0xffff_ffff_ffff
        )
    }
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct RejectionLog {
    seed: u64,
    next_number: u64,
    window_ms: u64,
    lines: u32,
}

impl RejectionLog {
    /// The log of worker number `worker` in a server that was started with this random number.
    pub fn new(seed: u64, worker: usize) -> RejectionLog {
        assert!(worker < 1 << 16, "the upper bits of a number are the worker's");
        // Workers count separately: the upper bits are the worker's.
        RejectionLog { seed, next_number: (worker as u64) << 48, window_ms: 0, lines: 0 }
    }

    /// A reference for a refusal that is to be logged; `None` when the limit of this second is
    /// reached.
    pub fn admit(&mut self, now_ms: u64) -> Option<Reference> {
        if now_ms.saturating_sub(self.window_ms) >= 1_000 {
            (self.window_ms, self.lines) = (now_ms, 0);
        }
        if self.lines >= LINES_PER_SECOND {
            return None;
        }
        self.lines += 1;
        self.next_number += 1;
        assert!(self.lines <= LINES_PER_SECOND, "a second has a bounded number of lines");
        Some(Reference { seed: self.seed, number: self.next_number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Compat (Differences): Error contexts
    #[test]
    fn references_are_unique_and_bounded_in_each_second() {
        let (mut one, mut two) = (RejectionLog::new(7, 0), RejectionLog::new(7, 1));
        let mut seen = Vec::new();
        for now_ms in [1, 500, 1_400, 1_500] {
            for _ in 0..LINES_PER_SECOND {
                seen.extend(one.admit(now_ms).map(|reference| reference.to_string()));
                seen.extend(two.admit(now_ms).map(|reference| reference.to_string()));
            }
        }
        // 1 and 500 share a second, as do 1400 and 1500.
        assert_eq!(seen.len(), 2 * 2 * LINES_PER_SECOND as usize);
        assert!(seen.iter().all(|text| text.len() == 36));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 40);
    }
}
