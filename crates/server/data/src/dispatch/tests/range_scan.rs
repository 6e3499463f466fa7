//! Range scans: results, order, pages, and refusals.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oribi_auth::{Access, Identity};
use oribi_engine::collections::ManifestChange;
use oribi_protocol::hash::vbucket_of;
use oribi_protocol::leb128::decode_u32;
use oribi_protocol::opcode::Opcode;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_types::Vbid;
use serde_json::{Value, json};

use super::super::range_scan::reserve_in;
use super::{Client, HandlerReply, SET_EXTRAS, bytes, replies};
use crate::buckets::range_scans::{ScanAnswer, ScanRequest};
use crate::harness::HARNESS_VBUCKETS;
use crate::limits::RANGE_SCANS_MAX;

const VB: Vbid = Vbid(1);
const JSON: u8 = 1;

/// The first `count` keys of the vbucket, in order.
fn keys(count: usize) -> Vec<String> {
    (0..)
        .map(|number| format!("key-{number:05}"))
        .filter(|key| vbucket_of(key.as_bytes(), HARNESS_VBUCKETS) == VB)
        .take(count)
        .collect()
}

/// A client whose bucket has these documents in the vbucket, persisted, and others elsewhere.
fn client_with(keys: &[String]) -> Client {
    let mut client = Client::modern();
    for key in keys {
        assert_eq!(client.set(key.as_bytes(), value_of(key).as_bytes()).status, Status::Success);
    }
    for number in 0..20 {
        let key = format!("other-{number}");
        if vbucket_of(key.as_bytes(), HARNESS_VBUCKETS) != VB {
            client.set(key.as_bytes(), b"{}");
        }
    }
    persist(&client);
    client
}

fn value_of(key: &str) -> String {
    format!(r#"{{"of":"{key}"}}"#)
}

fn persist(client: &Client) {
    while client.harness.bucket().bucket().flush_step().unwrap().more {}
}

fn create(client: &mut Client, request: &Value) -> HandlerReply {
    let value = request.to_string();
    client.ask(&RequestParts {
        vbid: VB,
        datatype: JSON,
        value: value.as_bytes(),
        ..RequestParts::new(Opcode::RangeScanCreate)
    })
}

/// Creates a valid scan and returns its id.
fn created(client: &mut Client, request: &Value) -> Vec<u8> {
    let reply = create(client, request);
    assert_eq!((reply.status, reply.value.len()), (Status::Success, 16), "{request}");
    reply.value
}

/// Continues a scan with limits: items, milliseconds, bytes.
fn proceed(client: &mut Client, id: &[u8], [items, time, bytes]: [u32; 3]) -> Vec<HandlerReply> {
    let extras = [id, &items.to_be_bytes(), &time.to_be_bytes(), &bytes.to_be_bytes()].concat();
    let parts =
        RequestParts { vbid: VB, extras: &extras, ..RequestParts::new(Opcode::RangeScanContinue) };
    client.send(&parts)
}

fn cancel(client: &mut Client, id: &[u8]) -> Status {
    let parts = RequestParts { vbid: VB, extras: id, ..RequestParts::new(Opcode::RangeScanCancel) };
    client.ask(&parts).status
}

fn take<'a>(page: &mut &'a [u8], bytes: usize) -> &'a [u8] {
    let (taken, rest) = page.split_at(bytes);
    *page = rest;
    taken
}

fn take_counted<'a>(page: &mut &'a [u8]) -> &'a [u8] {
    let (length, rest) = decode_u32(page).unwrap();
    *page = rest;
    take(page, length as usize)
}

/// The keys in an answer of keys only.
fn keys_of(replies: &[HandlerReply]) -> Vec<String> {
    let mut keys = Vec::new();
    for reply in replies {
        assert_eq!(reply.extras, [0, 0, 0, 0]);
        let mut page = reply.value.as_slice();
        while !page.is_empty() {
            keys.push(String::from_utf8(take_counted(&mut page).to_vec()).unwrap());
        }
    }
    keys
}

fn range(start: &str, end: &str) -> Value {
    json!({"key_only": true, "range": {"start": STANDARD.encode(start), "excl_end": STANDARD.encode(end)}})
}

#[test]
fn keys_come_in_order_and_only_those_in_range() {
    let keys = keys(50);
    let mut client = client_with(&keys);
    let id = created(&mut client, &json!({"key_only": true, "range": {}}));
    let all = proceed(&mut client, &id, [0, 0, 0]);
    assert_eq!(all.last().unwrap().status, Status::RangeScanComplete);
    assert_eq!(keys_of(&all), keys);
    // A complete scan is gone.
    assert_eq!(proceed(&mut client, &id, [0, 0, 0])[0].status, Status::KeyEnoent);

    let id = created(&mut client, &range(&keys[10], &keys[20]));
    assert_eq!(keys_of(&proceed(&mut client, &id, [0, 0, 0])), keys[10..20]);
    let inclusive = json!({"key_only": true, "range": {"excl_start": STANDARD.encode(&keys[10]), "end": STANDARD.encode(&keys[20])}});
    let id = created(&mut client, &inclusive);
    assert_eq!(keys_of(&proceed(&mut client, &id, [0, 0, 0])), keys[11..=20]);
    assert_eq!(create(&mut client, &range("zzz", "zzzz")).status, Status::KeyEnoent);
}

#[test]
fn documents_have_everything_that_a_client_needs() {
    let keys = keys(3);
    let mut client = client_with(&keys);
    let cas = client.get(keys[1].as_bytes()).cas;
    let id = created(
        &mut client,
        &json!({"collection": "0", "range": {"start": STANDARD.encode(&keys[1]), "end": STANDARD.encode(&keys[1])}}),
    );
    let replies = proceed(&mut client, &id, [10, 0, 0]);
    assert_eq!((replies.len(), replies[0].status), (1, Status::RangeScanComplete));
    assert_eq!(replies[0].extras, [0, 0, 0, 1]);
    let mut page = replies[0].value.as_slice();
    assert_eq!(take(&mut page, 4), [0, 0, 0, 7], "flags");
    assert_eq!(take(&mut page, 4), [0; 4], "expiry");
    assert_eq!(take(&mut page, 8), 2_u64.to_be_bytes(), "seqno");
    assert_eq!(take(&mut page, 8), cas.to_be_bytes());
    assert_eq!(take(&mut page, 1), [JSON]);
    assert_eq!(take_counted(&mut page), keys[1].as_bytes());
    assert_eq!(take_counted(&mut page), value_of(&keys[1]).as_bytes());
    assert!(page.is_empty());
}

#[test]
fn limits_end_a_request_and_not_the_scan() {
    let keys = keys(25);
    let mut client = client_with(&keys);
    let id = created(&mut client, &json!({"key_only": true, "range": {}}));
    let first = proceed(&mut client, &id, [10, 0, 0]);
    assert_eq!((keys_of(&first), first[0].status), (keys[..10].to_vec(), Status::RangeScanMore));
    // The document that exceeds the limit is still sent; each key takes ten bytes here.
    let second = proceed(&mut client, &id, [0, 0, 15]);
    assert_eq!(
        (keys_of(&second), second[0].status),
        (keys[10..12].to_vec(), Status::RangeScanMore)
    );
    let rest = proceed(&mut client, &id, [0, 60_000, 0]);
    assert_eq!((keys_of(&rest), rest[0].status), (keys[12..].to_vec(), Status::RangeScanComplete));
}

// Compat (Range scans): A connection waits for each page before its next request
#[test]
fn a_long_answer_comes_in_several_pieces() {
    let keys = keys(12);
    let mut client = client_with(&[]);
    let value = vec![b'x'; 40_000];
    keys.iter().for_each(|key| drop(client.set(key.as_bytes(), &value)));
    persist(&client);
    let id = created(&mut client, &json!({"range": {}}));
    let replies = proceed(&mut client, &id, [0, 0, 0]);
    let statuses = replies.iter().map(|reply| reply.status).collect::<Vec<_>>();
    let (last, others) = statuses.split_last().unwrap();
    assert_eq!((*last, others), (Status::RangeScanComplete, &[Status::Success; 4][..]));
    let bytes = replies.iter().map(|reply| reply.value.len()).sum::<usize>();
    assert!(bytes > 12 * 40_000 && replies.iter().all(|reply| reply.value.len() < 200_000));
    assert_eq!(client.get(keys[0].as_bytes()).status, Status::Success);
}

/// A client whose request to continue a scan of collection `c` got the first of several pages, and
/// the scan's id.
fn client_between_pages() -> (Client, Vec<u8>) {
    let mut client = Client::with_features(&[&super::MODERN[..], &[0x12]].concat());
    let bucket = Arc::clone(client.harness.bucket());
    let (scope, name) = ("_default".to_owned(), "c".to_owned());
    let create = ManifestChange::CreateCollection { scope, name, max_ttl_s: None };
    let manifest = bucket.bucket().update_manifest(&create).unwrap();
    let collection = manifest.collection_id("_default", "c").unwrap();
    let value = vec![b'x'; 40_000];
    for number in 0..12 {
        let key = [collection.0 as u8, number];
        let set = RequestParts { vbid: VB, key: &key, ..RequestParts::new(Opcode::Set) };
        let stored = client.ask(&RequestParts { extras: &SET_EXTRAS, value: &value, ..set });
        assert_eq!(stored.status, Status::Success);
    }
    persist(&client);
    let collection = format!("{:x}", collection.0);
    let id = created(&mut client, &json!({"collection": collection, "range": {}}));
    let extras = [&id[..], &[0; 12]].concat();
    let parts =
        RequestParts { vbid: VB, extras: &extras, ..RequestParts::new(Opcode::RangeScanContinue) };
    let (answered, may_continue) = client.harness.turn(&bytes(&parts));
    assert!(answered.is_empty() && may_continue, "the page is there, and not sent yet");
    (client, id)
}

/// Statuses of the remaining answers.
fn rest_of(client: &mut Client) -> Vec<Status> {
    replies(&client.harness.feed(&[])).iter().map(|reply| reply.status).collect()
}

/// The server checks every page, not only the request: a scan may take minutes.
#[test]
fn pages_stop_when_vbucket_or_right_is_lost() {
    let (mut client, _) = client_between_pages();
    let pages = rest_of(&mut client);
    assert_eq!((pages.len(), pages[4]), (5, Status::RangeScanComplete));

    let (mut client, _) = client_between_pages();
    client.harness.bucket().bucket().deactivate(VB);
    assert_eq!(rest_of(&mut client), [Status::Success, Status::NotMyVbucket]);

    let (mut client, _) = client_between_pages();
    let change = ManifestChange::DropCollection { scope: "_default".into(), name: "c".into() };
    client.harness.bucket().bucket().update_manifest(&change).unwrap();
    assert_eq!(rest_of(&mut client), [Status::Success, Status::UnknownCollection]);

    let (mut client, _) = client_between_pages();
    let access = Access::new(vec!["read-only:elsewhere".parse().unwrap()]);
    client.harness.log_in(Arc::new(Identity {
        name: "ann".to_owned(),
        access,
        bucket: None,
        collection: None,
    }));
    assert_eq!(rest_of(&mut client), [Status::Success, Status::NoBucket]);
}

/// Regression: such a scan stayed busy for the rest of its life. It refused every later request and
/// counted towards the limit on scans.
#[test]
fn a_scan_of_a_vanished_client_is_cancelled() {
    let (client, id) = client_between_pages();
    let mut other = Client::on(client.harness.beside(), &super::MODERN);
    assert_eq!(proceed(&mut other, &id, [0, 0, 0])[0].status, Status::Ebusy);
    drop(client);
    assert_eq!(proceed(&mut other, &id, [0, 0, 0])[0].status, Status::KeyEnoent);
}

// Compat (Key-value): range scan
#[test]
fn all_pages_show_one_moment() {
    let keys = keys(9);
    let mut client = client_with(&keys);
    let id = created(&mut client, &json!({"range": {}}));
    let mut pages = proceed(&mut client, &id, [2, 0, 0]);
    client.set(keys[5].as_bytes(), b"later");
    client.ask(&super::about(Opcode::Delete, keys[7].as_bytes()));
    persist(&client);
    pages.extend(proceed(&mut client, &id, [0, 0, 0]));
    let bytes = pages.iter().flat_map(|page| page.value.clone()).collect::<Vec<_>>();
    let text = String::from_utf8_lossy(&bytes);
    assert!(keys.iter().all(|key| text.contains(&value_of(key))) && !text.contains("later"));
    let id = created(&mut client, &json!({"key_only": true, "range": {}}));
    assert_eq!(keys_of(&proceed(&mut client, &id, [0, 0, 0])).len(), 8);
}

// Compat (Range scans): `"unordered": true` in a request lets the documents of a range come in any
// order, which costs the server less
/// Documents of a scan without order are those of one with it, in range and at one moment.
#[test]
fn without_order_the_same_documents_come() {
    let keys = keys(40);
    let mut client = client_with(&keys);
    let any_order = |mut request: Value| {
        request["unordered"] = true.into();
        request
    };
    for (request, expected) in [
        (json!({"key_only": true, "range": {}}), &keys[..]),
        (range(&keys[10], &keys[20]), &keys[10..20]),
        (
            json!({"key_only": true, "range": {"excl_start": STANDARD.encode(&keys[30])}}),
            &keys[31..],
        ),
    ] {
        let id = created(&mut client, &any_order(request));
        let mut found = keys_of(&proceed(&mut client, &id, [0, 0, 0]));
        found.sort_unstable();
        assert_eq!(found, expected);
    }
    let none = any_order(range("zzz", "zzzz"));
    assert_eq!(create(&mut client, &none).status, Status::KeyEnoent);
    // A sample is the same for the same seed, and so it has an order.
    let sample = json!({"key_only": true, "sampling": {"seed": 7, "samples": 5}});
    let of = |client: &mut Client, request: &Value| {
        let id = created(client, request);
        keys_of(&proceed(client, &id, [0, 0, 0]))
    };
    assert_eq!(of(&mut client, &any_order(sample.clone())), of(&mut client, &sample));

    let id = created(&mut client, &any_order(json!({"range": {}})));
    let mut pages = proceed(&mut client, &id, [2, 0, 0]);
    for key in &keys {
        client.set(key.as_bytes(), b"later");
    }
    persist(&client);
    pages.extend(proceed(&mut client, &id, [0, 0, 0]));
    let bytes = pages.iter().flat_map(|page| page.value.clone()).collect::<Vec<_>>();
    let text = String::from_utf8_lossy(&bytes);
    assert!(keys.iter().all(|key| text.contains(&value_of(key))) && !text.contains("later"));
}

/// Regression: the lifetime of a scan was checked only while the scan had no request.
#[test]
fn a_walk_over_documents_ends_with_the_scan_timeout() {
    let client = client_with(&keys(20));
    for request in [json!({"range": {}}), json!({"sampling": {"samples": 3}})] {
        let request = ScanRequest::parse(VB, request.to_string().as_bytes()).unwrap();
        let bucket = Arc::clone(client.harness.bucket().bucket());
        let (answers, answered) = sync_channel(1);
        let reply = Box::new(move |answer| answers.send(answer).unwrap());
        let reserve = reserve_in(&client.harness.server().connections.memory);
        let (scans, ends) = (client.harness.bucket().range_scans(), Instant::now());
        scans.create_until(bucket, request, reserve, ends, reply);
        let answer = answered.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(matches!(answer, ScanAnswer::Refused(Status::RangeScanCancelled)), "{answer:?}");
    }
}

/// Regression: a scan read the next document before its client asked for it, and held up to 20 MiB
/// for as long as the client liked, uncounted.
#[test]
fn a_large_document_is_read_into_reserved_memory() {
    let keys = keys(3);
    let mut client = Client::modern();
    let value = vec![b'v'; 1 << 20];
    for key in &keys {
        assert_eq!(client.set(key.as_bytes(), &value).status, Status::Success);
    }
    persist(&client);
    let memory = Arc::clone(&client.harness.server().connections.memory);
    for in_order in [true, false] {
        let request = json!({"unordered": !in_order, "range": {}});
        let id = created(&mut client, &request);
        assert_eq!(memory.stats().reserved_bytes, 0, "a scan without a request holds nothing");
        let first = values_of(&proceed(&mut client, &id, [1, 0, 0]));
        assert!(first.iter().map(|(_, value)| value).eq([&value]));
        // Others hold all of it.
        let others = memory.hold(usize::MAX).unwrap();
        assert_eq!(proceed(&mut client, &id, [1, 0, 0])[0].status, Status::Etmpfail);
        // Regression: the refused scan kept its place in the queue until its thread ended, and was
        // granted memory then.
        assert_eq!(memory.stats().waiting, 0);
        drop(others);
        assert_eq!(memory.stats().reserved_bytes, 0);
        let id = created(&mut client, &request);
        let all = values_of(&proceed(&mut client, &id, [0, 0, 0]));
        assert!(all.iter().map(|(_, value)| value).eq([&value; 3]));
        assert_eq!(memory.stats().reserved_bytes, 0);
    }
}

/// The datatypes and values in an answer with documents.
fn values_of(replies: &[HandlerReply]) -> Vec<(u8, Vec<u8>)> {
    let mut values = Vec::new();
    for reply in replies {
        assert_eq!(reply.extras, [0, 0, 0, 1]);
        let mut page = reply.value.as_slice();
        while !page.is_empty() {
            let datatype = take(&mut page, 25)[24];
            take_counted(&mut page);
            values.push((datatype, take_counted(&mut page).to_vec()));
        }
    }
    values
}

// Compat (Range scans): Attributes (`include_xattrs`) need HELLO 0x06 and SystemXattrRead; bodies
// that come with them are inflated
#[test]
fn xattrs_come_on_request_and_by_rights() {
    let keys = keys(3);
    let mut client = client_with(&keys[..1]);
    let attribute = |client: &mut Client, key: &str| {
        // Path length, and the flag of an attribute; then path and operand.
        let parts = RequestParts {
            extras: &[0, 2, 4],
            value: b"_s7",
            ..super::about(Opcode::SubdocDictUpsert, key.as_bytes())
        };
        assert_eq!(client.ask(&parts).status, Status::Success);
    };
    let text = b"text ".repeat(50);
    let stream = snap::raw::Encoder::new().compress_vec(&text).unwrap();
    for key in &keys[1..] {
        let set = super::about(Opcode::Set, key.as_bytes());
        let set = RequestParts { extras: &super::SET_EXTRAS, datatype: 2, value: &stream, ..set };
        assert_eq!(client.ask(&set).status, Status::Success);
    }
    attribute(&mut client, &keys[0]);
    attribute(&mut client, &keys[1]);
    persist(&client);

    let all = json!({"include_xattrs": true, "range": {}});
    let block = b"\0\0\0\x09\0\0\0\x05_s\x007\0";
    let with = |body: &[u8]| [&block[..], body].concat();
    let plain = value_of(&keys[0]).into_bytes();
    let id = created(&mut client, &all);
    let found = values_of(&proceed(&mut client, &id, [0, 0, 0]));
    assert_eq!(found, [(5, with(&plain)), (4, with(&text)), (2, stream.clone())]);
    let id = created(&mut client, &json!({"range": {}}));
    let found = values_of(&proceed(&mut client, &id, [0, 0, 0]));
    assert_eq!(found, [(1, plain), (2, stream.clone()), (2, stream)]);

    for (role, status) in [
        ("read+range-scan:default", Status::Eaccess),
        ("read+range-scan+system-xattr-read:default", Status::Success),
    ] {
        let mut other = client.beside(&[role]);
        assert_eq!(create(&mut other, &all).status, status, "{role}");
        let id = created(&mut client, &all);
        let pages = proceed(&mut other, &id, [0, 0, 0]);
        assert_eq!(pages[0].status == Status::Eaccess, status == Status::Eaccess, "{role}");
    }
    // The feature for these scans only tells clients that they exist; the client must know
    // attributes.
    for (missing, status) in [(0x22, Status::Success), (0x06, Status::NotSupported)] {
        let codes: Vec<u16> = super::MODERN.into_iter().filter(|code| *code != missing).collect();
        let mut older = Client::on(client.harness.beside(), &codes);
        assert_eq!(create(&mut older, &all).status, status, "{missing:#x}");
    }
}

#[test]
fn samples_are_some_of_all() {
    let keys = keys(60);
    let mut client = client_with(&keys);
    let sample = |client: &mut Client, seed: u64, samples: u64| {
        let request = json!({"key_only": true, "sampling": {"seed": seed, "samples": samples}});
        let id = created(client, &request);
        keys_of(&proceed(client, &id, [0, 0, 0]))
    };
    let ten = sample(&mut client, 1, 10);
    assert!(ten.len() == 10 && ten.is_sorted() && ten.iter().all(|key| keys.contains(key)));
    assert_eq!(sample(&mut client, 1, 10), ten);
    assert_ne!(sample(&mut client, 2, 10), ten);
    assert_eq!(sample(&mut client, 3, 1000), keys);
}

#[test]
fn a_scan_can_wait_for_what_it_has_to_see() {
    let keys = keys(2);
    let mut client = client_with(&keys);
    let uuid = client.harness.bucket().bucket().vbucket(VB).unwrap().failover_table()[0].uuid.0;
    let required = |uuid: u64, seqno: u64, exists: bool| {
        json!({"key_only": true, "range": {}, "snapshot_requirements":
               {"vb_uuid": uuid.to_string(), "seqno": seqno, "seqno_exists": exists, "timeout_ms": 1}})
    };
    created(&mut client, &required(uuid, 2, true));
    assert_eq!(create(&mut client, &required(uuid ^ 1, 2, false)).status, Status::VbUuidNotEqual);
    // The document is in memory, and not persisted in time.
    client.set(keys[0].as_bytes(), b"{}");
    assert_eq!(create(&mut client, &required(uuid, 3, false)).status, Status::Etmpfail);
    persist(&client);
    created(&mut client, &required(uuid, 3, false));
    // Seqno 1 was the overwritten version.
    assert_eq!(create(&mut client, &required(uuid, 1, true)).status, Status::NotStored);
}

// Compat (Range scans): At most 32 scans at a time in a bucket, 180 s each; one more is a temporary
// failure
#[test]
fn scans_are_cancelled_and_limited() {
    let keys = keys(5);
    let mut client = client_with(&keys);
    let request = json!({"key_only": true, "range": {}});
    let id = created(&mut client, &request);
    assert_eq!(proceed(&mut client, &id, [1, 0, 0])[0].status, Status::RangeScanMore);
    assert_eq!(cancel(&mut client, &id), Status::Success);
    assert_eq!(proceed(&mut client, &id, [1, 0, 0])[0].status, Status::KeyEnoent);
    assert_eq!(cancel(&mut client, &[7; 16]), Status::KeyEnoent);
    assert_eq!(proceed(&mut client, &[7; 16], [1, 0, 0])[0].status, Status::KeyEnoent);

    // The thread of the cancelled scan may still be there.
    let created = (0..=RANGE_SCANS_MAX)
        .take_while(|_| create(&mut client, &request).status == Status::Success)
        .count();
    assert!((RANGE_SCANS_MAX - 1..=RANGE_SCANS_MAX).contains(&created), "{created}");
    client.harness.bucket().range_scans().stop();
    assert_eq!(create(&mut client, &request).status, Status::Etmpfail);
}

#[test]
fn impossible_scans_are_rejected() {
    let keys = keys(1);
    let mut client = client_with(&keys);
    let request = json!({"range": {}}).to_string();
    let parts = RequestParts {
        vbid: VB,
        datatype: JSON,
        value: request.as_bytes(),
        ..RequestParts::new(Opcode::RangeScanCreate)
    };
    assert_eq!(client.ask(&RequestParts { datatype: 0, ..parts }).status, Status::Einval);
    assert_eq!(client.ask(&RequestParts { value: b"{}", ..parts }).status, Status::Einval);
    let outside = RequestParts { vbid: Vbid(HARNESS_VBUCKETS), ..parts };
    assert_eq!(client.ask(&outside).status, Status::NotMyVbucket);
    let unknown = json!({"collection": "99", "range": {}});
    assert_eq!(create(&mut client, &unknown).status, Status::UnknownCollection);
}
