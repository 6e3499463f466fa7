//! Audit log entries for clients of both protocols, and the bound on a flood of them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use oribi_config::Settings;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{RequestParts, encode_request};
use oribi_system::data_dir::DataDir;
use serde_json::Value;

use super::{Fixture, add_user};

/// A server with users and an audit log.
fn audited() -> Fixture {
    let scratch = tempfile::tempdir().unwrap();
    DataDir::prepare(scratch.path()).unwrap();
    add_user(scratch.path(), "root", &["admin"]);
    add_user(scratch.path(), "reader", &["read-only:default"]);
    let settings = Settings {
        data_dir: scratch.path().to_owned(),
        audit_log: Some(scratch.path().join("audit.log")),
        port: 0,
        admin_port: 0,
        query_port: 0,
        workers: 1,
        vbuckets: 4,
        memory_quota_mib: Some(1024),
        ..Settings::default()
    };
    let server = crate::start_server(&settings, None).unwrap();
    let admin = server.addresses().admin;
    Fixture { server: Some(server), settings, admin, _query_port: None, _scratch: scratch }
}

/// Stops the server and returns the events in the log, without start and end.
fn events(mut fixture: Fixture) -> Vec<Value> {
    fixture.server.take().unwrap().shutdown().unwrap();
    let path = fixture.settings.audit_log.clone().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| !line["event"].as_str().unwrap().starts_with("server")).collect()
}

/// Sends requests over the binary protocol, and waits until all are answered.
fn send(fixture: &Fixture, requests: &[RequestParts<'_>]) {
    let mut stream = TcpStream::connect(fixture.server.as_ref().unwrap().addresses().kv).unwrap();
    let mut bytes = Vec::new();
    requests.iter().for_each(|parts| encode_request(&mut bytes, parts));
    stream.write_all(&bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

pub(super) fn plain(message: &[u8]) -> RequestParts<'_> {
    RequestParts { key: b"PLAIN", value: message, ..RequestParts::new(Opcode::SaslAuth) }
}

// Invariant: Pre-authentication work has a separate thread, queue and bound, also in the audit log.
#[test]
fn a_flood_of_refusals_is_a_few_lines() {
    let fixture = audited();
    // A password in place of the name, and requests without a login.
    let mut requests = vec![plain(b"ann\0secret-word"); 300];
    requests.extend(vec![RequestParts { key: b"k", ..RequestParts::new(Opcode::Get) }; 300]);
    send(&fixture, &requests);
    let events = events(fixture);
    let failed = |event: &&Value| event["event"] == "authentication failed";
    // Ten a second are allowed, and this test takes few seconds.
    let count = events.iter().filter(failed).count();
    assert!((10..100).contains(&count), "{events:?}");
    assert!(events.iter().filter(failed).all(|event| event.get("user").is_none()));
    assert!(events.iter().all(|event| event["event"] != "access refused"), "{events:?}");
    assert!(!format!("{events:?}").contains("secret-word"));
}

#[test]
fn both_protocols_audit_logins_and_refusals() {
    let fixture = audited();
    let select = |name| RequestParts { key: name, ..RequestParts::new(Opcode::SelectBucket) };
    send(&fixture, &[plain(b"\0reader\0secret1"), select(b"default"), select(b"missing")]);
    let ask = |method: &str, path: &str, credentials: &str| {
        fixture.ask(method, path, credentials, "").status
    };
    assert_eq!(ask("GET", "/pools/default", "reader:secret1"), 200);
    assert_eq!(ask("GET", "/pools/default/buckets/other", "reader:secret1"), 403);
    assert_eq!(ask("DELETE", "/pools/default/buckets/default", "reader:secret1"), 403);
    assert_eq!(ask("GET", "/pools/default", "reader:wrong"), 401);
    assert_eq!(ask("GET", "/pools/default", ""), 401);
    assert_eq!(ask("DELETE", "/pools/default/buckets/none", "root:secret1"), 404);
    let events = events(fixture);
    let told: Vec<String> = events
        .iter()
        .map(|event| {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            assert!(event["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{event}");
            [text("event"), text("user"), text("request")].join(" ").trim_end().to_owned()
        })
        .collect();
    let expected = [
        "authentication succeeded <ud>reader</ud>",
        "access refused <ud>reader</ud> SelectBucket missing",
        "authentication succeeded <ud>reader</ud>",
        "authentication succeeded <ud>reader</ud>",
        "access refused <ud>reader</ud> GET /pools/default/buckets/other",
        "authentication succeeded <ud>reader</ud>",
        "access refused <ud>reader</ud> DELETE /pools/default/buckets/default",
        "authentication failed <ud>reader</ud>",
        "access refused  GET /pools/default",
        "authentication succeeded <ud>root</ud>",
        "admin request <ud>root</ud> DELETE /pools/default/buckets/none",
    ];
    assert_eq!(told, expected);
}
