//! Documents over HTTP: rights, versions, pages.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD as BASE64};
use serde_json::Value;

use super::{Answer, Fixture, add_user};

const DOCS: &str = "/pools/default/buckets/default/docs";

fn put(fixture: &Fixture, key_and_query: &str, value: &str) -> Answer {
    fixture.ask("PUT", &format!("{DOCS}/{key_and_query}"), super::ADMIN, value)
}

/// A PUT whose body does not come.
fn begin_put(fixture: &Fixture, key: &str, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.admin).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let login = STANDARD.encode(super::ADMIN);
    write!(
        stream,
        "PUT {DOCS}/{key} HTTP/1.1\r\nHost: localhost:8091\r\nAuthorization: Basic {login}\r\n\
         Content-Length: {bytes}\r\n\r\n"
    )
    .unwrap();
    stream
}

/// The status of an answer.
fn status(mut stream: &TcpStream) -> u16 {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    std::str::from_utf8(&head[9..]).unwrap().parse().unwrap()
}

fn keys(page: &Value) -> Vec<&str> {
    page["documents"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect()
}

// Compat (Admin HTTP): `/pools/default/buckets/B/docs` and `/KEY` below it, also below a
// collection: `GET`, `PUT`, `DELETE`
#[test]
fn documents_are_changed_by_cas() {
    let fixture = Fixture::development();
    assert_eq!(fixture.get(&format!("{DOCS}/a")).status, 404);
    let made = put(&fixture, "a?mode=add&flags=7", r#"{"n":12345678901234567890}"#);
    assert_eq!(made.status, 200, "{}", made.body);
    assert_eq!(put(&fixture, "a?mode=add", "x").status, 409);
    assert_eq!(put(&fixture, "b?mode=replace", "x").status, 404);

    let read = fixture.get(&format!("{DOCS}/a")).json();
    assert_eq!(read["text"], r#"{"n":12345678901234567890}"#, "every digit is there");
    assert_eq!((&read["datatype"], &read["flags"]), (&"json".into(), &7.into()));
    assert_eq!(read["cas"], made.json()["cas"]);
    let cas = read["cas"].as_str().unwrap();

    let changed = put(&fixture, &format!("a?cas={cas}"), "[1]");
    assert_eq!(changed.status, 200, "{}", changed.body);
    let stale = put(&fixture, &format!("a?cas={cas}"), "[2]");
    assert_eq!(stale.status, 409, "{}", stale.body);
    assert_eq!(fixture.get(&format!("{DOCS}/a")).json()["text"], "[1]");
    let delete =
        |query: &str| fixture.ask("DELETE", &format!("{DOCS}/a?{query}"), super::ADMIN, "").status;
    assert_eq!(delete(&format!("cas={cas}")), 409);
    assert_eq!((delete(""), delete("")), (200, 404));
    for (query, status) in [("cas=x", 400), ("mode=upsert", 400), ("encoding=hex", 400)] {
        assert_eq!(put(&fixture, &format!("a?{query}"), "1").status, status, "{query}");
    }
    assert_eq!(put(&fixture, &"k".repeat(251), "1").status, 400);
    assert_eq!(fixture.ask("POST", &format!("{DOCS}/a"), super::ADMIN, "").status, 405);
}

#[test]
fn a_value_of_any_size_goes_in_and_comes_out_whole() {
    const LARGEST: usize = 20 << 20;
    let fixture = Fixture::development();
    let value = "0123456789abcdef".repeat(LARGEST / 16);
    let made = put(&fixture, "large?flags=3", &value);
    assert_eq!(made.status, 200, "{}", made.body);
    let raw = fixture.get(&format!("{DOCS}/large?raw=1"));
    assert!(raw.body == value, "{} bytes came back", raw.body.len());
    for header in [
        "content-length: 20971520",
        "content-type: application/octet-stream",
        "content-disposition: attachment",
        "x-content-type-options: nosniff",
    ] {
        assert!(raw.head.contains(header), "{header}: {}", raw.head);
    }
    assert_eq!(status(&begin_put(&fixture, "larger", LARGEST + 1)), 413);
    let refused = put(&fixture, "larger", &"x".repeat(LARGEST + 1));
    assert_eq!(refused.status, 413, "who sends all of it reads the answer, too");
    assert_eq!(put(&fixture, "json", "[1]").status, 200);
    let json = fixture.get(&format!("{DOCS}/json?raw=1"));
    assert!(json.head.contains("content-type: application/json") && json.body == "[1]");
    assert_eq!(put(&fixture, "empty", "").status, 200);
    assert_eq!(fixture.get(&format!("{DOCS}/empty?raw=1")).body, "");
    assert_eq!(fixture.get(&format!("{DOCS}/none?raw=1")).status, 404);
}

// Invariant: While others wait for connection memory, a stalled HTTP client keeps none.
/// They keep others out for a moment only, though they stay.
#[test]
fn stalled_transfers_yield_memory_to_others() {
    const BYTES: usize = 20 << 20;
    let fixture = Fixture::development();
    assert_eq!(put(&fixture, "large", &"x".repeat(BYTES)).status, 200);
    let path = format!("{DOCS}/large?raw=1");
    let wait_for_document = || {
        let until = Instant::now() + Duration::from_secs(20);
        while fixture.get(&path).status != 200 {
            assert!(Instant::now() < until, "there is no memory in time");
        }
    };
    let reading: Vec<_> = (0..2).map(|_| fixture.connect("GET", &path, super::ADMIN, "")).collect();
    wait_for_document();
    assert_eq!(put(&fixture, "short", "1").status, 200);
    drop(reading);
    // All memory there is: a reader waits until one of them is too slow.
    let sending: Vec<_> = (0..2).map(|_| begin_put(&fixture, "long", BYTES)).collect();
    let has_answer = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let answered = stream.peek(&mut [0; 12]).is_ok_and(|bytes| bytes == 12);
        stream.set_nonblocking(false).unwrap();
        answered
    };
    let until = Instant::now() + Duration::from_secs(20);
    let late = loop {
        wait_for_document();
        if let Some(late) = sending.iter().find(has_answer) {
            break late;
        }
        assert!(Instant::now() < until, "nobody makes room");
    };
    assert_eq!(status(late), 408, "it was too slow");
}

#[test]
fn binary_and_long_values_are_cut() {
    let fixture = Fixture::development();
    let id = BASE64.encode(b"\xff/\0");
    assert_eq!(
        put(&fixture, &format!("{id}?encoding=base64url"), "é".repeat(600).as_str()).status,
        200
    );
    let read = fixture.get(&format!("{DOCS}/{id}?encoding=base64url&bytes=11")).json();
    assert_eq!((&read["id"], read.get("key")), (&Value::from(id), None));
    assert_eq!((&read["text"], &read["truncated"]), (&"ééééé".into(), &true.into()));
    assert_eq!(read["bytes"], 1200);
}

#[test]
fn pages_are_in_key_order_and_lead_to_the_next() {
    let fixture = Fixture::development();
    for number in 0..25 {
        assert_eq!(put(&fixture, &format!("doc-{number:02}"), "{}").status, 200);
    }
    assert_eq!(put(&fixture, "other", "{}").status, 200);
    let first = fixture.get(&format!("{DOCS}?limit=10")).json();
    assert_eq!(keys(&first)[..2], ["doc-00", "doc-01"]);
    assert_eq!((first["documents"][0]["text"].as_str(), keys(&first).len()), (Some("{}"), 10));
    let next = first["next"].as_str().unwrap();
    let second = fixture.get(&format!("{DOCS}?limit=10&after={next}")).json();
    assert_eq!(keys(&second)[0], "doc-10");
    let prefix = BASE64.encode("doc-2");
    let last = fixture.get(&format!("{DOCS}?limit=10&prefix={prefix}")).json();
    assert_eq!((keys(&last).len(), &last["next"]), (5, &Value::Null));
    let exact = fixture.get(&format!("{DOCS}?limit=5&prefix={prefix}")).json();
    assert_eq!((keys(&exact).len(), &exact["next"]), (5, &Value::Null), "no empty page follows");
    assert_eq!(fixture.get(&format!("{DOCS}?limit=0")).status, 400);
}

// Compat (Admin HTTP): `/pools/default/buckets/B/docs` and `/KEY` below it, also below a
// collection: `GET`, `PUT`, `DELETE`
#[test]
fn rights_are_those_of_the_data_port() {
    let fixture = Fixture::start(
        |data_dir| {
            add_user(data_dir, "reader", &["read-only:default"]);
            add_user(data_dir, "writer", &["upsert:default"]);
            add_user(data_dir, "inserter", &["insert+read:default"]);
            add_user(data_dir, "stranger", &["read-write:other"]);
            add_user(data_dir, "admin", &["admin"]);
        },
        false,
    );
    let ask = |method: &str, user: &str, path: &str| {
        fixture.ask(method, &format!("{DOCS}{path}"), &format!("{user}:secret1"), "1")
    };
    let status = |method: &str, user: &str, path: &str| ask(method, user, path).status;
    assert_eq!(status("PUT", "writer", "/a"), 200);
    assert_eq!(status("PUT", "inserter", "/b?mode=add"), 200);
    for (method, user, path) in [
        ("PUT", "reader", "/a"),
        ("DELETE", "reader", "/a"),
        ("GET", "writer", "/a"),
        ("GET", "writer", "/a?raw=1"),
        ("GET", "writer", ""),
        ("DELETE", "writer", "/a"),
        ("PUT", "writer", "/c?mode=add"),
        ("PUT", "inserter", "/b"),
        ("GET", "inserter", ""),
        ("GET", "stranger", "/a"),
        ("PUT", "stranger", "/a"),
        ("GET", "admin2", "/a"),
    ] {
        let expected = if user == "admin2" { 401 } else { 403 };
        assert_eq!(status(method, user, path), expected, "{method} {user} {path}");
    }
    assert_eq!(keys(&ask("GET", "reader", "").json()), ["a", "b"]);
    let hidden = ask("GET", "inserter", "/a").json();
    assert!(hidden.get("expiry").is_none(), "metadata needs meta-read: {hidden}");
    assert!(ask("GET", "reader", "/a").json()["expiry"].is_u64());
    let collection = "/pools/default/buckets/default/scopes/_default/collections/nope/docs/a";
    assert_eq!(fixture.ask("GET", collection, "reader:secret1", "").status, 404);
}
