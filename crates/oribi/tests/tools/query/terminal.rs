//! The prompt of `oribi query` in a terminal, which `script` makes.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use oribi_testkit::{PATIENCE, poll_until};

use super::{Fixture, ORIBI};

const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const TAB: &str = "\t";
const UP: &str = "\x1b[A";

/// A statement that prints rows for hours.
const ENDLESS: &str = "select raw b from array_range(0, 100000) a unnest array_range(0, 100000) b;";

/// A program that runs in a terminal, whose screen a thread reads.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<Vec<u8>>>,
    /// Bytes without escape sequences that a wait has passed.
    passed: usize,
}

impl Terminal {
    fn start(command: &Command, state: &std::path::Path) -> Terminal {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| format!("'{}'", word.to_str().expect("plain words")));
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--flush", "--return", "--command"])
            .arg(format!("stty cols 100 rows 40; exec {}", words.collect::<Vec<_>>().join(" ")))
            .arg("/dev/null")
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("TERM", "xterm")
            .env("XDG_STATE_HOME", state)
            .env_remove("NO_COLOR")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = script.spawn().expect("script runs (util-linux)");
        let keys = child.stdin.take().expect("a pipe");
        let mut out = child.stdout.take().expect("a pipe");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let screen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut bytes) {
                screen.lock().expect("no panic").extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { child, keys, shown, passed: 0 }
    }

    /// Everything that was shown, with its escape sequences.
    fn raw(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("no panic")).into_owned()
    }

    fn plain(&self) -> String {
        let (raw, mut plain) = (self.raw(), String::new());
        let mut rest = raw.as_str();
        while let Some((front, after)) = rest.split_once("\x1b[") {
            plain.push_str(front);
            let end = after.find(|one: char| one.is_ascii_alphabetic()).map_or(0, |at| at + 1);
            rest = &after[end..];
        }
        plain + rest
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the program reads");
        self.keys.flush().expect("the program reads");
    }

    /// Waits until a text is shown after those of the waits before.
    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        let found = poll_until(PATIENCE, || {
            let plain = self.plain();
            plain.get(self.passed..)?.find(text).map(|at| self.passed + at + text.len())
        });
        let plain = self.plain();
        self.passed =
            found.unwrap_or_else(|| panic!("no {text:?} after {:?}", plain.get(self.passed..)));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail only when it has ended. The terminal goes with it, which ends the program.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_prompt_completes_colours_and_remembers() {
    let fixture = Fixture::filled();
    let state = fixture.directory.path().join("state");
    let mut terminal = Terminal::start(&fixture.command(&["query"]), &state);
    terminal.wait_for("keyspaces. .help lists the commands.");
    terminal.wait_for("oribi> ");
    // A keyspace, and a field of it.
    terminal.press(&format!("select raw upper(d.city) from def{TAB}"));
    terminal.wait_for("from default");
    terminal.press(&format!(" d where d.ci{TAB}"));
    terminal.wait_for("where d.city");
    terminal.press(" = 'Oslo';\r");
    terminal.wait_for("OSLO");
    terminal.wait_for("oribi> ");
    let raw = terminal.raw();
    for coloured in ["\x1b[1;34mselect\x1b[0m", "\x1b[36mupper\x1b[0m", "\x1b[32m'Oslo'\x1b[0m"] {
        assert!(raw.contains(coloured), "{coloured:?} in {raw:?}");
    }
    // The newest statement again, from the history and from its file in the next session.
    terminal.press(&format!("{UP}\r"));
    terminal.wait_for("OSLO");
    terminal.wait_for("oribi> ");
    terminal.press(CTRL_D);
    assert!(terminal.child.wait().expect("it ends").success());
    let mut terminal = Terminal::start(&fixture.command(&["query"]), &state);
    terminal.wait_for("oribi> ");
    terminal.press(&format!("{UP}\r"));
    terminal.wait_for("OSLO");
    terminal.wait_for("oribi> ");
    terminal.press(".quit\r");
    assert!(terminal.child.wait().expect("it ends").success());
}

#[test]
fn ctrl_c_ends_a_statement_of_the_prompt() {
    let fixture = Fixture::filled();
    let state = fixture.directory.path().join("state");
    let mut terminal = Terminal::start(&fixture.command(&["query", "--format", "json"]), &state);
    terminal.wait_for("oribi> ");
    terminal.press(&format!("{ENDLESS}\r"));
    terminal.wait_for("\n7\r\n");
    terminal.press(CTRL_C);
    terminal.wait_for("oribi> ");
    // A text that is not sent is dropped.
    terminal.press(&format!("select raw 'dropped{CTRL_C}"));
    terminal.wait_for("oribi> ");
    terminal.press("select raw 40 + 2;\r");
    terminal.wait_for("\r\n42\r\n");
    terminal.wait_for("oribi> ");
    terminal.press(CTRL_D);
    assert!(terminal.child.wait().expect("it ends").success());
}

#[test]
fn the_prompt_reads_a_stopped_data_directory() {
    let mut fixture = Fixture::filled();
    let data_dir = fixture.server.data_dir().to_owned();
    fixture.server.terminate().expect("it ends");
    let mut command = Command::new(ORIBI);
    command.args(["query", "--format", "csv", "--data-dir"]).arg(data_dir);
    let mut terminal = Terminal::start(&command, &fixture.directory.path().join("state"));
    terminal.wait_for("oribi> ");
    terminal.press(".keyspaces\r");
    terminal.wait_for("default.eu.orders");
    terminal.wait_for("oribi> ");
    terminal.press("select o.total, meta().id\rfrom `default`.eu.orders o order by o.total;\r");
    for line in ["total,id", "5,o1", "7,o2"] {
        terminal.wait_for(&format!("{line}\r"));
    }
    terminal.wait_for("oribi> ");
    terminal.press(CTRL_D);
    assert!(terminal.child.wait().expect("it ends").success());
}
