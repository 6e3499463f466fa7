//! The text protocol and the meta commands: against Oribi, and against memcached where there is
//! one.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use oribi_testkit::{MemcachedServer, RawConnection, Request, ServerOptions, ServerProcess};
use serde_json::Value;

use crate::perf::{Fixture, ORIBI, command, json, number, stderr};

const USER: &str = "reader";
const PASSWORD: &str = "spades-7";

/// `oribi perf kv --protocol ARGUMENTS --json` against a port of this machine; `memcached` is the
/// binary protocol without a login.
fn run(port: u16, arguments: &str) -> Output {
    let (protocol, rest) = arguments.split_once(' ').unwrap();
    let protocol = match protocol {
        "memcached" => vec!["--memcached"],
        protocol => vec!["--protocol", protocol],
    };
    command(port, &protocol).args(rest.split(' ')).arg("--json").output().unwrap()
}

/// The summary of a run that has to succeed.
fn success(port: u16, arguments: &str) -> Value {
    let output = run(port, arguments);
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    assert_eq!(stderr(&output), "", "a success is silent");
    json(&output)
}

/// The summary of a run that has to fail, and what it said.
fn failure(port: u16, arguments: &str) -> (Value, String) {
    let output = run(port, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments}: {}", stderr(&output));
    (json(&output), stderr(&output))
}

/// Runs `test` on Oribi, and on memcached where it is installed.
fn on_both(test: impl Fn(u16)) {
    let fixture = Fixture::start();
    test(fixture.server.port());
    if let Some(memcached) = MemcachedServer::start_for_test(&[]) {
        test(memcached.port());
    }
}

#[test]
fn each_protocol_verifies_the_others_documents() {
    on_both(|port| {
        for (writer, documents) in [
            ("text", "-m 1 -M 600"),
            ("meta", "-m 200 -M 600 -p m:"),
            ("text", "-m 30 -M 600 -p t: --key-digits 9 -J"),
        ] {
            let written = success(port, &format!("{writer} -I 700 {documents} --populate-only"));
            assert_eq!(number(&written, "population", "stored"), 700);
            for reader in [
                "text -B 1 -c 150",
                "text -c 20",
                "text --keys-per-get 100 -r 0 -c 20",
                "text --keys-per-get 7 -r 10 -t 2 -c 20",
                "meta -c 20 -r 50",
                "meta -B 1 -c 150 --connections-per-thread 2",
                "memcached -c 20",
            ] {
                let summary = success(port, &format!("{reader} -n -I 700 {documents}"));
                let count = |name| number(&summary, "load", name);
                assert!(count("hits") > 0, "{reader}");
                assert_eq!(count("hits"), count("gets"));
                assert_eq!(count("stored"), count("sets"));
                assert_eq!(summary["load"]["latency_us"]["count"], count("operations"));
            }
        }
    });
}

#[test]
fn missing_documents_are_counted_one_by_one() {
    on_both(|port| {
        success(port, "text -I 100 --populate-only");
        for protocol in ["text", "text --keys-per-get 100", "text --keys-per-get 3", "meta"] {
            let load = format!("{protocol} -I 150 -n -r 0 --sequential -B 150 -c 2");
            let (summary, said) = failure(port, &load);
            assert_eq!(number(&summary, "load", "hits"), 200);
            assert_eq!(number(&summary, "load", "misses"), 100);
            assert_eq!(summary["problems"], 100);
            assert!(said.contains("GET of document 100 in _default._default: not found"), "{said}");
            let output = run(port, &format!("{load} --allow-misses"));
            assert!(output.status.success(), "{}", stderr(&output));
        }
    });
}

/// The mutant: documents that another client has changed are found among all.
#[test]
fn values_that_somebody_else_wrote_are_found() {
    let fixture = Fixture::start();
    let port = fixture.server.port();
    success(port, "text -I 300 --populate-only");
    let mut connection = RawConnection::login(port).unwrap();
    let key = |index: u64| format!("{index:020}");
    let mut value = connection.call(&Request::get(key(7))).unwrap().value;
    *value.last_mut().unwrap() ^= 1;
    connection.call(&Request::set(key(7), &value)).unwrap();
    let other = connection.call(&Request::get(key(8))).unwrap().value;
    connection.call(&Request::set(key(9), &other)).unwrap();
    for protocol in ["text", "text --keys-per-get 100", "meta"] {
        let read_all = format!("{protocol} -I 300 -n -r 0 --sequential -c 3");
        let (summary, said) = failure(port, &read_all);
        assert_eq!(summary["problems"], 2);
        for kind in ["wrong_checksum", "wrong_document"] {
            assert_eq!(summary["load"]["corrupt"][kind], 1, "{summary}");
        }
        assert!(said.contains("GET of document 7 in _default._default: wrong checksum"), "{said}");
    }
}

#[test]
fn large_values_are_sent_in_place_and_verified() {
    on_both(|port| {
        for protocol in ["text --keys-per-get 5", "meta"] {
            let load = format!("{protocol} -I 60 -B 20 -c 20 -m 7000 -M 300000");
            let summary = success(port, &load);
            assert_eq!(number(&summary, "load", "hits"), number(&summary, "load", "gets"));
        }
    });
}

#[test]
fn refusals_are_told_in_the_words_of_the_server() {
    let Some(memcached) = MemcachedServer::start_for_test(&["-I", "1m"]) else { return };
    for protocol in ["text", "meta"] {
        // Larger than memcached takes.
        let load = format!("{protocol} -I 3 -B 2 --populate-only -m 2000000 -M 2000000");
        let (summary, said) = failure(memcached.port(), &load);
        assert_eq!(summary["population"]["refused"]["the value is too large for the server"], 3);
        assert!(said.contains("SERVER_ERROR object too large for cache"), "{said}");
        // The connection continues with the next operation.
        assert_eq!(number(&summary, "population", "operations"), 3);
    }
}

/// A run without a login has to be refused, one with a wrong password, too, and one with both has
/// to load.
fn needs_login(port: u16) {
    for protocol in ["text", "meta"] {
        let arguments = ["--protocol", protocol, "-I", "100", "-c", "5", "--json"];
        let output = command(port, &arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("the server wants a login (--user)"), "{output:?}");
        let login = |password: &str| {
            let mut command = command(port, &arguments);
            command.args(["--user", USER]).env("ORIBI_PASSWORD", password).output().unwrap()
        };
        let output = login("wrong");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("authentication as \"reader\" failed"), "{output:?}");
        let output = login("two words");
        assert!(stderr(&output).contains("without spaces"), "{output:?}");
        let output = login(PASSWORD);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(number(&json(&output), "load", "hits") > 0);
    }
}

#[test]
fn logs_in_where_the_server_wants_it() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let mut adding = Command::new(ORIBI)
        .args([
            "user",
            "add",
            USER,
            "--role",
            "read-write:default",
            "--password-stdin",
            "--data-dir",
        ])
        .arg(&data_dir)
        .env_remove("ORIBI_PASSWORD")
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    adding.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
    assert!(adding.wait().unwrap().success());
    let server = ServerProcess::start(ServerOptions::new(ORIBI, &data_dir)).unwrap();
    needs_login(server.port());

    let file = directory.path().join("logins");
    std::fs::write(&file, format!("{USER}:{PASSWORD}\n")).unwrap();
    let file = file.to_str().unwrap();
    if let Some(memcached) = MemcachedServer::start_for_test(&["-Y", file]) {
        needs_login(memcached.port());
    }
}
