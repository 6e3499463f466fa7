//! `oribi doc` and the client library against a running server.

mod client;
mod documents;
mod export;
mod import;
mod resume;

use std::process::{Child, Command, Output, Stdio};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{ServerOptions, ServerProcess};
use tempfile::TempDir;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// A server in development mode; declared before its directory, so that it ends first.
struct Fixture {
    server: ServerProcess,
    directory: TempDir,
}

impl Fixture {
    fn start() -> Fixture {
        let directory = tempfile::tempdir().expect("temporary directories can be made");
        let options = ServerOptions::new(ORIBI, directory.path().join("data"));
        let server = ServerProcess::start(options).expect("the server starts");
        Fixture { server, directory }
    }

    /// Runs `oribi doc ARGUMENTS` against this server.
    fn doc(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }

    /// Starts `oribi doc ARGUMENTS` against this server; with pipes for everything.
    fn spawn_doc(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program runs")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ORIBI);
        command
            .arg("doc")
            .args(arguments)
            .args(["--port", &self.server.port().to_string()])
            .args(["--user", DEVELOPMENT_USER])
            .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
            .stdin(Stdio::null());
        command
    }

    /// Makes the collection `debian.packages`.
    fn create_collection(&self) {
        let admin = HttpClient::new(self.server.admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
        let scopes = "/pools/default/buckets/default/scopes";
        let collections = format!("{scopes}/debian/collections");
        for (path, name) in [(scopes, "debian"), (collections.as_str(), "packages")] {
            let answer = admin.post_form(path, &[("name", name)]).expect("the admin API answers");
            assert_eq!(answer.status, 200, "{path}");
        }
    }
}

impl Drop for Fixture {
    /// No test here gives the server a reason to warn, apart from running without users.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.server.assert_no_unlisted_warnings(&["DEVELOPMENT MODE"]);
        }
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
