//! Change streams of a bucket on Kudu: read by seqno from the table, handed over to memory,
//! continued after a kill.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEFAULT_VBUCKETS, DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::stream_connection::{SMALL_WINDOW_BYTES, StreamConnection};
use oribi_testkit::{RawConnection, Request, ServerProcess, StreamCopy};
use oribi_types::{DurabilityLevel, Seqno, Vbid};
use tempfile::TempDir;

use crate::bucket::{ALLOWED_WARNINGS, CLUSTER, options};

const DOCUMENTS: usize = 120;

/// So seldom that plain writes are in memory only, and lost by a kill.
const FLUSH_INTERVAL_MS: u64 = 600_000;

/// The writes that count.
type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes the documents of `numbers`, each fourth of them twice, and removes each fifth.
fn write(
    server: &ServerProcess,
    table: &mut Table,
    numbers: std::ops::Range<usize>,
    is_durable: bool,
) {
    let mut connection = RawConnection::login(server.port()).unwrap();
    let mut send = |request: Request| {
        let request = match is_durable {
            true => request.durable(DurabilityLevel::PersistToMajority),
            false => request,
        };
        assert_eq!(connection.call(&request).unwrap().status(), Status::Success, "{request:?}");
    };
    for number in numbers {
        let (key, value) = (format!("k-{number}"), format!("{is_durable} {number}"));
        if number % 4 == 0 {
            send(Request::set(&key, "an older version"));
        }
        send(Request::set(&key, &value));
        if number % 5 == 0 {
            send(Request::delete(&key));
            table.remove(key.as_bytes());
        } else {
            table.insert(key.into_bytes(), value.into_bytes());
        }
    }
}

/// High seqno of every vbucket.
fn high_seqnos(server: &ServerProcess) -> BTreeMap<Vbid, Seqno> {
    let stats = RawConnection::login(server.port()).unwrap().stat("vbucket-seqno").unwrap();
    let highs = stats.iter().filter_map(|(name, value)| {
        let vbid = name.strip_prefix("vb_")?.strip_suffix(":high_seqno")?;
        Some((Vbid(vbid.parse().ok()?), Seqno(value.parse().ok()?)))
    });
    highs.collect()
}

fn consumer(server: &ServerProcess, name: &str) -> StreamConnection {
    StreamConnection::open(server.port(), name, SMALL_WINDOW_BYTES).unwrap()
}

fn vbuckets() -> impl Iterator<Item = Vbid> {
    (0..DEFAULT_VBUCKETS).map(Vbid)
}

/// A copy of everything, made from the beginning.
#[track_caller]
fn assert_streams_show(server: &ServerProcess, table: &Table) -> StreamCopy {
    let mut copy = StreamCopy::new();
    let mut connection = consumer(server, "from the beginning");
    copy.resume(&mut connection, vbuckets()).unwrap();
    copy.read_to(&mut connection, &high_seqnos(server)).unwrap();
    assert_eq!(copy.table(), *table);
    copy
}

// Compat (Change streams): Buckets on Kudu
#[test]
fn streams_resume_from_the_table_after_a_kill() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = TempDir::new().unwrap();
    let options = options(cluster, "streams", &directory);
    let options = options.setting("flush-interval-ms", FLUSH_INTERVAL_MS);
    let mut server = ServerProcess::start(options).unwrap();
    let mut table = Table::new();
    write(&server, &mut table, 0..DOCUMENTS, true);

    // A consumer that keeps up, and hears what only memory has.
    let mut copy = StreamCopy::new();
    let mut connection = consumer(&server, "copy");
    copy.resume(&mut connection, vbuckets()).unwrap();
    copy.read_to(&mut connection, &high_seqnos(&server)).unwrap();
    assert_eq!(copy.table(), table);
    let durable = high_seqnos(&server);
    let mut ahead = table.clone();
    write(&server, &mut ahead, DOCUMENTS..2 * DOCUMENTS, false);
    copy.read_to(&mut connection, &high_seqnos(&server)).unwrap();
    assert_eq!(copy.table(), ahead);

    // The writes without durability are gone, and it is told so: exactly those.
    server.kill().unwrap();
    server.restart().unwrap();
    let mut connection = consumer(&server, "copy");
    let recovered = high_seqnos(&server);
    assert_eq!(recovered, durable);
    let lost: Vec<Vbid> = vbuckets().filter(|vbid| copy.seqno(*vbid) > recovered[vbid]).collect();
    assert!(!lost.is_empty(), "nothing was lost");
    copy.resume(&mut connection, vbuckets()).unwrap();
    write(&server, &mut table, DOCUMENTS..2 * DOCUMENTS, true);
    copy.read_to(&mut connection, &high_seqnos(&server)).unwrap();
    let told: BTreeMap<Vbid, Seqno> = copy.rollbacks().iter().copied().collect();
    assert_eq!(copy.rollbacks().len(), lost.len(), "{told:?}");
    assert!(lost.iter().all(|vbid| told[vbid] == recovered[vbid]), "{told:?} of {recovered:?}");
    assert_eq!(copy.table(), table);

    // What a consumer misses while it is away comes from the table, and then memory continues.
    drop(connection);
    write(&server, &mut table, 2 * DOCUMENTS..3 * DOCUMENTS, true);
    let from_disk = copy.disk_snapshots();
    server.kill().unwrap();
    server.restart().unwrap();
    let mut connection = consumer(&server, "copy");
    copy.resume(&mut connection, vbuckets()).unwrap();
    copy.read_to(&mut connection, &high_seqnos(&server)).unwrap();
    assert_eq!(copy.table(), table);
    assert!(copy.disk_snapshots() > from_disk, "the table was not read");
    write(&server, &mut table, 0..DOCUMENTS, false);
    copy.read_to(&mut connection, &high_seqnos(&server)).unwrap();
    assert_eq!(copy.table(), table);
    assert_eq!(copy.rollbacks().len(), lost.len(), "nobody had to forget anything");

    // One that begins now reads everything from the table, and the rest from memory.
    let whole = assert_streams_show(&server, &table);
    assert!(whole.disk_snapshots() > 0 && whole.rollbacks().is_empty());
    let of_table = table.keys().map(|key| vbucket_of(key, DEFAULT_VBUCKETS));
    let streamed: Vec<Vbid> = whole.changes().iter().map(|(vbid, _)| *vbid).collect();
    assert!(of_table.into_iter().all(|vbid| streamed.contains(&vbid)));
    server.assert_no_unlisted_warnings(&ALLOWED_WARNINGS);
}

/// The documents that Server-Sent Events show until now.
fn table_of_events(server: &ServerProcess) -> Table {
    let http = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let path = "/pools/default/buckets/default/changes?from=beginning&until-now&with-values";
    let answer = http.get(path).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    assert!(text.contains(r#"{"type":"end","reason":"complete"}"#), "{text}");
    let mut table = Table::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        let Some(key) = event["key"].as_str() else { continue };
        match event["type"].as_str() {
            Some("mutation") => {
                let value = BASE64.decode(event["value_base64"].as_str().unwrap()).unwrap();
                table.insert(key.as_bytes().to_vec(), value);
            }
            _ => _ = table.remove(key.as_bytes()),
        }
    }
    table
}

#[test]
fn http_events_are_those_of_table_and_memory() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = TempDir::new().unwrap();
    let options = options(cluster, "events", &directory);
    let options = options.setting("flush-interval-ms", FLUSH_INTERVAL_MS);
    let mut server = ServerProcess::start(options).unwrap();
    let mut table = Table::new();
    write(&server, &mut table, 0..DOCUMENTS, true);
    server.kill().unwrap();
    server.restart().unwrap();
    // Everything is in the table now, and what follows in memory only.
    write(&server, &mut table, DOCUMENTS..2 * DOCUMENTS, false);
    assert_eq!(table_of_events(&server), table);
    server.assert_no_unlisted_warnings(&ALLOWED_WARNINGS);
}
