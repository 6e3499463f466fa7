//! `oribi perf kv` against a running server, and against ones that misbehave.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too")]

mod failures;
mod fake_server;
mod loads;
mod outputs;
mod text;

use std::process::{Command, Output, Stdio};

use oribi_testkit::raw_connection::DEVELOPMENT_PASSWORD;
use serde_json::Value;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

oribi_testkit::fixture!();

impl Fixture {
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
