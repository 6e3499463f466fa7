//! A Kudu cluster for experiments: starts one and keeps it until its input ends or it is
//! interrupted.
//!
//! Prints one line: the master addresses, the scratch directory, and the process ids of all
//! servers. Tests also use it as a process that can be killed.
//!
//! `ORIBI_KUDU_HOME=$(tests/kudu/fetch) cargo run -p oribi-testkit --bin kudu_cluster -- 1 3
//! [FLAG...]` starts one master and three tablet servers.

use std::io::Read;

use anyhow::{Context, Result};
use oribi_testkit::{KuduCluster, KuduOptions, KuduServer};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut count = |what: &str| match arguments.next() {
        Some(text) => text.parse::<usize>().with_context(|| format!("{text} {what} cannot be")),
        None => Ok(1),
    };
    let (masters, tablet_servers) = (count("masters")?, count("tablet servers")?);
    let mut options = KuduOptions::new(masters, tablet_servers);
    for flag in arguments {
        options = options.flag(&flag);
    }
    let cluster = KuduCluster::start(options)?;
    let servers = (0..masters)
        .map(KuduServer::Master)
        .chain((0..tablet_servers).map(KuduServer::TabletServer));
    let pids = servers.map(|server| cluster.pid(server).to_string()).collect::<Vec<_>>();
    println!("{} {} {}", cluster.master_addresses(), cluster.directory().display(), pids.join(","));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
