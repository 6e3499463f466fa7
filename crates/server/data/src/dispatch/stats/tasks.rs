//! `tasks`: a bucket's background work as one JSON array, in nanoseconds and by the wall clock.
//!
//! Scripts look up the fields without checking that they exist, so each entry has all of them. All
//! tasks have the same `priority`, and a task that sleeps until there is work has no time to wake.

use oribi_engine::{TaskKind, TaskState, TaskStats};
use oribi_types::Timestamp;
use serde_json::json;

use crate::connection::stat_cursor::StatWriter;

/// Nanoseconds in a microsecond.
const NS_PER_US: u64 = 1000;

pub(super) fn write(
    writer: &mut StatWriter<'_>,
    bucket: &str,
    tasks: &[TaskStats],
    now: Timestamp,
) {
    let array: Vec<_> =
        tasks.iter().enumerate().map(|(index, task)| describe(bucket, index, task, now)).collect();
    writer.prefix().text("ep_tasks:");
    writer.display(&format!("tasks:{bucket}"), serde_json::Value::from(array));
    writer.number(&format!("cur_time:{bucket}"), now.unix_ns);
    writer.prefix();
}

/// The wake time of a task that waits for work.
const NEVER_NS: i64 = i64::MAX;

/// Priority of every task.
const PRIORITY: u32 = 0;

fn describe(bucket: &str, index: usize, task: &TaskStats, now: Timestamp) -> serde_json::Value {
    let begun_ns = task.last_start.unix_ns;
    let (state, running_ns) = match task.state {
        TaskState::Running => ("RUNNING", now.unix_ns.saturating_sub(begun_ns)),
        TaskState::Snoozed => ("SNOOZED", 0),
        TaskState::Dead => ("DEAD", 0),
    };
    let is_running = task.state == TaskState::Running;
    json!({
        "tid": index + 1,
        "state": state,
        "name": task.name,
        "bucket": bucket,
        "description": task.description,
        "type": kind_name(task.kind),
        "this": format!("{:#x}", index + 1),
        "priority": PRIORITY,
        "waketime_ns": if is_running { 0 } else { NEVER_NS },
        "num_runs": task.runs,
        "total_runtime_ns": task.total_runtime_us.saturating_mul(NS_PER_US),
        "previous_runtime_ns": task.last_runtime_us.saturating_mul(NS_PER_US),
        // Scripts read a time here as "the task is running".
        "last_starttime_ns": if is_running { begun_ns } else { 0 },
        "cur_runtime_ns": running_ns,
    })
}

/// The thread pool on which Couchbase would run such a task.
fn kind_name(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::Writer => "Writer",
        TaskKind::Reader => "Reader",
        TaskKind::StoreUpkeep => "AuxIO",
        TaskKind::Memory => "NonIO",
    }
}
