//! Reads and writes of documents, loud forms.

use oribi_auth::UserStore;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::response::MutationTokenExtras;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;

use super::{Client, SET_EXTRAS, about, counter_extras, outside, set_extras};
use crate::harness::{ConnectionHarness, HARNESS_START_S};

// Compat (Key-value): GET, GETQ, GETK, GETKQ
#[test]
fn get_answers_flags_cas_and_value() {
    let mut client = Client::legacy();
    let stored = client.set(b"k", b"value");
    assert_eq!(stored.status, Status::Success);
    assert_ne!(stored.cas, 0);
    let reply = client.get(b"k");
    assert_eq!(reply.status, Status::Success);
    assert_eq!(reply.cas, stored.cas);
    assert_eq!(reply.extras, [0, 0, 0, 7]);
    assert_eq!(reply.value, b"value");
    assert!(reply.key.is_empty());
    assert_eq!(client.get(b"other").status, Status::KeyEnoent);
}

#[test]
fn getk_repeats_the_key() {
    let mut client = Client::legacy();
    client.set(b"k", b"v");
    assert_eq!(client.ask(&about(Opcode::Getk, b"k")).key, b"k");
    let miss = client.ask(&about(Opcode::Getk, b"none"));
    assert_eq!((miss.status, miss.key.as_slice()), (Status::KeyEnoent, &b"none"[..]));
}

#[test]
fn json_datatype_is_shown_if_negotiated() {
    let mut modern = Client::modern();
    modern.set(b"j", b"{\"a\":1}");
    modern.set(b"t", b"{not json");
    assert_eq!(modern.get(b"j").datatype, 1);
    assert_eq!(modern.get(b"t").datatype, 0);
    let mut legacy = Client::legacy();
    legacy.set(b"j", b"{\"a\":1}");
    assert_eq!(legacy.get(b"j").datatype, 0);
}

// Compat (Key-value): SET, ADD, REPLACE
#[test]
fn add_and_replace_look_at_what_is_there() {
    let mut client = Client::modern();
    assert_eq!(client.store(Opcode::Replace, b"k", b"1").status, Status::KeyEnoent);
    assert_eq!(client.store(Opcode::Add, b"k", b"1").status, Status::Success);
    assert_eq!(client.store(Opcode::Add, b"k", b"2").status, Status::KeyEexists);
    assert_eq!(client.store(Opcode::Replace, b"k", b"3").status, Status::Success);
    assert_eq!(client.get(b"k").value, b"3");
}

#[test]
fn cas_is_compared() {
    let mut client = Client::modern();
    let cas = client.set(b"k", b"1").cas;
    let request =
        RequestParts { extras: &SET_EXTRAS, value: b"2", cas, ..about(Opcode::Set, b"k") };
    assert_eq!(client.ask(&request).status, Status::Success);
    assert_eq!(client.ask(&request).status, Status::KeyEexists);
    let missing = RequestParts { key: b"none", ..request };
    assert_eq!(client.ask(&missing).status, Status::KeyEnoent);
    let add = RequestParts { opcode: Opcode::Add, ..request };
    assert_eq!(client.ask(&add).status, Status::Einval);
}

#[test]
fn mutation_token_is_answered_when_negotiated() {
    let mut client = Client::modern();
    let first = MutationTokenExtras::decode(&client.set(b"k", b"1").extras).unwrap();
    let second = MutationTokenExtras::decode(&client.set(b"k", b"2").extras).unwrap();
    assert_eq!(first.vb_uuid, second.vb_uuid);
    assert_eq!(second.seqno.0, first.seqno.0 + 1);
    assert!(Client::legacy().set(b"k", b"1").extras.is_empty());
}

// Compat (Key-value): DELETE, DELETEQ
#[test]
fn delete_and_its_misses() {
    let mut client = Client::modern();
    let cas = client.set(b"k", b"1").cas;
    let wrong = RequestParts { cas: cas + 1, ..about(Opcode::Delete, b"k") };
    assert_eq!(client.ask(&wrong).status, Status::KeyEexists);
    let right = client.ask(&RequestParts { cas, ..wrong });
    assert_eq!((right.status, right.extras.len()), (Status::Success, 16));
    assert_ne!(right.cas, cas);
    assert_eq!(client.ask(&about(Opcode::Delete, b"k")).status, Status::KeyEnoent);
}

// Compat (Key-value): APPEND, PREPEND
#[test]
fn concat_extends_and_needs_a_document() {
    let mut client = Client::legacy();
    let append = RequestParts { value: b"c", ..about(Opcode::Append, b"k") };
    let prepend = RequestParts { value: b"a", ..about(Opcode::Prepend, b"k") };
    assert_eq!(client.ask(&append).status, Status::NotStored);
    client.set(b"k", b"b");
    assert_eq!(client.ask(&append).status, Status::Success);
    assert_eq!(client.ask(&prepend).status, Status::Success);
    let reply = client.get(b"k");
    assert_eq!((reply.value.as_slice(), reply.extras.as_slice()), (&b"abc"[..], &[0, 0, 0, 7][..]));
}

// Compat (Key-value): INCREMENT, DECREMENT
#[test]
fn counters_create_count_and_stop_at_zero() {
    let mut client = Client::modern();
    let never = counter_extras(1, 5, u32::MAX);
    let create = counter_extras(2, 5, 0);
    let request = RequestParts { extras: &never, ..about(Opcode::Increment, b"n") };
    assert_eq!(client.ask(&request).status, Status::KeyEnoent);
    let request = RequestParts { extras: &create, ..request };
    let reply = client.ask(&request);
    assert_eq!(reply.value, 5_u64.to_be_bytes());
    assert_eq!(reply.extras.len(), 16);
    assert_eq!(client.ask(&request).value, 7_u64.to_be_bytes());
    let down = counter_extras(100, 0, 0);
    let request = RequestParts { extras: &down, ..about(Opcode::Decrement, b"n") };
    assert_eq!(client.ask(&request).value, 0_u64.to_be_bytes());
    client.set(b"text", b"abc");
    let request = RequestParts { extras: &create, ..about(Opcode::Increment, b"text") };
    assert_eq!(client.ask(&request).status, Status::DeltaBadval);
}

// Compat (Key-value): TOUCH, GAT, GATQ
#[test]
fn expiry_relative_absolute_and_touch() {
    let mut client = Client::modern();
    let relative = set_extras(0, 10);
    let absolute = set_extras(0, HARNESS_START_S + 10);
    for (key, extras) in [(b"r", relative), (b"a", absolute)] {
        client.ask(&RequestParts { extras: &extras, value: b"v", ..about(Opcode::Set, key) });
    }
    client.set(b"t", b"v");
    let touch = RequestParts { extras: &[0, 0, 0, 10], ..about(Opcode::Touch, b"t") };
    let touched = client.ask(&touch);
    assert_eq!(
        (touched.status, touched.extras.len(), touched.value.len()),
        (Status::Success, 0, 0)
    );
    assert_ne!(touched.cas, 0);
    client.harness.advance_ms(9_000);
    for key in [b"r", b"a", b"t"] {
        assert_eq!(client.get(key).status, Status::Success);
    }
    client.harness.advance_ms(2_000);
    for key in [b"r", b"a", b"t"] {
        assert_eq!(client.get(key).status, Status::KeyEnoent);
    }
    assert_eq!(client.ask(&touch).status, Status::KeyEnoent);
}

// Compat (Key-value): TOUCH, GAT, GATQ
#[test]
fn get_and_touch_reads_and_prolongs() {
    let mut client = Client::modern();
    let extras = set_extras(3, 10);
    client.ask(&RequestParts { extras: &extras, value: b"v", ..about(Opcode::Set, b"k") });
    let gat = RequestParts { extras: &[0, 0, 0, 100], ..about(Opcode::Gat, b"k") };
    let reply = client.ask(&gat);
    assert_eq!((reply.value.as_slice(), reply.extras.as_slice()), (&b"v"[..], &[0, 0, 0, 3][..]));
    client.harness.advance_ms(50_000);
    assert_eq!(client.get(b"k").status, Status::Success);
    let miss = RequestParts { key: b"none", ..gat };
    assert_eq!(client.ask(&miss).status, Status::KeyEnoent);
}

// Compat (Key-value): GET_META, GETQ_META
#[test]
fn get_meta_shows_tombstones() {
    let mut client = Client::modern();
    let cas = client.set(b"k", b"{}").cas;
    let request = RequestParts { extras: &[2], ..about(Opcode::GetMeta, b"k") };
    let reply = client.ask(&request);
    assert_eq!((reply.status, reply.cas, reply.extras.len()), (Status::Success, cas, 21));
    assert_eq!(reply.extras[..8], [0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(reply.extras[20], 1);
    client.ask(&about(Opcode::Delete, b"k"));
    let reply = client.ask(&about(Opcode::GetMeta, b"k"));
    assert_eq!((reply.extras.len(), reply.extras[3]), (20, 1));
    let miss = RequestParts { key: b"none", ..request };
    assert_eq!(client.ask(&miss).status, Status::KeyEnoent);
    let bad = RequestParts { extras: &[3], ..request };
    assert_eq!(client.ask(&bad).status, Status::Einval);
}

/// Regression 1: the Rust SDK's `exists` takes a miss for an error and only a tombstone for "no".
/// An expired document was a miss.
#[test]
fn get_meta_shows_the_tombstone_after_expiry() {
    let mut client = Client::modern();
    let set = RequestParts { extras: &[0, 0, 0, 0, 0, 0, 0, 10], ..about(Opcode::Set, b"k") };
    assert_eq!(client.ask(&set).status, Status::Success);
    assert_eq!(client.ask(&about(Opcode::GetMeta, b"k")).extras[3], 0);
    client.harness.advance_ms(11_000);
    let reply = client.ask(&about(Opcode::GetMeta, b"k"));
    assert_eq!((reply.status, reply.extras[3]), (Status::Success, 1));
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
}

#[test]
fn large_values_travel_whole() {
    let mut client = Client::modern();
    for size in [8 * 1024 - 1, 8 * 1024, 100_000, 3_000_000] {
        let value: Vec<u8> = (0..size).map(|index| (index % 251) as u8).collect();
        assert_eq!(client.set(b"big", &value).status, Status::Success);
        assert_eq!(client.get(b"big").value, value);
    }
}

#[test]
fn vbucket_outside_the_map_is_told_with_the_map() {
    let mut client = Client::modern();
    for request in [
        about(Opcode::Get, b"k"),
        RequestParts { extras: &SET_EXTRAS, ..about(Opcode::Set, b"k") },
        about(Opcode::Delete, b"k"),
        RequestParts { extras: &[0, 0, 0, 1], ..about(Opcode::Touch, b"k") },
    ] {
        let select = RequestParts { key: b"default", ..RequestParts::new(Opcode::SelectBucket) };
        client.ask(&select);
        let request = RequestParts { vbid: outside(), ..request };
        let first = client.ask(&request);
        assert_eq!((first.status, first.datatype), (Status::NotMyVbucket, 1));
        assert!(first.value.starts_with(b"{\"rev\":"));
        let second = client.ask(&request);
        assert_eq!(second.status, Status::NotMyVbucket);
        assert!(second.value.is_empty(), "the client asked not to be told twice");
    }
}

#[test]
fn observe_seqno_and_all_seqnos() {
    let mut client = Client::modern();
    let token = MutationTokenExtras::decode(&client.set(b"k", b"v").extras).unwrap();
    let uuid = token.vb_uuid.0.to_be_bytes();
    let key_vbid = about(Opcode::Get, b"k").vbid;
    let request =
        RequestParts { vbid: key_vbid, value: &uuid, ..RequestParts::new(Opcode::ObserveSeqno) };
    let reply = client.ask(&request);
    assert_eq!((reply.status, reply.value.len(), reply.value[0]), (Status::Success, 27, 0));
    assert_eq!(reply.value[19..27], token.seqno.0.to_be_bytes());
    let other = RequestParts { value: &[1; 8], ..request };
    assert_eq!(client.ask(&other).status, Status::KeyEnoent);
    let short = RequestParts { value: &[1; 7], ..request };
    assert_eq!(client.ask(&short).status, Status::Einval);
    let all = client.ask(&RequestParts::new(Opcode::GetAllVbSeqnos));
    assert_eq!(all.value.len(), 4 * 10);
    let replicas =
        RequestParts { extras: &[0, 0, 0, 2], ..RequestParts::new(Opcode::GetAllVbSeqnos) };
    assert!(client.ask(&replicas).value.is_empty());
}

// Compat (Key-value): OBSERVE_SEQNO
#[test]
fn observe_seqno_tells_where_an_earlier_history_ended() {
    let store = std::sync::Arc::new(MemoryStore::new());
    let users = || UserStore::development();
    let mut before = Client { harness: ConnectionHarness::over(users(), store.clone()) };
    before.set(b"k", b"v");
    let vbid = about(Opcode::Get, b"k").vbid;
    let old = before.harness.bucket().bucket().vbucket(vbid).unwrap().stats();
    before.harness.bucket().bucket().flush_step().unwrap();
    // Documents that were only in memory are lost with the old bucket, so the vbucket begins a new
    // history.
    let harness = ConnectionHarness::after_a_crash(users(), store);
    let mut after = Client { harness };
    let new = after.harness.bucket().bucket().vbucket(vbid).unwrap().stats();
    assert_ne!(old.uuid, new.uuid);
    let uuid = old.uuid.0.to_be_bytes();
    let request = RequestParts { vbid, value: &uuid, ..RequestParts::new(Opcode::ObserveSeqno) };
    let value = after.ask(&request).value;
    assert_eq!((value.len(), value[0]), (43, 1));
    assert_eq!(value[3..11], new.uuid.0.to_be_bytes());
    assert_eq!(value[27..35], uuid);
    assert_eq!(value[35..43], old.high_seqno.0.to_be_bytes());
}

// Compat (Bootstrap and session): VERBOSITY
#[test]
fn verbosity_is_for_administrators() {
    let request = RequestParts { extras: &[0; 4], ..RequestParts::new(Opcode::Verbosity) };
    assert_eq!(Client::modern().ask(&request).status, Status::Success);
    assert_eq!(Client::legacy().ask(&request).status, Status::AuthError);
    let mut reader = Client::modern().beside(&["read-only:default"]);
    assert_eq!(reader.ask(&request).status, Status::Eaccess);
}

// Compat (Key-value): FLUSH, FLUSHQ
#[test]
fn flush_empties_the_bucket() {
    let mut client = Client::legacy();
    client.set(b"k", b"v");
    let delayed = RequestParts { extras: &[0, 0, 0, 9], ..RequestParts::new(Opcode::Flush) };
    assert_eq!(client.ask(&delayed).status, Status::NotSupported);
    assert_eq!(client.ask(&RequestParts::new(Opcode::Flush)).status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
}
