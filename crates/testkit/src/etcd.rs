//! A real etcd of one member, for tests of several nodes.
//!
//! Owns the process and its directory; both end with the value. Invariant: it answers when
//! [`EtcdServer::start_for_test`] returns. It runs without fsync, because no test crashes the
//! machine.

use std::env;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::poll::{PATIENCE, poll_until};
use crate::reserved_port::ReservedPort;
use crate::skip::skip;

const REQUIRED: &str = "ORIBI_ETCD_REQUIRED";

#[derive(Debug)]
pub struct EtcdServer {
    child: Child,
    host: Ipv4Addr,
    client_port: ReservedPort,
    _peer_port: ReservedPort,
    directory: TempDir,
}

impl EtcdServer {
    /// Starts etcd if it is installed; returns `None` after reporting that the test is skipped.
    ///
    /// # Panics
    /// When it cannot be started, or is missing although `ORIBI_ETCD_REQUIRED` is set.
    pub fn start_for_test() -> Option<EtcdServer> {
        EtcdServer::start_for_test_at(Ipv4Addr::LOCALHOST, None)
    }

    /// The same; with TLS if `tls` gives a certificate and key.
    ///
    /// # Panics
    /// As there.
    pub fn start_for_test_with(tls: Option<(&Path, &Path)>) -> Option<EtcdServer> {
        EtcdServer::start_for_test_at(Ipv4Addr::LOCALHOST, tls)
    }

    /// The same, listening at another address of this machine.
    ///
    /// # Panics
    /// As there.
    pub fn start_for_test_at(host: Ipv4Addr, tls: Option<(&Path, &Path)>) -> Option<EtcdServer> {
        let Some(program) = program() else {
            skip(REQUIRED, "etcd", "Debian package etcd-server");
            return None;
        };
        Some(EtcdServer::start(program, host, tls).expect("etcd starts"))
    }

    fn start(program: PathBuf, host: Ipv4Addr, tls: Option<(&Path, &Path)>) -> Result<EtcdServer> {
        let (client_port, peer_port) = (ReservedPort::new()?, ReservedPort::new()?);
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let log = File::create(directory.path().join("log")).context("cannot create the log")?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let client_url = format!("{scheme}://{host}:{}", client_port.number());
        let peer_url = format!("http://{host}:{}", peer_port.number());
        let mut command = Command::new(program);
        if let Some((certificate, key)) = tls {
            command.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        }
        let child = command
            .args(["--name", "test", "--unsafe-no-fsync", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(["--listen-client-urls", &client_url])
            .args(["--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url])
            .args(["--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("test={peer_url}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot share the log")?)
            .stderr(log)
            .spawn()
            .context("cannot start etcd")?;
        let mut server = EtcdServer { child, host, client_port, _peer_port: peer_port, directory };
        let listening = poll_until(PATIENCE, || match server.child.try_wait() {
            Ok(None) => TcpStream::connect((host, server.port())).ok().map(|_| true),
            _ => Some(false),
        });
        if listening != Some(true) {
            let log = std::fs::read_to_string(server.directory.path().join("log"));
            bail!("etcd does not listen:\n{}", log.unwrap_or_default());
        }
        Ok(server)
    }

    /// Port of its client interface.
    pub fn port(&self) -> u16 {
        self.client_port.number()
    }

    /// The endpoint for a node's settings.
    pub fn url(&self) -> String {
        format!("http://{}:{}", self.host, self.port())
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|path| path.join("etcd")).find(|path| path.is_file())
}
