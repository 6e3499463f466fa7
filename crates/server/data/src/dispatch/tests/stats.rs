//! STAT: the entries of each group, the required rights, and refusals.

mod collections;
mod counters;
mod details;
mod keys;
mod slices;

use std::collections::BTreeMap;
use std::sync::Arc;

use oribi_auth::{Role, StoredUser, UserFile, UserStore};
use oribi_engine::collections::ManifestChange;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;
use oribi_types::CollectionId;

use super::{Client, HandlerReply};
use crate::harness::ConnectionHarness;

fn ask(client: &mut Client, group: &str) -> Vec<HandlerReply> {
    client.send(&RequestParts { key: group.as_bytes(), ..RequestParts::new(Opcode::Stat) })
}

/// The status of a refused group.
fn refusal(client: &mut Client, group: &str) -> Status {
    let replies = ask(client, group);
    assert_eq!(replies.len(), 1, "{group:?} is answered: {replies:?}");
    replies[0].status
}

/// A whole group in order; checks that it ends with a single empty answer.
fn entries(client: &mut Client, name: &str) -> Vec<(String, String)> {
    let mut replies = ask(client, name);
    let end = replies.pop().unwrap();
    assert_eq!((end.status, end.key.len(), end.value.len()), (Status::Success, 0, 0), "{name:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    replies.into_iter().map(|reply| (text(reply.key), text(reply.value))).collect()
}

/// A group whose names are all different.
fn group(client: &mut Client, name: &str) -> BTreeMap<String, String> {
    let entries = entries(client, name);
    let count = entries.len();
    let map: BTreeMap<_, _> = entries.into_iter().collect();
    assert_eq!(map.len(), count, "every name of {name:?} once");
    map
}

/// Checks that a group has exactly these names, each after `prefix`.
fn assert_names(group: &BTreeMap<String, String>, prefix: &str, names: &[&str]) {
    let mut expected: Vec<String> = names.iter().map(|name| format!("{prefix}{name}")).collect();
    expected.sort();
    assert_eq!(group.keys().cloned().collect::<Vec<_>>(), expected);
}

/// Creates a collection, and its scope if necessary.
fn create(client: &Client, scope: &str, name: &str, max_ttl_s: Option<u32>) -> CollectionId {
    let bucket = client.harness.bucket().bucket();
    if bucket.manifest().scope_id(scope).is_err() {
        bucket.update_manifest(&ManifestChange::CreateScope { name: scope.to_owned() }).unwrap();
    }
    let (scope, name) = (scope.to_owned(), name.to_owned());
    let change =
        ManifestChange::CreateCollection { scope: scope.clone(), name: name.clone(), max_ttl_s };
    let manifest = bucket.update_manifest(&change).unwrap();
    manifest.collection_id(&scope, &name).unwrap()
}

/// A client that may use collections.
fn with_collections() -> Client {
    Client::with_features(&[4, 7, 8, 0x0b, 0x12])
}

// Compat (Statistics): default, `uuid`, `config`, `memory`, `warmup`, `kvstore`, `diskinfo`,
// `tasks`
#[test]
fn general_group_counts() {
    let mut client = Client::legacy();
    client.set(b"k", b"v");
    client.get(b"k");
    client.get(b"none");
    let stats = group(&mut client, "");
    for (name, value) in [
        ("curr_items", "1"),
        ("ep_active_datatype_raw", "1"),
        ("cmd_set", "1"),
        ("cmd_get", "2"),
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("vb_active_num", "4"),
        ("vb_replica_num", "0"),
        ("vb_active_ops_create", "1"),
        ("ep_queue_size", "1"),
        ("ep_warmup_thread", "complete"),
        ("ep_degraded_mode", "false"),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    for name in ["pid", "uptime", "version", "mem_used", "curr_connections", "bytes_read", "time"] {
        assert!(!stats[name].is_empty(), "{name}");
    }
    assert_eq!(refusal(&mut client, "reset x"), Status::Einval);
    assert_eq!(group(&mut client, "")["cmd_set"], "1", "nothing is reset");
    assert_eq!(group(&mut client, "reset").len(), 0);
    assert_eq!(group(&mut client, "")["cmd_set"], "0");
}

// Compat (Bootstrap and session): STAT
#[test]
fn every_small_group_answers() {
    let mut client = Client::modern();
    client.set(b"k", b"value");
    for (name, entry, value) in [
        ("uuid", "uuid", "0123456789abcdef0123456789abcdef"),
        ("memory", "ep_storedval_num", "1"),
        ("config", "ep_couch_bucket", "default"),
        ("warmup", "ep_warmup_state", "done"),
        ("warmup", "ep_warmup_thread", "complete"),
        ("kvstore", "rw_0:io_num_write", "0"),
        ("diskinfo", "ep_db_data_size", "6"),
    ] {
        assert_eq!(group(&mut client, name)[entry], value, "{name}");
    }
    group(&mut client, "memory")["ep_kept_block_bytes"].parse::<u64>().unwrap();
    client.harness.bucket().bucket().flush_step().unwrap();
    assert_eq!(group(&mut client, "kvstore")["rw_0:io_num_write"], "1");
}

// Compat (Statistics): default, `uuid`, `config`, `memory`, `warmup`, `kvstore`, `diskinfo`,
// `tasks`
#[test]
fn tasks_are_json() {
    let mut client = Client::modern();
    let tasks = group(&mut client, "tasks");
    assert_names(&tasks, "ep_tasks:", &["tasks:default", "cur_time:default"]);
    let array: serde_json::Value = serde_json::from_str(&tasks["ep_tasks:tasks:default"]).unwrap();
    let flusher = &array.as_array().unwrap()[0];
    assert_eq!((&flusher["name"], &flusher["bucket"]), (&"flusher".into(), &"default".into()));
    assert!(flusher["num_runs"].is_u64() && flusher["total_runtime_ns"].is_u64());
    assert_eq!(flusher["type"], "Writer");
    // Scripts look these up without checking that they exist.
    for name in [
        "tid",
        "this",
        "type",
        "state",
        "priority",
        "description",
        "waketime_ns",
        "last_starttime_ns",
        "previous_runtime_ns",
        "cur_runtime_ns",
    ] {
        assert!(array.as_array().unwrap().iter().all(|task| !task[name].is_null()), "{name}");
    }
    let kinds = ["Writer", "Reader", "AuxIO", "NonIO"];
    assert!(array.as_array().unwrap().iter().all(|task| kinds.iter().any(|k| task["type"] == *k)));
    assert_eq!(flusher["last_starttime_ns"], 0, "it does not run now");
}

#[test]
fn connections_are_json_by_number() {
    let mut client = Client::modern();
    let all = group(&mut client, "connections");
    let own: serde_json::Value = serde_json::from_str(&all["1"]).unwrap();
    assert_eq!((all.len(), &own["username"]), (1, &"Administrator".into()));
    assert_eq!((&own["agent_name"], &own["bucket"]), (&"test".into(), &"default".into()));
    assert!(own["requests"].as_u64().unwrap() >= 3, "HELLO, SASL and SELECT_BUCKET: {own}");
    assert_eq!(group(&mut client, "connections 1").len(), 1);
    assert_eq!(refusal(&mut client, "connections 2"), Status::KeyEnoent);
    assert_eq!(refusal(&mut client, "connections x"), Status::Einval);
    // The group needs no bucket.
    client.ask(&RequestParts { key: b"@no bucket@", ..RequestParts::new(Opcode::SelectBucket) });
    let own: serde_json::Value =
        serde_json::from_str(&group(&mut client, "connections")["1"]).unwrap();
    assert_eq!(own["bucket"], "");
}

// Compat (Statistics): `connections [n]`
#[test]
fn connections_of_others_are_for_administrators() {
    let mut client = Client::modern();
    let server = Arc::clone(client.harness.server());
    let other = server.connections.registry.add(0, None, Default::default());
    assert_eq!(group(&mut client, "connections").len(), 2);
    let mut reader = as_user(Role::read_only("default"));
    let server = Arc::clone(reader.harness.server());
    assert_eq!(server.connections.registry.add(0, None, Default::default()).number, other.number);
    assert_eq!(group(&mut reader, "connections").len(), 1);
    assert_eq!(refusal(&mut reader, "connections 2"), Status::KeyEnoent);
}

/// A client of a server with one user, logged in, bucket selected.
fn as_user(role: Role) -> Client {
    let directory = tempfile::tempdir().unwrap();
    let user = StoredUser::new("ann", b"secret", vec![role]).unwrap();
    UserFile::edit(directory.path(), |file| file.put(user)).unwrap();
    let users = UserStore::open(directory.path()).unwrap();
    let harness = ConnectionHarness::over(users, Arc::new(MemoryStore::new()));
    let mut client = Client { harness };
    client.hello(&[7, 8, 0x0b]);
    let plain = RequestParts {
        key: b"PLAIN",
        value: b"\0ann\0secret",
        ..RequestParts::new(Opcode::SaslAuth)
    };
    assert_eq!(client.ask(&plain).status, Status::Success);
    let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
    assert_eq!(client.ask(&select).status, Status::Success);
    client
}

// Compat (Statistics): `reset`
#[test]
fn reset_needs_the_privilege_for_it() {
    let mut reader = as_user(Role::read_only("default"));
    assert!(!group(&mut reader, "").is_empty());
    assert_eq!(refusal(&mut reader, "reset"), Status::Eaccess);
    let mut writer = as_user(Role::read_write("default"));
    assert_eq!(refusal(&mut writer, "reset"), Status::Eaccess);
    let mut operator = as_user("stats:default".parse().unwrap());
    assert_eq!(group(&mut operator, "reset").len(), 0);
}

// Compat (Statistics): `responses`, `threads`, `info`, `manifest`, `workload`, `dispatcher`,
// `eviction`, debug dumps and others
#[test]
fn bad_groups_and_arguments() {
    let mut client = Client::modern();
    for (group, status) in [
        ("nonsense", Status::KeyEnoent),
        ("dcp x", Status::Einval),
        ("uuid x", Status::Einval),
        ("hash x", Status::Einval),
        ("vbucket-seqno x", Status::Einval),
        ("vbucket-seqno -1", Status::Einval),
        ("vbucket-seqno 9", Status::NotMyVbucket),
        ("vbucket-details 4", Status::NotMyVbucket),
        ("checkpoint 65535", Status::NotMyVbucket),
        ("checkpoint 65536", Status::Einval),
        ("collections-details 4", Status::NotMyVbucket),
        ("scopes-details x", Status::Einval),
        ("failovers 4", Status::NotMyVbucket),
        ("collections nodot", Status::Einval),
        ("collections none.x", Status::UnknownScope),
        ("collections _default.x", Status::UnknownCollection),
        ("collections-byid", Status::Einval),
        ("collections-byid 0x", Status::Einval),
        ("collections-byid +8", Status::Einval),
        ("collections-byid 0x9", Status::UnknownCollection),
        ("collections-byid 0x100000000", Status::Einval),
        ("scopes none", Status::UnknownScope),
        ("scopes-byid zz", Status::Einval),
        ("scopes-byid 0x9", Status::UnknownScope),
        ("key", Status::Einval),
        ("key k", Status::Einval),
        ("key k x", Status::Einval),
        ("key k 9", Status::NotMyVbucket),
        ("key k 0 none.x", Status::UnknownScope),
        ("key k 0 a b", Status::Einval),
        ("key-byid k 0", Status::Einval),
        ("key-byid k 0 0x9", Status::UnknownCollection),
        ("vkey none 0", Status::KeyEnoent),
    ] {
        assert_eq!(refusal(&mut client, group), status, "{group:?}");
    }
    assert_eq!(client.ask(&RequestParts::new(Opcode::Noop)).status, Status::Success);
    let not_text = RequestParts { key: b"\xff", ..RequestParts::new(Opcode::Stat) };
    assert_eq!(client.ask(&not_text).status, Status::Einval);
    client.ask(&RequestParts { key: b"@no bucket@", ..RequestParts::new(Opcode::SelectBucket) });
    assert_eq!(refusal(&mut client, ""), Status::NoBucket);
    assert_eq!(refusal(&mut client, "vbucket"), Status::NoBucket);
}
