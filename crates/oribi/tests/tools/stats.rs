//! `oribi stats`, `oribi ping` and `oribi top` against a running server.

mod figures;
mod ping;
mod top;

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};

use oribi_testkit::{PATIENCE, poll_until};
use rustix::process::{Pid, Signal, kill_process};

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

oribi_testkit::fixture!();

impl Fixture {
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
        self.create_collections("debian", &["packages"]);
    }
}

/// Sends Ctrl-C to a program; returns its exit status.
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
