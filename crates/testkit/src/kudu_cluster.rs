//! A real Kudu cluster as processes: masters and tablet servers on the loopback interface. The C++
//! command-line tool next to them is the second opinion of a test.
//!
//! Owns the server processes, their scratch directory and their ports. Invariants: no process and
//! no directory outlives this value, and neither outlives this process, however it ends (see
//! `launcher`); [`KuduCluster::start`] returns only once Kudu's own `ksck` finds nothing wrong.
//! Every method takes `&self`, because the tests of one binary share one cluster
//! ([`SharedKuduCluster`]). Nothing here knows this project's client.
//!
//! `ORIBI_KUDU_HOME` names the directory of Kudu (`tests/kudu/fetch` prints it). If it is not set,
//! tests are skipped and say so; with `ORIBI_KUDU_REQUIRED` set they fail instead.

mod installation;
mod launcher;
mod node;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::poll::{PATIENCE, poll_until};
use crate::reserved_port::ReservedPort;
use installation::Installation;
use launcher::Guardian;
use node::{Node, NodeKind};

/// Attempts to set a cluster up when a server ended at once: another process may take a port
/// between the moment it was found free and the moment the server binds it.
const START_ATTEMPTS: usize = 3;

/// Flags of every server. The clock of a test machine need not be synchronised, no data has to
/// survive the machine, and web pages would only cost another port.
const FLAGS: &[&str] = &[
    "--unlock_unsafe_flags",
    "--unlock_experimental_flags",
    "--time_source=system_unsync",
    "--never_fsync=true",
    "--webserver_enabled=false",
    "--logtostderr=true",
    "--block_cache_capacity_mb=64",
];

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct KuduOptions {
    /// Address of this machine at which every server listens; the loopback interface by default.
    pub host: Ipv4Addr,
    /// Number of masters, odd; 1 by default.
    pub masters: usize,
    /// Number of tablet servers; a table cannot have more replicas. 1 by default.
    pub tablet_servers: usize,
    /// Further flags of every master, such as `--rpc_encryption=required`.
    pub master_flags: Vec<String>,
    /// Further flags of every tablet server.
    pub tablet_server_flags: Vec<String>,
}

impl Default for KuduOptions {
    fn default() -> KuduOptions {
        KuduOptions {
            host: Ipv4Addr::LOCALHOST,
            masters: 1,
            tablet_servers: 1,
            master_flags: Vec::new(),
            tablet_server_flags: Vec::new(),
        }
    }
}

impl KuduOptions {
    /// `masters` masters and `tablet_servers` tablet servers without further flags.
    pub fn new(masters: usize, tablet_servers: usize) -> KuduOptions {
        KuduOptions { masters, tablet_servers, ..KuduOptions::default() }
    }

    /// Listens at this address.
    pub fn at(self, host: Ipv4Addr) -> KuduOptions {
        KuduOptions { host, ..self }
    }

    /// Adds a flag to the masters and to the tablet servers.
    pub fn flag(mut self, flag: &str) -> KuduOptions {
        self.master_flags.push(flag.to_owned());
        self.tablet_server_flags.push(flag.to_owned());
        self
    }

    /// Adds a flag to the masters only.
    pub fn master_flag(mut self, flag: &str) -> KuduOptions {
        self.master_flags.push(flag.to_owned());
        self
    }

    /// Adds a flag to the tablet servers only.
    pub fn tablet_server_flag(mut self, flag: &str) -> KuduOptions {
        self.tablet_server_flags.push(flag.to_owned());
        self
    }
}

/// One server of a cluster, by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KuduServer {
    /// The master at this position, from 0.
    Master(usize),
    /// The tablet server at this position, from 0.
    TabletServer(usize),
}

/// Output of the C++ tool.
#[derive(Clone, Debug)]
pub struct ToolOutput {
    /// True when the tool ended with 0.
    pub success: bool,
    pub stdout: String,
    /// Its standard error, where it also logs.
    pub stderr: String,
}

/// True when a Kudu to test against is installed; otherwise it reports on standard error that the
/// test is skipped.
///
/// # Panics
/// When there is none although `ORIBI_KUDU_REQUIRED` is set.
pub fn kudu_is_available() -> bool {
    Installation::for_test().is_some()
}

/// A running cluster. Dropping it ends every process and removes the data.
pub struct KuduCluster {
    // Dropped in this order: the servers end before their directory is removed. The guardian, which
    // does both when this process dies first, is the last.
    masters: Vec<Node>,
    tablet_servers: Vec<Node>,
    directory: TempDir,
    _guardian: Guardian,
    installation: Installation,
}

impl KuduCluster {
    /// Starts a cluster and waits until it is healthy.
    ///
    /// # Errors
    /// When Kudu is not installed, when a server ends, or when the cluster is not healthy in time;
    /// the error carries the end of the servers' logs.
    pub fn start(options: KuduOptions) -> Result<KuduCluster> {
        let installation = Installation::from_environment()?;
        ensure!(options.masters > 0, "a cluster has at least one master");
        let mut failure = None;
        for _ in 0..START_ATTEMPTS {
            match KuduCluster::start_once(&installation, &options) {
                Ok(cluster) => return Ok(cluster),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.expect("at least one attempt was made"))
    }

    /// Starts a cluster for a test; returns `None`, and reports it on standard error, if Kudu is
    /// not installed.
    ///
    /// # Panics
    /// When the cluster does not start, or when Kudu is missing although `ORIBI_KUDU_REQUIRED` is
    /// set.
    pub fn start_or_skip(options: KuduOptions) -> Option<KuduCluster> {
        kudu_is_available().then(|| KuduCluster::start(options).expect("the Kudu cluster starts"))
    }

    /// Addresses of all masters as `host:port,host:port`, the form that the tool takes.
    pub fn master_addresses(&self) -> String {
        self.masters.iter().map(Node::address).collect::<Vec<_>>().join(",")
    }

    /// Address of one server as `host:port`. It stays the same across restarts.
    pub fn address(&self, server: KuduServer) -> String {
        self.node(server).address()
    }

    /// Process id of a server.
    pub fn pid(&self, server: KuduServer) -> u32 {
        self.node(server).pid()
    }

    /// The cluster's scratch directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Ends a server at once, without giving it a chance to write anything (SIGKILL).
    pub fn kill(&self, server: KuduServer) -> Result<()> {
        self.node(server).kill()
    }

    /// Starts a killed server again with its data and its address, and returns once it listens.
    pub fn restart(&self, server: KuduServer) -> Result<()> {
        self.node(server).restart(&self.installation)
    }

    /// Suspends a server without ending it (SIGSTOP): its connections stay open and silent.
    pub fn pause(&self, server: KuduServer) -> Result<()> {
        self.node(server).pause()
    }

    /// Resumes a paused server (SIGCONT).
    pub fn resume(&self, server: KuduServer) -> Result<()> {
        self.node(server).resume()
    }

    /// The log of a server over all its runs.
    pub fn log(&self, server: KuduServer) -> String {
        self.node(server).log()
    }

    /// Runs the C++ `kudu` tool with `arguments` to its end.
    ///
    /// # Errors
    /// Only when the tool cannot be run; a failure that it reports is part of the output.
    pub fn tool(&self, arguments: &[&str]) -> Result<ToolOutput> {
        let output = self
            .tool_command(arguments)
            .output()
            .with_context(|| format!("cannot run kudu {}", arguments.join(" ")))?;
        Ok(ToolOutput {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs the C++ `kudu` tool, which has to succeed, and returns its standard output.
    pub fn tool_stdout(&self, arguments: &[&str]) -> Result<String> {
        let output = self.tool(arguments)?;
        if !output.success {
            bail!("kudu {} failed:\n{}{}", arguments.join(" "), output.stdout, output.stderr);
        }
        Ok(output.stdout)
    }

    /// The tool with `arguments`, ready to start without input; for tests that need it as a
    /// process.
    pub fn tool_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.installation.command("kudu");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Waits until `ksck` finds every server and every tablet healthy.
    pub fn wait_healthy(&self) -> Result<()> {
        let masters = self.master_addresses();
        let mut last = String::new();
        let healthy = poll_until(PATIENCE, || {
            if let Some(node) = self.nodes().find(|node| !node.is_running()) {
                return Some(Err(node.address()));
            }
            match self.ksck(&masters) {
                Ok(()) => Some(Ok(())),
                Err(error) => {
                    last = format!("{error:#}");
                    None
                }
            }
        });
        match healthy {
            Some(Ok(())) => Ok(()),
            Some(Err(address)) => bail!("{address} is not running:\n{}", self.log_ends()),
            None => bail!("not healthy after {PATIENCE:?}:\n{last}\n{}", self.log_ends()),
        }
    }

    /// One run of `ksck`. It accepts a cluster without tablet servers, so this counts them, too.
    fn ksck(&self, masters: &str) -> Result<()> {
        let report =
            self.tool_stdout(&["cluster", "ksck", masters, "-ksck_format=json_compact"])?;
        let report = serde_json::from_str::<serde_json::Value>(&report)
            .with_context(|| format!("ksck printed {report}"))?;
        let known = report.get("tserver_summaries").and_then(|summaries| summaries.as_array());
        let known = known.map_or(0, Vec::len);
        let all = self.tablet_servers.len();
        ensure!(known == all, "the masters know {known} of {all} tablet servers");
        Ok(())
    }

    fn start_once(installation: &Installation, options: &KuduOptions) -> Result<KuduCluster> {
        let directory = tempfile::tempdir().context("cannot make a scratch directory")?;
        let guardian = Guardian::of(directory.path())?;
        let mut ports = ReservedPort::several(options.masters + options.tablet_servers)?;
        let tablet_server_ports = ports.split_off(options.masters);
        let master_ports = ports;
        let host = options.host;
        let addresses = master_ports.iter().map(|port| format!("{host}:{}", port.number()));
        let addresses = addresses.collect::<Vec<_>>().join(",");
        let mut cluster = KuduCluster {
            masters: Vec::new(),
            tablet_servers: Vec::new(),
            directory,
            _guardian: guardian,
            installation: installation.clone(),
        };
        let base = FLAGS.iter().map(|flag| (*flag).to_owned());
        for (position, port) in master_ports.into_iter().enumerate() {
            let mut flags = base.clone().collect::<Vec<_>>();
            // A single master must not get this flag, because it asks for a consensus of masters.
            flags.extend((options.masters > 1).then(|| format!("--master_addresses={addresses}")));
            flags.extend_from_slice(&options.master_flags);
            let (path, address) = (cluster.directory.path(), (host, port));
            let node = Node::new(NodeKind::Master, position, address, path, flags);
            node.spawn(installation)?;
            cluster.masters.push(node);
        }
        // A tablet server that finds no master waits a second before it tries again.
        for master in &cluster.masters {
            master.wait_listening()?;
        }
        for (position, port) in tablet_server_ports.into_iter().enumerate() {
            let mut flags = base.clone().collect::<Vec<_>>();
            flags.push(format!("--tserver_master_addrs={addresses}"));
            flags.extend_from_slice(&options.tablet_server_flags);
            let path = cluster.directory.path();
            let node = Node::new(NodeKind::TabletServer, position, (host, port), path, flags);
            node.spawn(installation)?;
            cluster.tablet_servers.push(node);
        }
        for tablet_server in &cluster.tablet_servers {
            tablet_server.wait_listening()?;
        }
        cluster.wait_healthy()?;
        Ok(cluster)
    }

    fn node(&self, server: KuduServer) -> &Node {
        let (nodes, position) = match server {
            KuduServer::Master(position) => (&self.masters, position),
            KuduServer::TabletServer(position) => (&self.tablet_servers, position),
        };
        nodes.get(position).unwrap_or_else(|| panic!("the cluster has no {server:?}"))
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.masters.iter().chain(&self.tablet_servers)
    }

    fn log_ends(&self) -> String {
        self.nodes().map(Node::log_end).collect()
    }
}

impl Drop for KuduCluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log_ends());
        }
    }
}

/// A cluster that the tests of one binary share. The first test that asks starts it, and it ends
/// with the process. Every test uses its own tables.
///
/// ```no_run
/// use oribi_testkit::SharedKuduCluster;
/// static CLUSTER: SharedKuduCluster = SharedKuduCluster::new(1, 1);
/// let Some(cluster) = CLUSTER.get() else { return };
/// println!("{}", cluster.master_addresses());
/// ```
pub struct SharedKuduCluster {
    masters: usize,
    tablet_servers: usize,
    cell: OnceLock<Option<KuduCluster>>,
}

impl SharedKuduCluster {
    /// A cluster of this many servers, not started yet.
    pub const fn new(masters: usize, tablet_servers: usize) -> SharedKuduCluster {
        SharedKuduCluster { masters, tablet_servers, cell: OnceLock::new() }
    }

    /// The running cluster; `None`, reported on standard error, if Kudu is not installed.
    ///
    /// # Panics
    /// As [`KuduCluster::start_or_skip`].
    pub fn get(&self) -> Option<&KuduCluster> {
        // Each test reports that it is skipped, not only the first.
        if !kudu_is_available() {
            return None;
        }
        let options = || KuduOptions::new(self.masters, self.tablet_servers);
        self.cell.get_or_init(|| KuduCluster::start_or_skip(options())).as_ref()
    }
}
