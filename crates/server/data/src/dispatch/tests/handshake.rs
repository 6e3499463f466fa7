//! Features, error map, authentication, bucket, cluster configuration.

use std::sync::Arc;

use oribi_auth::{StoredUser, UserFile, UserStore};
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{ConfigVersion, RequestParts};
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;

use super::{Client, SET_EXTRAS, about, bytes, replies};
use crate::connection::close_reason::CloseReason;
use crate::harness::ConnectionHarness;

fn request(opcode: Opcode) -> RequestParts<'static> {
    RequestParts::new(opcode)
}

fn plain<'a>(payload: &'a [u8]) -> RequestParts<'a> {
    RequestParts { key: b"PLAIN", value: payload, ..request(Opcode::SaslAuth) }
}

const GOOD: &[u8] = b"\0Administrator\0password";

// Compat (Bootstrap and session): HELLO
#[test]
fn hello_grants_sorted_and_starts_over() {
    let mut client = Client::legacy();
    let reply = client.hello(&[0x12, 0x02, 0x07, 0x06, 0x0b, 0x7777]);
    assert_eq!(reply.value, [0, 0x06, 0, 0x07, 0, 0x0b, 0, 0x12]);
    assert!(client.hello(&[]).value.is_empty());
    let odd = RequestParts { value: &[0, 7, 0], ..request(Opcode::Hello) };
    assert_eq!(client.ask(&odd).status, Status::Einval);
}

#[test]
fn error_map_in_the_version_asked_for() {
    let mut client = Client::legacy();
    for (asked, shown) in [(1_u16, "\"version\":1,"), (2, "\"version\":2,"), (7, "\"version\":2,")]
    {
        let value = asked.to_be_bytes();
        let reply = client.ask(&RequestParts { value: &value, ..request(Opcode::GetErrorMap) });
        assert!(String::from_utf8(reply.value).unwrap().contains(shown));
    }
    for value in [&[0, 0][..], &[1], &[0, 1, 0], &[]] {
        let reply = client.ask(&RequestParts { value, ..request(Opcode::GetErrorMap) });
        assert_eq!(reply.status, Status::Einval);
    }
}

#[test]
fn a_pipelined_handshake_is_answered_in_order() {
    let mut harness = ConnectionHarness::new();
    let hello = RequestParts { value: &[0, 7, 0, 8, 0, 0x0b], ..request(Opcode::Hello) };
    let error_map = RequestParts { value: &[0, 2], ..request(Opcode::GetErrorMap) };
    let select = RequestParts { key: b"default", ..request(Opcode::SelectBucket) };
    let all = [
        hello,
        error_map,
        request(Opcode::SaslListMechs),
        plain(GOOD),
        select,
        request(Opcode::GetClusterConfig),
    ];
    let mut input = Vec::new();
    for (index, parts) in all.iter().enumerate() {
        input.extend(bytes(&RequestParts { opaque: index as u32, ..*parts }));
    }
    let replies = replies(&harness.feed(&input));
    assert_eq!(replies.len(), all.len());
    for (index, reply) in replies.iter().enumerate() {
        assert_eq!((reply.opaque, reply.status), (index as u32, Status::Success), "{reply:?}");
    }
    assert_eq!(replies[2].value, oribi_auth::mechanisms().as_bytes());
    assert_eq!(replies[5].datatype, 1);
    assert!(String::from_utf8_lossy(&replies[5].value).contains("\"name\":\"default\""));
}

#[test]
fn wrong_password_and_wrong_order_are_auth_errors() {
    let mut client = Client::legacy();
    client.hello(&[7]);
    for payload in [&b"\0Administrator\0wrong"[..], b"\0nobody\0password", b"\0\0"] {
        assert_eq!(client.ask(&plain(payload)).status, Status::AuthError);
    }
    let step = RequestParts { key: b"SCRAM-SHA512", ..request(Opcode::SaslStep) };
    assert_eq!(client.ask(&step).status, Status::AuthError);
    assert_eq!(client.ask(&about(Opcode::Get, b"k")).status, Status::Eaccess);
    assert_eq!(client.ask(&plain(GOOD)).status, Status::Success);
}

#[test]
fn a_malformed_first_message_is_invalid() {
    let mut client = Client::legacy();
    let scram = RequestParts { key: b"SCRAM-SHA512", value: b"n,,x", ..plain(b"") };
    // A client without HELLO gets memcached's answer.
    for (codes, status) in [(None, Status::AuthError), (Some(7), Status::Einval)] {
        codes.map(|code| client.hello(&[code]));
        for payload in [&b"\0"[..], b"", b"junk", b"\0Administrator", b"\0a\0b\0c"] {
            assert_eq!(client.ask(&plain(payload)).status, status);
        }
        assert_eq!(client.ask(&scram).status, status);
    }
    let unknown = RequestParts { key: b"OAUTHBEARER", ..plain(b"") };
    assert_eq!(client.ask(&unknown).status, Status::AuthError);
    assert_eq!(client.ask(&plain(GOOD)).status, Status::Success);
}

/// Sends a request that ends the connection without an answer.
fn ends(client: &mut Client, parts: &RequestParts<'_>) {
    assert_eq!(client.send(parts), [], "{parts:?}");
    assert_eq!(client.harness.close_reason(), Some(CloseReason::NoAccess), "{parts:?}");
}

#[test]
fn without_xerror_lack_of_access_ends_the_connection() {
    let (get, stat) = (about(Opcode::Get, b"k"), request(Opcode::Stat));
    let select = |key| RequestParts { key, ..request(Opcode::SelectBucket) };
    let mut stranger = Client::legacy();
    stranger.hello(&[8]);
    ends(&mut stranger, &get);
    let modern = Client::modern();
    let mut reader = modern.beside_with(&["read-only:default"], &[8]);
    assert_eq!(reader.get(b"k").status, Status::KeyEnoent);
    ends(&mut reader, &RequestParts { extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") });
    ends(&mut modern.beside_with(&["read-only:default"], &[8]), &select(b"none"));
    let mut homeless = modern.beside_with(&["admin"], &[8]);
    assert_eq!(homeless.ask(&select(b"@no bucket@")).status, Status::Success);
    ends(&mut homeless, &get);
    // memcached's clients know the answer in their own words.
    let directory = tempfile::tempdir().unwrap();
    let roles = vec!["read-only:default".parse().unwrap()];
    let reader = StoredUser::new("reader", b"secret", roles).unwrap();
    UserFile::edit(directory.path(), |file| file.put(reader)).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let mut memcached = Client { harness };
    assert_eq!(memcached.ask(&stat).status, Status::AuthError);
    assert_eq!(memcached.ask(&get).status, Status::AuthError);
}

#[test]
fn only_the_handshake_precedes_authentication() {
    let mut client = Client::legacy();
    client.hello(&[7, 8]);
    let select = RequestParts { key: b"default", ..request(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select).status, Status::Eaccess);
    for opcode in [Opcode::Stat, Opcode::GetClusterConfig, Opcode::ListBuckets, Opcode::DcpOpen] {
        assert_eq!(client.ask(&request(opcode)).status, Status::Eaccess, "{}", opcode.name());
    }
    for opcode in [Opcode::Noop, Opcode::Version, Opcode::SaslListMechs] {
        assert_eq!(client.ask(&request(opcode)).status, Status::Success, "{}", opcode.name());
    }
}

#[test]
fn hello_ends_the_life_of_a_memcached_client() {
    let mut client = Client::legacy();
    assert_eq!(client.set(b"k", b"v").status, Status::Success);
    client.hello(&[7]);
    assert_eq!(client.get(b"k").status, Status::Eaccess);
}

// Compat (Bootstrap and session): SELECT_BUCKET
// Compat (Bootstrap and session): LIST_BUCKETS
#[test]
fn select_bucket_and_back() {
    let mut client = Client::modern();
    let select = |key| RequestParts { key, ..request(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select(b"none")).status, Status::Eaccess);
    let mut reader = client.beside(&["read-only:default"]);
    assert_eq!(reader.ask(&select(b"none")).status, Status::Eaccess, "no names are given away");
    assert_eq!(reader.ask(&select(b"\xff")).status, Status::Eaccess);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent, "the old bucket stays selected");
    assert_eq!(client.ask(&select(b"@no bucket@")).status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::NoBucket);
    let global = client.ask(&request(Opcode::GetClusterConfig));
    assert!(!String::from_utf8_lossy(&global.value).contains("\"name\""));
    assert_eq!(client.ask(&request(Opcode::ListBuckets)).value, b"default");
    assert_eq!(client.ask(&select(b"default")).status, Status::Success);
}

// Compat (Bootstrap and session): GET_CLUSTER_CONFIG
#[test]
fn known_configuration_is_not_sent_again() {
    let mut client = Client::modern();
    let text = client.ask(&request(Opcode::GetClusterConfig)).value;
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let revision = json["rev"].as_i64().unwrap();
    for (epoch, revision, is_empty) in
        [(1, revision, true), (1, revision - 1, false), (2, 1, true), (-1, revision, false)]
    {
        let extras = ConfigVersion { epoch, revision }.encode();
        let parts = RequestParts { extras: &extras, ..request(Opcode::GetClusterConfig) };
        let reply = client.ask(&parts);
        assert_eq!((reply.status, reply.value.is_empty()), (Status::Success, is_empty));
    }
    // The feature only tells clients that the server knows this.
    let mut other = Client::with_features(&[7, 0x0b]);
    let extras = ConfigVersion { epoch: 1, revision }.encode();
    let parts = RequestParts { extras: &extras, ..request(Opcode::GetClusterConfig) };
    let reply = other.ask(&parts);
    assert_eq!((reply.status, reply.value.is_empty()), (Status::Success, true));
}

// Compat (Key-value): RETURN_META, GET_EX, MUTATE_WITH_META
// Compat (Key-value): cluster manager, admin, replication
#[test]
fn unknown_opcodes_leave_the_connection_usable() {
    let mut client = Client::modern();
    for code in [0x88_u8, 0xab, 0xff, 0x90] {
        let mut frame = vec![0; 24];
        (frame[0], frame[1], frame[15]) = (0x80, code, 9);
        let all = replies(&client.harness.feed(&frame));
        assert_eq!(
            (all[0].status, all[0].opcode, all[0].opaque),
            (Status::UnknownCommand, code, 9)
        );
    }
    for opcode in [Opcode::ReturnMeta, Opcode::CompactDb] {
        assert_eq!(client.ask(&request(opcode)).status, Status::NotSupported);
    }
    assert_eq!(client.ask(&request(Opcode::Noop)).status, Status::Success);
}

#[test]
fn configured_users_end_anonymous_memcached_access() {
    let directory = tempfile::tempdir().unwrap();
    let roles = vec!["read-only:default".parse().unwrap()];
    let reader = StoredUser::new("reader", b"secret", roles).unwrap();
    UserFile::edit(directory.path(), |file| file.put(reader)).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let mut client = Client { harness };
    assert_eq!(client.get(b"k").status, Status::AuthError);
    client.hello(&[7]);
    assert_eq!(client.ask(&plain(GOOD)).status, Status::AuthError);
    assert_eq!(client.ask(&plain(b"\0reader\0secret")).status, Status::Success);
    let select = RequestParts { key: b"default", ..request(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select).status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    assert_eq!(client.set(b"k", b"v").status, Status::Eaccess);
    assert_eq!(client.ask(&request(Opcode::Flush)).status, Status::Eaccess);
    let gat = RequestParts { extras: &[0; 4], ..about(Opcode::Gat, b"k") };
    assert_eq!(client.ask(&gat).status, Status::Eaccess);
}

// Compat (Bootstrap and session): NOOP, VERSION, QUIT, QUITQ
/// Regression 3: libmemcached's `memcstat` took the version 0.1.0 for garbage and gave up.
#[test]
fn version_begins_with_a_number_that_is_not_zero() {
    let mut client = Client::legacy();
    let text = String::from_utf8(client.ask(&request(Opcode::Version)).value).unwrap();
    let major: u32 = text.split('.').next().unwrap().parse().unwrap();
    assert!(major > 0, "{text}");
    assert!(text.ends_with(env!("CARGO_PKG_VERSION")), "{text}");
}
