//! Servers that are not there, users without the right, TLS, and where a command looks for a
//! server.

use std::net::TcpListener;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::manage::{Fixture, READER, ROOT, oribi, refusal, stdout};

/// One use of each command, with what it needs to have an effect.
const COMMANDS: [&[&str]; 13] = [
    &["bucket", "list"],
    &["bucket", "create", "b", "--memory-quota-mib", "100"],
    &["bucket", "change", "default", "--memory-quota-mib", "200"],
    &["bucket", "compact", "default"],
    &["scope", "list"],
    &["scope", "create", "s"],
    &["collection", "list"],
    &["collection", "create", "s.c"],
    &["collection", "drop", "s.c", "--yes"],
    &["scope", "drop", "s", "--yes"],
    &["user", "list"],
    &["node", "list"],
    &["bucket", "drop", "b", "--yes"],
];

/// Rights of a user with read access to one bucket.
const READS: [&str; 4] = ["bucket list", "scope list", "collection list", "node list"];

#[test]
fn every_command_works_over_tls() {
    let fixture = Fixture::start();
    let tls = fixture.with_tls();
    let tls: Vec<&str> = tls.iter().map(String::as_str).collect();
    for command in COMMANDS {
        let output = oribi(&[command, &tls].concat()).env("ORIBI_PASSWORD", ROOT).output().unwrap();
        stdout(&output);
    }
    // Without the authority the server is not believed.
    let untrusted: Vec<&str> = [&tls[..2], &tls[4..]].concat();
    let mut list = oribi(&[&["bucket", "list"][..], &untrusted].concat());
    let error = refusal(&list.env("ORIBI_PASSWORD", ROOT).output().unwrap());
    assert!(error.contains("certificate"), "{error}");
}

#[test]
fn rights_and_passwords_are_checked() {
    let fixture = Fixture::start();
    for command in COMMANDS {
        let error = refusal(&fixture.run_as("root", "wrong", command));
        assert_eq!(error.matches("wrong name or password").count(), 1, "{error}");
        let output = fixture.run_as("reader", READER, command);
        match READS.contains(&command[..2].join(" ").as_str()) {
            true => drop(stdout(&output)),
            false => {
                let error = refusal(&output);
                assert!(error.contains("lacks the right"), "{command:?}: {error}");
            }
        }
    }
    // A user sees what the user may use.
    let buckets = stdout(&fixture.run_as("reader", READER, &["bucket", "list"]));
    assert_eq!(buckets.lines().count(), 2, "{buckets}");
}

#[test]
fn a_port_without_a_server_is_named_in_time() {
    // No test server listens on it, whatever else runs.
    let closed: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|address| (address, silent)).unwrap();
    let run = |command: &[&str], server: &[&str]| -> (Output, Duration) {
        let started = Instant::now();
        let output = oribi(&[command, server].concat()).output().unwrap();
        (output, started.elapsed())
    };
    for command in COMMANDS {
        let host = closed.to_string();
        let (output, _) = run(command, &["--host", &host]);
        let error = refusal(&output);
        assert!(error.contains(&host) && error.contains("refused"), "{error}");
        assert_eq!(error.matches("refused").count(), 1, "it is said once: {error}");
    }
    let port = closed.port().to_string();
    let (output, _) = run(&["bucket", "list"], &["--admin-port", &port]);
    assert!(refusal(&output).contains(&format!("admin HTTP at 127.0.0.1:{port}")));
    // One that takes connections and never answers. The limit is 5 s, and machines stall.
    let (output, elapsed) = run(&["bucket", "list"], &["--host", &silent.0.to_string()]);
    assert!(refusal(&output).contains(&silent.0.to_string()));
    assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
}

#[test]
fn the_environment_says_where_the_server_is() {
    let fixture = Fixture::start();
    let (port, admin) = (fixture.server.port(), fixture.server.admin_port());
    let run = |variables: &[(&str, String)], arguments: &[&str]| {
        let mut command = oribi(&[arguments, &["--user", "root"]].concat());
        command.env("ORIBI_PASSWORD", ROOT).envs(variables.iter().cloned()).output().unwrap()
    };
    let commands =
        [&["bucket", "list"][..], &["stats"], &["doc", "set", "k", "1"], &["ping", "--count", "1"]];
    for command in commands {
        stdout(&run(&[("ORIBI_HOST", format!("127.0.0.1:{port}"))], command));
        stdout(&run(
            &[("ORIBI_HOST", "localhost".into()), ("ORIBI_PORT", port.to_string())],
            command,
        ));
        // What the command line says counts more.
        let host = format!("127.0.0.1:{port}");
        let named = [command, &["--host", &host]].concat();
        stdout(&run(
            &[("ORIBI_HOST", "nowhere.invalid".into()), ("ORIBI_PORT", "1".into())],
            &named,
        ));
        let output = run(&[("ORIBI_PORT", "many".into())], command);
        assert_eq!(output.status.code(), Some(2));
    }
    // With the admin port, the other one is not needed.
    let variables = [("ORIBI_ADMIN_PORT", admin.to_string()), ("ORIBI_PORT", "1".into())];
    stdout(&run(&variables, &["bucket", "list"]));
}
