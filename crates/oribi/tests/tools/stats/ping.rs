//! Reports of a server that answers, and of one that does not.

use serde_json::Value;

use crate::stats::{Fixture, interrupt, stderr, stdout};

#[test]
fn the_report_tells_what_answered() {
    let fixture = Fixture::start();
    let text = stdout(&fixture.run(&["ping", "--count", "3", "--interval", "0"]));
    for part in [
        format!("server       127.0.0.1:{}, version 8.0.0-oribi-", fixture.server.port()),
        "handshake    in ".to_owned(),
        "Collections".to_owned(),
        "bucket       default\n".to_owned(),
        "64 vbuckets, nodes: 127.0.0.1:".to_owned(),
        "\nround trip 3: ".to_owned(),
        "\n3 sent, 3 answered: min ".to_owned(),
    ] {
        assert!(text.contains(&part), "{part} is missing in {text}");
    }

    let report = stdout(&fixture.run(&["ping", "--count", "20", "--interval", "0", "--json"]));
    let report: Value = serde_json::from_str(&report).expect("one JSON document");
    assert_eq!((&report["sent"], &report["answered"]), (&20.into(), &20.into()));
    assert_eq!(report["bucket"], "default");
    assert_eq!(report["cluster_map"]["vbuckets"], 64);
    let time = |name: &str| report["round_trip_us"][name].as_f64().expect("a time");
    assert!(time("min") > 0.0 && time("min") <= time("p50") && time("p50") <= time("max"));
    assert!(report["connect_us"].as_f64().is_some_and(|time| time > 0.0));
    assert!(report["handshake_us"].as_f64().is_some_and(|time| time > 0.0));
}

#[test]
fn no_bucket_is_needed() {
    let fixture = Fixture::start();
    let report = stdout(&fixture.run(&["ping", "--count", "1", "--bucket", "", "--json"]));
    let report: Value = serde_json::from_str(&report).expect("one JSON document");
    assert_eq!((&report["bucket"], &report["cluster_map"]), (&Value::Null, &Value::Null));
    assert_eq!(report["answered"], 1);
}

#[test]
fn an_interrupt_ends_with_the_report() {
    let fixture = Fixture::start();
    let (mut child, mut rest) =
        fixture.run_to_first_line(&["ping", "--count", "0", "--interval", "10ms"]);
    assert_eq!(interrupt(&mut child), Some(130));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut rest, &mut text).expect("the output is text");
    assert!(text.trim_end().lines().last().is_some_and(|line| line.contains(" sent, ")), "{text}");
}

#[test]
fn no_answer_is_a_failure() {
    let mut fixture = Fixture::start();
    fixture.server.terminate().expect("the server ends");
    let output = fixture.run(&["ping"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("connecting to 127.0.0.1:"), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

/// The server dies between two round trips: what was measured is reported, and the failure too.
#[test]
fn a_server_that_goes_away_is_reported() {
    let mut fixture = Fixture::start();
    let mut command = fixture.command(&["ping", "--count", "0", "--interval", "10ms"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    let stdout = child.stdout.take().expect("the output is piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("round trip 2")));
    fixture.server.kill().expect("the server can be killed");
    let rest: Vec<String> = lines.map(|line| line.expect("the output is text")).collect();
    assert!(rest.iter().any(|line| line.contains(" answered: min ")), "{rest:?}");
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("127.0.0.1:"), "{}", stderr(&output));
}
