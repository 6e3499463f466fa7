//! `oribi query` against a running server, its data directory, and neither.

mod terminal;

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const ORIBI: &str = env!("CARGO_BIN_EXE_oribi");

/// Limit for a server that does not answer, including the delay of a machine under load.
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
        let mut command = self.command(&["query", "--format", "json", statement]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("oribi runs");
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut [0; 16]).expect("there are rows");
        (child, out)
    }

    fn query(&self, statement: &str) -> Output {
        self.command(&["query", "--format", "json", statement]).output().expect("oribi runs")
    }

    fn rows(&self, statement: &str) -> Vec<Value> {
        rows_of(&self.query(statement))
    }
}

fn offline(data_dir: &std::path::Path, statement: &str) -> Output {
    Command::new(ORIBI)
        .args(["query", "--format", "json", "--data-dir"])
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
const STATEMENTS: [(&str, &str); 9] = [
    (
        "select city, count(*) as n from `default` where city is not missing \
         group by city order by city",
        r#"[{"city":"Kyiv","n":2},{"city":"Oslo","n":1}]"#,
    ),
    (
        "select meta(o).id, u.city from `default`.eu.orders o join `default` u on keys o.`user` \
         order by 1, meta(o).id",
        r#"[{"id":"o1","city":"Oslo"},{"id":"o2","city":"Kyiv"}]"#,
    ),
    ("select sum(total) as total from `default`.eu.orders", r#"[{"total":12}]"#),
    ("select raw count(*) from `default`", "[4]"),
    (
        "select meta().id from `default` where meta().id like 'user-%' and meta().id > 'user-1' \
         order by meta().id",
        r#"[{"id":"user-2"},{"id":"user-3"}]"#,
    ),
    (
        "select meta().id, o.* from `default`.eu.orders o where meta().id in ['o1', 'none']",
        r#"[{"id":"o1","user":"user-1","total":5}]"#,
    ),
    (
        "select meta().type, meta().expiration from `default` use keys 'binary'",
        r#"[{"type":"base64","expiration":0}]"#,
    ),
    (
        "select raw k.`path` from system:keyspaces as k where k.`scope` is not missing or k.name = \
         'default' order by k.`path`",
        r#"["default:default","default:default.eu.orders"]"#,
    ),
    ("select raw {'a': 1, 'b': [missing, null]}", r#"[{"a":1,"b":[null,null]}]"#),
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
    let unknown = offline(&data_dir, "select * from `default`.eu.order_");
    assert!(stderr(&unknown).contains("did you mean default.eu.orders?"), "{}", stderr(&unknown));
    let change = offline(&data_dir, "delete from `default`");
    assert_eq!(change.status.code(), Some(1));
    assert!(stderr(&change).contains("read-only"), "{}", stderr(&change));
}

#[test]
fn every_format_is_equal_for_a_stopped_server() {
    let mut fixture = Fixture::filled();
    let statement = "select meta().id, city, {'n': 1} as o, 1.5 as x from `default` \
                     where city is not missing order by meta().id";
    let formats = ["table", "json", "csv", "parquet"];
    let print = |mut command: Command| {
        let output = command.stdin(Stdio::null()).output().expect("oribi runs");
        assert!(output.status.success(), "{}", stderr(&output));
        output.stdout
    };
    let running =
        formats.map(|format| print(fixture.command(&["query", "--format", format, statement])));
    assert_eq!(
        String::from_utf8_lossy(&running[2]),
        "id,city,o,x\r\nuser-1,Oslo,\"{\"\"n\"\":1}\",1.5\r\n\
         user-2,Kyiv,\"{\"\"n\"\":1}\",1.5\r\nuser-3,Kyiv,\"{\"\"n\"\":1}\",1.5\r\n"
    );
    assert!(running[3].starts_with(b"PAR1") && running[3].ends_with(b"PAR1"));
    let data_dir = fixture.server.data_dir().to_owned();
    fixture.server.terminate().unwrap();
    for (format, expected) in formats.into_iter().zip(running) {
        let mut command = Command::new(ORIBI);
        command.args(["query", "--format", format, "--data-dir"]).arg(&data_dir).arg(statement);
        assert_eq!(print(command), expected, "{format}");
    }
}

#[test]
fn wrong_statements_and_names_say_what_to_write() {
    let fixture = Fixture::filled();
    for (statement, expected) in [
        ("select * from defualt", "did you mean default?"),
        ("select * from orders", "did you mean default.eu.orders?"),
        ("select *\nfrom where", "line 2, column 6"),
        ("select 'open", "line 1, column 8"),
        ("select 1; select nope(1)", "statement 2 of 2"),
    ] {
        let output = fixture.query(statement);
        assert_eq!(output.status.code(), Some(1), "{statement}");
        assert!(stderr(&output).contains(expected), "{statement}: {}", stderr(&output));
    }
}

#[test]
fn documents_are_changed_unless_only_read() {
    let fixture = Fixture::filled();
    let run = |options: &[&str], statement: &str| {
        let words = [&["query", "--json", "--stats"][..], options, &[statement]].concat();
        fixture.command(&words).output().expect("oribi runs")
    };
    let refused = run(&["--read-only"], "delete from `default`");
    assert!(stderr(&refused).contains("read-only"), "{}", stderr(&refused));
    let changed = run(&[], "update `default` set n = 1 where city = 'Kyiv' returning meta().id");
    assert_eq!(rows_of(&changed).len(), 2);
    assert!(stderr(&changed).contains("2 documents changed"), "{}", stderr(&changed));
    let (named, unnamed) = (["--param", "city=Oslo"], ["--param", "[\"Oslo\"]"]);
    let count = |options: &[&str], condition: &str| {
        let context = [&["--context", "default.eu"], options].concat();
        let statement = format!(
            "select raw (select raw count(*) from `default`._default._default d where {condition})[0] \
             + count(*) from orders"
        );
        rows_of(&run(&context, &statement))
    };
    assert_eq!(count(&named, "d.city = $city"), [json!(3)]);
    assert_eq!(count(&unnamed, "d.city in ?"), [json!(3)]);
}

#[test]
fn tables_csv_and_plans_are_for_people() {
    let fixture = Fixture::filled();
    let run = |words: &[&str]| {
        let words = [&["query"], words].concat();
        succeeds(&fixture.command(&words).output().expect("oribi runs"))
    };
    let statement = "select meta().id, city from `default` where meta().id > 'user-1' order by id";
    assert_eq!(run(&["--csv", statement]), "id,city\r\nuser-2,Kyiv\r\nuser-3,Kyiv\r\n");
    let table = run(&[statement]);
    assert!(table.contains("│ user-2 ┆ Kyiv │"), "{table}");
    let plan = run(&["explain select * from `default` where meta().id > 'u'"]);
    assert!(plan.lines().any(|line| line.starts_with("KeyRangeScan  as: default")), "{plan}");
    let file = fixture.directory.path().join("statements");
    std::fs::write(&file, "-- two\nselect raw 1; select raw ';';").expect("the file is written");
    let file = file.to_str().expect("a path of UTF-8");
    assert_eq!(run(&["--json", "--file", file]), "1\n\";\"\n");
}

#[test]
fn a_dead_port_is_reported_soon() {
    // A listener that never answers, and a port without one.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_port = 1;
    for port in [silent.local_addr().unwrap().port(), closed_port] {
        let began = Instant::now();
        let output = Command::new(ORIBI)
            .args(["query", "--port", &port.to_string(), "select 1"])
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
    let few = fixture.rows("select count(*) as n, sum(n) as sum from `cache`");
    assert_eq!(json!(few), json!([{"n": 20, "sum": 190}]));
    let keys = fixture.rows("select meta().id from `cache` where meta().id > 'k003' and meta().id < 'k006' order by meta().id");
    assert_eq!(json!(keys), json!([{"id": "k004"}, {"id": "k005"}]));
    let one = fixture.rows("select raw c from `cache` c where meta().id = 'k007'");
    assert_eq!(json!(one), json!([{"n": 7}]));
}

#[test]
fn a_lost_connection_is_an_error() {
    let fixture = Fixture::start();
    let value = format!("\"{}\"", "a".repeat(1 << 20));
    for number in 0..24 {
        fixture.set_long(&format!("o{number}"), &value, &[]);
    }
    let proxy = oribi_testkit::TcpProxy::start(fixture.server.admin_port()).expect("a proxy");
    let mut command = fixture.command(&["query", "--json", "select raw d from `default` d"]);
    let command = command.args(["--admin-port", &proxy.port().to_string()]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("oribi runs");
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut [0; 16]).expect("there are rows");
    // Mending closes every connection there is.
    proxy.mend();
    out.read_to_end(&mut Vec::new()).expect("it ends");
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("lost"), "{}", stderr(&ended));
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
    let (child, mut out) = fixture.begin("select raw o from `default`.eu.orders o");
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
    let whole = fixture.rows("select raw d from `default` d");
    assert_eq!(whole[0]["t"].as_str().map(str::len), Some(text.len()));
    let part = fixture.rows("select length(t) as n from `default` use keys 'large'");
    assert_eq!(json!(part), json!([{"n": text.len()}]));
}

#[test]
fn ctrl_c_ends_a_statement() {
    let fixture = Fixture::start();
    let endless = "select raw a from array_range(0, 100000) a unnest array_range(0, 100000) b";
    let (child, mut out) = fixture.begin(endless);
    kill_process(Pid::from_child(&child), Signal::INT).expect("it runs");
    out.read_to_end(&mut Vec::new()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
}

#[test]
fn parquet_is_a_whole_file_or_an_error() {
    let fixture = Fixture::filled();
    let statement = "select meta().id, meta().cas, d, d.city from `default` d";
    let parquet = |statement: &str| {
        let mut command = fixture.command(&["query", "--format", "parquet", statement]);
        command.output().expect("oribi runs")
    };
    let output = parquet(statement);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout.starts_with(b"PAR1") && output.stdout.ends_with(b"PAR1"));
    let two = parquet("select 1; select 2");
    assert!(stderr(&two).contains("one statement"), "{}", stderr(&two));
    let failed = parquet("select nope(1) from `default`");
    assert!(!failed.status.success() && !failed.stdout.ends_with(b"PAR1"));
}
