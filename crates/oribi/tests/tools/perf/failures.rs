//! What is wrong is found, named and shown in the exit status.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Output;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use oribi_protocol::status::Status;
use oribi_testkit::{PATIENCE, RawConnection, Request, poll_until};

use crate::perf::{Fixture, command, fake_server, json, number, stderr};

/// The mutant of the whole tool: one document that another client has changed is found among all.
#[test]
fn a_value_that_somebody_else_wrote_is_found() {
    let fixture = Fixture::start();
    fixture.summary(&["-I", "300", "--populate-only"]);
    let mut connection = RawConnection::login(fixture.server.port()).unwrap();
    let key = |index: u64| format!("{index:020}");
    let mut value = connection.call(&Request::get(key(7))).unwrap().value;
    *value.last_mut().unwrap() ^= 1;
    connection.call(&Request::set(key(7), &value)).unwrap();
    let other = connection.call(&Request::get(key(8))).unwrap().value;
    connection.call(&Request::set(key(9), &other)).unwrap();
    connection.call(&Request::set(key(10), &other[..other.len() - 1])).unwrap();

    let read_all = ["-I", "300", "-n", "-r", "0", "--sequential", "-c", "3"];
    let (summary, said) = fixture.failure(&read_all);
    assert_eq!(summary["problems"], 3);
    for kind in ["wrong_checksum", "wrong_document", "wrong_length"] {
        assert_eq!(summary["load"]["corrupt"][kind], 1, "{summary}");
    }
    for text in ["GET of document 7 in _default._default: wrong checksum", "FAILED"] {
        assert!(said.contains(text), "{said}");
    }
}

#[test]
fn missing_documents_are_reported_unless_allowed() {
    let fixture = Fixture::start();
    fixture.summary(&["-I", "100", "--populate-only"]);
    let arguments = ["-I", "150", "-n", "-r", "0", "--sequential", "-B", "150", "-c", "1"];
    let (summary, said) = fixture.failure(&arguments);
    assert_eq!(number(&summary, "load", "misses"), 50);
    assert!(said.contains("load: 50 documents not found"), "{said}");
    assert!(said.contains("GET of document 100 in"), "{said}");
    let output = fixture.command(&arguments).args(["--allow-misses", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(number(&json(&output), "load", "misses"), 50);
}

#[test]
fn a_server_that_dies_ends_the_run_with_its_summary() {
    let mut fixture = Fixture::start();
    let child = fixture.command(&["-I", "100", "--json", "-r", "0"]).spawn().unwrap();
    let mut connection = RawConnection::login(fixture.server.port()).unwrap();
    let populated = poll_until(PATIENCE, || {
        let response = connection.call(&Request::get(format!("{:020}", 99))).unwrap();
        (response.status() == Status::Success).then_some(())
    });
    populated.expect("documents are written");
    fixture.server.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let error = json(&output)["error"].as_str().unwrap().to_owned();
    assert!(error.contains(&format!("127.0.0.1:{}", fixture.server.port())), "{error}");
    assert!(stderr(&output).contains(&error));
}

#[test]
fn temporary_failures_are_retried_up_to_a_limit() {
    let port = fake_server::start(|_| (Status::Etmpfail, 0));
    let arguments = ["--memcached", "--json", "-I", "20", "--populate-only", "--retries", "2"];
    let output = command(port, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "nothing was stored");
    let summary = json(&output);
    assert_eq!(number(&summary, "population", "retries"), 40);
    assert_eq!(number(&summary, "population", "given_up"), 20);
    assert_eq!(summary["population"]["refused"]["temporary failure"], 60);
    // Given up is not wrong, as long as something succeeds.
    let port = fake_server::start(|request| match request.opaque % 2 {
        0 => (Status::Etmpfail, 0),
        _ => (Status::Success, 0),
    });
    let output = command(port, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("requests refused: temporary failure"));
    assert_eq!(number(&json(&output), "population", "operations"), 20);
}

#[test]
fn a_retry_due_at_the_end_is_still_made() {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    let port = fake_server::start(|_| match FIRST.elapsed() < Duration::from_millis(1200) {
        true => (Status::Etmpfail, 0),
        false => (Status::Success, 0),
    });
    let arguments = ["--memcached", "--json", "-I", "20", "-n", "-r", "100", "--duration", "1"];
    let output =
        command(port, &[&arguments[..], &["--retries", "1000"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let summary = json(&output);
    assert_eq!(number(&summary, "load", "given_up"), 0);
    assert_eq!(number(&summary, "load", "stored"), number(&summary, "load", "sets"));
    assert!(number(&summary, "load", "stored") > 0);
}

#[test]
fn refusals_and_confused_answers_are_failures() {
    let port = fake_server::start(|_| (Status::E2big, 0));
    let arguments = ["--memcached", "--json", "-I", "20", "--populate-only"];
    let output = command(port, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["problems"], 20);
    assert!(stderr(&output).contains("20 requests refused: the value is too large"));
    // The answer to the sixth request carries the opaque of the seventh, so one comes twice.
    let port =
        fake_server::start(|request| (Status::Success, u32::from(request.opaque & 0xff == 5)));
    let output = command(port, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("an answer that nothing in flight waits for"), "{output:?}");
    // Documents that are empty although they were written with a size.
    let port = fake_server::start(|_| (Status::Success, 0));
    let read = ["--memcached", "--json", "-I", "20", "-n", "-r", "0", "-c", "1"];
    let output = command(port, &read).output().unwrap();
    assert_eq!(json(&output)["load"]["corrupt"]["wrong_length"], 100);
}

#[test]
fn says_why_it_cannot_begin() {
    let fixture = Fixture::start();
    let refused = |output: &Output, status: i32, text: &str| {
        assert_eq!(output.status.code(), Some(status), "{text}: {}", stderr(output));
        assert!(stderr(output).contains(text), "{text}: {}", stderr(output));
        assert!(output.stdout.is_empty());
    };
    for (arguments, status, text) in [
        (&["--password", "wrong"][..], 1, "wrong name or password"),
        (&["--bucket", "nope"], 1, "cannot open bucket \"nope\""),
        (&["--collection", "a.b"], 1, "--collection a.b"),
        (&["--report", "/nowhere/report.json"], 1, "--report: cannot create"),
        (&["-m", "10", "-M", "5"], 2, "--min-size has to be at most --max-size"),
        (&["-M", "20971521"], 2, "0..=20971520"),
        (&["--distribution", "zipf", "--zipf-exponent", "0"], 2, "0.01 to 10"),
    ] {
        refused(&fixture.command(arguments).output().unwrap(), status, text);
    }
    // A port that no process listens on: it was bound a moment ago and is free again.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    refused(&command(port, &[]).output().unwrap(), 1, &format!("127.0.0.1:{port}"));
    refused(&command(port, &["--memcached"]).output().unwrap(), 1, "connecting to");
}
