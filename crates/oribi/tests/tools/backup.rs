//! `oribi backup` against running servers.

mod complete;
mod copy;
mod damage;
mod filled;
mod incremental;
mod indexes;
mod interrupted;
mod kills;
mod load;
mod objects;
mod random;
mod reader;
mod snapshot;
mod storages;
mod table;
mod users;

use std::path::PathBuf;
use std::process::{Command, Output};

use oribi_client::{Client, ConnectOptions};
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use serde_json::Value;

oribi_testkit::fixture!();

impl Fixture {
    /// `oribi backup ARGUMENTS` against this server.
    fn backup_command(&self, arguments: &[&str]) -> Command {
        let (verb, rest) = arguments.split_first().expect("a verb");
        let mut command = match *verb {
            "create" | "restore" => self.command(&[&["backup"], arguments].concat()),
            _ => Command::new(env!("CARGO_BIN_EXE_oribi")),
        };
        if !matches!(*verb, "create" | "restore") {
            command.arg("backup").arg(verb).args(rest);
        }
        command
    }

    /// Runs it; its output must be JSON.
    fn backup(&self, arguments: &[&str]) -> Value {
        let output = self.backup_output(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("the output is JSON")
    }

    fn backup_output(&self, arguments: &[&str]) -> Output {
        self.backup_command(arguments).output().expect("the program runs")
    }

    /// Runs it; it must fail. Returns what it says.
    fn backup_fails(&self, arguments: &[&str]) -> String {
        let output = self.backup_output(arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
        text(&output.stderr) + &text(&output.stdout)
    }

    async fn client(&self) -> Client {
        self.client_of("default").await
    }

    async fn client_of(&self, bucket: &str) -> Client {
        let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, bucket);
        Client::connect(options.port(self.server.port())).await.expect("the server is there")
    }

    fn admin(&self) -> HttpClient {
        HttpClient::new(self.server.admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)
    }

    fn post(&self, path: &str, form: &[(&str, &str)]) {
        let answer = self.admin().post_form(path, form).expect("the admin API answers");
        assert!(answer.status < 300, "{path}: {} {}", answer.status, answer.text());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where a test has its archive.
    fn archive(&self) -> String {
        self.path("archive").to_str().expect("temporary paths are text").to_owned()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Findings of an archive's `verify`.
fn problems(fixture: &Fixture, archive: &str) -> Vec<String> {
    let output = fixture.backup_output(&["verify", archive, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("the output is JSON");
    let problems = report["problems"].as_array().expect("a list");
    assert_eq!(output.status.success(), problems.is_empty());
    problems.iter().map(|problem| problem.as_str().expect("text").to_owned()).collect()
}
