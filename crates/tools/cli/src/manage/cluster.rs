//! `oribi cluster`: the nodes that share buckets, the copies that they have, and failover.

use std::process::ExitCode;

use clap::Subcommand;
use hyper::Method;
use serde_json::Value;

use super::place::AdminPlace;
use super::table::table;
use super::{done, run};
use crate::print;

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
}

impl ClusterCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run(async {
            match self {
                ClusterCommand::Status { json, place } => {
                    status(&place.find().await?.get("/node/cluster").await?, json)
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

fn status(cluster: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    let rows =
        |list: &str| cluster[list].as_array().map(Vec::as_slice).unwrap_or_default().to_vec();
    let (nodes, buckets) = (rows("nodes"), rows("buckets"));
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
            print::bytes(shown.as_bytes())
        }
    })?;
    let is_whole =
        |bucket: &Value| bucket["missing"] == 0 && bucket["served"] == bucket["vbuckets"];
    match buckets.iter().all(is_whole) {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}
