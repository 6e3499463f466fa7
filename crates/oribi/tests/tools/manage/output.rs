//! Where the output goes: to a reader that has gone, to a terminal without colors, and to a person
//! who is asked before something is destroyed.

use std::io::{Write, pipe};
use std::process::{Output, Stdio};

use crate::manage::{Fixture, ORIBI, ROOT, json, oribi, stderr, stdout};

/// Commands that print, and those that only print help.
const PRINTING: [&[&str]; 24] = [
    &["bucket", "list"],
    &["bucket", "list", "--json"],
    &["scope", "list"],
    &["collection", "list"],
    &["user", "list"],
    &["user", "list", "--json"],
    &["node", "list"],
    &["stats"],
    &["stats", "--raw"],
    &["stats", "--json"],
    &["stats", "--list"],
    &["stats", "--watch", "10ms", "--count", "2"],
    &["ping", "--count", "2", "--interval", "0"],
    &["top", "--once", "--interval", "100ms"],
    &["doc", "ls"],
    &["doc", "get", "k"],
    &["doc", "cat", "k"],
    &["doc", "set", "k", "1", "--json"],
    &["doc", "export", "-"],
    &["watch", "--from", "beginning", "--until-now"],
    &["query", "select * from `default`"],
    &["perf", "kv", "--items", "100", "--num-threads", "1", "--duration", "0.1"],
    &["bucket", "--help"],
    &["stats", "--help"],
];
const PRINTING_LOCALLY: [&[&str]; 5] =
    [&["config"], &["config", "--json"], &["completions", "bash"], &["man"], &["--help"]];

/// The words of a command for `root`; local commands and help take no server.
fn words<'a>(fixture: &Fixture, command: &[&'a str]) -> (Vec<&'a str>, Option<String>) {
    let is_local = PRINTING_LOCALLY.contains(&command) || command.contains(&"--help");
    let host = (!is_local).then(|| format!("127.0.0.1:{}", fixture.server.port()));
    (command.to_vec(), host)
}

#[test]
fn a_closed_pipe_fails_no_command() {
    let fixture = Fixture::start();
    stdout(&fixture.run(&["doc", "set", "k", "1"]));
    for command in PRINTING.iter().chain(&PRINTING_LOCALLY) {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let (words, host) = words(&fixture, command);
        let mut program = oribi(&words);
        if let Some(host) = &host {
            program.args(["--host", host, "--user", "root"]).env("ORIBI_PASSWORD", ROOT);
        }
        let output = program.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        let said = stderr(&output);
        assert!(output.status.success(), "{command:?}: {} {said}", output.status);
        assert!(!said.contains("panicked") && !said.contains("oribi: "), "{command:?}: {said}");
    }
}

/// Runs the program on its own terminal, in which `typed` is typed. What it prints on both outputs
/// is on standard output.
fn on_a_terminal(arguments: &[&str], variables: &[(&str, &str)], typed: &str) -> Output {
    let quoted: Vec<String> =
        arguments.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect();
    let command = format!("{ORIBI} {}", quoted.join(" "));
    let mut script = std::process::Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORIBI_") {
            script.env_remove(&name);
        }
    }
    script.env("TERM", "xterm-256color").env_remove("NO_COLOR").envs(variables.iter().copied());
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = script.spawn().expect("util-linux is installed");
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// True for text with a color or a style.
fn is_styled(text: &str) -> bool {
    text.split("\x1b[").skip(1).any(|rest| {
        let parameters: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == ';').collect();
        let is_reset = parameters.is_empty() || parameters == "0";
        rest[parameters.len()..].starts_with('m') && !is_reset
    })
}

#[test]
fn a_terminal_has_no_colors_where_they_are_not_wanted() {
    let fixture = Fixture::start();
    stdout(&fixture.run(&["doc", "set", "k", "1"]));
    let mistakes: [&[&str]; 3] = [&["bucket", "lst"], &["doc", "get"], &["serve", "--port", "x"]];
    let mut styled = 0;
    let is_for_people = |command: &&&[&str]| !command.contains(&"--json");
    let printing = PRINTING.iter().chain(&PRINTING_LOCALLY).filter(is_for_people);
    for command in printing.chain(&mistakes) {
        let (mut words, host) = words(&fixture, command);
        if let Some(host) = host.as_deref().filter(|_| !mistakes.contains(command)) {
            words.extend(["--host", host, "--user", "root"]);
        }
        let plain = on_a_terminal(&words, &[("ORIBI_PASSWORD", ROOT), ("NO_COLOR", "1")], "");
        let text = String::from_utf8_lossy(&plain.stdout);
        assert!(!text.is_empty(), "{command:?} printed nothing: {}", stderr(&plain));
        assert!(!is_styled(&text), "{command:?}: {text:?}");
        if command.contains(&"--help") {
            let usual = on_a_terminal(&words, &[], "");
            styled += usize::from(is_styled(&String::from_utf8_lossy(&usual.stdout)));
        }
    }
    assert!(styled > 0, "without NO_COLOR there are colors, or this test sees none");
}

#[test]
fn a_name_is_typed_before_something_is_destroyed() {
    let fixture = Fixture::start();
    let host = format!("127.0.0.1:{}", fixture.server.port());
    let server = ["--host", &host, "--user", "root"];
    let ask = |command: &[&str], typed: &str| {
        let words = [command, &server].concat();
        let output = on_a_terminal(&words, &[("ORIBI_PASSWORD", ROOT)], typed);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    stdout(&fixture.run(&["bucket", "create", "shop", "--quota", "100", "--flush-enabled"]));
    stdout(&fixture.run(&["scope", "create", "eu", "--bucket", "shop"]));
    stdout(&fixture.run(&["collection", "create", "eu.orders", "--bucket", "shop"]));
    stdout(&fixture.run(&["doc", "set", "k", "1", "--bucket", "shop"]));
    let buckets = || json(&fixture.run(&["bucket", "list", "--json"])).as_array().unwrap().len();
    let commands: [(&[&str], &str); 4] = [
        (&["bucket", "flush", "shop"], "shop"),
        (&["collection", "drop", "eu.orders", "--bucket", "shop"], "eu.orders"),
        (&["scope", "drop", "eu", "--bucket", "shop"], "eu"),
        (&["bucket", "drop", "shop"], "shop"),
    ];
    for (command, name) in commands {
        let (code, said) = ask(command, "yes\n");
        assert_eq!(code, Some(1), "{command:?}: {said}");
        assert!(said.contains(&format!("Type its name, {name}, to go on")), "{said}");
        assert!(said.contains("nothing was changed"), "{said}");
        assert_eq!(buckets(), 2);
        stdout(&fixture.run(&["collection", "list", "--bucket", "shop"]));
        let (code, said) = ask(command, &format!("{name}\n"));
        assert_eq!(code, Some(0), "{command:?}: {said}");
    }
    assert_eq!(buckets(), 1);
}
