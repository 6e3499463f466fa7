//! The server as a process: started on a directory, killed, restarted in the same place.
//!
//! Owns the child process and a scratch directory for its ready file and its output. Invariants:
//! the child never outlives this value (dropping kills it), and [`ServerProcess::start`] returns
//! only once the server has reported that it serves. The data directory belongs to the test, so it
//! survives the process whose crash is under test.

mod log_check;

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::network::Host;
use crate::poll::{PATIENCE, poll_until};
use crate::reserved_port::ReservedPort;
use crate::signal::{self, Signal};

/// Options of a server process.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    binary: PathBuf,
    data_dir: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    ports: (u16, u16),
    /// Those ports while a process has them, so that it starts again on the same ones.
    _reserved: Option<Arc<[ReservedPort; 2]>>,
    /// Prefix of the command line that runs the rest elsewhere.
    prefix: Vec<String>,
    host: Ipv4Addr,
}

impl ServerOptions {
    /// `binary serve` on `data_dir`, on any free ports of the loopback interface.
    pub fn new(binary: impl Into<PathBuf>, data_dir: impl Into<PathBuf>) -> ServerOptions {
        let data_dir = data_dir.into();
        ServerOptions {
            binary: binary.into(),
            // The server runs in its own directory, so its paths must not depend on ours.
            data_dir: std::path::absolute(&data_dir).unwrap_or(data_dir),
            arguments: Vec::new(),
            environment: Vec::new(),
            ports: (0, 0),
            _reserved: None,
            prefix: Vec::new(),
            host: Ipv4Addr::LOCALHOST,
        }
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub fn program(&self) -> &Path {
        &self.binary
    }

    /// Listens on these ports (binary protocol, admin HTTP) in [`ServerOptions::run_to_exit`]; 0 is
    /// any free one.
    pub fn ports(mut self, port: u16, admin_port: u16) -> ServerOptions {
        self.ports = (port, admin_port);
        self
    }

    /// Runs on a host of the test's network and listens at its address.
    pub fn on_host(self, host: &Host) -> ServerOptions {
        let options = self.setting("listen", host.address());
        ServerOptions { prefix: host.prefix(), host: host.address(), ..options }
    }

    /// Adds one command-line argument.
    pub fn argument(mut self, argument: impl Into<String>) -> ServerOptions {
        self.arguments.push(argument.into());
        self
    }

    pub fn setting(self, name: &str, value: impl ToString) -> ServerOptions {
        self.argument(format!("--{name}")).argument(value.to_string())
    }

    /// Sets an environment variable of the server.
    pub fn environment(mut self, name: &str, value: &str) -> ServerOptions {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Turns the ports for queries off that a test does not name: their defaults are the same for
    /// every server of the machine.
    fn query_arguments(&self) -> Vec<&'static str> {
        let flags = ["--query-port", "--tls-query-port"];
        let is_named = |flag: &str| self.arguments.iter().any(|argument| argument == flag);
        flags.into_iter().filter(|flag| !is_named(flag)).flat_map(|flag| [flag, "0"]).collect()
    }

    fn reserve_ports(self) -> Result<ServerOptions> {
        let reserved = [ReservedPort::new()?, ReservedPort::new()?];
        let options = self.ports(reserved[0].number(), reserved[1].number());
        Ok(ServerOptions { _reserved: Some(Arc::new(reserved)), ..options })
    }

    /// Runs the server until it ends by itself, for starts that have to be refused.
    ///
    /// Returns the exit status and all output. A server that serves instead is killed and reported
    /// as an error.
    pub fn run_to_exit(&self) -> Result<(ExitStatus, String)> {
        let mut process = ServerProcess::spawn(self)?;
        let outcome = poll_until(PATIENCE, || match process.child.try_wait() {
            Ok(Some(status)) => Some(Ok(status)),
            Ok(None) if process.ready_path().exists() => Some(Err("serves instead of ending")),
            Ok(None) => None,
            Err(_) => Some(Err("cannot be waited for")),
        });
        match outcome {
            Some(Ok(status)) => Ok((status, process.output())),
            Some(Err(reason)) => bail!("the server {reason}:\n{}", process.output()),
            None => bail!("the server neither serves nor ends:\n{}", process.output()),
        }
    }
}

/// A running server. Dropping it kills the process.
pub struct ServerProcess {
    options: ServerOptions,
    child: Child,
    scratch: TempDir,
}

impl ServerProcess {
    /// Starts a server and waits until it serves.
    pub fn start(options: ServerOptions) -> Result<ServerProcess> {
        let mut process = ServerProcess::spawn(&options.reserve_ports()?)?;
        process.wait_ready()?;
        Ok(process)
    }

    /// Address at which the server is reached: the loopback interface, if it has no host.
    pub fn host(&self) -> Ipv4Addr {
        self.options.host
    }

    /// Port of the binary protocol.
    pub fn port(&self) -> u16 {
        self.options.ports.0
    }

    /// Port of the admin HTTP interface.
    pub fn admin_port(&self) -> u16 {
        self.options.ports.1
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Directory that the server stores into.
    pub fn data_dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// Ends the process at once, without giving it a chance to write anything (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the killed server")?;
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits for it.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.end_by(Signal::Terminate)
    }

    /// Asks the process to end as Ctrl-C does (SIGINT) and waits for it.
    pub fn interrupt(&mut self) -> Result<ExitStatus> {
        self.end_by(Signal::Interrupt)
    }

    /// Asks the process to end (SIGTERM) and does not wait for it.
    pub fn ask_to_end(&self) -> Result<()> {
        signal::send(self.child.id(), Signal::Terminate).context("cannot signal the server")
    }

    /// Makes the process read its configuration again (SIGHUP), and does not wait for it.
    pub fn ask_to_reload(&self) -> Result<()> {
        signal::send(self.child.id(), Signal::HangUp).context("cannot signal the server")
    }

    /// Waits until the process has ended by itself.
    pub fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let child = &mut self.child;
        match poll_until(PATIENCE, || child.try_wait().transpose()) {
            Some(status) => status.context("cannot wait for the server"),
            None => bail!("the server has not ended after {PATIENCE:?}:\n{}", self.output()),
        }
    }

    /// Keeps the process from running until it is continued (SIGSTOP). No thread of it runs when
    /// this returns.
    pub fn pause(&self) -> Result<()> {
        signal::stop(self.child.id()).context("cannot pause the server")
    }

    /// Lets a paused process run again (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        signal::send(self.child.id(), Signal::Continue).context("cannot continue the server")
    }

    /// Starts an ended server again, on the same directory and the same ports.
    pub fn restart(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            bail!("the server still runs");
        }
        let mut next = ServerProcess::spawn(&self.options)?;
        next.wait_ready()?;
        *self = next;
        Ok(())
    }

    /// Starts an ended server again and kills it after `life`, ready or not.
    pub fn restart_and_kill(&mut self, life: Duration) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            bail!("the server still runs");
        }
        let mut next = ServerProcess::spawn(&self.options)?;
        std::thread::sleep(life);
        if let Some(status) = next.child.try_wait()? {
            bail!("the server ended by itself ({status}):\n{}", next.output());
        }
        next.kill()
    }

    /// True while the process has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Resident memory of the process in bytes, as the kernel counts it now.
    pub fn resident_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.with_context(|| format!("{path} has no VmRSS line"))? * 1024)
    }

    /// Standard error of this run so far.
    pub fn log(&self) -> String {
        read_lossy(&self.scratch.path().join("stderr"))
    }

    /// Standard output and standard error of this run, for messages.
    pub fn output(&self) -> String {
        format!("{}{}", read_lossy(&self.scratch.path().join("stdout")), self.log())
    }

    /// Panics when this run logged a warning or an error that contains none of the `allowed` texts,
    /// or when it panicked.
    #[track_caller]
    pub fn assert_no_unlisted_warnings(&self, allowed: &[&str]) {
        let unlisted = self.unlisted_warnings(allowed);
        assert!(
            unlisted.is_empty(),
            "unlisted warnings in the server's log:\n{}",
            unlisted.join("\n")
        );
    }

    /// Lines of this run's log at level WARN or ERROR, and panics, that contain none of the
    /// `allowed` texts.
    pub fn unlisted_warnings(&self, allowed: &[&str]) -> Vec<String> {
        log_check::unlisted(&self.log(), allowed).into_iter().map(str::to_owned).collect()
    }

    fn spawn(options: &ServerOptions) -> Result<ServerProcess> {
        let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
        let output = |name: &str| {
            File::create(scratch.path().join(name)).with_context(|| format!("cannot create {name}"))
        };
        let (port, admin_port) = options.ports;
        let mut command = match &options.prefix[..] {
            [] => Command::new(&options.binary),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).arg(&options.binary);
                command
            }
        };
        command
            .arg("serve")
            .arg("--data-dir")
            .arg(&options.data_dir)
            .args(["--port", &port.to_string(), "--admin-port", &admin_port.to_string()])
            .arg("--ready-file")
            .arg(scratch.path().join("ready"))
            .args(options.query_arguments())
            .args(&options.arguments)
            // The server must not pick up a configuration file in the test's own directory.
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(output("stdout")?)
            .stderr(output("stderr")?);
        // Settings of the person who runs the tests must not leak into the server under test.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ORIBI_") {
                command.env_remove(&name);
            }
        }
        command.env("NO_COLOR", "1");
        command.envs(options.environment.iter().cloned());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", options.binary.display()))?;
        Ok(ServerProcess { options: options.clone(), child, scratch })
    }

    fn ready_path(&self) -> PathBuf {
        self.scratch.path().join("ready")
    }

    fn wait_ready(&mut self) -> Result<()> {
        let path = self.ready_path();
        let child = &mut self.child;
        let ready = poll_until(PATIENCE, || {
            // The file is complete once it parses; a server that ended will never write it.
            let text = fs::read_to_string(&path).ok();
            let parsed =
                text.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
            match (parsed, child.try_wait()) {
                (Some(ready), Ok(None)) => Some(Ok(ready)),
                (_, Ok(Some(status))) => Some(Err(status)),
                _ => None,
            }
        });
        let ready = match ready {
            Some(Ok(ready)) => ready,
            Some(Err(status)) => bail!("the server ended ({status}):\n{}", self.output()),
            None => bail!("the server is not ready after {PATIENCE:?}:\n{}", self.output()),
        };
        let port = |name: &str| {
            let number = ready.get(name).and_then(serde_json::Value::as_u64);
            number
                .and_then(|number| u16::try_from(number).ok())
                .with_context(|| format!("the ready file has no {name}: {ready}"))
        };
        let ports = (port("port")?, port("admin_port")?);
        ensure!(ports == self.options.ports, "listens on {ports:?} instead: {ready}");
        Ok(())
    }

    fn end_by(&mut self, signal: Signal) -> Result<ExitStatus> {
        signal::send(self.child.id(), signal).context("cannot signal the server")?;
        self.wait_for_end()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- output of the server under test\n{}---", self.output());
        }
    }
}

fn read_lossy(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
