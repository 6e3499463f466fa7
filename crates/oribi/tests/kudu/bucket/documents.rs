//! Documents of all kinds through a crash, and what the table has of them.

use std::time::{SystemTime, UNIX_EPOCH};

use oribi_protocol::feature::Feature;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::status::Status;
use oribi_testkit::raw_connection::DEFAULT_VBUCKETS;
use oribi_testkit::{RawConnection, Request, Response};
use oribi_types::{CollectionId, DurabilityLevel};

use crate::bucket::{ALLOWED_WARNINGS, CLUSTER, start, table};

/// Flags of every document.
const FLAGS: u32 = 0xdead_beef;
/// Marks a path into the extended attributes, and one whose parents are made.
const XATTR_PATH: u8 = 0x04;
const MKDIR_P: u8 = 0x01;

/// Sizes around the limit of a row, and the largest value there is.
const SIZES: [usize; 8] = [0, 1, 512, 60 << 10, (60 << 10) + 1, 70_000, 1 << 20, 20 << 20];

fn value_of(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 / 7 + bytes) as u8).collect()
}

fn key_of(bytes: usize) -> String {
    format!("size-{bytes}")
}

/// Like any login of the test kit, with attributes besides.
pub fn login(port: u16) -> RawConnection {
    login_with(port, &[])
}

/// The same with further features.
pub fn login_with(port: u16, further: &[Feature]) -> RawConnection {
    let mut connection = RawConnection::login(port).unwrap();
    let features = [
        Feature::MutationSeqno,
        Feature::XError,
        Feature::SelectBucket,
        Feature::Json,
        Feature::Xattr,
        Feature::AltRequest,
        Feature::SyncReplication,
        Feature::Collections,
    ];
    connection.hello(&[&features, further].concat()).unwrap();
    connection
}

#[track_caller]
pub fn expect(connection: &mut RawConnection, request: &Request) -> Response {
    let response = connection.call(request).unwrap();
    assert_eq!(response.status(), Status::Success, "{:?}", response.text());
    response
}

pub fn durable(request: Request) -> Request {
    request.durable(DurabilityLevel::PersistToMajority)
}

/// A sub-document operation on an attribute of a document.
pub fn on_attribute(opcode: Opcode, key: &str, path: &str, flags: u8, value: &str) -> Request {
    let length = u16::try_from(path.len()).unwrap().to_be_bytes();
    Request::about(opcode, key)
        .extras(&[length[0], length[1], XATTR_PATH | flags])
        .value(format!("{path}{value}"))
}

fn write_all(connection: &mut RawConnection, expiry: u32) {
    for bytes in SIZES {
        let request = Request::set(key_of(bytes), value_of(bytes)).flags_and_expiry(FLAGS, 0);
        expect(connection, &durable(request));
    }
    let json = Request::set("json", "{\"name\":\"Ann\",\"n\":1}").flags_and_expiry(FLAGS, expiry);
    expect(connection, &durable(json));
    let attribute = on_attribute(Opcode::SubdocDictUpsert, "json", "meta.by", MKDIR_P, "\"me\"");
    expect(connection, &durable(attribute));
    // A key that is no text, and JSON that is longer than a row and would be cut inside of a
    // character.
    expect(connection, &durable(Request::set(b"\xff\0\xfe key", "odd")));
    expect(connection, &durable(Request::set("long-json", long_json())));
    expect(connection, &durable(Request::set("gone", "soon")));
    expect(connection, &durable(Request::delete("gone")));
}

fn long_json() -> String {
    format!("[\"{}\"]", "€".repeat(60_000))
}

fn check_all(connection: &mut RawConnection, expiry: u32) {
    for bytes in SIZES {
        let found = expect(connection, &Request::get(key_of(bytes)));
        assert!(found.value == value_of(bytes), "a value of {bytes} bytes changed");
        assert_eq!(found.extras, FLAGS.to_be_bytes());
    }
    let json = expect(connection, &Request::get("json"));
    assert_eq!((json.text().as_str(), json.datatype), ("{\"name\":\"Ann\",\"n\":1}", 1));
    let attribute = on_attribute(Opcode::SubdocGet, "json", "meta.by", 0, "");
    assert_eq!(expect(connection, &attribute).text(), "\"me\"");
    assert_eq!(expect(connection, &Request::get(b"\xff\0\xfe key")).text(), "odd");
    assert!(expect(connection, &Request::get("long-json")).text() == long_json());
    assert_eq!(connection.call(&Request::get("gone")).unwrap().status(), Status::KeyEnoent);
    // The touch answers with what is present and leaves the expiry as it was.
    expect(connection, &Request::touch(Opcode::Touch, "json", expiry));
}

// Compat (Buckets on Kudu): protocol, durability levels, collections,
// expiry
#[test]
fn documents_of_all_kinds_survive_a_crash_in_kudu() {
    let Some(cluster) = CLUSTER.get() else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(cluster, "documents", &directory);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let expiry = now.as_secs() as u32 + 3600;
    write_all(&mut login(server.port()), expiry);
    let stats = login(server.port()).stat("config").unwrap();
    assert!(stats.contains(&("ep_backend".to_owned(), "kudu".to_owned())), "{stats:?}");
    server.kill().unwrap();
    server.restart().unwrap();
    check_all(&mut login(server.port()), expiry);

    let found = table::documents(cluster, "documents.default");
    for bytes in SIZES {
        let key = key_of(bytes);
        let stored = &found[&(vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS).0, key)];
        assert_eq!(stored.body_bytes, bytes);
        assert_eq!(stored.rows, bytes.div_ceil(60 << 10).max(1));
    }
    let json = &found[&(vbucket_of(b"json", DEFAULT_VBUCKETS).0, "json".to_owned())];
    assert!(json.json.contains("Ann"), "{json:?}");
    assert!(!found.keys().any(|(_, key)| key == "gone"), "a deleted document is shown as live");

    // What was evicted from memory, or never came into it, is read from Kudu; an overwrite leaves
    // no rows behind.
    let mut connection = login(server.port());
    expect(&mut connection, &durable(Request::set(key_of(20 << 20), "small")));
    assert!(server.terminate().unwrap().success(), "{}", server.output());
    server.assert_no_unlisted_warnings(&ALLOWED_WARNINGS);
    let found = table::documents(cluster, "documents.default");
    let key = key_of(20 << 20);
    let stored = &found[&(vbucket_of(key.as_bytes(), DEFAULT_VBUCKETS).0, key.clone())];
    assert_eq!((stored.rows, stored.body_bytes), (1, 5));
    server.restart().unwrap();
    let mut connection = login(server.port());
    let request = Request::get(&key).collection(CollectionId::DEFAULT);
    assert_eq!(expect(&mut connection, &request).text(), "small");
}
