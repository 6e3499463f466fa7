//! Loads of all kinds, each verified from the first operation to the last.

use std::collections::BTreeMap;

use oribi_client::{ConnectOptions, Connection};
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{RawConnection, Request};
use oribi_types::Datatype;

use crate::perf::{Fixture, json, number, stderr};

/// The server's own counts.
async fn server_counts(fixture: &Fixture) -> BTreeMap<String, u64> {
    let options = ConnectOptions::new(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD, "default");
    let options = options.port(fixture.server.port());
    let mut connection = Connection::open(&options).await.unwrap();
    let mut counts = BTreeMap::new();
    let mut stats = connection.stats("").await.unwrap();
    while let Some(stat) = stats.next().await.unwrap() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if let Ok(count) = text(stat.value).parse() {
            counts.insert(text(stat.name), count);
        }
    }
    counts
}

#[tokio::test]
async fn verification_counts_match_the_servers() {
    let fixture = Fixture::start();
    let arguments = "-I 2000 -B 50 -t 2 -c 40 -r 30 -m 100 -M 600";
    let summary = fixture.summary(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(number(&summary, "population", "stored"), 2000);
    let count = |name| number(&summary, "load", name);
    assert_eq!(count("operations"), 2 * 40 * 50);
    assert_eq!(count("hits"), count("gets"));
    assert_eq!(count("stored"), count("sets"));
    assert!((1000..1400).contains(&count("sets")), "{}", count("sets"));
    assert_eq!(summary["problems"], 0);
    for (kind, expected) in [("get_latency_us", count("gets")), ("set_latency_us", count("sets"))] {
        assert_eq!(summary["load"][kind]["count"], expected);
    }
    let mean = count("written_bytes") / count("sets");
    assert!((300..400).contains(&mean), "sizes are uniform, so their mean is 350: {mean}");

    let server = server_counts(&fixture).await;
    assert_eq!(server["cmd_get"], count("gets"));
    assert_eq!(server["get_hits"], count("hits"));
    assert_eq!(server["cmd_set"], 2000 + count("sets"));
    assert_eq!(server["curr_items"], 2000);
}

#[test]
fn documents_of_one_run_are_verified_by_the_next() {
    let fixture = Fixture::start();
    fixture.summary(&["-I", "500", "--populate-only", "-m", "1", "-M", "200"]);
    // Without the block of the first run, in another order, by several connections of each thread.
    for arguments in [
        "--random-seed 9 -r 0 -c 20",
        "--random-seed 5 -r 50 -c 20 --connections-per-thread 3 -R",
        "--distribution zipf --zipf-exponent 1.2 -r 50 -c 20",
        "--sequential -t 3 -B 7 -c 50 -r 50",
        "-B 1 -c 200 -r 50",
    ] {
        let run = format!("-I 500 --no-population -m 1 -M 200 {arguments}");
        let summary = fixture.summary(&run.split(' ').collect::<Vec<_>>());
        assert_eq!(summary["population"], serde_json::Value::Null);
        assert!(number(&summary, "load", "hits") > 0, "{arguments}");
    }
}

#[test]
fn large_values_are_sent_in_place_and_verified() {
    let fixture = Fixture::start();
    let sizes = ["-m", "7000", "-M", "300000"];
    for form in [&[][..], &["-J"]] {
        let arguments = [&["-I", "100", "-B", "20", "-c", "20"][..], &sizes, form].concat();
        let summary = fixture.summary(&arguments);
        assert_eq!(number(&summary, "load", "hits"), number(&summary, "load", "gets"));
    }
}

#[test]
fn json_documents_are_json_for_other_clients() {
    let fixture = Fixture::start();
    fixture.summary(&["-I", "50", "-J", "-m", "1", "-M", "300", "-c", "5", "-p", "doc:"]);
    let mut connection = RawConnection::login(fixture.server.port()).unwrap();
    for index in 0..50 {
        let response = connection.call(&Request::get(format!("doc:{index:020}"))).unwrap();
        serde_json::from_slice::<serde_json::Value>(&response.value).unwrap();
        assert!(Datatype(response.datatype).contains(Datatype::JSON), "{response:?}");
    }
}

#[test]
fn compressed_documents_are_what_was_written() {
    let fixture = Fixture::start();
    let load = ["-I", "100", "-J", "-m", "500", "-M", "3000", "-B", "10", "-c", "20"];
    let summary = fixture.summary(&[&load[..], &["--compress"]].concat());
    assert_eq!(number(&summary, "load", "hits"), number(&summary, "load", "gets"));
    // This connection has not negotiated compression, so it gets them plain.
    let mut connection = RawConnection::login(fixture.server.port()).unwrap();
    let response = connection.call(&Request::get(format!("{:020}", 7))).unwrap();
    assert!(!Datatype(response.datatype).contains(Datatype::SNAPPY), "{response:?}");
    serde_json::from_slice::<serde_json::Value>(&response.value).unwrap();
    let compressed = |(name, count): &(String, String)| {
        name == "ep_active_datatype_snappy,json" && count == "100"
    };
    let stats = connection.stat("").unwrap();
    let datatypes: Vec<_> = stats.iter().filter(|stat| stat.0.contains("datatype")).collect();
    assert!(stats.iter().any(compressed), "{datatypes:?}");
}

#[test]
fn collections_are_loaded_side_by_side() {
    let fixture = Fixture::start();
    fixture.create_collections("load", &["first", "second"]);
    let collections = ["--collection", "load.first", "--collection", "load.second"];
    let load = ["-I", "300", "-c", "20", "-r", "40"];
    let summary = fixture.summary(&[&load[..], &collections].concat());
    assert_eq!(number(&summary, "population", "stored"), 600);
    let hits = number(&summary, "load", "hits");
    assert_eq!(hits, number(&summary, "load", "gets"));
    // The default collection has none of these documents.
    let (summary, _) = fixture.failure(&["-I", "300", "-n", "-r", "0", "-c", "1"]);
    assert_eq!(number(&summary, "load", "misses"), 100);
}

#[test]
fn durable_writes_are_waited_for() {
    let fixture = Fixture::start();
    let mut command = fixture.command(&["-I", "200", "-d", "persist", "-c", "3", "-B", "64"]);
    let output = command.arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    // A batch may write a key twice; the second write waits for the first.
    let refused = stderr(&output);
    let is_allowed = |line: &str| line.ends_with("another durable write of this key is under way");
    assert!(refused.lines().all(is_allowed), "{refused}");
    let summary = json(&output);
    assert_eq!(number(&summary, "population", "stored"), 200);
    assert_eq!(number(&summary, "load", "operations"), 3 * 64);
}

#[test]
fn a_memcached_server_is_loaded_without_login() {
    let fixture = Fixture::start();
    let summary = fixture.summary(&["--memcached", "-I", "500", "-c", "20", "-M", "300"]);
    assert_eq!(number(&summary, "load", "hits"), number(&summary, "load", "gets"));
    // The server hashes the keys of such clients, so one that logs in finds the same documents.
    fixture.summary(&["-n", "-I", "500", "-c", "20", "-r", "0", "-M", "300"]);
}

#[test]
fn a_rate_is_kept_in_closed_and_in_open_loop() {
    let fixture = Fixture::start();
    for arguments in [
        "--rate-limit 4000 -B 10 --duration 1",
        "--rate-limit 4000 -B 10 --duration 1 --open-loop -t 2",
        "--rate-limit 4000 -B 10 --duration 1 --open-loop --connections-per-thread 2",
    ] {
        let run = format!("-I 200 {arguments}");
        let summary = fixture.summary(&run.split(' ').collect::<Vec<_>>());
        let operations = number(&summary, "load", "operations");
        // A busy machine may start late or end late, but nothing is done before its time.
        let seconds = summary["load"]["seconds"].as_f64().unwrap();
        assert!(operations as f64 <= 4000.0 * seconds + 20.0, "{arguments}: {operations}");
        assert!(operations > 100, "{arguments}: {operations}");
        assert_eq!(summary["load"]["latency_us"]["count"], operations);
    }
}
