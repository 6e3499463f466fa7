//! Statements of SQL over real HTTP: what they show to whom, and how they end.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use oribi_types::CollectionId;
use serde_json::{Value, json};

use super::changes::{edit_user, wait_until};
use super::{ADMIN, Answer, Fixture, add_user};
use crate::limits::SQL_STATEMENTS_MAX;

const PATH: &str = "/query/sql";

/// More rows than sockets and pieces hold.
const MILLION: &str = "with recursive c(x) as (values (1) union all select x + 1 from c \
                       where x < 1000000) select x, 'a text beside the number' from c";

/// It never has a row and never ends by itself.
const ENDLESS: &str = "with recursive c(x) as (values (1) union all select x + 1 from c) \
                       select max(x) from c";

impl Fixture {
    pub(super) fn query_as(&self, credentials: &str, statement: &str) -> Answer {
        let mut answer = self.ask("POST", PATH, credentials, statement);
        answer.body = unchunked(&answer.head, &answer.body);
        answer
    }

    /// The rows of a statement that succeeds.
    #[track_caller]
    pub(super) fn rows(&self, statement: &str) -> Vec<Value> {
        let answer = self.query_as(ADMIN, statement);
        assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
        rows_in(&answer.body)
    }

    /// Begins a request in JSON and leaves its answer unread.
    fn begin_json(&self, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        let body = body.to_string();
        let login = "QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==";
        write!(
            stream,
            "POST {PATH} HTTP/1.1\r\nHost: localhost:8091\r\nConnection: close\r\n\
             Authorization: Basic {login}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        stream
    }

    /// Begins a statement and leaves its answer unread.
    pub(super) fn begin(&self, statement: &str) -> TcpStream {
        self.connect("POST", PATH, ADMIN, statement)
    }
}

/// The body of a chunked answer.
pub(super) fn unchunked(head: &str, body: &str) -> String {
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = &after[(size + 2).min(after.len())..];
    }
    whole
}

/// Rows between the columns and the end, which is complete.
#[track_caller]
pub(super) fn rows_in(body: &str) -> Vec<Value> {
    let mut lines = body.lines().map(|line| serde_json::from_str(line).unwrap());
    let first: Value = lines.next().unwrap();
    assert!(first["columns"].is_array(), "{first}");
    let mut rows: Vec<Value> = lines.collect();
    let last = rows.pop().unwrap();
    assert_eq!((&last["end"], &last["rows"]), (&json!("complete"), &json!(rows.len())), "{last}");
    rows
}

/// The last line of an answer, once all of it was read.
fn last_line(stream: TcpStream) -> Value {
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let last = lines.filter(|line| line.starts_with(r#"{"e"#)).last().unwrap();
    serde_json::from_str(&last).unwrap()
}

#[test]
fn documents_are_rows_wherever_they_are() {
    let fixture = Fixture::development();
    let orders = fixture.collection("eu", "orders");
    for number in 0..100 {
        let city = if number % 3 == 0 { "Oslo" } else { "Kyiv" };
        let value = json!({"n": number, "city": city}).to_string();
        fixture.put(&format!("user-{number:03}"), value.as_bytes());
    }
    fixture.put_in(orders, "o1", br#"{"user":"user-007","total":5}"#);
    fixture.put_in(orders, "o2", br#"{"user":"user-009","total":7}"#);
    fixture.put_in(orders, "raw", b"\xff");
    assert_eq!(
        fixture.rows("select count(*), count(distinct vbucket) from \"default\""),
        [json!([103, 4])]
    );
    assert_eq!(fixture.rows("select count(*) from \"default._default._default\""), [json!([100])]);
    let cities = "select json ->> 'city' as city, count(*) from \"default._default._default\" \
                  group by city order by 2";
    assert_eq!(fixture.rows(cities), [json!(["Oslo", 34]), json!(["Kyiv", 66])]);
    let join = "select o.id, u.json ->> '$.city' from \"default.eu.orders\" o \
                join \"default._default._default\" u on u.id = o.json ->> 'user' order by 1";
    assert_eq!(fixture.rows(join), [json!(["o1", "Kyiv"]), json!(["o2", "Oslo"])]);
    // A document is one in the answer, too, and bytes are base64.
    let shown = fixture.rows("select id, json, body, flags from \"default.eu.orders\" where id in ('o1', 'raw') order by 1");
    assert_eq!(shown[0], json!(["o1", {"user": "user-007", "total": 5}, null, 7]));
    assert_eq!(shown[1], json!(["raw", null, {"base64": "/w=="}, 7]));
    for (condition, count) in [
        ("id = 'user-005'", 1),
        ("id = 5", 0),
        ("id in ('user-005', 'user-006', 'none')", 2),
        ("id glob 'user-01*'", 10),
        ("id >= 'user-090' and id < 'user-095'", 5),
        ("id > 'user-098' or id = 'user-001'", 2),
        ("vbucket in (0, 1, 2, 3)", 100),
        ("id = 'user-005' and collection = 77", 0),
    ] {
        let statement =
            format!("select count(*) from \"default._default._default\" where {condition}");
        assert_eq!(fixture.rows(&statement), [json!([count])], "{condition}");
    }
    let plan = fixture.rows("explain query plan select id from \"default\" where id = 'a'");
    assert!(plan[0].to_string().contains("where id = ?, reads id"), "{plan:?}");
}

#[test]
fn a_request_may_be_json_with_parameters_and_a_bucket() {
    let fixture = Fixture::development();
    let orders = fixture.collection("eu", "orders");
    fixture.put_in(orders, "o1", br#"{"total":5}"#);
    let body = json!({
        "statement": "select id from \"eu.orders\" where json ->> 'total' > ?1",
        "bucket": "default",
        "parameters": [4],
    });
    let ask = |body: &Value| {
        let mut text = String::new();
        fixture.begin_json(body).read_to_string(&mut text).unwrap();
        text
    };
    let answer = ask(&body);
    assert!(answer.contains("[\"o1\"]"), "{answer}");
    let answer = ask(&json!({"statement": "select 1", "bucket": "none"}));
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("no such bucket"), "{answer}");
}

#[test]
fn what_is_wrong_is_said_before_the_answer_begins() {
    let fixture = Fixture::development();
    for (statement, status, expected) in [
        ("select * from defualt", 400, "did you mean \\\"default\\\"?"),
        ("selec 1", 400, "syntax error"),
        ("select * from default", 400, "syntax error"),
        ("create table x (a)", 400, "may only read"),
        ("attach 'x' as y", 400, "may only read"),
        ("select load_extension('x')", 400, "not authorized"),
        ("", 400, "statement is needed"),
    ] {
        let answer = fixture.query_as(ADMIN, statement);
        assert_eq!(answer.status, status, "{statement}: {}", answer.body);
        assert!(answer.body.contains(expected), "{statement}: {}", answer.body);
    }
    assert_eq!(fixture.query_as("", "select 1").status, 401);
    assert_eq!(fixture.query_as("Administrator:wrong", "select 1").status, 401);
}

#[test]
fn users_see_what_they_may_read() {
    let fixture = Fixture::start(|directory| add_user(directory, "admin", &["admin"]), false);
    let admin = "admin:secret1";
    let scopes = "/pools/default/buckets/default/scopes";
    for (path, form) in [
        (scopes.to_owned(), "name=eu"),
        (format!("{scopes}/eu/collections"), "name=orders"),
        (format!("{scopes}/eu/collections"), "name=secrets"),
    ] {
        assert_eq!(fixture.ask("POST", &path, admin, form).status, 200);
    }
    let id = |name: &str| {
        let server = fixture.server.as_ref().unwrap();
        let bucket = server.context().buckets.get("default").unwrap();
        bucket.bucket().manifest().collection_id("eu", name).unwrap()
    };
    fixture.put_in(id("orders"), "o1", b"{}");
    fixture.put_in(id("secrets"), "s1", b"{}");
    fixture.put_in(CollectionId::DEFAULT, "d1", b"{}");
    edit_user(&fixture.settings.data_dir, "reader", &["read-only:default/eu/orders"]);
    edit_user(&fixture.settings.data_dir, "getter", &["read:default"]);
    let users = &fixture.server.as_ref().unwrap().context().access.users;
    wait_until(
        || {
            users.reload_if_changed();
            users.current("reader").is_some() && users.current("getter").is_some()
        },
        "the users are known",
    );
    let reader = |statement: &str| fixture.query_as("reader:secret1", statement);
    assert_eq!(rows_in(&reader("select id from \"default\"").body), [json!(["o1"])]);
    assert_eq!(rows_in(&reader("select id from \"default.eu.orders\"").body), [json!(["o1"])]);
    assert_eq!(
        rows_in(&reader("select id from \"default\" where id = 's1'").body),
        Vec::<Value>::new()
    );
    let hidden = reader("select * from \"default.eu.secrets\"");
    assert_eq!(hidden.status, 400, "{}", hidden.body);
    assert!(hidden.body.contains("no such table"), "{}", hidden.body);
    // Without the right to scan, documents are read by their keys.
    let getter = |statement: &str| fixture.query_as("getter:secret1", statement);
    let one = getter("select id from \"default\" where id = 's1'");
    assert_eq!(rows_in(&one.body), [json!(["s1"])]);
    let scan = getter("select id from \"default\"");
    assert_eq!(scan.status, 400);
    assert!(scan.body.contains("range-scan"), "{}", scan.body);
}

#[test]
fn a_statement_ends_with_client_time_or_server() {
    let mut fixture = Fixture::development();
    let streams: Vec<_> = (0..SQL_STATEMENTS_MAX).map(|_| fixture.begin(ENDLESS)).collect();
    wait_until(
        || fixture.query_as(ADMIN, "select 1").status == 503,
        "more statements than may run are refused",
    );
    streams.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    wait_until(
        || fixture.query_as(ADMIN, "select 1").status == 200,
        "statements without clients end",
    );
    let mut answer = String::new();
    let mut stream = fixture.begin_json(&json!({"statement": ENDLESS, "timeout_ms": 50}));
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("longer than it may"),
        "{answer}"
    );
    let mut stream = fixture.begin(MILLION);
    let mut begun = [0; 1024];
    assert!(stream.read(&mut begun).unwrap() > 0);
    fixture.restart();
    let mut rest = Vec::new();
    // It may be reset instead.
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("complete"));
}

/// The place of a statement was once free a little after its client had the answer.
#[test]
fn a_client_with_its_answer_may_ask_again() {
    let fixture = Fixture::development();
    std::thread::scope(|scope| {
        for _ in 0..SQL_STATEMENTS_MAX {
            scope.spawn(|| {
                for _ in 0..100 {
                    for (statement, status) in [("select 1", 200), ("selec 1", 400)] {
                        let answer = fixture.query_as(ADMIN, statement);
                        assert_eq!(answer.status, status, "{statement}: {}", answer.body);
                    }
                }
            });
        }
    });
}

#[test]
fn a_million_rows_to_a_slow_reader_hold_little_memory() {
    let fixture = Fixture::development();
    // Its time continues while the client reads nothing, and a busy machine needs more of it.
    let mut stream = fixture.begin_json(&json!({"statement": MILLION, "timeout_ms": 600_000}));
    let mut head = [0; 1024];
    let read = stream.read(&mut head).unwrap();
    assert!(head[..read].starts_with(b"HTTP/1.1 200"));
    // The client reads nothing until the server can send nothing more.
    let (mut most, mut last, mut same) = (0, 0, 0);
    wait_until(
        || {
            let reserved = fixture.reserved_bytes();
            same = if reserved > 0 && reserved == last { same + 1 } else { 0 };
            last = reserved;
            most = most.max(reserved);
            same > 40
        },
        "the statement waits for its client",
    );
    assert!((1..1 << 20).contains(&most), "{most} bytes");
    assert_eq!(fixture.rows("select 1"), [json!([1])], "others are served");
    let last = last_line(stream);
    assert_eq!((&last["end"], &last["rows"]), (&json!("complete"), &json!(1_000_000)), "{last}");
    wait_until(|| fixture.reserved_bytes() == 0, "all memory is given back");
}

#[test]
fn a_collection_dropped_in_mid_statement_ends_it() {
    const DOCUMENTS: usize = 400;
    let fixture = Fixture::development();
    let orders = fixture.collection("eu", "orders");
    let value = format!("\"{}\"", "a".repeat(64 * 1024));
    for number in 0..DOCUMENTS {
        fixture.put_in(orders, &format!("o{number}"), value.as_bytes());
    }
    let mut stream = fixture.begin("select json from \"default.eu.orders\"");
    let mut head = [0; 1024];
    assert!(stream.read(&mut head).unwrap() > 0);
    let path = "/pools/default/buckets/default/scopes/eu/collections/orders";
    assert_eq!(fixture.ask("DELETE", path, ADMIN, "").status, 200);
    let last = last_line(stream);
    assert_eq!(last["end"], "error", "{last}");
    assert!(last["error"].as_str().unwrap().contains("was dropped"), "{last}");
    assert!(last["rows"].as_u64().unwrap() < DOCUMENTS as u64, "{last}");
    let gone = fixture.query_as(ADMIN, "select json from \"default.eu.orders\"");
    assert!(gone.body.contains("no such table"), "{}", gone.body);
}

#[test]
fn the_largest_document_is_a_row() {
    let fixture = Fixture::development();
    let text = "a".repeat(20 * 1024 * 1024 - 16);
    fixture.put("large", format!("{{\"t\":\"{text}\"}}").as_bytes());
    let whole = fixture.rows("select json from \"default\"");
    assert_eq!(whole[0][0]["t"].as_str().map(str::len), Some(text.len()));
    let part =
        fixture.rows("select length(json ->> 't'), body_bytes from \"default\" where id = 'large'");
    assert_eq!(part, [json!([text.len(), text.len() + 8])]);
}

#[test]
fn buckets_in_memory_have_rows() {
    let fixture = Fixture::development();
    let made =
        fixture.post("/pools/default/buckets", "name=cache&ramQuota=100&bucketType=ephemeral");
    assert_eq!(made.status, 202, "{}", made.body);
    let server = fixture.server.as_ref().unwrap();
    let bucket = server.context().buckets.get("cache").unwrap();
    for number in 0..50 {
        let key = format!("k{number}");
        let vbid = oribi_protocol::hash::vbucket_of(key.as_bytes(), bucket.vbuckets());
        let request = oribi_engine::StoreRequest {
            mode: oribi_engine::StoreCondition::Set,
            value: b"{\"n\":1}",
            is_compressed: false,
            flags: 0,
            expiry: 0,
            cas: oribi_types::Cas(0),
            preserve_expiry: false,
        };
        let key = oribi_types::DocKey { collection: CollectionId::DEFAULT, key: key.as_bytes() };
        let stored = bucket.bucket().store(vbid, key, &request, oribi_system::clock::wall_clock());
        assert!(matches!(stored, oribi_engine::MutationOutcome::Done(_)), "{stored:?}");
    }
    assert_eq!(fixture.rows("select count(*), sum(json ->> 'n') from cache"), [json!([50, 50])]);
    assert_eq!(fixture.rows("select id from cache where id = 'k7'"), [json!(["k7"])]);
}

#[test]
fn pages_of_other_sites_get_nothing() {
    let fixture = Fixture::development();
    let mut stream = TcpStream::connect(fixture.admin).unwrap();
    write!(
        stream,
        "POST {PATH} HTTP/1.1\r\nHost: localhost:8091\r\nConnection: close\r\nAuthorization: Basic \
         QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==\r\nOrigin: http://elsewhere.example\r\n\
         Content-Length: 8\r\n\r\nselect 1"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

/// A list of keys that is longer than what is copied out of SQLite's memory is SQLite's to check.
#[test]
fn a_long_list_of_keys_finds_the_same() {
    let fixture = Fixture::development();
    fixture.put("k7", b"{}");
    fixture.put("other", b"{}");
    let list = "with recursive c(x) as (values (1) union all select x + 1 from c where x < 60000) \
                select id from \"default\" where id in (select 'k' || x from c)";
    assert_eq!(fixture.rows(list), [json!(["k7"])]);
    let long = "select id from \"default\" where id = hex(zeroblob(3000000)) or id = 'k7'";
    assert_eq!(fixture.rows(long), [json!(["k7"])]);
}
