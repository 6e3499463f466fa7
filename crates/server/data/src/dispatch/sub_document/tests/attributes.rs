//! Extended attributes: storage next to the body, macros, virtual attributes, tombstones, and the
//! rules.

use std::sync::Arc;

use oribi_engine::EvictionPolicy;
use oribi_protocol::opcode::Opcode::*;
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;
use oribi_storage::MemoryStore;
use oribi_types::{CollectionId, DocKey};

use super::super::crc32c::crc32c;
use super::{look_up, mutate, one};
use crate::dispatch::tests::{Client, MODERN, SET_EXTRAS, about, counter_extras};
use crate::harness::ConnectionHarness;

const MAKE_PARENTS: u8 = 0x01;
const XATTR: u8 = 0x04;
const MACRO: u8 = 0x14;

fn attribute(client: &mut Client, path: &str) -> Result<String, Status> {
    let reply = one(client, SubdocGet, XATTR, path, "");
    match reply.status {
        Status::Success | Status::SubdocSuccessDeleted => {
            Ok(String::from_utf8(reply.value).unwrap())
        }
        status => Err(status),
    }
}

/// A document with a user's and a system's attribute.
fn client_with_attributes() -> Client {
    let mut client = Client::modern();
    client.set(b"k", br#"{"n":1}"#);
    add_attributes(&mut client);
    client
}

fn add_attributes(client: &mut Client) {
    for (path, value) in [("user.a", "\"x\""), ("_sys.rev", "7")] {
        let reply = one(client, SubdocDictUpsert, XATTR | MAKE_PARENTS, path, value);
        assert_eq!(reply.status, Status::Success);
    }
}

#[test]
fn attributes_are_beside_the_body() {
    let mut client = client_with_attributes();
    let stored = client.get(b"k");
    assert_eq!((&stored.value[..], stored.datatype), (&br#"{"n":1}"#[..], 1));
    assert_eq!(attribute(&mut client, "user").as_deref(), Ok(r#"{"a":"x"}"#));
    assert_eq!(attribute(&mut client, "_sys.rev").as_deref(), Ok("7"));
    assert_eq!(attribute(&mut client, "none"), Err(Status::SubdocPathEnoent));
    assert_eq!(attribute(&mut client, "user.b"), Err(Status::SubdocPathEnoent));
    let specs = [(SubdocCounter, XATTR, "_sys.rev", "3"), (SubdocCounter, 0, "n", "1")];
    let done = mutate(&mut client, &[], 0, &specs);
    assert_eq!(done.status, Status::Success);
    assert_eq!(attribute(&mut client, "_sys").as_deref(), Ok(r#"{"rev":10}"#));
    assert_eq!(client.get(b"k").value, br#"{"n":2}"#);
    assert_eq!(one(&mut client, SubdocDelete, XATTR, "user", "").status, Status::Success);
    assert_eq!(attribute(&mut client, "user"), Err(Status::SubdocPathEnoent));
    assert_eq!(one(&mut client, SubdocDelete, XATTR, "_sys", "").status, Status::Success);
    assert_eq!(client.ask(&RequestParts { extras: &[2], ..about(GetMeta, b"k") }).extras[20], 1);
}

// Compat (Differences): Extended attributes
#[test]
fn changes_of_the_body_leave_them() {
    let mut client = client_with_attributes();
    let kept = |client: &mut Client, body: &[u8]| {
        assert_eq!(client.get(b"k").value, body);
        assert_eq!(attribute(client, "user.a").as_deref(), Ok("\"x\""));
        assert_eq!(attribute(client, "_sys.rev").as_deref(), Ok("7"));
    };
    client.set(b"k", b"other");
    kept(&mut client, b"other");
    let large = vec![b'x'; 100_000];
    client.set(b"k", &large);
    kept(&mut client, &large);
    client.store(Replace, b"k", b"41");
    kept(&mut client, b"41");
    let up = counter_extras(1, 0, 0);
    client.ask(&RequestParts { extras: &up, ..about(Increment, b"k") });
    kept(&mut client, b"42");
    client.ask(&RequestParts { value: b"0", ..about(Append, b"k") });
    kept(&mut client, b"420");
    client.ask(&RequestParts { value: b"[", ..about(Prepend, b"k") });
    kept(&mut client, b"[420");
    client.ask(&RequestParts { extras: &[0, 0, 1, 0], ..about(Touch, b"k") });
    kept(&mut client, b"[420");
    let cas = client.get(b"k").cas;
    let stale = RequestParts { extras: &SET_EXTRAS, cas: cas + 1, ..about(Set, b"k") };
    assert_eq!(client.ask(&stale).status, Status::KeyEexists);
    assert_eq!(client.ask(&RequestParts { cas, ..stale }).status, Status::Success);
    kept(&mut client, b"");
}

#[test]
fn evicted_attributes_are_fetched_first() {
    let store = Arc::new(MemoryStore::new());
    let harness = ConnectionHarness::evicting(store, EvictionPolicy::Value, 16);
    let mut client = Client::on(harness, &MODERN);
    let body = br#"{"n":1,"long":"long enough to be worth an eviction, as short values stay"}"#;
    client.set(b"k", body);
    add_attributes(&mut client);
    let evict = |client: &Client| {
        let parts = about(Get, b"k");
        let key = DocKey { collection: CollectionId::DEFAULT, key: parts.key };
        let bucket = client.harness.bucket().bucket();
        bucket.flush_step().unwrap();
        assert!(bucket.evict(parts.vbid, key), "a clean item can be evicted");
    };
    evict(&client);
    assert_eq!(attribute(&mut client, "_sys.rev").as_deref(), Ok("7"));
    evict(&client);
    assert_eq!(one(&mut client, SubdocCounter, XATTR, "_sys.rev", "1").value, b"8");
    evict(&client);
    let long = [&b"other "[..], &body[..]].concat();
    assert_eq!(client.set(b"k", &long).status, Status::Success);
    assert_eq!(attribute(&mut client, "_sys.rev").as_deref(), Ok("8"));
    assert_eq!(client.get(b"k").value, long);
    evict(&client);
    assert_eq!(client.ask(&about(Delete, b"k")).status, Status::Success);
    let specs = [(SubdocGet, XATTR, "_sys.rev", "")];
    let wanted = (Status::SubdocSuccessDeleted, vec![(Status::Success, "8".to_owned())]);
    assert_eq!(look_up(&mut client, &[4], &specs), wanted);
}

// Compat (Differences): Extended attributes
#[test]
fn a_deletion_leaves_the_systems() {
    let mut client = client_with_attributes();
    assert_eq!(client.ask(&about(Delete, b"k")).status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    assert_eq!(attribute(&mut client, "_sys.rev"), Err(Status::KeyEnoent));
    let specs = [(SubdocGet, XATTR, "_sys.rev", "")];
    let wanted = (Status::SubdocSuccessDeleted, vec![(Status::Success, "7".to_owned())]);
    assert_eq!(look_up(&mut client, &[4], &specs), wanted);
    let (status, results) = look_up(&mut client, &[4], &[(SubdocGet, XATTR, "user.a", "")]);
    assert_eq!(status, Status::SubdocMultiPathFailureDeleted);
    assert_eq!(results, [(Status::SubdocPathEnoent, String::new())]);
    // An attribute of the tombstone may change, but the tombstone gets no body.
    let step = [(SubdocCounter, XATTR, "_sys.rev", "1")];
    assert_eq!(mutate(&mut client, &[4], 0, &step).status, Status::SubdocSuccessDeleted);
    let body = [(SubdocDictUpsert, 0, "a", "1")];
    let refused = mutate(&mut client, &[4], 0, &body).status;
    assert_eq!(refused, Status::SubdocDeletedDocumentCantHaveValue);
    let revived = mutate(&mut client, &[0x14], 0, &body);
    assert_eq!(revived.status, Status::Success);
    assert_eq!(client.get(b"k").value, br#"{"a":1}"#);
    assert_eq!(attribute(&mut client, "_sys.rev").as_deref(), Ok("8"));
    let again = mutate(&mut client, &[0x14], 0, &body).status;
    assert_eq!(again, Status::SubdocCanOnlyReviveDeletedDocuments);
}

#[test]
fn a_document_may_begin_as_a_tombstone() {
    let mut client = Client::modern();
    let stage = [(SubdocDictUpsert, XATTR | MAKE_PARENTS, "_txn.doc", r#"{"v":1}"#)];
    assert_eq!(mutate(&mut client, &[0x0e], 0, &stage).status, Status::SubdocSuccessDeleted);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    let unstage =
        [(SubdocReplaceBodyWithXattr, XATTR, "_txn.doc", ""), (SubdocDelete, XATTR, "_txn", "")];
    assert_eq!(mutate(&mut client, &[0x14], 0, &unstage).status, Status::Success);
    let stored = client.get(b"k");
    assert_eq!((&stored.value[..], stored.datatype), (&br#"{"v":1}"#[..], 1));
}

#[test]
fn macros_name_the_version_they_are_in() {
    let mut client = Client::modern();
    client.set(b"k", b"123456789");
    let specs = [
        (SubdocDictUpsert, MACRO, "_m", r#""${Mutation.CAS}""#),
        (SubdocDictUpsert, MACRO, "_m", r#""${Mutation.seqno}""#),
        (SubdocDelete, XATTR, "_m", ""),
        (SubdocDictUpsert, MACRO | MAKE_PARENTS, "_m.cas", r#""${Mutation.CAS}""#),
        (SubdocDictUpsert, MACRO, "_m.seqno", r#""${Mutation.seqno}""#),
        (SubdocDictUpsert, MACRO, "_m.crc", r#""${Mutation.value_crc32c}""#),
        (SubdocDictUpsert, MACRO, "_m.plain", r#""${Mutation.CAS} ""#),
    ];
    let refused = mutate(&mut client, &[], 0, &specs);
    assert_eq!(refused.value, [6, 0, 0xd0], "an unknown macro");
    let done = mutate(&mut client, &[], 0, &specs[..6]);
    assert_eq!(done.status, Status::Success);
    let seqno = u64::from_be_bytes(done.extras[8..].try_into().unwrap());
    let wanted = format!(
        r#"{{"cas":"0x{:016x}","seqno":"0x{seqno:016x}","crc":"0xe3069283"}}"#,
        done.cas.swap_bytes()
    );
    assert_eq!(attribute(&mut client, "_m"), Ok(wanted));
    assert_eq!(client.get(b"k").value, b"123456789");
    let literal = one(&mut client, SubdocDictUpsert, XATTR, "_m", r#""${Mutation.CAS}""#);
    assert_eq!(literal.status, Status::Success);
    assert_eq!(attribute(&mut client, "_m").as_deref(), Ok(r#""${Mutation.CAS}""#));
}

#[test]
fn operations_that_compare_or_count_take_no_macros() {
    let mut client = client_with_attributes();
    for opcode in [SubdocArrayAddUnique, SubdocCounter] {
        let reply = one(&mut client, opcode, MACRO, "_m", r#""${Mutation.CAS}""#);
        assert_eq!(reply.status, Status::Einval, "{opcode:?}");
    }
    for opcode in [SubdocArrayPushLast, SubdocArrayPushFirst] {
        let reply = one(&mut client, opcode, MACRO, "_m", r#""${Mutation.CAS}""#);
        assert_ne!(reply.status, Status::Einval, "{opcode:?}");
    }
}

#[test]
fn virtual_attributes() {
    let mut client = client_with_attributes();
    let cas = client.get(b"k").cas;
    assert_eq!(attribute(&mut client, "$document.CAS"), Ok(format!("\"0x{cas:016x}\"")));
    assert_eq!(attribute(&mut client, "$document.flags").as_deref(), Ok("7"));
    assert_eq!(attribute(&mut client, "$document.revid").as_deref(), Ok("\"3\""));
    assert_eq!(attribute(&mut client, "$document.value_bytes").as_deref(), Ok("7"));
    assert_eq!(attribute(&mut client, "$document.datatype").as_deref(), Ok(r#"["json","xattr"]"#));
    assert_eq!(attribute(&mut client, "$document.deleted").as_deref(), Ok("false"));
    assert_eq!(attribute(&mut client, "$vbucket.HLC.mode").as_deref(), Ok("\"real\""));
    assert_eq!(attribute(&mut client, "$XTOC").as_deref(), Ok(r#"["user","_sys"]"#));
    assert_eq!(attribute(&mut client, "$other"), Err(Status::SubdocXattrUnknownVattr));
    let write = one(&mut client, SubdocDictUpsert, XATTR, "$document.CAS", "1");
    assert_eq!(write.status, Status::SubdocXattrCantModifyVattr);
    let specs = [
        (SubdocGet, XATTR, "$document", ""),
        (SubdocGet, XATTR, "user", ""),
        (SubdocGet, 0, "n", ""),
    ];
    assert_eq!(look_up(&mut client, &[], &specs).0, Status::Success);
}

#[test]
fn no_request_shows_the_cas_of_a_locked_document() {
    let mut client = client_with_attributes();
    let modified = attribute(&mut client, "$document.last_modified");
    let cas = client.get(b"k").cas;
    assert_eq!(client.ask(&about(GetLocked, b"k")).status, Status::Success);
    let shown = one(&mut client, SubdocGet, XATTR, "$document.CAS", "");
    assert_ne!(shown.cas, cas);
    assert_eq!(shown.value, format!("\"0x{:016x}\"", shown.cas).as_bytes());
    assert_eq!(attribute(&mut client, "$document.last_modified"), modified);
}

#[test]
fn rules() {
    let mut client = client_with_attributes();
    let cases: [(&[_], Status); 3] = [
        (
            &[(SubdocGet, 0, "n", ""), (SubdocGet, XATTR, "user", "")],
            Status::SubdocInvalidXattrOrder,
        ),
        (&[(SubdocGet, XATTR, "a_key_of_17_bytes", "")], Status::XattrEinval),
        (&[(SubdocGet, XATTR, "", "")], Status::Einval),
    ];
    for (specs, status) in cases {
        assert_eq!(look_up(&mut client, &[], specs).0, status, "{specs:?}");
    }
    let huge = format!("\"{}\"", "x".repeat(1 << 20));
    let refused = one(&mut client, SubdocDictUpsert, XATTR, "user.big", &huge);
    assert_eq!(refused.status, Status::E2big);
    let wrong = one(&mut client, SubdocDictUpsert, XATTR, "user.big", "not json");
    assert_eq!(wrong.status, Status::SubdocValueCantinsert);
}

// Compat (Sub-document operations): Several attribute keys may be in one request
#[test]
fn several_keys_in_one_request() {
    let mut client = client_with_attributes();
    let both = [(SubdocGet, XATTR, "user.a", ""), (SubdocGet, XATTR, "_sys.rev", "")];
    let (status, found) = look_up(&mut client, &[], &both);
    let wanted = [(Status::Success, "\"x\"".to_owned()), (Status::Success, "7".to_owned())];
    assert_eq!((status, &found[..]), (Status::Success, &wanted[..]));
    let changes = [
        (SubdocDictUpsert, XATTR, "one", "1"),
        (SubdocDictUpsert, XATTR, "two", "2"),
        (SubdocDelete, XATTR, "user", ""),
    ];
    assert_eq!(mutate(&mut client, &[], 0, &changes).status, Status::Success);
    assert_eq!(attribute(&mut client, "$XTOC").as_deref(), Ok(r#"["_sys","one","two"]"#));
    // The feature only tells clients that they may use it; clients without attributes may not.
    for (features, wanted) in
        [(&[6, 7, 8][..], Status::Success), (&[7, 8][..], Status::NotSupported)]
    {
        let mut client = Client::on(ConnectionHarness::new(), features);
        client.set(b"k", b"{}");
        assert_eq!(mutate(&mut client, &[], 0, &changes[..2]).status, wanted);
        let both = [(SubdocGet, XATTR, "one", ""), (SubdocGet, XATTR, "two", "")];
        assert_eq!(look_up(&mut client, &[], &both).0, wanted);
    }
}

#[test]
fn attributes_of_bytes() {
    const BINARY: u8 = 0x20 | XATTR;
    let mut client = client_with_attributes();
    let text = "not JSON {";
    assert_eq!(one(&mut client, SubdocDictUpsert, BINARY, "bin", text).status, Status::Success);
    let read = one(&mut client, SubdocGet, BINARY, "bin", "");
    assert_eq!((&read.value[..], read.datatype), (text.as_bytes(), 0));
    let stored = "\"cb-content-base64-encoded:bm90IEpTT04gew==\"";
    assert_eq!(attribute(&mut client, "bin").as_deref(), Ok(stored));
    let json = one(&mut client, SubdocGet, BINARY, "user.a", "");
    assert_eq!(json.status, Status::SubdocFieldNotBinaryValue);
    for (opcode, flags, path, value) in [
        (SubdocGet, 0x20, "n", ""),
        (SubdocDictUpsert, 0x20, "n", "1"),
        (SubdocCounter, BINARY, "c", "1"),
        (SubdocExists, BINARY, "bin", ""),
        (SubdocDictUpsert, BINARY | MACRO, "m", "\"${Mutation.CAS}\""),
    ] {
        let refused = one(&mut client, opcode, flags, path, value).status;
        assert_eq!(refused, Status::SubdocXattrInvalidFlagCombo, "{opcode:?} {flags}");
    }
    let done = one(&mut client, SubdocReplaceBodyWithXattr, BINARY, "bin", "");
    assert_eq!(done.status, Status::Success);
    let stored = client.get(b"k");
    assert_eq!((&stored.value[..], stored.datatype), (text.as_bytes(), 0));
}

#[test]
fn document_macros_describe_the_previous_version() {
    let mut client = client_with_attributes();
    let before = client.get(b"k").cas;
    let specs = [
        (SubdocDictUpsert, MACRO | MAKE_PARENTS, "_t.cas", r#""${$document.CAS}""#),
        (SubdocDictUpsert, MACRO, "_t.flags", r#""${$document.flags}""#),
        (SubdocDictUpsert, MACRO, "_t.revid", r#""${$document.revid}""#),
    ];
    assert_eq!(mutate(&mut client, &[], 0, &specs).status, Status::Success);
    let wanted = format!(r#"{{"cas":"0x{before:016x}","flags":7,"revid":"3"}}"#);
    assert_eq!(attribute(&mut client, "_t"), Ok(wanted));
    let whole = [(SubdocDictUpsert, MACRO, "_whole", r#""${$document}""#)];
    assert_eq!(mutate(&mut client, &[], 0, &whole).status, Status::Success);
    assert_eq!(attribute(&mut client, "_whole.deleted").as_deref(), Ok("false"));
    assert_eq!(attribute(&mut client, "_whole.value_bytes").as_deref(), Ok("7"));
    let unknown = [(SubdocDictUpsert, MACRO, "_x", r#""${$document.nope}""#)];
    let refused = mutate(&mut client, &[], 0, &unknown);
    assert_eq!(refused.value, [0, 0, 0xd5]);
    // For a document that is being created, all members are zero.
    client.ask(&about(Delete, b"k"));
    assert_eq!(mutate(&mut client, &[1], 0, &specs[1..2]).status, Status::Success);
    assert_eq!(attribute(&mut client, "_t.flags").as_deref(), Ok("0"));
}

#[test]
fn an_active_vbucket_answers_no_replica_read() {
    let mut client = client_with_attributes();
    let read = |client: &mut Client| {
        let parts =
            RequestParts { extras: &[0, 1, 0, 0x20], value: b"n", ..about(SubdocGet, b"k") };
        client.ask(&parts).status
    };
    assert_eq!(read(&mut client), Status::NotMyVbucket);
    let step = [(SubdocCounter, 0, "n", "1")];
    assert_eq!(mutate(&mut client, &[0x20], 0, &step).status, Status::Einval);
    let mut client = Client::on(ConnectionHarness::new(), &[6, 7, 8]);
    client.set(b"k", br#"{"n":1}"#);
    assert_eq!(read(&mut client), Status::NotMyVbucket, "the feature gates nothing");
}

// Invariant: Reading the attributes of a compressed document inflates nothing.
#[test]
fn compressed_bodies_are_inflated_for_statements() {
    let mut client = Client::modern();
    let body = format!(r#"{{"list":[{}1],"n":1}}"#, "12345,".repeat(50));
    let stream = snap::raw::Encoder::new().compress_vec(body.as_bytes()).unwrap();
    let set = RequestParts { extras: &SET_EXTRAS, datatype: 2, value: &stream, ..about(Set, b"k") };
    assert_eq!(client.ask(&set).status, Status::Success);
    let datatype = |client: &mut Client| client.get(b"k").datatype;
    assert_eq!(one(&mut client, SubdocGet, 0, "list[-1]", "").value, b"1");
    // A change of an attribute leaves the body as it is.
    add_attributes(&mut client);
    assert_eq!((datatype(&mut client), client.get(b"k").value), (3, stream));
    let length = body.len().to_string();
    assert_eq!(attribute(&mut client, "$document.value_bytes"), Ok(length));
    // This also holds for a macro that does not depend on the body's bytes.
    let cas = (SubdocDictUpsert, MACRO, "_m", r#""${$document.CAS}""#);
    assert_eq!(mutate(&mut client, &[], 0, &[cas]).status, Status::Success);
    assert_eq!(datatype(&mut client), 3);
    let checksum = format!("\"{:#010x}\"", crc32c(&[body.as_bytes()]));
    assert_eq!(attribute(&mut client, "$document.value_crc32c").as_ref(), Ok(&checksum));
    for operand in [r#""${$document.value_crc32c}""#, r#""${Mutation.value_crc32c}""#] {
        let specs = [(SubdocDictUpsert, MACRO, "_m", operand)];
        assert_eq!(mutate(&mut client, &[], 0, &specs).status, Status::Success);
        assert_eq!(attribute(&mut client, "_m").as_ref(), Ok(&checksum), "{operand}");
    }
    assert_eq!(one(&mut client, SubdocCounter, 0, "n", "1").value, b"2");
    assert_eq!(datatype(&mut client), 1);
    assert_eq!(client.get(b"k").value, body.replace("\"n\":1", "\"n\":2").as_bytes());
    assert_eq!(attribute(&mut client, "_sys.rev").as_deref(), Ok("7"));
}
