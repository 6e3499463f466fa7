//! OBSERVE, failover logs, random documents, lists of keys, seqnos per collection and eviction by
//! command.

use std::sync::Arc;

use oribi_cluster::NodeLease;
use oribi_config::Settings;
use oribi_engine::EvictionPolicy;
use oribi_engine::collections::ManifestChange;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;

use super::{Client, MODERN, SET_EXTRAS, about, outside};
use crate::buckets::{BucketOptions, Buckets, ClusteredBuckets};
use crate::connection::close_reason::CloseReason;
use crate::harness::ConnectionHarness;

/// State and CAS of each key in the answer to OBSERVE.
pub(super) fn observe(client: &mut Client, keys: &[&[u8]]) -> Vec<(u8, u64)> {
    let mut value = Vec::new();
    for key in keys {
        value.extend(about(Opcode::Get, key).vbid.0.to_be_bytes());
        value.extend((key.len() as u16).to_be_bytes());
        value.extend(*key);
    }
    let reply = client.ask(&RequestParts { value: &value, ..RequestParts::new(Opcode::Observe) });
    assert_eq!(reply.status, Status::Success);
    let mut rest = &reply.value[..];
    let mut states = Vec::new();
    for key in keys {
        let (head, behind) = rest.split_at(4 + key.len());
        assert_eq!(&head[4..], *key);
        states.push((behind[0], u64::from_be_bytes(behind[1..9].try_into().unwrap())));
        rest = &behind[9..];
    }
    assert!(rest.is_empty());
    states
}

// Compat (Key-value): OBSERVE
#[test]
fn observe_tells_what_is_where() {
    for policy in [EvictionPolicy::Value, EvictionPolicy::Full] {
        let store = std::sync::Arc::new(MemoryStore::new());
        let harness = ConnectionHarness::evicting(store, policy, 0);
        let mut client = Client::on(harness, &MODERN);
        let cas = client.set(b"k", &[b'v'; 100]).cas;
        assert_eq!(observe(&mut client, &[b"k", b"none"]), [(0, cas), (0x80, 0)]);
        client.harness.bucket().bucket().flush_step().unwrap();
        assert_eq!(observe(&mut client, &[b"k"]), [(1, cas)]);
        let evict = client.ask(&about(Opcode::EvictKey, b"k"));
        assert_eq!((evict.status, &evict.value[..]), (Status::Success, &b"Evicted."[..]));
        assert_eq!(observe(&mut client, &[b"k", b"none"]), [(1, cas), (0x80, 0)]);
        let deleted = client.ask(&about(Opcode::Delete, b"k")).cas;
        assert_eq!(observe(&mut client, &[b"k"]), [(0x81, deleted)]);
        client.harness.bucket().bucket().flush_step().unwrap();
        assert_eq!(observe(&mut client, &[b"k"])[0].0, 0x80);
    }
}

#[test]
fn results_of_an_earlier_lease_are_not_sent() {
    let mut client = Client::modern();
    assert_eq!(client.set(b"k", b"1").status, Status::Success);
    let buckets = Arc::new(Buckets::in_memory());
    let options = BucketOptions::from_settings(&Settings::default());
    let buckets = Arc::new(ClusteredBuckets::new(buckets, options));
    client.harness.lose_lease_in_jobs(Arc::new(NodeLease::new(buckets)));
    let mut value = about(Opcode::Get, b"k").vbid.0.to_be_bytes().to_vec();
    value.extend([0, 1, b'k']);
    let request = RequestParts { value: &value, ..RequestParts::new(Opcode::Observe) };
    assert!(client.send(&request).is_empty());
    assert_eq!(client.harness.close_reason(), Some(CloseReason::LeaseLost));
}

#[test]
fn malformed_observations_are_refused() {
    let mut client = Client::modern();
    for value in [&[0, 1, 0][..], &[0, 1, 0, 2, b'k'], &[0, 1, 0, 0]] {
        let request = RequestParts { value, ..RequestParts::new(Opcode::Observe) };
        assert_eq!(client.ask(&request).status, Status::Einval, "{value:?}");
    }
    let elsewhere = [&outside().0.to_be_bytes()[..], &[0, 1, b'k']].concat();
    let request = RequestParts { value: &elsewhere, ..RequestParts::new(Opcode::Observe) };
    assert_eq!(client.ask(&request).status, Status::NotMyVbucket);
}

/// While a vbucket's last writes are flushed, the node still owns it but serves nothing: another
/// node may soon have newer answers.
#[test]
fn a_vbucket_on_its_way_out_answers_nothing() {
    let mut client = Client::modern();
    client.set(b"k", b"v");
    let bucket = std::sync::Arc::clone(client.harness.bucket().bucket());
    bucket.flush_step().unwrap();
    let vbid = about(Opcode::Get, b"k").vbid;
    let keys = [&vbid.0.to_be_bytes()[..], &[0, 1, b'k']].concat();
    let scan = br#"{"range":{"start":"","end":"/w=="}}"#;
    let in_vbucket = |opcode| RequestParts { vbid, ..RequestParts::new(opcode) };
    let requests = [
        RequestParts { value: &keys, ..RequestParts::new(Opcode::Observe) },
        about(Opcode::GetKeys, b"k"),
        in_vbucket(Opcode::GetFailoverLog),
        RequestParts { datatype: 1, value: scan, ..in_vbucket(Opcode::RangeScanCreate) },
    ];
    let statuses =
        |client: &mut Client| requests.each_ref().map(|request| client.ask(request).status);
    assert_eq!(statuses(&mut client), [Status::Success; 4]);
    let random = RequestParts::new(Opcode::GetRandomKey);
    assert_eq!(client.ask(&random).status, Status::Success);
    bucket.vbuckets().iter().for_each(|vbucket| bucket.stop_serving(vbucket.id()));
    assert!(bucket.vbucket(vbid).unwrap().is_owned());
    assert_eq!(statuses(&mut client), [Status::NotMyVbucket; 4]);
    assert_eq!(client.ask(&random).status, Status::KeyEnoent);
}

// Compat (Key-value): EVICT_KEY
#[test]
fn evict_key_needs_a_durable_document() {
    let mut client = Client::modern();
    assert_eq!(client.ask(&about(Opcode::EvictKey, b"k")).status, Status::KeyEnoent);
    client.set(b"k", &[b'v'; 100]);
    assert_eq!(client.ask(&about(Opcode::EvictKey, b"k")).status, Status::KeyEexists);
    client.harness.bucket().bucket().flush_step().unwrap();
    assert_eq!(client.ask(&about(Opcode::EvictKey, b"k")).value, b"Evicted.");
    assert_eq!(client.ask(&about(Opcode::EvictKey, b"k")).value, b"Already evicted.");
    assert_eq!(client.get(b"k").value, [b'v'; 100]);
}

/// Memory knows neither wholly evicted documents nor durable deletions. A common answer for both
/// reported a deleted document as "already evicted".
#[test]
fn evict_key_distinguishes_evicted_from_deleted() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let harness = ConnectionHarness::evicting(store, EvictionPolicy::Full, 0);
    let mut client = Client::on(harness, &MODERN);
    for key in [b"k", b"d"] {
        client.set(key, &[b'v'; 100]);
    }
    client.ask(&about(Opcode::Delete, b"d"));
    client.harness.bucket().bucket().flush_step().unwrap();
    let evict = |client: &mut Client, key| client.ask(&about(Opcode::EvictKey, key));
    assert_eq!(evict(&mut client, b"k").value, b"Evicted.");
    let again = evict(&mut client, b"k");
    assert_eq!((again.status, &again.value[..]), (Status::Success, &b"Already evicted."[..]));
    assert_eq!(evict(&mut client, b"d").status, Status::KeyEnoent);
    assert_eq!(evict(&mut client, b"none").status, Status::KeyEnoent);
}

/// A node does not report persisted seqnos of a vbucket that another node has taken over.
#[test]
fn a_vbucket_that_was_given_up_is_not_observed() {
    let mut client = Client::modern();
    let mutation = client.set(b"k", b"v");
    let vbid = about(Opcode::Get, b"k").vbid;
    let uuid = &mutation.extras[..8];
    let observe = RequestParts { vbid, value: uuid, ..RequestParts::new(Opcode::ObserveSeqno) };
    assert_eq!(client.ask(&observe).status, Status::Success);
    client.harness.bucket().bucket().deactivate(vbid);
    for opcode in [Opcode::ObserveSeqno, Opcode::GetFailoverLog] {
        let value = if opcode == Opcode::ObserveSeqno { uuid } else { b"" };
        let request = RequestParts { vbid, value, ..RequestParts::new(opcode) };
        assert_eq!(client.ask(&request).status, Status::NotMyVbucket, "{}", opcode.name());
    }
}

// Compat (Key-value): FAILOVER_LOG
#[test]
fn flushing_a_bucket_restarts_its_failover_log() {
    let mut client = Client::modern();
    let vbid = about(Opcode::Get, b"k").vbid;
    let request = RequestParts { vbid, ..RequestParts::new(Opcode::GetFailoverLog) };
    let log = client.ask(&request).value;
    let uuid = client.harness.bucket().bucket().vbucket(vbid).unwrap().uuid();
    assert_eq!(log, [&uuid.0.to_be_bytes()[..], &[0; 8]].concat());
    client.set(b"k", b"v");
    client.ask(&RequestParts::new(Opcode::Flush));
    let log = client.ask(&request).value;
    let emptied = client.harness.bucket().bucket().vbucket(vbid).unwrap().uuid();
    assert_ne!(emptied, uuid);
    assert_eq!(log, [emptied.0.to_be_bytes(), 1_u64.to_be_bytes()].concat());
    let elsewhere = RequestParts { vbid: outside(), ..request };
    assert_eq!(client.ask(&elsewhere).status, Status::NotMyVbucket);
}

// Compat (Key-value): OBSERVE_SEQNO
#[test]
fn an_emptied_history_is_temporary_then_unknown() {
    let mut client = Client::modern();
    let vbid = about(Opcode::Get, b"k").vbid;
    let old = client.harness.bucket().bucket().vbucket(vbid).unwrap().uuid().0.to_be_bytes();
    let observe = |uuid| {
        let parts = RequestParts::new(Opcode::ObserveSeqno);
        RequestParts { vbid, value: uuid, ..parts }
    };
    assert_eq!(client.ask(&observe(&old)).status, Status::Success);
    client.harness.bucket().bucket().set_flush_enabled(false);
    assert_eq!(client.ask(&RequestParts::new(Opcode::Flush)).status, Status::NotSupported);
    assert_eq!(client.ask(&observe(&[1; 8])).status, Status::KeyEnoent, "nothing was emptied");
    client.harness.bucket().bucket().set_flush_enabled(true);
    assert_eq!(client.ask(&RequestParts::new(Opcode::Flush)).status, Status::Success);
    assert_eq!(client.ask(&observe(&old)).status, Status::Etmpfail);
    let new = client.harness.bucket().bucket().vbucket(vbid).unwrap().uuid().0.to_be_bytes();
    assert_eq!(client.ask(&observe(&new)).status, Status::Success);
    client.harness.advance_ms(10_000);
    assert_eq!(client.ask(&observe(&old)).status, Status::KeyEnoent);
}

#[test]
fn a_flush_makes_a_new_configuration() {
    let mut client = Client::modern();
    let mut revision = |opcode| {
        assert_eq!(client.ask(&RequestParts::new(opcode)).status, Status::Success);
        let text = client.ask(&RequestParts::new(Opcode::GetClusterConfig)).value;
        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        json["rev"].as_i64().unwrap()
    };
    let before = revision(Opcode::Noop);
    assert_eq!(revision(Opcode::Flush), before + 1);
    assert_eq!(revision(Opcode::Noop), before + 1);
}

fn with_collection() -> (Client, u32) {
    let codes = [&MODERN[..], &[0x12]].concat();
    let client = Client::with_features(&codes);
    let change = ManifestChange::CreateCollection {
        scope: "_default".into(),
        name: "c".into(),
        max_ttl_s: None,
    };
    let manifest = client.harness.bucket().bucket().update_manifest(&change).unwrap();
    let id = manifest.collection_id("_default", "c").unwrap();
    (client, id.0)
}

/// The keys of one answer to GET_KEYS.
fn keys_in(mut value: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while let Some((length, rest)) = value.split_first_chunk::<2>() {
        let (key, behind) = rest.split_at(usize::from(u16::from_be_bytes(*length)));
        keys.push(key.to_vec());
        value = behind;
    }
    keys
}

// Compat (Key-value): GET_KEYS
#[test]
fn keys_are_listed_in_order_from_one_on() {
    let (mut client, collection) = with_collection();
    let prefix = [collection as u8];
    let field = |name: &str| [&prefix[..], name.as_bytes()].concat();
    let vbid = about(Opcode::Get, b"b").vbid;
    let set = |client: &mut Client, key: &[u8]| {
        let parts = RequestParts { key, vbid, value: b"v", ..RequestParts::new(Opcode::Set) };
        let status = client.ask(&RequestParts { extras: &SET_EXTRAS, ..parts }).status;
        assert_eq!(status, Status::Success);
    };
    for name in ["e", "c", "b", "d", "a"] {
        set(&mut client, &field(name));
    }
    // A key of another collection, in the same vbucket.
    set(&mut client, b"\0c");
    let delete = field("d");
    client.ask(&RequestParts { key: &delete, vbid, ..RequestParts::new(Opcode::Delete) });
    let (from, count) = (field("b"), 2_u32.to_be_bytes());
    let all = RequestParts { key: &from, vbid, ..RequestParts::new(Opcode::GetKeys) };
    assert_eq!(client.ask(&all).status, Status::KeyEnoent, "nothing is persisted yet");
    client.harness.bucket().bucket().flush_step().unwrap();
    assert_eq!(keys_in(&client.ask(&all).value), ["b", "c", "e"].map(field));
    let two = client.ask(&RequestParts { extras: &count, ..all });
    assert_eq!(keys_in(&two.value), ["b", "c"].map(field));
    let behind = field("f");
    assert_eq!(client.ask(&RequestParts { key: &behind, ..all }).status, Status::KeyEnoent);
    let elsewhere = RequestParts { vbid: outside(), ..all };
    assert_eq!(client.ask(&elsewhere).status, Status::NotMyVbucket);
    let unknown = RequestParts { key: b"\x7fb", ..all };
    assert_eq!(client.ask(&unknown).status, Status::UnknownCollection);
}

// Compat (Key-value): GET_RANDOM_KEY
#[test]
fn random_keys_cover_the_collection() {
    let (mut client, collection) = with_collection();
    let id = collection.to_be_bytes();
    let random = RequestParts { extras: &id, ..RequestParts::new(Opcode::GetRandomKey) };
    assert_eq!(client.ask(&random).status, Status::KeyEnoent);
    let field = |name: String| [&[collection as u8][..], name.as_bytes()].concat();
    let mut missing: std::collections::BTreeSet<Vec<u8>> =
        (0..40).map(|number| field(format!("key-{number}"))).collect();
    for key in &missing {
        let vbid = about(Opcode::Get, &key[1..]).vbid;
        let request =
            RequestParts { key, extras: &SET_EXTRAS, value: b"v", ..about(Opcode::Set, b"") };
        client.ask(&RequestParts { vbid, ..request });
    }
    for _ in 0..4000 {
        let reply = client.ask(&random);
        assert_eq!((reply.status, &reply.value[..]), (Status::Success, &b"v"[..]));
        missing.remove(&reply.key);
    }
    assert!(missing.is_empty(), "{missing:?}");
    let default = client.ask(&RequestParts::new(Opcode::GetRandomKey));
    assert_eq!(default.status, Status::KeyEnoent);
    let unknown = RequestParts { extras: &[0, 0, 1, 0], ..RequestParts::new(Opcode::GetRandomKey) };
    assert_eq!(client.ask(&unknown).status, Status::UnknownCollection);
}

// Compat (Key-value): GET_ALL_VB_SEQNOS
#[test]
fn seqnos_of_a_collection_are_its_own() {
    let (mut client, collection) = with_collection();
    let key = [collection as u8, b'k'];
    let vbid = about(Opcode::Get, b"k").vbid;
    let default = RequestParts { key: &[0, b'k'], extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") };
    client.ask(&default);
    client.ask(&RequestParts { key: &key, ..default });
    client.ask(&default);
    let seqno = |client: &mut Client, extras: &[u8]| {
        let reply =
            client.ask(&RequestParts { extras, ..RequestParts::new(Opcode::GetAllVbSeqnos) });
        assert_eq!(reply.status, Status::Success);
        let mut entries = reply.value.chunks_exact(10);
        let entry = entries.find(|entry| entry[..2] == vbid.0.to_be_bytes()).unwrap();
        u64::from_be_bytes(entry[2..].try_into().unwrap())
    };
    let of = |id: u32| [&[0, 0, 0, 1][..], &id.to_be_bytes()].concat();
    // The collection's creation took the first.
    assert_eq!(seqno(&mut client, &[]), 4);
    assert_eq!(seqno(&mut client, &of(0)), 4);
    assert_eq!(seqno(&mut client, &of(collection)), 3);
    let unknown = of(4000);
    let request = RequestParts { extras: &unknown, ..RequestParts::new(Opcode::GetAllVbSeqnos) };
    assert_eq!(client.ask(&request).status, Status::UnknownCollection);
}
