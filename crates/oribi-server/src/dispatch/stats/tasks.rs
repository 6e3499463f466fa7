//! `tasks`: a bucket's background work as one JSON array, in nanoseconds and by the wall clock.

use oribi_engine::{TaskState, TaskStats};
use oribi_types::Timestamp;
use serde_json::json;

use super::writer::StatWriter;

/// Nanoseconds in a microsecond.
const NS_PER_US: u64 = 1000;

/// The group.
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

fn describe(bucket: &str, index: usize, task: &TaskStats, now: Timestamp) -> serde_json::Value {
    let begun_ns = task.last_start.unix_ns;
    let (state, running_ns) = match task.state {
        TaskState::Running => ("RUNNING", now.unix_ns.saturating_sub(begun_ns)),
        TaskState::Snoozed => ("SNOOZED", 0),
        TaskState::Dead => ("DEAD", 0),
    };
    json!({
        "tid": index + 1,
        "state": state,
        "name": task.name,
        "bucket": bucket,
        "description": task.description,
        "num_runs": task.runs,
        "total_runtime_ns": task.total_runtime_us.saturating_mul(NS_PER_US),
        "previous_runtime_ns": task.last_runtime_us.saturating_mul(NS_PER_US),
        "last_starttime_ns": begun_ns,
        "cur_runtime_ns": running_ns,
    })
}
