//! `oribi sql` against a running server, its data directory, and neither.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// What a server that does not answer may cost, and what a machine under load adds.
const DEAD_PORT_MAX: Duration = Duration::from_secs(5 + 10);

oribi_testkit::fixture!();

impl Fixture {
    /// Documents in two collections.
    fn filled() -> Fixture {
        let fixture = Fixture::start();
        fixture.create_collections("eu", &["orders"]);
        for (key, value) in [
            ("user-1", r#"{"city":"Oslo"}"#),
            ("user-2", r#"{"city":"Kyiv"}"#),
            ("user-3", r#"{"city":"Kyiv"}"#),
            ("binary", "no JSON"),
        ] {
            succeeds(&fixture.command(&["doc", "set", key, value]).output().expect("oribi runs"));
        }
        for (key, value) in
            [("o1", r#"{"user":"user-1","total":5}"#), ("o2", r#"{"user":"user-3","total":7}"#)]
        {
            let set = ["doc", "set", key, value, "--collection", "eu.orders"];
            succeeds(&fixture.command(&set).output().expect("oribi runs"));
        }
        fixture
    }

    /// Writes a document whose value is too long for an argument.
    fn set_long(&self, key: &str, value: &str, more: &[&str]) {
        let file = self.directory.path().join("value");
        std::fs::write(&file, value).expect("the file is written");
        let file = file.to_str().expect("a path of UTF-8").to_owned();
        let set = [&["doc", "set", key, "--file", &file], more].concat();
        succeeds(&self.command(&set).output().expect("oribi runs"));
    }

    fn admin(&self) -> HttpClient {
        HttpClient::new(self.server.admin_port())
            .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD)
    }

    /// A statement in progress: its first bytes have been read.
    fn begin(&self, statement: &str) -> (Child, ChildStdout) {
        let mut command = self.command(&["sql", "--format", "json", statement]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("oribi runs");
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut [0; 16]).expect("there are rows");
        (child, out)
    }

    fn sql(&self, statement: &str) -> Output {
        self.command(&["sql", "--format", "json", statement]).output().expect("oribi runs")
    }

    fn rows(&self, statement: &str) -> Vec<Value> {
        rows_of(&self.sql(statement))
    }
}

fn offline(data_dir: &std::path::Path, statement: &str) -> Output {
    Command::new(ORIBI)
        .args(["sql", "--format", "json", "--data-dir"])
        .arg(data_dir)
        .arg(statement)
        .stdin(Stdio::null())
        .output()
        .expect("oribi runs")
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn rows_of(output: &Output) -> Vec<Value> {
    succeeds(output)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

/// Statements, and their rows wherever the documents are.
const STATEMENTS: [(&str, &str); 8] = [
    (
        "select json ->> 'city' as city, count(*) as n from \"default._default._default\" \
         where json is not null group by city order by city",
        r#"[{"city":"Kyiv","n":2},{"city":"Oslo","n":1}]"#,
    ),
    (
        "select o.id, u.json ->> 'city' as city from \"default.eu.orders\" o \
         join \"default._default._default\" u on u.id = o.json ->> 'user' order by 1",
        r#"[{"id":"o1","city":"Oslo"},{"id":"o2","city":"Kyiv"}]"#,
    ),
    ("select sum(json ->> 'total') as total from \"eu.orders\"", r#"[{"total":12}]"#),
    ("select count(*) as n from \"default\"", r#"[{"n":6}]"#),
    (
        "select id from \"default\" where id glob 'user-*' and id > 'user-1' order by id",
        r#"[{"id":"user-2"},{"id":"user-3"}]"#,
    ),
    (
        "select id, json from \"default\" where id in ('o1', 'none')",
        r#"[{"id":"o1","json":{"user":"user-1","total":5}}]"#,
    ),
    (
        "select body, expiry, body_bytes from \"default\" where id = 'binary'",
        r#"[{"body":"no JSON","expiry":0,"body_bytes":7}]"#,
    ),
    ("select id, seqno > 0 as ok from \"default\" where id = 'o2'", r#"[{"id":"o2","ok":1}]"#),
];

#[test]
fn a_server_and_its_data_directory_have_equal_rows() {
    let mut fixture = Fixture::filled();
    for (statement, expected) in STATEMENTS {
        let expected: Value = serde_json::from_str(expected).unwrap();
        assert_eq!(json!(fixture.rows(statement)), expected, "running: {statement}");
    }
    let data_dir = fixture.server.data_dir().to_owned();
    let beside = offline(&data_dir, "select 1");
    assert!(stderr(&beside).contains("in use"), "{}", stderr(&beside));
    fixture.server.terminate().unwrap();
    for (statement, expected) in STATEMENTS {
        let expected: Value = serde_json::from_str(expected).unwrap();
        let rows = rows_of(&offline(&data_dir, statement));
        assert_eq!(json!(rows), expected, "stopped: {statement}");
    }
    let unknown = offline(&data_dir, "select * from \"default.eu.order\"");
    assert!(
        stderr(&unknown).contains("did you mean \"default.eu.orders\"?"),
        "{}",
        stderr(&unknown)
    );
}

#[test]
fn wrong_statements_and_names_say_what_to_write() {
    let fixture = Fixture::filled();
    for (statement, expected) in [
        ("select * from defualt", "did you mean \"default\"?"),
        ("select * from orders", "did you mean \"default.eu.orders\"?"),
        ("select * from \"default\" where", "incomplete input"),
        ("delete from \"default\"", "may not be modified"),
    ] {
        let output = fixture.sql(statement);
        assert_eq!(output.status.code(), Some(1), "{statement}");
        assert!(stderr(&output).contains(expected), "{statement}: {}", stderr(&output));
    }
}

#[test]
fn a_dead_port_is_reported_soon() {
    // A listener that never answers, and a port without one.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = closed.local_addr().unwrap().port();
    drop(closed);
    for port in [silent.local_addr().unwrap().port(), closed_port] {
        let began = Instant::now();
        let output = Command::new(ORIBI)
            .args(["sql", "--port", &port.to_string(), "select 1"])
            .stdin(Stdio::null())
            .output()
            .expect("oribi runs");
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("cannot open bucket"), "{}", stderr(&output));
        assert!(began.elapsed() < DEAD_PORT_MAX, "{:?}", began.elapsed());
    }
}

// Compat (Range scans): Buckets in memory can be scanned
#[test]
fn buckets_in_memory_have_rows() {
    let fixture = Fixture::start();
    let fields = [("name", "cache"), ("ramQuota", "100"), ("bucketType", "ephemeral")];
    let made = fixture.admin().post_form("/pools/default/buckets", &fields).unwrap();
    assert_eq!(made.status, 202, "{}", made.text());
    for number in 0..20 {
        let (key, value) = (format!("k{number:03}"), format!("{{\"n\":{number}}}"));
        let set = ["doc", "set", &key, &value, "--bucket", "cache"];
        succeeds(&fixture.command(&set).output().expect("oribi runs"));
    }
    let few = fixture.rows("select count(*) as n, sum(json ->> 'n') as sum from cache");
    assert_eq!(json!(few), json!([{"n": 20, "sum": 190}]));
    let keys = fixture.rows("select id from cache where id > 'k003' and id < 'k006' order by id");
    assert_eq!(json!(keys), json!([{"id": "k004"}, {"id": "k005"}]));
    let one = fixture.rows("select json from cache where id = 'k007'");
    assert_eq!(json!(one), json!([{"json": {"n": 7}}]));
}

/// The scan of a vbucket is longer than all that waits between server and client, so that it stands
/// in its middle when the connections end. What comes then is in no order, so keys that have come
/// are left out.
#[test]
fn a_resumed_scan_lists_each_document_once() {
    const COUNT: usize = 120;
    let fixture = Fixture::start();
    // Of one vbucket, however many there are up to 1024.
    let vbucket = |key: &str| oribi_protocol::hash::vbucket_of(key.as_bytes(), 1024);
    let keys = (0..).map(|number| format!("k{number}"));
    let keys: Vec<String> =
        keys.filter(|key| vbucket(key) == oribi_types::Vbid(7)).take(COUNT).collect();
    let line = |key: &String| format!("{{\"_key\":\"{key}\",\"t\":\"{}\"}}\n", "x".repeat(300_000));
    let file = fixture.directory.path().join("lines");
    std::fs::write(&file, keys.iter().map(line).collect::<String>()).expect("the file is written");
    let import = ["doc", "import", file.to_str().expect("a path of UTF-8")];
    succeeds(&fixture.command(&import).output().expect("oribi runs"));

    let proxy = oribi_testkit::TcpProxy::start(fixture.server.port()).expect("a proxy");
    let mut child = Command::new(ORIBI)
        .args(["sql", "--format", "json", "--port", &proxy.port().to_string()])
        .args(["--user", DEVELOPMENT_USER, "select json, id from \"default\""])
        .env("ORIBI_PASSWORD", DEVELOPMENT_PASSWORD)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("oribi runs");
    let mut out = child.stdout.take().expect("a pipe");
    let mut text = vec![0; 16];
    out.read_exact(&mut text).expect("there are rows");
    // Mending closes every connection there is.
    proxy.mend();
    out.read_to_end(&mut text).expect("there are more");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(text).expect("it is text");
    let id = |line: &str| line.rsplit('\"').nth(1).map(str::to_owned);
    let mut found: Vec<String> = text.lines().filter_map(id).collect();
    found.sort_unstable();
    let mut wanted = keys;
    wanted.sort_unstable();
    assert!(found == wanted, "{} rows, each document comes once", found.len());
}

#[test]
fn a_collection_dropped_in_mid_statement_ends_it() {
    const DOCUMENTS: usize = 24;
    let fixture = Fixture::start();
    fixture.create_collections("eu", &["orders"]);
    let value = format!("\"{}\"", "a".repeat(1 << 20));
    for number in 0..DOCUMENTS {
        fixture.set_long(&format!("o{number}"), &value, &["--collection", "eu.orders"]);
    }
    let (child, mut out) = fixture.begin("select json from \"default.eu.orders\"");
    let path = "/pools/default/buckets/default/scopes/eu/collections/orders";
    assert_eq!(fixture.admin().delete(path).unwrap().status, 200);
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(rest.len() < DOCUMENTS * value.len(), "it is not complete");
    assert!(stderr(&ended).to_lowercase().contains("collection"), "{}", stderr(&ended));
}

#[test]
fn the_largest_document_is_a_row() {
    let fixture = Fixture::start();
    let text = "a".repeat(20 * 1024 * 1024 - 16);
    fixture.set_long("large", &format!("{{\"t\":\"{text}\"}}"), &[]);
    let whole = fixture.rows("select json from \"default\"");
    assert_eq!(whole[0]["json"]["t"].as_str().map(str::len), Some(text.len()));
    let part = fixture.rows("select length(json ->> 't') as n from \"default\" where id = 'large'");
    assert_eq!(json!(part), json!([{"n": text.len()}]));
}

#[test]
fn ctrl_c_ends_a_statement() {
    let fixture = Fixture::start();
    let endless =
        "with recursive c(x) as (values (1) union all select x + 1 from c) select x from c";
    let (child, mut out) = fixture.begin(endless);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    out.read_to_end(&mut Vec::new()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
}

#[test]
fn parquet_is_a_whole_file_or_an_error() {
    let fixture = Fixture::filled();
    let statement = "select id, cas, json, body, json ->> 'city' as city from \"default\"";
    let parquet = |statement: &str| {
        let mut command = fixture.command(&["sql", "--format", "parquet", statement]);
        command.output().expect("oribi runs")
    };
    let output = parquet(statement);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout.starts_with(b"PAR1") && output.stdout.ends_with(b"PAR1"));
    let two = parquet("select 1; select 2");
    assert!(stderr(&two).contains("one statement"), "{}", stderr(&two));
    let failed = parquet("select json_extract(json, 'no path') from \"default\"");
    assert!(!failed.status.success() && !failed.stdout.ends_with(b"PAR1"));
}
