//! Servers that stand for object stores: moto's for Amazon S3, Azurite for Azure Blob Storage.
//!
//! Owns the process, which ends with the value and loses its objects then. Invariant: it accepts
//! connections when [`ObjectServer::start_for_test`] returns.

use std::env;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::poll::{PATIENCE, poll_until};
use crate::reserved_port::ReservedPort;
use crate::skip::skip;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectServerKind {
    Moto,
    /// Azurite, with its only account.
    Azurite,
}

#[derive(Debug)]
pub struct ObjectServer {
    child: Child,
    port: ReservedPort,
}

impl ObjectServerKind {
    fn program(self) -> &'static str {
        match self {
            ObjectServerKind::Moto => "moto_server",
            ObjectServerKind::Azurite => "azurite-blob",
        }
    }

    /// Variable that makes a missing program an error.
    fn required(self) -> &'static str {
        match self {
            ObjectServerKind::Moto => "ORIBI_MOTO_REQUIRED",
            ObjectServerKind::Azurite => "ORIBI_AZURITE_REQUIRED",
        }
    }

    fn install_hint(self) -> &'static str {
        match self {
            ObjectServerKind::Moto => "pip install 'moto[s3]' flask flask-cors",
            ObjectServerKind::Azurite => "npm install azurite",
        }
    }

    fn command(self, program: PathBuf, port: u16) -> Command {
        let (mut command, port) = (Command::new(program), port.to_string());
        match self {
            ObjectServerKind::Moto => command.args(["-H", "127.0.0.1", "-p", &port]),
            ObjectServerKind::Azurite => command
                .args(["--blobHost", "127.0.0.1", "--blobPort", &port])
                .args(["--inMemoryPersistence", "--silent", "--skipApiVersionCheck"]),
        };
        command
    }
}

impl ObjectServer {
    /// Starts the server if it is installed; returns `None` after reporting that the test is
    /// skipped.
    ///
    /// # Panics
    /// When it cannot be started, or is missing although it is required: `ORIBI_MOTO_REQUIRED` or
    /// `ORIBI_AZURITE_REQUIRED` is set.
    pub fn start_for_test(kind: ObjectServerKind) -> Option<ObjectServer> {
        let (program, required) = (kind.program(), kind.required());
        let Some(path) = path_of(program) else {
            skip(required, program, kind.install_hint());
            return None;
        };
        Some(ObjectServer::start(kind, path).expect("the server starts"))
    }

    fn start(kind: ObjectServerKind, program: PathBuf) -> Result<ObjectServer> {
        let port = ReservedPort::new()?;
        let mut command = kind.command(program, port.number());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().with_context(|| format!("cannot start {}", kind.program()))?;
        let mut server = ObjectServer { child, port };
        let listening = poll_until(PATIENCE, || match server.child.try_wait() {
            Ok(None) => TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).ok().map(|_| true),
            _ => Some(false),
        });
        match listening {
            Some(true) => Ok(server),
            _ => bail!("{} does not listen on port {}", kind.program(), server.port()),
        }
    }

    /// Port of the loopback interface on which it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        // Both fail only when the process has ended and been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path_of(program: &str) -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|path| path.join(program)).find(|path| path.is_file())
}
