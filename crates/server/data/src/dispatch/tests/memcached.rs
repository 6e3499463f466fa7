//! Clients of memcached's protocol: they say no HELLO, select no bucket, and show error texts to
//! their users.

use std::sync::Arc;

use oribi_auth::{StoredUser, UserFile, UserStore};
use oribi_engine::collections::ManifestChange;
use oribi_engine::{BucketConfig, GetOutcome};
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::limits::VALUE_BYTES_MAX;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::{COUNTER_DO_NOT_CREATE, RequestParts};
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, DocKey, Timestamp, Vbid};
use tempfile::TempDir;

use super::{Client, HandlerReply, SET_EXTRAS, about, bytes, counter_extras, replies};
use crate::connection::close_reason::CloseReason;
use crate::harness::{ConnectionHarness, HARNESS_START_S, HARNESS_VBUCKETS};

/// A server, and the directory with its users.
struct Server {
    harness: ConnectionHarness,
    _directory: TempDir,
}

/// A server with further buckets. Its only user is `ann`, with these roles and perhaps a bucket of
/// her own.
fn server(roles: &[&str], bucket: Option<&str>, buckets: &[&str]) -> Server {
    let directory = tempfile::tempdir().unwrap();
    let roles = roles.iter().map(|role| role.parse().unwrap()).collect();
    let mut user = StoredUser::new("ann", b"secret", roles).unwrap();
    user.bucket = bucket.map(str::to_owned);
    UserFile::edit(directory.path(), |file| file.put(user)).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    buckets.iter().for_each(|name| open(&harness, name));
    Server { harness, _directory: directory }
}

fn open(harness: &ConnectionHarness, name: &str) {
    let config =
        BucketConfig { name: name.to_owned(), ..harness.bucket().bucket().config().clone() };
    let store = Arc::new(MemoryStore::new());
    harness.server().buckets.open_over(config, store, true, false).unwrap();
}

fn log_in(client: &mut Client, payload: &[u8]) -> HandlerReply {
    let auth = RequestParts::new(Opcode::SaslAuth);
    client.ask(&RequestParts { key: b"PLAIN", value: payload, ..auth })
}

/// A client of `harness`'s server that has only logged in.
fn logged_in(harness: &ConnectionHarness) -> Client {
    let mut client = Client { harness: harness.beside() };
    assert_eq!(log_in(&mut client, b"\0ann\0secret").status, Status::Success);
    client
}

/// A request as memcached's clients send it, which know no vbuckets.
fn plain(opcode: Opcode, key: &[u8]) -> RequestParts<'_> {
    RequestParts { vbid: Vbid(0), ..about(opcode, key) }
}

fn text(reply: &HandlerReply) -> &str {
    assert_eq!((reply.datatype, reply.extras.len()), (0, 0));
    std::str::from_utf8(&reply.value).unwrap()
}

/// The names of the buckets that have a document of this key.
fn places(harness: &ConnectionHarness, key: &[u8]) -> Vec<String> {
    let held = |name: &str| {
        let mut admin = Client { harness: harness.beside() };
        admin.hello(&[7, 8]);
        let identity = oribi_auth::Identity {
            name: "root".to_owned(),
            access: oribi_auth::Access::new(vec![oribi_auth::Role::Admin]),
            bucket: None,
            collection: None,
        };
        admin.harness.log_in(Arc::new(identity));
        let select = RequestParts::new(Opcode::SelectBucket);
        admin.ask(&RequestParts { key: name.as_bytes(), ..select });
        admin.get(key).status == Status::Success
    };
    let buckets = harness.server().buckets.list();
    let names = buckets.iter().map(|bucket| bucket.name().to_owned());
    names.filter(|name| held(name)).collect()
}

// Compat (Differences): Memcached clients
#[test]
fn login_selects_the_bucket() {
    let all = ["a", "b"];
    for (roles, bucket, buckets, used) in [
        // The only bucket with rights, whether by the roles or because there is no other.
        (&["read-write:b"][..], None, &all[..], "b"),
        (&["read-write:*"], None, &[], "default"),
        (&["admin"], None, &[], "default"),
        (&["read-write:a", "read-write:gone"], None, &all, "a"),
        // Of several buckets, `default`.
        (&["read-write:*"], None, &all, "default"),
        (&["read-write:a", "read-write:default"], None, &all, "default"),
        // The bucket named by an administrator comes first.
        (&["read-write:*"], Some("b"), &all, "b"),
        (&["admin"], Some("a"), &all, "a"),
    ] {
        let server = server(roles, bucket, buckets);
        let mut client = logged_in(&server.harness);
        let set = RequestParts { extras: &SET_EXTRAS, value: b"v", ..plain(Opcode::Set, b"k") };
        assert_eq!(client.ask(&set).status, Status::Success, "{roles:?} {bucket:?}");
        assert_eq!(places(&server.harness, b"k"), [used], "{roles:?} {bucket:?}");
        assert_eq!(client.ask(&plain(Opcode::Get, b"k")).value, b"v");
        let deleted = client.ask(&plain(Opcode::Delete, b"k"));
        assert_eq!((deleted.status, deleted.cas), (Status::Success, 0));
    }
}

#[test]
fn without_a_bucket_the_answer_says_what_to_do() {
    for (roles, bucket, context) in [
        (&["read-write:a", "read-write:b"][..], None, "name one with `oribi user create --bucket`"),
        (&["read-write:*"], Some("gone"), "has named for this user is not there"),
        (&["read-write:a"], Some("b"), "has named for this user is not there"),
    ] {
        let server = server(roles, bucket, &["a", "b"]);
        let mut client = logged_in(&server.harness);
        let stat = RequestParts::new(Opcode::Stat);
        for request in [plain(Opcode::Get, b"k"), stat] {
            let reply = client.ask(&request);
            assert_eq!(reply.status, Status::NoBucket, "{roles:?}");
            assert!(text(&reply).contains(context), "{}", text(&reply));
        }
    }
    // The server searches again, so it finds a bucket that is created later.
    let server = server(&["read-write:late"], None, &[]);
    let mut client = logged_in(&server.harness);
    assert_eq!(client.ask(&plain(Opcode::Get, b"k")).status, Status::NoBucket);
    open(&server.harness, "late");
    assert_eq!(client.ask(&plain(Opcode::Get, b"k")).status, Status::KeyEnoent);
}

#[test]
fn statistics_select_it_too() {
    let server = server(&["read-write+stats:default"], None, &[]);
    let mut client = logged_in(&server.harness);
    let replies = client.send(&RequestParts::new(Opcode::Stat));
    assert!(replies.len() > 10 && replies.iter().all(|reply| reply.status == Status::Success));
}

#[test]
fn hello_and_select_bucket_end_it() {
    let server = server(&["read-write:*"], None, &["a"]);
    let mut client = logged_in(&server.harness);
    assert_eq!(client.ask(&plain(Opcode::Get, b"k")).status, Status::KeyEnoent);
    client.hello(&[7]);
    assert_eq!(client.get(b"k").status, Status::NoBucket, "an SDK selects by itself");
    assert_eq!(log_in(&mut client, b"\0ann\0secret").status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::NoBucket);

    let mut client = logged_in(&server.harness);
    let select = |key| RequestParts { key, ..RequestParts::new(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select(b"@no bucket@")).status, Status::Success);
    assert_eq!(client.send(&about(Opcode::Get, b"k")), [], "no bucket, and no XERROR");
    assert_eq!(client.harness.close_reason(), Some(CloseReason::NoAccess));
    // A client that can select a bucket also knows vbuckets.
    let mut client = logged_in(&server.harness);
    assert_eq!(client.ask(&select(b"a")).status, Status::Success);
    let keys: Vec<[u8; 1]> = (b'a'..=b'z').map(|name| [name]).collect();
    let set = RequestParts { extras: &SET_EXTRAS, value: b"v", ..plain(Opcode::Set, b"") };
    for key in &keys {
        assert_eq!(client.ask(&RequestParts { key, ..set }).status, Status::Success);
    }
    let bucket = server.harness.server().buckets.get("a").unwrap();
    let first = bucket.bucket().vbucket(Vbid(0)).unwrap().stats();
    assert_eq!(first.high_seqno.0, keys.len() as u64, "all of them are where the client said");
}

#[test]
fn another_login_selects_anew() {
    let server = server(&["read-write:a"], None, &["a"]);
    let mut client = logged_in(&server.harness);
    assert_eq!(client.ask(&plain(Opcode::Get, b"k")).status, Status::KeyEnoent);
    assert_eq!(text(&log_in(&mut client, b"\0ann\0wrong")), "Auth failure.");
    let reply = client.ask(&plain(Opcode::Get, b"k"));
    assert_eq!((reply.status, text(&reply)), (Status::AuthError, "Auth failure."));
    assert_eq!(log_in(&mut client, b"\0ann\0secret").status, Status::Success);
    assert_eq!(client.ask(&plain(Opcode::Get, b"k")).status, Status::KeyEnoent);
}

// Compat (Differences): Their errors
#[test]
fn a_missing_right_is_named_in_the_auth_failure() {
    let server = server(&["read-only:default"], None, &[]);
    let mut client = logged_in(&server.harness);
    let set = RequestParts { extras: &SET_EXTRAS, value: b"v", ..plain(Opcode::Set, b"k") };
    let reply = client.ask(&set);
    assert_eq!(reply.status, Status::AuthError, "memcached has no other status for it");
    assert_eq!(text(&reply), "needs the privilege Upsert");
}

// Compat (Differences): Their errors
/// The texts of memcached 1.6.18; the conformance suite `memcached-sasl` sends the same requests to
/// one.
#[test]
fn failures_carry_the_texts_of_memcached() {
    let mut client = Client::legacy();
    let store =
        |opcode, key| RequestParts { extras: &SET_EXTRAS, value: b"text", ..plain(opcode, key) };
    let (create, only) = (counter_extras(1, 0, 0), counter_extras(1, 0, COUNTER_DO_NOT_CREATE));
    assert_eq!(client.ask(&store(Opcode::Set, b"k")).status, Status::Success);
    let long = [b'k'; 251];
    let touch = RequestParts { extras: &[0; 4], ..plain(Opcode::Touch, b"none") };
    let count = |key, extras| RequestParts { extras, ..plain(Opcode::Increment, key) };
    for (request, status, expected) in [
        (plain(Opcode::Get, b"none"), Status::KeyEnoent, "Not found"),
        (plain(Opcode::Delete, b"none"), Status::KeyEnoent, "Not found"),
        (touch, Status::KeyEnoent, "Not found"),
        (RequestParts { opcode: Opcode::Gat, ..touch }, Status::KeyEnoent, "Not found"),
        (store(Opcode::Replace, b"none"), Status::KeyEnoent, "Not found"),
        (count(b"none", &only), Status::KeyEnoent, "Not found"),
        (store(Opcode::Add, b"k"), Status::KeyEexists, "Data exists for key."),
        (
            RequestParts { cas: 1, ..store(Opcode::Set, b"k") },
            Status::KeyEexists,
            "Data exists for key.",
        ),
        (
            RequestParts { value: b"x", ..plain(Opcode::Append, b"none") },
            Status::NotStored,
            "Not stored.",
        ),
        (
            count(b"k", &create),
            Status::DeltaBadval,
            "Non-numeric server-side value for incr or decr",
        ),
        (plain(Opcode::Get, &long), Status::Einval, "Invalid arguments"),
        (RequestParts { extras: &[0; 3], ..touch }, Status::Einval, "Invalid arguments"),
        (store(Opcode::SaslStep, b"PLAIN"), Status::AuthError, "Auth failure."),
    ] {
        let request = match request.opcode {
            Opcode::SaslStep => RequestParts { extras: b"", ..request },
            _ => request,
        };
        let reply = client.ask(&request);
        assert_eq!((reply.status, text(&reply)), (status, expected), "{request:?}");
    }
    let miss = client.ask(&plain(Opcode::Getk, b"none"));
    assert_eq!(
        (miss.status, &miss.key[..], miss.value.len()),
        (Status::KeyEnoent, &b"none"[..], 0)
    );

    let mut unknown = bytes(&RequestParts::new(Opcode::Noop));
    unknown[1] = 0x7f;
    let reply = &replies(&client.harness.feed(&unknown))[0];
    assert_eq!((reply.status, text(reply)), (Status::UnknownCommand, "Unknown command"));
    let mut huge = bytes(&store(Opcode::Set, b"k"));
    huge.truncate(24);
    huge[8..12].copy_from_slice(&(VALUE_BYTES_MAX as u32 + 10).to_be_bytes());
    let reply = &replies(&client.harness.feed(&huge))[0];
    assert_eq!((reply.status, text(reply)), (Status::E2big, "Too large."));
}

#[test]
fn clients_that_said_hello_get_no_such_text() {
    for features in [&[][..], &[7], &[7, 0x0b]] {
        let mut client = Client::with_features(features);
        let reply = client.get(b"none");
        assert_eq!((reply.status, reply.value.len()), (Status::KeyEnoent, 0), "{features:?}");
    }
}

/// The collection that an administrator names holds the keys of the user's clients, in both
/// protocols; without it they have no other one.
#[test]
fn a_user_may_have_a_collection() {
    let directory = tempfile::tempdir().unwrap();
    let roles = vec!["read-write:default".parse().unwrap()];
    let user = StoredUser::new("ann", b"secret", roles).unwrap();
    let user = user.with_collection("web.pages".parse().unwrap());
    UserFile::edit(directory.path(), |file| file.put(user)).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));

    let mut text = harness.beside();
    assert_eq!(text.feed(b"set login 0 0 10\r\nann secret\r\n"), b"STORED\r\n");
    let refused = String::from_utf8(text.feed(b"set k 0 0 1\r\nx\r\nget k\r\nmg k v\r\n")).unwrap();
    let lines: Vec<&str> = refused.lines().collect();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.contains("_ERROR ")), "{refused}");

    let bucket = harness.bucket().bucket();
    bucket.update_manifest(&ManifestChange::CreateScope { name: "web".to_owned() }).unwrap();
    let (scope, name) = ("web".to_owned(), "pages".to_owned());
    let change = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
    bucket.update_manifest(&change).unwrap();
    let pages = bucket.manifest().collection_id("web", "pages").unwrap();
    // A worker looks for it when it checks deadlines.
    text.advance_ms(1_000);
    assert_eq!(text.feed(b"set k 0 0 1\r\nx\r\nmg k v\r\n"), b"STORED\r\nVA 1\r\nx\r\n");
    let mut binary = logged_in(&harness);
    assert_eq!(binary.ask(&plain(Opcode::Get, b"k")).value, b"x");

    let vbid = vbucket_of(b"k", HARNESS_VBUCKETS);
    let now = Timestamp::from_unix_s(HARNESS_START_S);
    for (collection, is_there) in [(pages, true), (CollectionId::DEFAULT, false)] {
        let vbucket = bucket.vbucket(vbid).unwrap();
        let found = vbucket.get(&bucket.context(now), DocKey { collection, key: b"k" });
        assert_eq!(matches!(found, GetOutcome::Hit(_)), is_there, "{collection:?}");
    }
    // A client that can name a collection has the default one.
    let mut sdk = Client { harness: harness.beside() };
    sdk.hello(&[7]);
    assert_eq!(log_in(&mut sdk, b"\0ann\0secret").status, Status::Success);
    sdk.ask(&RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) });
    let get = RequestParts { vbid, ..about(Opcode::Get, b"k") };
    assert_eq!(sdk.ask(&get).status, Status::KeyEnoent);
}

#[test]
fn protocols_are_counted() {
    let mut client = Client::modern();
    let counters = Arc::clone(&client.harness.server().diagnostics.counters);
    let before = counters.totals().by_protocol();
    let mut text = client.harness.beside();
    text.feed(b"set a 0 0 1\r\nx\r\nget a b\r\nversion\r\nnonsense\r\n");
    text.feed(b"mg a v\r\nms b 1\r\ny\r\nmn\r\n");
    client.set(b"k", b"v");
    let after = counters.totals().by_protocol();
    let grown: Vec<_> = after.iter().zip(before).map(|(a, b)| (a.0, a.1 - b.1)).collect();
    assert_eq!(grown, [("binary", 1), ("text", 4), ("meta", 3)]);
}
