//! `oribi stats`, `oribi ping` and `oribi top` against a running server.

mod ping;
mod stats;
mod top;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{PATIENCE, ServerOptions, ServerProcess, poll_until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// A server in development mode; declared before its directory, so that it ends first.
struct Fixture {
    server: ServerProcess,
    #[expect(dead_code, reason = "kept until the server has ended")]
    directory: TempDir,
}

impl Fixture {
    fn start() -> Fixture {
        let directory = tempfile::tempdir().expect("temporary directories can be made");
        let options = ServerOptions::new(ORIBI, directory.path().join("data"));
        let server = ServerProcess::start(options).expect("the server starts");
        Fixture { server, directory }
    }

    /// `oribi ARGUMENTS`, to be run against this server.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ORIBI);
        command
            .args(arguments)
            .args(["--port", &self.server.port().to_string()])
            .args(["--user", DEVELOPMENT_USER])
            .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program runs")
    }

    /// Runs it until its first line, then hands both over.
    fn run_to_first_line(
        &self,
        arguments: &[&str],
    ) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut lines = BufReader::new(child.stdout.take().expect("the output is piped"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line comes");
        assert!(!line.is_empty(), "the program ended before it printed a line");
        (child, lines)
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

/// What Ctrl-C does to a program, and its exit status afterwards.
fn interrupt(child: &mut Child) -> Option<i32> {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::INT).expect("the program is there");
    wait(child)
}

fn wait(child: &mut Child) -> Option<i32> {
    let status = poll_until(PATIENCE, || child.try_wait().expect("the program can be waited for"));
    status.expect("the program ends").code()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
