//! `oribi cluster rebalance`: begins or stops a rebalance, and follows it to its end.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use hyper::Method;
use serde_json::Value;

use super::table::table;
use super::{done, place::AdminPlace};
use crate::admin::Admin;
use crate::print;

/// Pause between two looks at the progress.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// Begins a rebalance of all nodes without `removed`, and follows it.
pub(super) async fn begin(
    place: &AdminPlace,
    removed: &[String],
    (as_json, waits): (bool, bool),
) -> anyhow::Result<ExitCode> {
    let admin = place.find().await?;
    let cluster = admin.get("/node/cluster").await?;
    let names: Vec<&str> = nodes(&cluster).filter_map(|node| node["name"].as_str()).collect();
    if let Some(unknown) = removed.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("the cluster has no node {unknown:?}; it has {}", names.join(", "));
    }
    let form = [("knownNodes", names.join(",")), ("ejectedNodes", removed.join(","))];
    admin.change(Method::POST, "/controller/rebalance", &form).await?;
    match waits {
        true => follow(&admin, as_json).await,
        false => done("the rebalance has begun"),
    }
}

pub(super) async fn stop(place: &AdminPlace) -> anyhow::Result<ExitCode> {
    place.find().await?.change(Method::POST, "/controller/stopRebalance", &[]).await?;
    done("no rebalance is running")
}

/// Prints the progress on standard error until the rebalance ends, and then the nodes.
async fn follow(admin: &Admin, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut shown = String::new();
    loop {
        let cluster = admin.get("/node/cluster").await?;
        let rebalance = &cluster["rebalance"];
        let line = progress(rebalance);
        if line != shown {
            eprintln!("{line}");
            shown = line;
        }
        match rebalance["state"].as_str() {
            Some("running") => tokio::time::sleep(LOOK_PAUSE).await,
            state => {
                match as_json {
                    true => print::json(&cluster)?,
                    false => print::bytes(summary(&cluster).as_bytes())?,
                }
                return Ok(match state {
                    Some("done") => ExitCode::SUCCESS,
                    _ => ExitCode::FAILURE,
                });
            }
        }
    }
}

/// One line on a rebalance.
fn progress(rebalance: &Value) -> String {
    let state = rebalance["state"].as_str().unwrap_or("unknown");
    let count = |field: &str| rebalance[field].as_u64().unwrap_or(0);
    let (total, left) = (count("total"), count("left"));
    let line = format!("{state}: {} of {total} moves are done", total.saturating_sub(left));
    match rebalance["waits_for"].as_str() {
        Some(reason) => format!("{line}; waits for {reason}"),
        None => line,
    }
}

/// Copies of each node, and the moves that it took part in.
fn summary(cluster: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let row = |node: &Value| {
        let name = text(&node["name"]);
        let moves = cluster["rebalance"]["nodes"][&name]["total"].as_u64().unwrap_or(0);
        [name, text(&node["active"]), text(&node["replicas"]), moves.to_string()]
    };
    table(["NODE", "ACTIVE", "REPLICAS", "MOVES"], nodes(cluster).map(row).collect())
}

fn nodes(cluster: &Value) -> impl Iterator<Item = &Value> {
    cluster["nodes"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_names_what_is_waited_for() {
        let mut rebalance =
            json!({ "state": "running", "total": 42, "left": 40, "waits_for": null });
        assert_eq!(progress(&rebalance), "running: 2 of 42 moves are done");
        rebalance["waits_for"] = json!("node b");
        assert_eq!(progress(&rebalance), "running: 2 of 42 moves are done; waits for node b");
        let cluster = json!({
            "nodes": [{ "name": "a", "active": 3, "replicas": 4 }],
            "rebalance": { "nodes": { "a": { "total": 7, "left": 0 } } },
        });
        assert_eq!(summary(&cluster), "NODE  ACTIVE  REPLICAS  MOVES\na     3       4         7\n");
    }
}
