//! What an operator sees: health, metrics, statistics, and the routes that clients probe.

use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::{RawConnection, Request};

use crate::fixture::{Fixture, expect};

/// Every name and value of one group of statistics.
fn stats(connection: &mut RawConnection, group: &str) -> Vec<(String, String)> {
    connection.send(&Request::new(Opcode::Stat).bare_key(group)).unwrap();
    let mut pairs = Vec::new();
    loop {
        let row = expect(connection.receive().unwrap(), Status::Success);
        if row.key.is_empty() {
            assert!(row.value.is_empty(), "{row:?}");
            return pairs;
        }
        pairs.push((String::from_utf8(row.key.clone()).unwrap(), row.text()));
    }
}

#[test]
fn health_and_metrics_answer() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    for count in 0..10 {
        expect(connection.call(&Request::set(format!("k{count}"), "v")).unwrap(), Status::Success);
    }
    let anonymous = HttpClient::new(fixture.server.admin_port());
    assert_eq!(anonymous.get("/healthz").unwrap().status, 200);

    let metrics = fixture.admin().get("/metrics").unwrap();
    assert_eq!(metrics.status, 200);
    let text = metrics.text();
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(samples.len() > 5, "{text}");
    for sample in &samples {
        let (name, value) = sample.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("oribi_") || name.starts_with("process_"), "{sample}");
        assert!(value.parse::<f64>().is_ok(), "{sample}");
    }
    let items = samples.iter().find(|sample| {
        sample.starts_with("oribi_") && sample.contains("items") && sample.contains("default")
    });
    assert!(items.is_some(), "no sample counts the items of bucket default:\n{text}");
    fixture.finish(&[]);
}

#[test]
fn routes_that_clients_probe_answer() {
    let fixture = Fixture::start();
    let admin = fixture.admin();
    assert_eq!(admin.get("/").unwrap().status, 200);
    for path in [
        "/pools",
        "/pools/default",
        "/whoami",
        "/pools/default/nodeServices",
        "/pools/default/buckets/default",
        "/pools/default/b/default",
    ] {
        let answer = admin.get(path).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(answer.json().unwrap().is_object(), "{path}");
    }
    let bucket = admin.get("/pools/default/buckets/default").unwrap().json().unwrap();
    for node in bucket["nodes"].as_array().unwrap() {
        assert_eq!(node["status"], "healthy");
    }
    assert_eq!(admin.get("/no/such/route").unwrap().status, 404);
    assert!(matches!(admin.request("PATCH", "/pools", "", b"").unwrap().status, 404 | 405));
    fixture.finish(&[]);
}

#[test]
fn admin_routes_need_credentials() {
    let fixture = Fixture::start();
    let anonymous = HttpClient::new(fixture.server.admin_port());
    let wrong = anonymous.clone().with_credentials("Administrator", "guess");
    for path in ["/pools/default/buckets", "/pools/default", "/metrics"] {
        assert_eq!(anonymous.get(path).unwrap().status, 401, "{path}");
        assert_eq!(wrong.get(path).unwrap().status, 401, "{path}");
    }
    fixture.finish(&[]);
}

#[test]
fn statistics_have_a_default_group_and_an_end() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    expect(connection.call(&Request::set("k", "v")).unwrap(), Status::Success);
    let all = stats(&mut connection, "");
    let value =
        |name: &str| all.iter().find(|(found, _)| found == name).map(|(_, value)| value.clone());
    assert_eq!(value("pid"), Some(fixture.server.pid().to_string()), "{all:?}");
    assert_eq!(value("curr_items").as_deref(), Some("1"), "{all:?}");
    let unknown = Request::new(Opcode::Stat).bare_key("no-such-group");
    expect(connection.call(&unknown).unwrap(), Status::KeyEnoent);
    fixture.finish(&[]);
}

#[test]
fn the_cluster_map_names_this_server() {
    let fixture = Fixture::start();
    let mut connection = fixture.login();
    let response =
        expect(connection.call(&Request::new(Opcode::GetClusterConfig)).unwrap(), Status::Success);
    let map: serde_json::Value = serde_json::from_slice(&response.value).unwrap();
    assert_eq!(map["name"], "default");
    let vbuckets = map["vBucketServerMap"]["vBucketMap"].as_array().unwrap();
    assert_eq!(vbuckets.len(), 64);
    let services = &map["nodesExt"][0]["services"];
    assert_eq!(services["kv"], fixture.server.port());
    assert_eq!(services["mgmt"], fixture.server.admin_port());
    fixture.finish(&[]);
}
