//! Operations that took longer than the operator's thresholds.
//!
//! Owns: the thresholds, the form of a line and the limit on a worker's lines. A line is one JSON
//! object in the server's log, under the target `slow_operation`. Waits for the store, to read a
//! document or to persist one, follow from the worker's batch clock at no cost. Execution is timed
//! for connections that negotiated server durations. For the others only the time of a few
//! operations together is known, see [`ClockInterval`]: such a line lists all of them.
//!
//! Invariants: names of users and keys stand between `<ud>` and `</ud>`, so an operator can strip
//! them before passing a log on; no operation reads a clock because of this log.

mod clock_interval;
mod recent;

use std::sync::Arc;

use oribi_auth::redaction::redacted;
use oribi_config::SlowThresholds;
use oribi_protocol::opcode::Opcode;
use serde_json::{Value, json};

pub(crate) use clock_interval::ClockInterval;
pub(crate) use recent::RecentSlowOperations;

/// Maximum lines of a worker per second.
const LINES_PER_SECOND: u32 = 10;

/// A class of operations with similar durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationClass {
    Read,
    Write,
    /// Writes that are answered once the store has them.
    Durable,
    Other,
}

fn threshold_of(thresholds: &SlowThresholds, class: OperationClass) -> u64 {
    match class {
        OperationClass::Read => thresholds.read_ms,
        OperationClass::Write => thresholds.write_ms,
        OperationClass::Durable => thresholds.durable_ms,
        OperationClass::Other => thresholds.other_ms,
    }
}

/// An operation that ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlowOperation<'a> {
    /// Opcode of the request.
    pub opcode: u8,
    pub class: OperationClass,
    /// Number of the connection.
    pub connection: u64,
    pub user: &'a str,
    /// Bucket, if one is selected.
    pub bucket: &'a str,
    /// The key as received; empty when it is no longer known.
    pub key: &'a [u8],
    /// Time of the last attempt, if known.
    pub execute_us: Option<u64>,
    /// Time waited for a fetch from the store.
    pub fetch_ms: u64,
    /// Time waited for the store to persist the write.
    pub persist_ms: u64,
}

impl SlowOperation<'_> {
    fn total_ms(&self) -> u64 {
        self.execute_us.unwrap_or(0) / 1_000 + self.fetch_ms + self.persist_ms
    }
}

/// See the module text. One per worker.
#[derive(Debug)]
pub(crate) struct SlowOperationLog {
    thresholds: SlowThresholds,
    least_us: Option<u64>,
    window_ms: u64,
    lines: u32,
    suppressed: u64,
    recent: Arc<RecentSlowOperations>,
}

impl SlowOperationLog {
    /// A log for one worker.
    pub fn new(thresholds: SlowThresholds) -> SlowOperationLog {
        let least_us = thresholds.least().map(|ms| ms.saturating_mul(1_000));
        let recent = Arc::default();
        SlowOperationLog { thresholds, least_us, window_ms: 0, lines: 0, suppressed: 0, recent }
    }

    /// The same log, which also remembers its operations there.
    pub fn remembering(self, recent: &Arc<RecentSlowOperations>) -> SlowOperationLog {
        SlowOperationLog { recent: Arc::clone(recent), ..self }
    }

    /// Logs an operation if it was slow.
    pub fn note(&mut self, now_ms: u64, operation: &SlowOperation<'_>) {
        let threshold_ms = threshold_of(&self.thresholds, operation.class);
        if threshold_ms == 0 || operation.total_ms() < threshold_ms {
            return;
        }
        if let Some(line) = self.line(now_ms, operation) {
            tracing::info!(target: "slow_operation", "{line}");
        }
    }

    /// Time from which a stretch needs a closer look, in microseconds; `None` when the log is off.
    pub fn least_us(&self) -> Option<u64> {
        self.least_us
    }

    /// Logs a stretch of requests that took this long together, if that is too long for any of
    /// them. `first` is the first of them; `classes` are all of them.
    pub fn note_stretch(
        &mut self,
        now_ms: u64,
        first: &SlowOperation<'_>,
        (opcodes, classes): (&[u8], &[OperationClass]),
    ) {
        let is_slow = |class: &OperationClass| {
            let threshold_ms = threshold_of(&self.thresholds, *class);
            threshold_ms != 0 && first.total_ms() >= threshold_ms
        };
        debug_assert_eq!(opcodes.len(), classes.len(), "each opcode has its class");
        if !classes.iter().any(is_slow) {
            return;
        }
        let Some(mut line) = self.admit(now_ms, first) else { return };
        if opcodes.len() > 1 {
            line["opcode"] = opcodes.iter().map(|code| name_of(*code)).collect();
        }
        tracing::info!(target: "slow_operation", "{line}");
    }

    /// Lines of this second so far.
    pub fn lines(&self) -> u32 {
        self.lines
    }

    /// The line for a slow operation; `None` above the limit of this second.
    fn line(&mut self, now_ms: u64, operation: &SlowOperation<'_>) -> Option<String> {
        self.admit(now_ms, operation).map(|line| line.to_string())
    }

    #[cold]
    fn admit(&mut self, now_ms: u64, operation: &SlowOperation<'_>) -> Option<Value> {
        if now_ms.saturating_sub(self.window_ms) >= 1_000 {
            (self.window_ms, self.lines) = (now_ms, 0);
        }
        if self.lines >= LINES_PER_SECOND {
            self.suppressed += 1;
            return None;
        }
        self.lines += 1;
        assert!(self.lines <= LINES_PER_SECOND, "a second has a bounded number of lines");
        let mut line = json!({
            "opcode": name_of(operation.opcode),
            "connection": operation.connection,
            "user": redacted(operation.user.as_bytes()),
            "bucket": operation.bucket,
            "duration_ms": operation.total_ms(),
            "fetch_ms": operation.fetch_ms,
            "persist_ms": operation.persist_ms,
        });
        if let Some(execute_us) = operation.execute_us {
            line["execute_us"] = execute_us.into();
        }
        if !operation.key.is_empty() {
            line["key"] = redacted(operation.key).into();
        }
        self.recent.push(&line);
        let suppressed = std::mem::take(&mut self.suppressed);
        if suppressed > 0 {
            line["suppressed_before"] = suppressed.into();
        }
        Some(line)
    }
}

fn name_of(opcode: u8) -> &'static str {
    Opcode::from_u8(opcode).map_or("unknown", Opcode::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: SlowOperation<'static> = SlowOperation {
        opcode: 0,
        class: OperationClass::Read,
        connection: 3,
        user: "ann",
        bucket: "default",
        key: b"a\"b\x00",
        execute_us: Some(1_500),
        fetch_ms: 700,
        persist_ms: 0,
    };

    #[test]
    fn the_slow_line_has_phases_and_marks_user_data() {
        let mut log = SlowOperationLog::new(SlowThresholds::default());
        let line = log.line(1, &GET).unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["opcode"], "Get");
        assert_eq!((&line["duration_ms"], &line["fetch_ms"]), (&701.into(), &700.into()));
        assert_eq!((&line["execute_us"], &line["persist_ms"]), (&1_500.into(), &0.into()));
        assert_eq!(line["key"], "<ud>a\\\"b\\x00</ud>");
        assert_eq!(line["user"], "<ud>ann</ud>");
    }

    #[test]
    fn lines_are_bounded_and_those_left_out_are_counted() {
        let mut log = SlowOperationLog::new(SlowThresholds::default());
        let lines = (0..100).filter_map(|_| log.line(1, &GET)).count();
        assert_eq!(lines, LINES_PER_SECOND as usize);
        let next = log.line(1_001, &GET).unwrap();
        assert!(next.contains("\"suppressed_before\":90"), "{next}");
        assert!(!log.line(1_002, &GET).unwrap().contains("suppressed"));
    }

    #[test]
    fn a_slice_is_slow_if_one_of_its_requests_is() {
        let thresholds = SlowThresholds { read_ms: 500, other_ms: 2_000, ..SlowThresholds::OFF };
        let mut log = SlowOperationLog::new(thresholds);
        assert_eq!(log.least_us(), Some(500_000));
        assert_eq!(SlowOperationLog::new(SlowThresholds::OFF).least_us(), None);
        let took = |ms: u64| SlowOperation { execute_us: Some(ms * 1_000), fetch_ms: 0, ..GET };
        log.note_stretch(1, &took(499), (&[0], &[OperationClass::Read]));
        log.note_stretch(1, &took(1_999), (&[0x10], &[OperationClass::Other]));
        log.note_stretch(1, &took(9_999), (&[1], &[OperationClass::Write]));
        assert_eq!(log.lines, 0);
        log.note_stretch(1, &took(500), (&[0], &[OperationClass::Read]));
        log.note_stretch(
            1,
            &took(500),
            (&[0x10, 0], &[OperationClass::Other, OperationClass::Read]),
        );
        assert_eq!(log.lines, 2);
    }

    #[test]
    fn thresholds_are_by_class_and_zero_is_never() {
        let thresholds = SlowThresholds { read_ms: 702, write_ms: 1, ..SlowThresholds::OFF };
        let mut log = SlowOperationLog::new(thresholds);
        log.note(1, &GET);
        assert_eq!(log.lines, 0, "too fast");
        log.note(1, &SlowOperation { fetch_ms: 701, ..GET });
        assert_eq!(log.lines, 1);
        log.note(1, &SlowOperation { class: OperationClass::Write, ..GET });
        assert_eq!(log.lines, 2);
        log.note(1, &SlowOperation { class: OperationClass::Durable, persist_ms: 1 << 40, ..GET });
        assert_eq!(log.lines, 2, "off");
    }
}
