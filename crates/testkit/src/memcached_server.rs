//! Debian's memcached, as the reference for the protocols that Oribi shares with it.
//!
//! Owns the process, which ends with the value. Invariant: it accepts connections when
//! [`MemcachedServer::start_for_test`] returns.

use std::env;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::poll::{PATIENCE, poll_until};
use crate::reserved_port::ReservedPort;
use crate::skip::skip;

const REQUIRED: &str = "ORIBI_MEMCACHED_REQUIRED";
/// Enough that nothing a test stores is evicted.
const MEMORY_MIB: &str = "1024";

#[derive(Debug)]
pub struct MemcachedServer {
    child: Child,
    port: ReservedPort,
}

impl MemcachedServer {
    /// Starts memcached if it is installed; returns `None` after reporting that the test is
    /// skipped. `arguments` come last on its command line.
    ///
    /// # Panics
    /// When it cannot be started, or is missing although `ORIBI_MEMCACHED_REQUIRED` is set.
    pub fn start_for_test(arguments: &[&str]) -> Option<MemcachedServer> {
        if program().is_none() {
            skip(REQUIRED, "memcached", "Debian package memcached");
            return None;
        }
        Some(MemcachedServer::start(arguments).expect("memcached starts"))
    }

    /// Starts memcached.
    ///
    /// # Errors
    /// When it is not installed or does not listen.
    pub fn start(arguments: &[&str]) -> Result<MemcachedServer> {
        let program = program().context("memcached is not installed")?;
        let port = ReservedPort::new()?;
        let child = Command::new(program)
            .args([
                "-l",
                "127.0.0.1",
                "-p",
                &port.number().to_string(),
                "-U",
                "0",
                "-m",
                MEMORY_MIB,
            ])
            // Root has to name a user; another user's choice is ignored.
            .args(["-u", "root"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start memcached")?;
        let mut server = MemcachedServer { child, port };
        let listening = poll_until(PATIENCE, || match server.child.try_wait() {
            Ok(None) => TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).ok().map(|_| true),
            _ => Some(false),
        });
        match listening {
            Some(true) => Ok(server),
            _ => bail!("memcached does not listen on port {}", server.port()),
        }
    }

    /// Port of the loopback interface on which it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

impl Drop for MemcachedServer {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|path| path.join("memcached")).find(|path| path.is_file())
}
