//! `oribi cluster rebalance`: begins or stops a rebalance, and follows it to its end.
//!
//! Owns: how it is followed. The node that is asked shows what it saw last, which costs little; the
//! records, which cost a listing of etcd, are asked for when the node sees no such rebalance. The
//! node may be restarted or be without etcd.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hyper::Method;
use serde_json::Value;

use super::table::table;
use super::{done, place::AdminPlace};
use crate::print;

const TASKS: &str = "/pools/default/tasks";
const CLUSTER: &str = "/node/cluster";

/// How a rebalance is followed.
#[derive(Clone, Copy)]
struct Pace {
    /// Pause between two looks.
    pause: Duration,
    /// How long looks may fail.
    patience: Duration,
}

const PACE: Pace = Pace { pause: Duration::from_millis(500), patience: Duration::from_secs(60) };

/// Result of one look.
enum Look {
    /// What there is to say.
    Running(String),
    /// The state of the cluster.
    Ended(Value),
    /// Another rebalance has begun since.
    Replaced(String),
}

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
    let begun = admin.post("/controller/rebalance", &form).await?;
    if !waits {
        return done("the rebalance has begun");
    }
    let id = begun["rebalance_id"].as_str().context("the server does not say which one it is")?;
    let ask = async |path: &'static str| admin.get(path).await;
    let cluster = follow(ask, id, PACE, &mut |line| eprintln!("{line}")).await?;
    match as_json {
        true => print::json(&cluster)?,
        false => print::bytes(summary(&cluster).as_bytes())?,
    }
    match cluster["rebalance"]["state"].as_str() {
        Some("done") => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

pub(super) async fn stop(place: &AdminPlace) -> anyhow::Result<ExitCode> {
    place.find().await?.change(Method::POST, "/controller/stopRebalance", &[]).await?;
    done("no rebalance is running")
}

/// Shows the progress until the rebalance `id` ends, and returns the state of the cluster then.
async fn follow(
    ask: impl AsyncFn(&'static str) -> anyhow::Result<Value>,
    id: &str,
    pace: Pace,
    show: &mut impl FnMut(&str),
) -> anyhow::Result<Value> {
    let (mut shown, mut answered) = (String::new(), Instant::now());
    loop {
        let line = match look(&ask, id).await {
            Ok(Look::Running(line)) => {
                answered = Instant::now();
                line
            }
            Ok(Look::Ended(cluster)) => {
                show(&record_line(&cluster["rebalance"]));
                return Ok(cluster);
            }
            Ok(Look::Replaced(other)) => bail!("rebalance {other} has begun instead of this one"),
            Err(error) if answered.elapsed() < pace.patience => format!("no news: {error:#}"),
            Err(error) => return Err(error),
        };
        if line != shown {
            show(&line);
            shown = line;
        }
        tokio::time::sleep(pace.pause).await;
    }
}

async fn look(
    ask: &impl AsyncFn(&'static str) -> anyhow::Result<Value>,
    id: &str,
) -> anyhow::Result<Look> {
    let tasks = ask(TASKS).await?;
    let mut tasks = tasks.as_array().into_iter().flatten();
    if let Some(task) = tasks.find(|task| task["rebalanceId"] == id && task["status"] == "running")
    {
        let counts = (&task["movesTotal"], &task["movesLeft"]);
        return Ok(Look::Running(line("running", counts, &task["waitsFor"])));
    }
    let cluster = ask(CLUSTER).await?;
    let rebalance = &cluster["rebalance"];
    Ok(match (rebalance["id"] == id, rebalance["state"].as_str()) {
        // The node has not seen it yet.
        (true, Some("running")) => Look::Running(record_line(rebalance)),
        (true, _) => Look::Ended(cluster),
        (false, _) => Look::Replaced(rebalance["id"].as_str().unwrap_or("?").to_owned()),
    })
}

/// One line on a rebalance, by its record.
fn record_line(rebalance: &Value) -> String {
    let state = rebalance["state"].as_str().unwrap_or("unknown");
    line(state, (&rebalance["total"], &rebalance["left"]), &rebalance["waits_for"])
}

fn line(state: &str, (total, left): (&Value, &Value), waits_for: &Value) -> String {
    let (total, left) = (total.as_u64().unwrap_or(0), left.as_u64().unwrap_or(0));
    let line = format!("{state}: {} of {total} moves are done", total.saturating_sub(left));
    match waits_for.as_str() {
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
    use std::cell::RefCell;

    use serde_json::json;

    use super::*;

    #[test]
    fn progress_names_what_is_waited_for() {
        let mut rebalance =
            json!({ "state": "running", "total": 42, "left": 40, "waits_for": null });
        assert_eq!(record_line(&rebalance), "running: 2 of 42 moves are done");
        rebalance["waits_for"] = json!("node b");
        assert_eq!(record_line(&rebalance), "running: 2 of 42 moves are done; waits for node b");
        let cluster = json!({
            "nodes": [{ "name": "a", "active": 3, "replicas": 4 }],
            "rebalance": { "nodes": { "a": { "total": 7, "left": 0 } } },
        });
        assert_eq!(summary(&cluster), "NODE  ACTIVE  REPLICAS  MOVES\na     3       4         7\n");
    }

    /// Follows rebalance "i" over these answers: what was shown, which paths were asked, and how
    /// it ended.
    fn followed(
        answers: Vec<Option<Value>>,
        patience: Duration,
    ) -> (Vec<String>, Vec<&'static str>, Result<Value, String>) {
        let pace = Pace { pause: Duration::ZERO, patience };
        let (answers, asked) = (RefCell::new(answers.into_iter()), RefCell::new(Vec::new()));
        let ask = async |path: &'static str| {
            asked.borrow_mut().push(path);
            let next = answers.borrow_mut().next().expect("it asks no more after the end");
            next.context("the node is away")
        };
        let mut shown = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let end = runtime.unwrap().block_on(async {
            follow(ask, "i", pace, &mut |line| shown.push(line.to_owned())).await
        });
        (shown, asked.into_inner(), end.map_err(|error| error.to_string()))
    }

    fn task(id: &str, left: u64) -> Option<Value> {
        let status = "running";
        let counts =
            json!([{ "rebalanceId": id, "status": status, "movesTotal": 4, "movesLeft": left }]);
        Some(counts)
    }

    fn none() -> Option<Value> {
        Some(json!([{ "type": "rebalance", "status": "notRunning" }]))
    }

    fn record(id: &str, state: &str) -> Option<Value> {
        Some(json!({ "rebalance": { "id": id, "state": state, "total": 4, "left": 0 } }))
    }

    #[test]
    fn a_rebalance_is_followed_through_failures() {
        let answers = vec![
            none(),
            record("i", "running"),
            task("i", 3),
            None,
            None,
            task("i", 3),
            task("i", 1),
            none(),
            None,
            none(),
            record("i", "done"),
        ];
        let (shown, asked, end) = followed(answers, Duration::from_secs(60));
        let [begun, first, second, done] =
            ["running: 4 of", "running: 1 of", "running: 3 of", "done: 4 of"]
                .map(|line| format!("{line} 4 moves are done"));
        let away = "no news: the node is away".to_owned();
        let expected = [begun, first.clone(), away.clone(), first, second, away, done];
        assert_eq!(shown, expected);
        assert_eq!(end.unwrap()["rebalance"]["state"], "done");
        let listings = asked.iter().filter(|path| **path == CLUSTER).count();
        assert_eq!(listings, 3, "progress lists no records");
    }

    #[test]
    fn a_node_that_stays_away_ends_it() {
        let (_, asked, end) = followed(vec![task("i", 3), None], Duration::ZERO);
        assert_eq!((asked.len(), end), (2, Err("the node is away".to_owned())));
    }

    #[test]
    fn another_rebalance_is_not_taken_for_this_one() {
        for answers in [
            vec![task("other", 3), record("other", "running")],
            vec![none(), record("other", "done")],
        ] {
            let (shown, _, end) = followed(answers, Duration::ZERO);
            assert!(shown.is_empty() && end.unwrap_err().contains("rebalance other has begun"));
        }
    }
}
