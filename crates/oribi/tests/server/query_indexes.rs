//! Indexes of queries in a real process: killed under writes, and larger than their memory.

use std::sync::atomic::{AtomicBool, Ordering};

use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::{PATIENCE, Request, StopOnDrop, poll_until};
use serde_json::{Value, json};

use crate::fixture::Fixture;

const MIB: u64 = 1 << 20;
const QUOTA_MIB: u64 = 64;
const RESIDENT_BYTES_MAX: u64 = (QUOTA_MIB + QUOTA_MIB / 10 + 64) * MIB;

/// The rows of a statement that succeeds.
#[track_caller]
fn rows(admin: &HttpClient, statement: &str) -> Value {
    let body = json!({ "statement": statement, "scan_consistency": "request_plus" }).to_string();
    let kind = "application/json";
    let answer = admin.request("POST", "/query/service", kind, body.as_bytes()).unwrap();
    let json = answer.json().unwrap();
    assert_eq!(json["status"], "success", "{statement}: {json}");
    json["results"].clone()
}

fn state(admin: &HttpClient) -> Value {
    rows(admin, "SELECT RAW state FROM system:indexes")[0].clone()
}

#[track_caller]
fn wait_for_state(admin: &HttpClient, wanted: &str) {
    let seen = poll_until(PATIENCE, || (state(admin) == wanted).then_some(()));
    assert!(seen.is_some(), "the index is {}", state(admin));
}

#[test]
fn an_index_is_built_again_after_a_kill() {
    let mut fixture = Fixture::start();
    rows(&fixture.admin(), "CREATE INDEX by_a ON `default`(a)");
    for round in 0..3u64 {
        let stop = AtomicBool::new(false);
        let mut connection = fixture.login();
        std::thread::scope(|scope| {
            let _stopped = StopOnDrop(&stop);
            scope.spawn(|| {
                let mut number = round * 1_000_000;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    let (key, value) = (number % 500, format!("{{\"a\":{}}}", number % 7));
                    // The server is killed at some time.
                    if connection.call(&Request::set(format!("k{key}"), &value)).is_err() {
                        return;
                    }
                }
            });
            // A scan waits until writes are persisted, so the kill loses not all of them.
            let scan = "SELECT RAW a FROM `default` WHERE a + 0 = 3 LIMIT 1";
            let persisted =
                poll_until(PATIENCE, || (rows(&fixture.admin(), scan) != json!([])).then_some(()));
            assert!(persisted.is_some(), "round {round}: the writer writes");
            for _ in 0..5 {
                let found = rows(&fixture.admin(), "SELECT RAW a FROM `default` WHERE a = 3");
                assert!(found.as_array().unwrap().iter().all(|a| *a == 3), "{found}");
            }
            fixture.server.kill().unwrap();
        });
        fixture.server.restart().unwrap();
        let admin = fixture.admin();
        wait_for_state(&admin, "online");
        let plan = rows(&admin, "EXPLAIN SELECT a FROM `default` WHERE a = 3").to_string();
        assert!(plan.contains("by_a"), "{plan}");
        let mut found = 0;
        for a in 0..7 {
            let of = |condition: &str| {
                let select = "SELECT RAW META().id FROM `default` WHERE";
                rows(&admin, &format!("{select} {condition} ORDER BY META().id"))
            };
            let (by_index, by_scan) = (of(&format!("a = {a}")), of(&format!("a + 0 = {a}")));
            assert_eq!(by_index, by_scan, "round {round}");
            found += by_scan.as_array().unwrap().len();
        }
        assert!(found > 0, "round {round}: the writer had written");
    }
    fixture.finish(&[]);
}

#[test]
fn an_index_stays_within_the_memory_bound() {
    let fixture = Fixture::start_with(|options| options.setting("memory-quota-mib", QUOTA_MIB));
    let admin = fixture.admin();
    rows(&admin, "CREATE INDEX by_text ON `default`(text)");
    let mut connection = fixture.login();
    let mut most = 0;
    let resident = || fixture.server.resident_bytes().unwrap();
    // Entries as large as the documents: 120 MB of each.
    let filler = "x".repeat(3_900);
    let mut is_offline = false;
    for number in 0..30_000u64 {
        let value =
            format!("{{\"text\":\"{:09}{filler}\"}}", number.wrapping_mul(7_919) % 1_000_003);
        let request = Request::set(format!("k{number}"), &value);
        let stored = poll_until(PATIENCE, || {
            let status = connection.call(&request).unwrap().status();
            (status == Status::Success).then_some(())
        });
        assert!(stored.is_some(), "document {number} is not stored");
        if number % 200 == 0 {
            most = most.max(resident());
            is_offline = state(&admin) == "offline";
            if is_offline {
                break;
            }
        }
    }
    if !is_offline {
        wait_for_state(&admin, "offline");
    }
    most = most.max(resident());
    assert!(most <= RESIDENT_BYTES_MAX, "{} MiB", most / MIB);
    let reason = rows(&admin, "SELECT RAW metadata.reason FROM system:indexes")[0].clone();
    assert!(reason.as_str().unwrap().contains("BUILD INDEX"), "{reason}");
    // Statements scan.
    let found = rows(&admin, "SELECT RAW META().id FROM `default` WHERE text LIKE '000000000%'");
    assert_eq!(found, json!(["k0"]));
    fixture.finish(&["an index changed its state"]);
}
