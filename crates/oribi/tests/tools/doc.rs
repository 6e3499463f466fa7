//! `oribi doc` and the client library against a running server.

mod client;
mod complete;
mod documents;
mod export;
mod formats;
mod import;
mod resume;

use std::process::{Child, Command, Output, Stdio};

oribi_testkit::fixture!();

impl Fixture {
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
        self.0.command(&[&["doc"], arguments].concat())
    }

    /// Makes the collection `debian.packages`.
    fn create_collection(&self) {
        self.create_collections("debian", &["packages"]);
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
