//! One master or tablet server: its flags, its directory, its process.
//!
//! Owns the child process between spawn and wait. Invariants: a node keeps its port and directory
//! across restarts; at most one process of it runs; dropping it ends that process, even a paused
//! one.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};

use super::installation::Installation;
use super::launcher;
use crate::poll::{PATIENCE, poll_until};
use crate::reserved_port::ReservedPort;
use crate::signal::{self, Signal};

/// Lines of a server's log that a failure shows.
const LOG_END_LINES: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Master,
    TabletServer,
}

impl NodeKind {
    fn program(self) -> &'static str {
        match self {
            NodeKind::Master => "kudu-master",
            NodeKind::TabletServer => "kudu-tserver",
        }
    }
}

pub(super) struct Node {
    kind: NodeKind,
    host: Ipv4Addr,
    port: ReservedPort,
    directory: PathBuf,
    flags: Vec<String>,
    child: Mutex<Option<Child>>,
}

impl Node {
    /// A node that is not running yet, with its data in its own directory below `parent`.
    pub(super) fn new(
        kind: NodeKind,
        position: usize,
        (host, port): (Ipv4Addr, ReservedPort),
        parent: &Path,
        flags: Vec<String>,
    ) -> Node {
        let directory = parent.join(format!("{}-{position}", kind.program()));
        Node { kind, host, port, directory, flags, child: Mutex::new(None) }
    }

    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port.number())
    }

    /// Process id.
    ///
    /// # Panics
    /// When the server was never started.
    pub(super) fn pid(&self) -> u32 {
        self.child().as_ref().expect("the server was started").id()
    }

    pub(super) fn spawn(&self, installation: &Installation) -> Result<()> {
        fs::create_dir_all(&self.directory).context("cannot make the server's directory")?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .context("cannot open the server's log")?;
        let mut command = installation.command(self.kind.program());
        command
            .arg(format!("--fs_wal_dir={}", self.directory.join("data").display()))
            .arg(format!("--rpc_bind_addresses={}", self.address()))
            .args(&self.flags)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the server's log")?)
            .stderr(log);
        let child = launcher::spawn(command)
            .with_context(|| format!("cannot start {}", self.kind.program()))?;
        *self.child() = Some(child);
        Ok(())
    }

    /// Returns once the server accepts connections.
    pub(super) fn wait_listening(&self) -> Result<()> {
        let address = SocketAddr::from((self.host, self.port.number()));
        let listening = poll_until(PATIENCE, || {
            if !self.is_running() {
                return Some(false);
            }
            TcpStream::connect(address).is_ok().then_some(true)
        });
        match listening {
            Some(true) => Ok(()),
            Some(false) => bail!("{} ended at start:\n{}", self.address(), self.log_end()),
            None => {
                bail!("{} does not listen after {PATIENCE:?}:\n{}", self.address(), self.log_end())
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.child().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    pub(super) fn kill(&self) -> Result<()> {
        let mut child = self.child();
        let child = child.as_mut().context("the server was never started")?;
        child.kill().context("cannot kill the server")?;
        child.wait().context("cannot wait for the killed server")?;
        Ok(())
    }

    pub(super) fn restart(&self, installation: &Installation) -> Result<()> {
        if self.is_running() {
            bail!("{} still runs", self.address());
        }
        self.spawn(installation)?;
        self.wait_listening()
    }

    /// Returns when no thread of the process runs any more.
    pub(super) fn pause(&self) -> Result<()> {
        self.check_running()?;
        signal::stop(self.pid()).with_context(|| format!("cannot pause {}", self.address()))
    }

    pub(super) fn resume(&self) -> Result<()> {
        self.check_running()?;
        signal::send(self.pid(), Signal::Continue)
            .with_context(|| format!("cannot resume {}", self.address()))
    }

    pub(super) fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of the log under a heading, for messages.
    pub(super) fn log_end(&self) -> String {
        let log = self.log();
        let lines = log.lines().collect::<Vec<_>>();
        let first = lines.len().saturating_sub(LOG_END_LINES);
        let mut text = format!("--- {} on {}\n", self.kind.program(), self.address());
        for line in lines.iter().skip(first) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn check_running(&self) -> Result<()> {
        ensure!(self.is_running(), "{} does not run", self.address());
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        self.directory.join("log")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked while it held the lock left a valid child.
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = self.child().as_mut() {
            // Both fail only when the process has ended and been waited for already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
