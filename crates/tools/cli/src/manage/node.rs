//! `oribi node`: the nodes of a server, their health, and what can be asked of one.

use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use hyper::Method;
use serde_json::Value;

use super::place::AdminPlace;
use super::table::table;
use super::{done, run};
use crate::print;

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum NodeCommand {
    /// List the nodes that the server knows, and how they are.
    #[command(visible_alias = "ls")]
    List {
        /// Print what the server says about them, as JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Make new connections use the present content of the certificate and key files.
    ReloadCertificate {
        #[command(flatten)]
        place: AdminPlace,
    },
    /// Change a setting of the server.
    Change {
        /// Name of the cluster, which clients show.
        #[arg(long, value_name = "NAME")]
        cluster_name: String,
        #[command(flatten)]
        place: AdminPlace,
    },
}

impl NodeCommand {
    /// Runs the subcommand to its end.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run(async {
            match self {
                NodeCommand::List { json, place } => {
                    list(&place.find().await?.get("/pools/default").await?, json)
                }
                NodeCommand::ReloadCertificate { place } => {
                    let path = "/node/controller/reloadCertificate";
                    place.find().await?.change(Method::POST, path, &[]).await?;
                    done("reloaded the certificate")
                }
                NodeCommand::Change { cluster_name, place } => {
                    let form = [("clusterName", cluster_name.clone())];
                    place.find().await?.change(Method::POST, "/pools/default", &form).await?;
                    done(&format!("the cluster is named {cluster_name:?}"))
                }
            }
        })
    }
}

/// Fails when a node is not healthy, after it has printed them all.
fn list(pool: &Value, as_json: bool) -> anyhow::Result<ExitCode> {
    let nodes = pool["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
    print::unless_gone(match as_json {
        true => print::json(&nodes),
        false => {
            let header = ["HOST", "STATUS", "VERSION", "UPTIME", "KV-PORT", "THIS"];
            print::bytes(table(header, nodes.iter().map(row).collect()).as_bytes())
        }
    })?;
    match nodes.iter().all(|node| node["status"] == "healthy") {
        true => Ok(ExitCode::SUCCESS),
        false => Ok(ExitCode::FAILURE),
    }
}

fn row(node: &Value) -> [String; 6] {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let uptime = node["uptime"].as_str().and_then(|seconds| seconds.parse().ok());
    let uptime = uptime.map(|seconds| indicatif::HumanDuration(Duration::from_secs(seconds)));
    [
        text(&node["hostname"]),
        text(&node["status"]),
        text(&node["version"]),
        uptime.map_or("-".to_owned(), |uptime| uptime.to_string()),
        node["ports"]["direct"].to_string(),
        if node["thisNode"] == true { "*".to_owned() } else { String::new() },
    ]
}
