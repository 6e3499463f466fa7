//! `oribi cluster`: the nodes that share buckets, the copies that they have, failover and
//! rebalance.

use std::process::ExitCode;

use clap::Subcommand;
use hyper::Method;
use serde_json::Value;

use super::place::AdminPlace;
use super::rebalance;
use super::table::table;
use super::{done, run};
use crate::print;
use crate::stats::clean;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Show nodes, and the copies that buckets have on them; fails when copies are missing.
    Status {
        /// Print what the server says, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Promote other copies of a node's vbuckets; the node becomes a replica when it is back.
    Failover {
        /// Name of the node, as `oribi cluster status` shows it.
        #[arg(value_name = "NODE")]
        node: String,
        /// Promote also where acknowledged writes may be lost, or begin empty.
        #[arg(long)]
        allow_data_loss: bool,
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Spread copies evenly over the nodes, and wait until that is done.
    Rebalance {
        /// Move everything away from this node, which gets no copies then until a rebalance without
        /// this option. Repeat it for several nodes.
        #[arg(long, value_name = "NODE")]
        remove: Vec<String>,
        /// Stop the rebalance that is running.
        #[arg(long, conflicts_with_all = ["remove", "json", "no_wait"])]
        stop: bool,
        /// Return at once.
        #[arg(long)]
        no_wait: bool,
        /// Print the state of the cluster at the end, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: AdminPlace,
    },
}

impl ClusterCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run(async {
            match self {
                ClusterCommand::Status { json, place } => {
                    status(&place.find().await?.get("/node/cluster").await?, json)
                }
                ClusterCommand::Rebalance { stop: true, place, .. } => {
                    rebalance::stop(&place).await
                }
                ClusterCommand::Rebalance { remove, no_wait, json, place, .. } => {
                    rebalance::begin(&place, &remove, (json, !no_wait)).await
                }
                ClusterCommand::Failover { node, allow_data_loss, place } => {
                    let form =
                        [("otpNode", node.clone()), ("allowUnsafe", allow_data_loss.to_string())];
                    let path = "/controller/failOver";
                    place.find().await?.change(Method::POST, path, &form).await?;
                    done(&format!("other copies of the vbuckets of {node} are active"))
                }
            }
        })
    }
}

/// Why vbuckets are not served, or copies cannot be used.
fn trouble_line(bucket: &str, trouble: &Value) -> String {
    let (count, first) = (&trouble["vbuckets"], &trouble["first"]);
    let reason = trouble["reason"].as_str().unwrap_or_default();
    let line = format!("{bucket}: {count} vbuckets, the first is {first}: {reason}");
    format!("\n{}\n", clean(line.as_bytes()))
}

fn status(cluster: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    let rows =
        |list: &str| cluster[list].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let (nodes, buckets, settings) = (rows("nodes"), rows("buckets"), rows("settings"));
    let text = |value: &Value| match value {
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    print::unless_gone(match as_json {
        true => print::json(cluster),
        false => {
            let leader = |name: &Value| match *name == cluster["leader"] {
                true => "*".to_owned(),
                false => String::new(),
            };
            let fields = ["name", "address", "state", "active", "replicas"];
            let row = |node: &Value| {
                let [name, address, state, active, replicas] = fields.map(|f| text(&node[f]));
                [name, address, state, active, replicas, leader(&node["name"])]
            };
            let header = ["NODE", "ADDRESS", "STATE", "ACTIVE", "REPLICAS", "LEADER"];
            let mut shown = table(header, nodes.iter().map(row).collect());
            if !buckets.is_empty() {
                let fields = ["name", "replicas", "vbuckets", "served", "missing", "behind"];
                let row = |bucket: &Value| fields.map(|field| text(&bucket[field]));
                let header = ["BUCKET", "REPLICAS", "VBUCKETS", "SERVED", "MISSING", "BEHIND"];
                shown.push('\n');
                shown.push_str(&table(header, buckets.iter().map(row).collect()));
            }
            for bucket in &buckets {
                for trouble in bucket["troubles"].as_array().into_iter().flatten() {
                    shown.push_str(&trouble_line(&text(&bucket["name"]), trouble));
                }
            }
            for trouble in &settings {
                let fields = ["bucket", "node", "reason"].map(|field| text(&trouble[field]));
                let [bucket, node, reason] = fields;
                let line = format!("{bucket}: its settings are not in force on {node}: {reason}");
                shown.push_str(&format!("\n{}\n", clean(line.as_bytes())));
            }
            print::bytes(shown.as_bytes())
        }
    })?;
    let is_whole =
        |bucket: &Value| bucket["missing"] == 0 && bucket["served"] == bucket["vbuckets"];
    match buckets.iter().all(is_whole) && settings.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}
