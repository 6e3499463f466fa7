//! `oribi query` on a table as a bucket's store writes it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use oribi_kudu::{
    Client, ClientBuilder, ColumnSchema, DataType, Schema, Session, SessionOptions, Table,
    TableCreator, Value as Cell,
};
use oribi_protocol::hash::vbucket_of;
use oribi_testkit::KuduCluster;
use serde_json::{Value, json};

use crate::tools::{CLUSTER, json as document, report, stderr, stdout, table_of};

const VBUCKETS: u16 = 8;
const JSON: i16 = 1;
const SNAPPY: i16 = 2;
const XATTR: i16 = 4;
/// A second that is long gone, and one that is not.
const PAST: i64 = 1_000_000_000;
const FUTURE: i64 = 10_000_000_000;
/// Documents of the bucket that SQL sees: 300 orders, two customers, a binary, a long one, two
/// compressed ones, one whose attributes are too long for their cell.
const DOCUMENTS: u64 = 307;

/// A row of the bucket's table.
struct Row<'a> {
    collection: i64,
    key: &'a str,
    chunk: i16,
    seqno: i64,
    expiry: i64,
    deleted: bool,
    datatype: i16,
    body_bytes: i64,
    json: Option<&'a str>,
    body: Option<&'a [u8]>,
    xattrs: Option<&'a [u8]>,
}

impl<'a> Row<'a> {
    fn json(key: &'a str, seqno: i64, json: &'a str) -> Row<'a> {
        Row {
            collection: 0,
            key,
            chunk: 0,
            seqno,
            expiry: 0,
            deleted: false,
            datatype: JSON,
            body_bytes: json.len() as i64,
            json: Some(json),
            body: None,
            xattrs: None,
        }
    }

    fn binary(key: &'a str, seqno: i64, body: &'a [u8]) -> Row<'a> {
        let bytes = body.len() as i64;
        let row = Row { datatype: 0, json: None, body: Some(body), ..Row::json(key, seqno, "") };
        Row { body_bytes: bytes, ..row }
    }

    async fn write(&self, session: &mut Session) {
        let vbucket = vbucket_of(self.key.as_bytes(), VBUCKETS).0.cast_signed();
        self.write_to(session, vbucket).await;
    }

    async fn write_to(&self, session: &mut Session, vbucket: i16) {
        let mut row = session.upsert();
        row.set_i16("vbucket", vbucket).unwrap();
        row.set_i64("collection", self.collection).unwrap();
        row.set_string("key", self.key).unwrap();
        row.set_i16("chunk", self.chunk).unwrap();
        row.set_i64("cas", 1000 + self.seqno).unwrap();
        row.set_i64("seqno", self.seqno).unwrap();
        row.set_i64("rev", 1).unwrap();
        row.set_i64("flags", 0).unwrap();
        row.set_i64("expiry", self.expiry).unwrap();
        row.set_i16("datatype", self.datatype).unwrap();
        row.set_bool("deleted", self.deleted).unwrap();
        row.set_i64("body_bytes", self.body_bytes).unwrap();
        // An upsert leaves what it does not set.
        match self.json {
            Some(json) => row.set_string("json", json).unwrap(),
            None => row.set_null("json").unwrap(),
        };
        match self.body {
            Some(body) => row.set_binary("body", body).unwrap(),
            None => row.set_null("body").unwrap(),
        };
        if let Some(xattrs) = self.xattrs {
            row.set_binary("xattrs", xattrs).unwrap();
        }
        row.apply().await.unwrap();
    }
}

async fn create(client: &Client, name: &str) -> Table {
    let column = |name: &str, data_type| ColumnSchema::builder(name, data_type).nullable(false);
    let schema = Schema::builder()
        .column(ColumnSchema::builder("vbucket", DataType::Int16).key())
        .column(ColumnSchema::builder("collection", DataType::Int64).key())
        .column(ColumnSchema::builder("key", DataType::String).key())
        .column(ColumnSchema::builder("chunk", DataType::Int16).key())
        .column(column("cas", DataType::Int64))
        .column(column("seqno", DataType::Int64))
        .column(column("rev", DataType::Int64))
        .column(column("flags", DataType::Int64))
        .column(column("expiry", DataType::Int64))
        .column(column("datatype", DataType::Int16))
        .column(column("deleted", DataType::Bool))
        .column(column("body_bytes", DataType::Int64))
        .column(ColumnSchema::builder("xattrs", DataType::Binary))
        .column(ColumnSchema::builder("json", DataType::String))
        .column(ColumnSchema::builder("body", DataType::Binary))
        .column(ColumnSchema::builder("owner_epoch_1", DataType::Int8))
        .build()
        .unwrap();
    let creator = TableCreator::new(name, schema)
        .range_columns(["vbucket"])
        .split(&[("vbucket", Cell::Int16(4))])
        .unwrap()
        .num_replicas(1)
        .comment(format!("oribi bucket, vbuckets={VBUCKETS}"));
    client.create_table(creator).await.unwrap()
}

/// The long document: JSON in three pieces.
fn long_json() -> String {
    format!(r#"{{"kind":"long","text":"{}"}}"#, "0123456789".repeat(15_000))
}

async fn fill(table: &Table) {
    let mut session = Session::new(table, SessionOptions::default());
    // About 1 KiB each, so that reading bodies shows.
    let filling = "x".repeat(1000);
    for number in 0..300 {
        let city = ["Kyiv", "Oslo", "Lima"][number % 3];
        let json = format!(
            r#"{{"kind":"order","city":"{city}","total":{number},"customer":"customer-{}","filling":"{filling}"}}"#,
            number % 2
        );
        Row::json(&format!("order-{number:03}"), number as i64, &json).write(&mut session).await;
    }
    for number in 0..2 {
        let json = format!(r#"{{"name":"Name {number}"}}"#);
        let key = format!("customer-{number}");
        let row = Row { collection: 8, ..Row::json(&key, 400 + number, &json) };
        row.write(&mut session).await;
    }
    let xattrs = b"\0\0\0\x16\0\0\0\x12_sync\0{\"rev\":\"1\"}\0";
    let binary = Row::binary("binary", 500, &[0xff, 0, 1]);
    let binary = Row { expiry: FUTURE, datatype: XATTR, xattrs: Some(xattrs), ..binary };
    binary.write(&mut session).await;
    let long = long_json();
    for (chunk, piece) in long.as_bytes().chunks(60 << 10).enumerate() {
        let row = Row::json("long", 600, std::str::from_utf8(piece).unwrap());
        let row = Row { chunk: chunk as i16, body_bytes: long.len() as i64, ..row };
        row.write(&mut session).await;
    }
    fill_unusual(&mut session).await;
    // Statements do not see a tombstone, an expired document, a state, the manifest, and the rows
    // of collection 9.
    Row { deleted: true, ..Row::json("gone", 700, "{}") }.write(&mut session).await;
    Row { expiry: PAST, ..Row::json("expired", 701, "{}") }.write(&mut session).await;
    Row { collection: -1, ..Row::binary("", 0, b"state") }.write(&mut session).await;
    write_manifest(&mut session).await;
    Row { collection: 9, ..Row::json("dropped", 702, "{}") }.write(&mut session).await;
    session.flush().await.unwrap();
    assert!(session.take_errors().is_empty());
}

/// As many small orders as make branches of a statement worth their round trips.
async fn fill_branches(table: &Table) {
    let mut session = Session::new(table, SessionOptions::default());
    for number in 0..5000 {
        Row::json(&format!("order-{number:03}"), number, "{}").write(&mut session).await;
    }
    let customer = Row { collection: 8, ..Row::json("customer-1", 5001, "{}") };
    customer.write(&mut session).await;
    write_manifest(&mut session).await;
    session.flush().await.unwrap();
    assert!(session.take_errors().is_empty());
}

/// The bucket's list of collections.
async fn write_manifest(session: &mut Session) {
    let manifest = br#"{"uid":"3","scopes":[{"name":"_default","uid":"0","collections":[
        {"name":"_default","uid":"0"},{"name":"customers","uid":"8"}]}],
        "nextScopeUid":"8","nextCollectionUid":"a"}"#;
    let manifest = Row { collection: -2, ..Row::binary("manifest", 0, manifest) };
    manifest.write_to(session, -1).await;
}

/// Documents whose bodies are compressed, because their batch would have been too long, and one
/// whose attributes are longer than a cell: block and body are one.
async fn fill_unusual(session: &mut Session) {
    let packed = |body: &str| snap::raw::Encoder::new().compress_vec(body.as_bytes()).unwrap();
    let (json, text) = (packed(r#"{"kind":"packed"}"#), packed("packed text"));
    let row = Row::binary("compressed-json", 800, &json);
    Row { datatype: JSON | SNAPPY, ..row }.write(session).await;
    let row = Row::binary("compressed-text", 801, &text);
    Row { datatype: SNAPPY, ..row }.write(session).await;
    let mut value = Vec::new();
    let pair = ["_sync".as_bytes(), b"\0", long_attribute().as_bytes(), b"\0"].concat();
    value.extend((pair.len() as u32 + 4).to_be_bytes());
    value.extend((pair.len() as u32).to_be_bytes());
    value.extend(pair);
    value.extend(br#"{"kind":"attributes"}"#);
    for (chunk, piece) in (0..).zip(value.chunks(60 << 10)) {
        let row = Row::binary("large-attributes", 802, piece);
        let row = Row { chunk, datatype: JSON | XATTR, ..row };
        Row { body_bytes: value.len() as i64, ..row }.write(session).await;
    }
}

/// JSON of 64 KiB.
fn long_attribute() -> String {
    format!("\"{}\"", "a".repeat((64 << 10) - 2))
}

/// The cluster with the buckets `shop` and `branches` in the database `sqltest`, written once.
fn shop() -> Option<&'static KuduCluster> {
    static WRITTEN: OnceLock<()> = OnceLock::new();
    let cluster = CLUSTER.get()?;
    WRITTEN.get_or_init(|| {
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let builder = ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap();
            let client = builder.build().await.unwrap();
            fill(&create(&client, "sqltest.shop").await).await;
            fill_branches(&create(&client, "sqltest.branches").await).await;
        });
    });
    Some(cluster)
}

fn query(cluster: &KuduCluster, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oribi"));
    command
        .args(["query", "--kudu", &cluster.master_addresses(), "--database", "sqltest"])
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// The rows of a statement, and what it says about its cost.
fn rows(cluster: &KuduCluster, statement: &str) -> (Vec<Value>, String) {
    let output = query(cluster, &["--json", "--stats", statement]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{statement}: {output:?}");
    let lines = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, stderr(&output))
}

/// A figure of the cost, by its word.
fn figure(cost: &str, word: &str) -> u64 {
    let of_scans = cost.split_once("; ").unwrap_or_else(|| panic!("{cost}")).1;
    let before = of_scans.split_once(&format!(" {word}")).unwrap_or_else(|| panic!("{cost}")).0;
    before.rsplit([' ', '\n']).next().unwrap().parse().unwrap()
}

#[test]
fn documents_are_rows_and_nothing_else_is() {
    let Some(cluster) = shop() else { return };
    let statement = "select raw meta().id from shop where meta().id in ['dropped', 'gone', '']";
    assert!(rows(cluster, statement).0.is_empty());
    // The customers are in another collection.
    let (found, _) = rows(
        cluster,
        "select count(*) as n, min(meta().id) as `first`, max(meta().id) as `last` from shop",
    );
    assert_eq!(found, [json!({"n": DOCUMENTS - 2, "first": "binary", "last": "order-299"})]);
    let (found, _) = rows(
        cluster,
        "select raw [meta(c).id, meta(c).cas, meta(c).flags, c] from shop._default.customers c \
         order by meta(c).id",
    );
    let expected = [
        json!(["customer-0", 1400, 0, {"name": "Name 0"}]),
        json!(["customer-1", 1401, 0, {"name": "Name 1"}]),
    ];
    assert_eq!(found, expected);
    let (found, _) = rows(
        cluster,
        "select meta().expiration, meta().type, meta().`keyspace` from shop use keys 'binary'",
    );
    let expected = json!({"expiration": u32::MAX, "type": "base64", "keyspace": "default:shop"});
    assert_eq!(found, [expected]);
    let (found, _) = rows(cluster, "select raw k.`path` from system:keyspaces k order by k.`path`");
    let paths = ["default:branches", "default:branches._default.customers"].map(Value::from);
    assert_eq!(found[..2], paths);
}

#[test]
fn every_format_has_the_documents_of_a_table() {
    let Some(cluster) = shop() else { return };
    let statement = "select meta(c).id, c.name from shop._default.customers c order by meta(c).id";
    let print = |format: &str| {
        let output = query(cluster, &["--format", format, statement]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{format}: {output:?}");
        output.stdout
    };
    let text = |format: &str| String::from_utf8(print(format)).unwrap();
    assert_eq!(text("csv"), "id,name\r\ncustomer-0,Name 0\r\ncustomer-1,Name 1\r\n");
    let json = "{\"id\":\"customer-0\",\"name\":\"Name 0\"}\n\
                {\"id\":\"customer-1\",\"name\":\"Name 1\"}\n";
    assert_eq!(text("json"), json);
    assert!(text("table").contains("│ customer-1 ┆ Name 1 │"), "{}", text("table"));
    let parquet = print("parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn long_documents_are_whole() {
    let Some(cluster) = shop() else { return };
    let statement = "select s, s.kind, length(s.text) as n from shop s where meta(s).id = 'long'";
    let (found, _) = rows(cluster, statement);
    let long = serde_json::from_str::<Value>(&long_json()).unwrap();
    assert_eq!(found, [json!({"s": long, "kind": "long", "n": 150_000})]);
}

/// JSON that the store could not inflate was no JSON here; attributes that are longer than their
/// cell were shown as a part of the body.
#[test]
fn documents_that_are_kept_otherwise_are_shown_as_any() {
    let Some(cluster) = shop() else { return };
    let keys = "['compressed-json', 'compressed-text', 'large-attributes']";
    let statement = format!("select meta().id, meta().type, kind from shop use keys {keys}");
    let expected = [
        json!({"id": "compressed-json", "type": "json", "kind": "packed"}),
        json!({"id": "compressed-text", "type": "base64"}),
        json!({"id": "large-attributes", "type": "json", "kind": "attributes"}),
    ];
    assert_eq!(rows(cluster, &statement).0, expected);
    for (condition, count) in
        [("kind is valued", 303), ("meta().type = 'base64'", 2), ("kind = 'packed'", 1)]
    {
        let statement = format!("select raw count(*) from shop where {condition}");
        assert_eq!(rows(cluster, &statement).0, [json!(count)], "{condition}");
    }
}

/// A long document is read again, later than its first row was: it may be no JSON any more, or
/// shorter.
#[test]
fn a_replaced_long_document_is_the_new_one() {
    let Some(cluster) = shop() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let builder = ClientBuilder::from_addresses(&cluster.master_addresses()).unwrap();
    let client = runtime.block_on(builder.build()).unwrap();
    let table = runtime.block_on(create(&client, "sqlreplaced.shop"));
    let (filling, long) = (format!("\"{}\"", "x".repeat(50_000)), long_json());
    // Documents come in the order of vbuckets, and of keys within one.
    let mut keys = (0..).map(|number| format!("z{number:05}"));
    let last = keys.find(|key| vbucket_of(key.as_bytes(), VBUCKETS).0 == VBUCKETS - 1).unwrap();
    runtime.block_on(async {
        let mut session = Session::new(&table, SessionOptions::default());
        for number in 0..100 {
            Row::json(&format!("a{number:03}"), 1, &filling).write(&mut session).await;
        }
        for (chunk, piece) in (0..).zip(long.as_bytes().chunks(60 << 10)) {
            let row = Row::json(&last, 2, std::str::from_utf8(piece).unwrap());
            Row { chunk, body_bytes: long.len() as i64, ..row }.write(&mut session).await;
        }
        session.flush().await.unwrap();
    });
    let arguments = ["query", "--kudu", &cluster.master_addresses(), "--database", "sqlreplaced"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_oribi"));
    command.args(arguments).args(["--json", "select meta().id, meta().type, s from shop s"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    // Five megabytes are not in the pipe, so the last document is still to come.
    runtime.block_on(async {
        let mut session = Session::new(&table, SessionOptions::default());
        let pieces = [vec![0xff; 60 << 10], vec![0xfe; 100]];
        for (chunk, piece) in (0..).zip(&pieces) {
            let row = Row::binary(&last, 3, piece);
            Row { chunk, body_bytes: (60 << 10) + 100, ..row }.write(&mut session).await;
        }
        let mut third = session.delete();
        third.set_i16("vbucket", VBUCKETS.cast_signed() - 1).unwrap();
        third.set_i64("collection", 0).unwrap();
        third.set_string("key", &last).unwrap();
        third.set_i16("chunk", 2).unwrap();
        third.apply().await.unwrap();
        session.flush().await.unwrap();
    });
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!((stderr(&ended).as_str(), ended.status.code()), ("", Some(0)));
    let shown = rest.lines().last().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let shown = shown.unwrap();
    assert_eq!((&shown["id"], &shown["type"]), (&json!(last), &json!("base64")));
    runtime.block_on(client.delete_table("sqlreplaced.shop")).unwrap();
}

#[test]
fn groups_and_joins_over_documents() {
    let Some(cluster) = shop() else { return };
    // The statement of docs/query.md.
    let statement = "select city, count(*) as orders, sum(total) as total from shop
                     where meta().id like 'order-%' group by city order by total desc";
    let expected = [
        json!({"city": "Lima", "orders": 100, "total": 15050}),
        json!({"city": "Oslo", "orders": 100, "total": 14950}),
        json!({"city": "Kyiv", "orders": 100, "total": 14850}),
    ];
    assert_eq!(rows(cluster, statement).0, expected);
    let statement = "select c.name, count(*) as n from shop o
                     join shop._default.customers c on keys o.customer
                     where meta(o).id like 'order-00%' group by c.name order by c.name";
    let expected = [json!({"name": "Name 0", "n": 5}), json!({"name": "Name 1", "n": 5})];
    assert_eq!(rows(cluster, statement).0, expected);
}

#[test]
fn kudu_evaluates_pushed_predicates_and_projection() {
    let Some(cluster) = shop() else { return };
    let (_, counting) = rows(cluster, "select raw count(*) from shop");
    let (_, reading) = rows(cluster, "select raw sum(length(filling)) from shop");
    // The key and four numbers of a row, against a kilobyte.
    assert!(figure(&counting, "bytes") < 100 * (DOCUMENTS + 1), "{counting}");
    assert!(figure(&reading, "bytes") > 300_000, "{reading}");
    let narrow =
        "select raw meta().id from shop where meta().id between 'order-010' and 'order-019'";
    let (found, narrowed) = rows(cluster, narrow);
    // The bucket's list of collections is a row, too.
    assert_eq!((found.len(), figure(&narrowed, "rows")), (10, 11), "{narrowed}");
    // The key says which vbucket it is in, and so which tablet.
    let (found, one) =
        rows(cluster, "select raw meta().cas from shop where meta().id = 'order-007'");
    assert_eq!(found, [json!(1007)]);
    assert_eq!((figure(&one, "rows"), figure(&one, "scanners")), (2, 2), "{one}");
}

#[test]
fn statements_come_from_stdin_and_csv_goes_out() {
    let Some(cluster) = shop() else { return };
    let mut child =
        query(cluster, &["--csv"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let statements = "select meta().id, total from shop where total < 2 order by total;\n
                      select 1 as one;";
    child.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(stdout(&output), "id,total\r\norder-000,0\r\norder-001,1\r\none\r\n1\r\n");
}

#[test]
fn a_table_that_is_no_bucket_can_be_named() {
    let Some(cluster) = shop() else { return };
    let table = table_of(&report(cluster, &["--keep-auto-table", "--num-rows-per-thread=50"]));
    let statement = format!(
        "select count(*) as n, max(`key`) as `last`, min(int_val) as least from `{table}` \
         where `key` < 60"
    );
    let output =
        query(cluster, &["--json", "--stats", "--table", &table, &statement]).output().unwrap();
    let found = document(&output);
    assert_eq!((&found["n"], &found["last"]), (&json!(60), &json!(59)), "{output:?}");
    assert!(found["least"].is_i64(), "{output:?}");
    // Kudu checks the condition.
    assert_eq!(figure(&stderr(&output), "rows"), 60, "{output:?}");
}

#[test]
fn errors_are_one_line_and_a_status() {
    let Some(cluster) = shop() else { return };
    for (arguments, words) in [
        (&["select * from absent"] as &[&str], "there are branches,"),
        (&["selct 1"], "syntax error"),
        (&["select a.b, c from shop a join shop d on keys a.k"], "Ambiguous"),
        (&["delete from shop"], "read-only"),
        (&["--table", "no.such", "select 1"], "no.such"),
    ] {
        let output = query(cluster, arguments).output().unwrap();
        let complaint = stderr(&output);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(1)), "{complaint}");
        assert!(complaint.contains(words) && complaint.lines().count() == 1, "{complaint}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_oribi"))
        .args(["query", "--kudu", "127.0.0.1:1", "--timeout", "1", "select 1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains("cannot reach the Kudu cluster at 127.0.0.1:1"), "{output:?}");
}
