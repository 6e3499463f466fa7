//! moto's server, which stands for Amazon S3.
//!
//! Owns the process, which ends with the value and loses its objects then. Invariant: it accepts
//! connections when [`MotoServer::start_for_test`] returns.

use std::env;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::kudu_cluster::ports;
use crate::poll::{PATIENCE, poll_until};

const REQUIRED: &str = "ORIBI_MOTO_REQUIRED";
const PROGRAM: &str = "moto_server";

/// A running server.
#[derive(Debug)]
pub struct MotoServer {
    child: Child,
    port: u16,
}

impl MotoServer {
    /// Starts the server if it is installed; returns `None` after reporting that the test is left
    /// out.
    ///
    /// # Panics
    /// When it cannot be started, or is missing although `ORIBI_MOTO_REQUIRED` is set.
    pub fn start_for_test() -> Option<MotoServer> {
        let Some(program) = program() else {
            assert!(env::var_os(REQUIRED).is_none(), "{REQUIRED} is set, but there is no moto");
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            let _ = writeln!(std::io::stderr(), "LEFT OUT: {test} needs {PROGRAM}");
            return None;
        };
        Some(MotoServer::start(program).expect("moto starts"))
    }

    fn start(program: PathBuf) -> Result<MotoServer> {
        let port = ports::free(1)?[0];
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start moto")?;
        let mut server = MotoServer { child, port };
        let listening = poll_until(PATIENCE, || match server.child.try_wait() {
            Ok(None) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(|_| true),
            _ => Some(false),
        });
        match listening {
            Some(true) => Ok(server),
            _ => bail!("moto does not listen on port {port}"),
        }
    }

    /// Port of the loopback interface on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for MotoServer {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|path| path.join(PROGRAM)).find(|path| path.is_file())
}
