//! `oribi perf kv` against a running server, and against ones that misbehave.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod failures;
mod fake_server;
mod loads;
mod outputs;

use std::process::{Command, Output, Stdio};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{ServerOptions, ServerProcess};
use serde_json::Value;
use tempfile::TempDir;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// A server in development mode; declared before its directory, so that it ends first.
struct Fixture {
    server: ServerProcess,
    directory: TempDir,
}

impl Fixture {
    fn start() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let options = ServerOptions::new(ORIBI, directory.path().join("data"));
        Fixture { server: ServerProcess::start(options).unwrap(), directory }
    }

    /// `oribi perf kv ARGUMENTS` against this server, to be run.
    fn command(&self, arguments: &[&str]) -> Command {
        command(self.server.port(), arguments)
    }

    /// Runs it with `--json` and reads its summary; it must have succeeded.
    fn summary(&self, arguments: &[&str]) -> Value {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stderr(&output), "", "a success is silent");
        json(&output)
    }

    /// Runs it with `--json`, which must fail; its summary and what it said.
    fn failure(&self, arguments: &[&str]) -> (Value, String) {
        let output = self.command(arguments).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        (json(&output), stderr(&output))
    }

    fn create_collections(&self) {
        let admin = HttpClient::new(self.server.admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
        let scopes = "/pools/default/buckets/default/scopes";
        let collections = format!("{scopes}/load/collections");
        for (path, name) in
            [(scopes, "load"), (collections.as_str(), "first"), (collections.as_str(), "second")]
        {
            let answer = admin.post_form(path, &[("name", name)]).unwrap();
            assert_eq!(answer.status, 200, "{path}");
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server.assert_no_unlisted_warnings(&["DEVELOPMENT MODE"]);
        }
    }
}

/// `oribi perf kv ARGUMENTS` against a port of this machine.
fn command(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(ORIBI);
    command
        .args(["perf", "kv", "--port", &port.to_string()])
        .args(arguments)
        .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {:?} {}", output.stdout, stderr(output)))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A number of a phase of the summary.
fn number(summary: &Value, phase: &str, name: &str) -> u64 {
    summary[phase][name].as_u64().unwrap_or_else(|| panic!("{phase}.{name} in {summary}"))
}
