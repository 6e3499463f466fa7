//! Snapshots of a running server, and of one that goes away and comes back.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use oribi_client::{Client, ConnectOptions, WriteOptions};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};

use crate::stats::{Fixture, interrupt, stderr, stdout};

#[tokio::test]
async fn a_snapshot_shows_buckets_and_collections() {
    let fixture = Fixture::start();
    fixture.create_collection();
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
    let options = options.port(fixture.server.port());
    let client = Client::connect(options).await.expect("the server accepts");
    let packages = client.collection("debian.packages").await.expect("it was created");
    for key in ["a", "b", "c"] {
        let value = bytes::Bytes::from_static(b"{}");
        let written =
            client.upsert(&packages, key.as_bytes(), value, &WriteOptions::default()).await;
        written.expect("the document is written");
    }
    let text = stdout(&fixture.run(&["top", "--once", "--interval", "50ms", "--sort", "items"]));
    let lines: Vec<&str> = text.lines().collect();
    let peer = format!("127.0.0.1:{}  8.0.0-oribi-", fixture.server.port());
    assert!(lines[0].starts_with(&peer), "{text}");
    let row = |start: &str| {
        let line = lines.iter().find(|line| line.starts_with(start) && !line.contains("op/s"));
        line.map(|line| line.split_whitespace().collect::<Vec<_>>()).unwrap_or_default()
    };
    let bucket = row("default ");
    assert_eq!((bucket[0], bucket[5]), ("default", "3"), "{text}");
    let position = |path: &str| lines.iter().position(|line| line.contains(path));
    let packages = position("debian.packages").expect("the collection is shown");
    assert!(lines[packages].split_whitespace().any(|word| word == "3"), "{text}");
    assert!(position("_default._default").is_some_and(|default| packages < default), "{text}");
}

#[test]
fn a_server_that_comes_back_is_shown_again() {
    let mut fixture = Fixture::start();
    let mut command = fixture.command(&["top", "--batch", "--interval", "20ms"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program runs");
    let mut lines = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
    let mut wait_for = |text: &str| {
        let found = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(text)));
        assert!(found.is_some(), "the program ended before it said {text}");
    };
    wait_for("8.0.0-oribi-");
    fixture.server.kill().expect("the server can be killed");
    wait_for("reconnecting: ");
    fixture.server.restart().expect("the server starts again");
    wait_for("8.0.0-oribi-");
    assert_eq!(interrupt(&mut child), Some(130));
}

#[test]
fn missing_figures_are_reported() {
    let fixture = Fixture::start();
    for (arguments, text) in [
        (&["top"][..], "the live view needs a terminal"),
        (&["top", "--once", "--password", "wrong"], "wrong name or password"),
        (&["top", "--once", "--sort", "size"], "possible values: ops, items, memory, name"),
    ] {
        let output = fixture.run(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}
