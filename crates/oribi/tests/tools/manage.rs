//! The commands that administer a running server, as an administrator's script runs them.

// What sets a test up and fails, fails its test, which is all that `unwrap` does.
#![allow(clippy::unwrap_used)]

mod buckets;
mod failures;
mod first_mistakes;
mod output;
mod users;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use oribi_testkit::{PATIENCE, ServerOptions, ServerProcess, poll_until};
use oribi_tls::testing::{Authority, Owner};
use tempfile::TempDir;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// Passwords of the users `root`, an administrator, and `reader`, who may read bucket `default`.
const ROOT: &str = "root secret";
const READER: &str = "reader secret";

/// A server with TLS and users. It is declared first, so that it ends before its directory goes.
struct Fixture {
    server: ServerProcess,
    scratch: TempDir,
}

impl Fixture {
    fn start() -> Fixture {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let authority = Authority::new("test");
        authority.write(&path("ca.pem"));
        authority
            .issue(&Owner::server("localhost"))
            .write(&path("server.pem"), &path("server.key"));
        let data_dir = path("data");
        for (name, password, role) in
            [("root", ROOT, "admin"), ("reader", READER, "read-only:default")]
        {
            let mut add = oribi(&["user", "add", name, "--role", role, "--data-dir"]);
            let added = add.arg(&data_dir).env("ORIBI_NEW_PASSWORD", password).output().unwrap();
            assert!(added.status.success(), "{}", stderr(&added));
        }
        let options = ServerOptions::new(ORIBI, data_dir)
            .setting("tls-certificate", path("server.pem").display())
            .setting("tls-key", path("server.key").display())
            .setting("tls-port", 0)
            .setting("tls-admin-port", 0);
        Fixture { server: ServerProcess::start(options).unwrap(), scratch }
    }

    /// Runs a command as `root`.
    fn run(&self, arguments: &[&str]) -> Output {
        self.run_as("root", ROOT, arguments)
    }

    fn run_as(&self, user: &str, password: &str, arguments: &[&str]) -> Output {
        let host = format!("127.0.0.1:{}", self.server.port());
        let mut command = oribi(&[arguments, &["--host", &host, "--user", user]].concat());
        command.env("ORIBI_PASSWORD", password).output().unwrap()
    }

    /// The options for TLS, without a password.
    fn with_tls(&self) -> Vec<String> {
        let port = poll_until(PATIENCE, || {
            let log = self.server.log();
            let (_, rest) = log.split_once("listening with TLS on ")?;
            let address: SocketAddr = rest.split_once(' ')?.0.parse().ok()?;
            Some(address.port())
        });
        let host = format!("couchbases://localhost:{}", port.expect("it says so"));
        let ca = self.scratch.path().join("ca.pem");
        ["--host", &host, "--tls-ca", ca.to_str().unwrap(), "--user", "root"]
            .map(str::to_owned)
            .to_vec()
    }
}

/// The program, without what the environment says about servers.
fn oribi(arguments: &[&str]) -> Command {
    let mut command = Command::new(ORIBI);
    command.args(arguments).stdin(Stdio::null()).current_dir(Path::new("/"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORIBI_") {
            command.env_remove(&name);
        }
    }
    command
}

#[track_caller]
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(output)).expect("it is JSON")
}

/// The one line that a refusal is.
#[track_caller]
fn refusal(output: &Output) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "an error is one line: {text}");
    text
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
