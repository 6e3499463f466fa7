//! Clients that asked for it are told of new cluster maps, on a single node, too.

use oribi_protocol::feature::Feature;
use oribi_protocol::response::SERVER_CLUSTERMAP_CHANGE;
use oribi_protocol::status::Status;
use oribi_testkit::http::HttpClient;
use oribi_testkit::raw_connection::{DEVELOPMENT_PASSWORD, DEVELOPMENT_USER};
use oribi_testkit::{RawConnection, ServerProcess};

use crate::cluster::server;

fn listener(server: &ServerProcess, features: &[Feature]) -> RawConnection {
    let mut connection = RawConnection::connect(server.port()).unwrap();
    assert_eq!(connection.hello(features).unwrap(), features);
    let user = connection.sasl_plain(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD).unwrap();
    assert_eq!(user, Status::Success);
    assert_eq!(connection.select_bucket("default").unwrap(), Status::Success);
    connection
}

// Compat (Bootstrap and session): CLUSTERMAP_CHANGE_NOTIFICATION
#[test]
fn new_collections_are_announced_as_negotiated() {
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(server(directory.path())).unwrap();
    let (full, brief) =
        (Feature::ClustermapChangeNotification, Feature::ClustermapChangeNotificationBrief);
    let mut in_full = listener(&server, &[Feature::Json, Feature::Duplex, full]);
    let mut in_brief = listener(&server, &[Feature::Json, Feature::Duplex, full, brief]);
    let mut silent = listener(&server, &[Feature::Json, Feature::Duplex]);
    let mut refused = RawConnection::connect(server.port()).unwrap();
    assert!(refused.hello(&[Feature::Json, brief]).is_err(), "it needs Duplex");

    let http = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let path = "/pools/default/buckets/default/scopes/_default/collections";
    let made = http.post_form(path, &[("name", "c")]).unwrap();
    assert_eq!(made.status, 200, "{}", made.text());

    let told = in_full.receive().unwrap();
    assert_eq!((told.opcode, told.opaque), (SERVER_CLUSTERMAP_CHANGE, 0));
    assert_eq!((told.key.as_slice(), told.datatype), (&b"default"[..], 1));
    let map: serde_json::Value = serde_json::from_slice(&told.value).unwrap();
    let version = |extras: &[u8]| {
        let number = |at: usize| i64::from_be_bytes(extras[at..at + 8].try_into().unwrap());
        (number(0), number(8))
    };
    assert_eq!(told.extras.len(), 16);
    let (epoch, rev) = version(&told.extras);
    assert_eq!((&map["revEpoch"], &map["rev"]), (&epoch.into(), &rev.into()));
    assert_eq!(map["collectionsManifestUid"], "1");
    let told = in_brief.receive().unwrap();
    assert_eq!(told.extras.len(), 16);
    assert!(version(&told.extras) == (epoch, rev) && told.value.is_empty());
    // The one that did not ask has its answers and nothing else.
    let answer = silent.call(&oribi_testkit::Request::get("none")).unwrap();
    assert_eq!(answer.status(), Status::KeyEnoent);
}

#[test]
fn a_stalled_reader_gets_the_map_once_it_reads() {
    const ANSWERS: usize = 64;
    let directory = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(server(directory.path())).unwrap();
    let features = [
        Feature::XError,
        Feature::Json,
        Feature::Duplex,
        Feature::ClustermapChangeNotificationBrief,
    ];
    let mut stalled = listener(&server, &features);
    let set = oribi_testkit::Request::set("k", vec![b'v'; 1 << 20]);
    assert_eq!(stalled.call(&set).unwrap().status(), Status::Success);
    // More answers than the server queues for a client that does not read.
    let get = stalled.encode(&oribi_testkit::Request::get("k"), 1);
    stalled.send_bytes(&get.repeat(ANSWERS)).unwrap();

    let http = HttpClient::new(server.admin_port())
        .with_credentials(DEVELOPMENT_USER, DEVELOPMENT_PASSWORD);
    let path = "/pools/default/buckets/default/scopes/_default/collections";
    assert_eq!(http.post_form(path, &[("name", "c")]).unwrap().status, 200);
    let received: Vec<u8> = (0..=ANSWERS).map(|_| stalled.receive().unwrap().opcode).collect();
    let maps = received.iter().filter(|opcode| **opcode == SERVER_CLUSTERMAP_CHANGE).count();
    assert_eq!(maps, 1, "{received:?}");
}
