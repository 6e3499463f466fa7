//! Bodies: single paths, lists, document flags, expiry, CAS, and refusals.

use oribi_protocol::opcode::Opcode::{self, *};
use oribi_protocol::request::RequestParts;
use oribi_protocol::status::Status;

use super::{get, look_up, mutate, one};
use crate::dispatch::tests::{Client, about, set_extras};
use crate::harness::ConnectionHarness;

const MKDOC: u8 = 0x01;
const ADD: u8 = 0x02;
const ACCESS_DELETED: u8 = 0x04;
const XATTR: u8 = 0x04;

/// The answer to a list whose second path met a document that is not JSON.
const OPAQUE: &[u8] = &[1, 0, 0xc6];

const DOCUMENT: &[u8] = br#"{"a" : {"b":[1, 2]}, "n":41, "s":"x"}"#;

fn client_with(value: &[u8]) -> Client {
    let mut client = Client::modern();
    client.set(b"k", value);
    client
}

#[test]
fn single_look_ups() {
    let mut client = client_with(DOCUMENT);
    assert_eq!(get(&mut client, "a.b[1]").as_deref(), Ok("2"));
    assert_eq!(get(&mut client, "a").as_deref(), Ok(r#"{"b":[1, 2]}"#));
    assert_eq!(get(&mut client, "x"), Err(Status::SubdocPathEnoent));
    assert_eq!(get(&mut client, "a[0]"), Err(Status::SubdocPathMismatch));
    assert_eq!(get(&mut client, "a..b"), Err(Status::SubdocPathEinval));
    let deep = vec!["a"; 33].join(".");
    assert_eq!(get(&mut client, &deep), Err(Status::SubdocPathE2big));
    assert_eq!(get(&mut client, ""), Err(Status::Einval));
    let found = one(&mut client, SubdocExists, 0, "n", "");
    assert_eq!((found.status, &found.value[..]), (Status::Success, &b""[..]));
    assert_eq!(found.cas, client.get(b"k").cas);
    assert_eq!(one(&mut client, SubdocGetCount, 0, "", "").value, b"3");
    assert_eq!(one(&mut client, SubdocGetCount, 0, "a.b", "").value, b"2");
    assert_eq!(one(&mut client, SubdocGetCount, 0, "s", "").status, Status::SubdocPathMismatch);
    client.set(b"k", b"not json");
    assert_eq!(get(&mut client, "a"), Err(Status::SubdocDocNotJson));
    client.ask(&about(Delete, b"k"));
    assert_eq!(get(&mut client, "a"), Err(Status::KeyEnoent));
}

// Compat (Sub-document operations): `CREATE` may accompany operations that create nothing (remove
#[test]
fn the_create_flag_is_allowed_where_none_is_created() {
    const CREATE: &[u8] = &[0x01];
    let mut client = client_with(DOCUMENT);
    let specs = [
        (SubdocReplace, 0, "n", "42"),
        (SubdocArrayInsert, 0, "a.b[0]", "0"),
        (SubdocDelete, 0, "s", ""),
    ];
    assert_eq!(mutate(&mut client, CREATE, 0, &specs).status, Status::Success);
    assert_eq!(client.get(b"k").value, br#"{"a" : {"b":[0,1, 2]}, "n":42}"#);
    // Where there is no document, they find nothing in the new one, which is not stored.
    client.ask(&about(Delete, b"k"));
    for spec in specs {
        let reply = mutate(&mut client, CREATE, 0, &[spec]);
        assert_eq!(reply.status, Status::SubdocMultiPathFailure, "{}", spec.2);
        assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    }
}

// Compat (Key-value): sub-document
#[test]
fn single_mutations_splice_the_stored_text() {
    let mut client = client_with(DOCUMENT);
    let steps: [(Opcode, u8, &str, &str); 9] = [
        (SubdocDictUpsert, 0, "s", "null"),
        (SubdocDictAdd, 1, "p.q", "{}"),
        (SubdocArrayPushLast, 0, "a.b", "3,4"),
        (SubdocArrayPushFirst, 0, "a.b", "0"),
        (SubdocArrayInsert, 0, "a.b[1]", "true"),
        (SubdocArrayAddUnique, 0, "a.b", "9"),
        (SubdocReplace, 0, "a.b[-1]", "8"),
        (SubdocDelete, 0, "n", ""),
        (SubdocCounter, 0, "c", "-7"),
    ];
    for (opcode, flags, path, value) in steps {
        let reply = one(&mut client, opcode, flags, path, value);
        assert_eq!(reply.status, Status::Success, "{path}");
        let wanted: &[u8] = if opcode == SubdocCounter { b"-7" } else { b"" };
        assert_eq!(reply.value, wanted);
        assert_eq!((reply.cas, reply.extras.len()), (client.get(b"k").cas, 16));
    }
    let stored = client.get(b"k");
    let wanted = br#"{"a" : {"b":[0,true,1, 2,3,4,8]}, "s":null,"p":{"q":{}},"c":-7}"#;
    assert_eq!(String::from_utf8_lossy(&stored.value), String::from_utf8_lossy(wanted));
    assert_eq!(stored.datatype, 1);
    assert_eq!(one(&mut client, SubdocDictAdd, 0, "c", "1").status, Status::SubdocPathEexists);
    assert_eq!(one(&mut client, SubdocCounter, 0, "c", "0").status, Status::SubdocDeltaEinval);
    assert_eq!(one(&mut client, SubdocDictAdd, 0, "d", "x").status, Status::SubdocValueCantinsert);
}

#[test]
fn lists_of_look_ups_answer_each_path() {
    let mut client = client_with(DOCUMENT);
    let specs = [
        (SubdocGet, 0, "n", ""),
        (SubdocExists, 0, "zz", ""),
        (SubdocGetCount, 0, "a.b", ""),
        (SubdocGet, 0, "a..", ""),
        (SubdocGet, 0, "a.b.[01]", ""),
    ];
    let (status, results) = look_up(&mut client, &[], &specs);
    assert_eq!(status, Status::SubdocMultiPathFailure);
    let wanted = [
        (Status::Success, "41".to_owned()),
        (Status::SubdocPathEnoent, String::new()),
        (Status::Success, "2".to_owned()),
        (Status::SubdocPathEinval, String::new()),
        (Status::Success, "2".to_owned()),
    ];
    assert_eq!(results, wanted);
    let (status, results) = look_up(&mut client, &[], &[(Get, 0, "", "")]);
    let whole = String::from_utf8(DOCUMENT.to_vec()).unwrap();
    assert_eq!((status, results), (Status::Success, vec![(Status::Success, whole)]));
    let (status, _) = look_up(&mut client, &[], &vec![(SubdocGet, 0, "n", ""); 17]);
    assert_eq!(status, Status::SubdocInvalidCombo);
    let (status, results) = look_up(&mut client, &[], &vec![(SubdocGet, 0, "n", ""); 16]);
    assert_eq!((status, results.len()), (Status::Success, 16));
    let (status, _) = look_up(&mut client, &[], &[(SubdocDelete, 0, "n", "")]);
    assert_eq!(status, Status::SubdocInvalidCombo);
}

// Compat (Sub-document operations): A list of look-ups with an answer over 30 MiB, and an attribute
// operand over 1 MiB, is "too big" (0x03)
#[test]
fn lookups_are_answered_in_one_frame_or_not_at_all() {
    // Regression: 16 paths to the same 20 MiB gave an answer of 320.
    let value = format!(r#"{{"s":"{}"}}"#, "x".repeat(2 << 20));
    let mut client = client_with(value.as_bytes());
    let string = &value[5..value.len() - 1];
    let (status, results) = look_up(&mut client, &[], &[(SubdocGet, 0, "s", ""); 14]);
    assert_eq!((status, results.len()), (Status::Success, 14));
    assert!(results.iter().all(|(status, found)| *status == Status::Success && found == string));
    let (status, results) = look_up(&mut client, &[], &[(SubdocGet, 0, "s", ""); 15]);
    assert_eq!((status, results), (Status::E2big, Vec::new()));
    // Large and small parts take different ways to the socket, but keep their order.
    let specs = [(SubdocGet, 0, "s", ""), (SubdocGet, 0, "t", "")];
    let (status, results) = look_up(&mut client, &[], &specs);
    assert_eq!(status, Status::SubdocMultiPathFailure);
    assert_eq!(results[0].1, string);
    assert_eq!(results[1], (Status::SubdocPathEnoent, String::new()));
    assert!(get(&mut client, "s").unwrap() == string);
}

#[test]
fn lists_of_mutations_are_done_whole_or_not_at_all() {
    let mut client = client_with(DOCUMENT);
    let done = mutate(
        &mut client,
        &[],
        0,
        &[
            (SubdocCounter, 0, "n", "1"),
            (SubdocDictUpsert, 1, "new.x", "[]"),
            (SubdocArrayPushLast, 0, "new.x", "1"),
            (SubdocCounter, 0, "new.x[0]", "9"),
        ],
    );
    assert_eq!(done.status, Status::Success);
    // Index, status, length and value of both counters.
    assert_eq!(done.value, b"\x00\0\0\0\0\0\x0242\x03\0\0\0\0\0\x0210");
    let stored = client.get(b"k").value;
    assert_eq!(stored, br#"{"a" : {"b":[1, 2]}, "n":42, "s":"x","new":{"x":[10]}}"#);
    let failed = mutate(
        &mut client,
        &[],
        0,
        &[
            (SubdocCounter, 0, "n", "1"),
            (SubdocReplace, 0, "none", "1"),
            (SubdocDelete, 0, "x", ""),
        ],
    );
    assert_eq!(failed.status, Status::SubdocMultiPathFailure);
    assert_eq!(failed.value, [1, 0, 0xc0]);
    assert_eq!(client.get(b"k").value, stored);
    let whole = mutate(&mut client, &[], 0, &[(Set, 0, "", "plain text")]);
    assert_eq!(whole.status, Status::Success);
    let stored = client.get(b"k");
    assert_eq!((&stored.value[..], stored.datatype), (&b"plain text"[..], 0));
}

#[test]
fn deleting_a_live_document_is_plain_success() {
    let mut client = client_with(DOCUMENT);
    let delete = [(SubdocDictUpsert, XATTR, "_staged", "1"), (Delete, 0, "", "")];
    assert_eq!(mutate(&mut client, &[], 0, &delete).status, Status::Success);
    assert_eq!(client.get(b"k").status, Status::KeyEnoent);
    let amend = &delete[..1];
    let again = mutate(&mut client, &[ACCESS_DELETED], 0, amend);
    assert_eq!(again.status, Status::SubdocSuccessDeleted);
    assert_eq!(mutate(&mut client, &[], 0, &delete).status, Status::KeyEnoent);
}

#[test]
fn whole_body_and_paths_share_a_list_in_any_order() {
    // Regression: "upsert full document" of the Java SDK was an invalid combination.
    let mut client = Client::modern();
    let whole = (Set, 0, "", r#"{"foo":"bar"}"#);
    let path = (SubdocDictUpsert, 0, "qix", "1");
    let paths_lost: &[u8] = br#"{"foo":"bar"}"#;
    let paths_added: &[u8] = br#"{"foo":"bar","qix":1}"#;
    for flags in [MKDOC, ADD] {
        for (specs, wanted) in [([path, whole], paths_lost), ([whole, path], paths_added)] {
            assert_eq!(mutate(&mut client, &[flags], 0, &specs).status, Status::Success);
            assert_eq!(client.get(b"k").value, wanted);
            let attribute = (SubdocDictUpsert, XATTR, "a", "1");
            let specs = [attribute, whole, path, whole, path];
            assert_eq!(mutate(&mut client, &[], 0, &specs).status, Status::Success);
            assert_eq!(client.get(b"k").value, paths_added);
            client.ask(&about(Delete, b"k"));
        }
    }
    // A path fails in a body that is not JSON, and the document stays.
    client.set(b"k", DOCUMENT);
    let opaque = [(Set, 0, "", "text"), path];
    let failed = mutate(&mut client, &[], 0, &opaque);
    assert_eq!((failed.status, &failed.value[..]), (Status::SubdocMultiPathFailure, OPAQUE));
    assert_eq!(client.get(b"k").value, DOCUMENT);
    // Only a deletion is alone.
    for specs in [[path, (Delete, 0, "", "")], [(Delete, 0, "", ""), whole]] {
        assert_eq!(mutate(&mut client, &[], 0, &specs).status, Status::SubdocInvalidCombo);
    }
    let (status, found) = look_up(&mut client, &[], &[(Get, 0, "", ""), (SubdocGet, 0, "n", "")]);
    assert_eq!((status, found.len(), &found[1].1[..]), (Status::Success, 2, "41"));
    assert_eq!(found[0].1.as_bytes(), DOCUMENT);
}

#[test]
fn a_look_up_compares_its_cas() {
    let mut client = client_with(DOCUMENT);
    let cas = client.get(b"k").cas;
    for (named, status) in [(0, Status::Success), (cas, Status::Success), (1, Status::KeyEexists)] {
        let one = RequestParts { extras: &[0, 1, 0], value: b"n", ..about(SubdocGet, b"k") };
        assert_eq!(client.ask(&RequestParts { cas: named, ..one }).status, status);
        let list = [SubdocGet as u8, 0, 0, 1, b'n'];
        let several = RequestParts { value: &list, ..about(SubdocMultiLookup, b"k") };
        assert_eq!(client.ask(&RequestParts { cas: named, ..several }).status, status);
        let missing = RequestParts { key: b"none", ..one };
        let missing = client.ask(&RequestParts { cas: named, ..missing });
        assert_eq!(missing.status, Status::KeyEnoent);
    }
}

#[test]
fn documents_are_created_as_requested() {
    let mut client = Client::modern();
    let upsert = [(SubdocDictUpsert, 0, "a.b", "1")];
    assert_eq!(mutate(&mut client, &[], 0, &upsert).status, Status::KeyEnoent);
    assert_eq!(mutate(&mut client, &[1], 0, &upsert).status, Status::Success);
    assert_eq!(client.get(b"k").value, br#"{"a":{"b":1}}"#);
    assert_eq!(mutate(&mut client, &[1], 0, &upsert).status, Status::Success);
    assert_eq!(mutate(&mut client, &[2], 0, &upsert).status, Status::KeyEexists);
    client.ask(&about(Delete, b"k"));
    let push = [(SubdocArrayPushLast, 0, "", "1")];
    assert_eq!(mutate(&mut client, &[2], 0, &push).status, Status::Success);
    assert_eq!(client.get(b"k").value, b"[1]");
    for flags in [3, 0x20, 0x18, 0x12, 0x10] {
        assert_eq!(mutate(&mut client, &[flags], 0, &push).status, Status::Einval, "{flags:#x}");
    }
}

#[test]
fn cas_and_expiry() {
    let mut client = client_with(DOCUMENT);
    let cas = client.get(b"k").cas;
    let step = [(SubdocCounter, 0, "n", "1")];
    assert_eq!(mutate(&mut client, &[], cas + 1, &step).status, Status::KeyEexists);
    let done = mutate(&mut client, &[], cas, &step);
    assert_eq!(done.status, Status::Success);
    assert_eq!(mutate(&mut client, &[], cas, &step).status, Status::KeyEexists);
    let expiry = |client: &mut Client| client.ask(&about(GetMeta, b"k")).extras[8..12].to_vec();
    assert_eq!(expiry(&mut client), [0; 4]);
    let absolute = 4_000_000_000u32.to_be_bytes();
    assert_eq!(mutate(&mut client, &absolute, 0, &step).status, Status::Success);
    assert_eq!(expiry(&mut client), absolute);
    let parts = about(SubdocCounter, b"k");
    let keeps = RequestParts { framing: &[0x50], extras: &[0, 1, 0], value: b"n1", ..parts };
    assert_eq!(client.ask(&keeps).status, Status::Success);
    assert_eq!(expiry(&mut client), absolute);
    // Without the frame, the expiry is replaced like everything else.
    assert_eq!(mutate(&mut client, &[], 0, &step).status, Status::Success);
    assert_eq!(expiry(&mut client), [0; 4]);
    assert_eq!(client.get(b"k").extras, [0, 0, 0, 7], "flags stay");
    let touched = about(Set, b"k");
    let extras = set_extras(0, 4_000_000_000);
    client.ask(&RequestParts { extras: &extras, value: b"{}", ..touched });
    assert_eq!(expiry(&mut client), absolute);
}

#[test]
fn malformed_requests_leave_the_connection_usable() {
    let mut client = client_with(DOCUMENT);
    let cases: [(Opcode, u8, &str, &str, Status); 9] = [
        (SubdocDelete, 0, "n", "1", Status::Einval),
        (SubdocReplace, 0, "n", "", Status::Einval),
        (SubdocReplace, 1, "n", "1", Status::Einval),
        (SubdocGet, 1, "n", "", Status::Einval),
        (SubdocGet, 0, "n", "1", Status::Einval),
        (SubdocGet, 0x80, "n", "", Status::Einval),
        (SubdocDictAdd, 0x10, "n", "1", Status::SubdocXattrInvalidFlagCombo),
        (SubdocDictAdd, 0, "", "1", Status::Einval),
        (SubdocReplaceBodyWithXattr, 0, "n", "", Status::Einval),
    ];
    for (opcode, flags, path, value, status) in cases {
        assert_eq!(one(&mut client, opcode, flags, path, value).status, status, "{path} {flags}");
    }
    let parts = about(SubdocGet, b"k");
    let short = RequestParts { extras: &[0, 9, 0], value: b"abc", ..parts };
    assert_eq!(client.ask(&short).status, Status::Einval);
    for extras in [&[][..], &[0, 1], &[0, 1, 0, 0, 0], &[0, 1, 0, 0, 0, 0, 0]] {
        let wrong = RequestParts { extras, value: b"n", ..parts };
        assert_eq!(client.ask(&wrong).status, Status::Einval);
    }
    let parts = about(SubdocMultiMutation, b"k");
    for value in [&[0xc8][..], &[0xc8, 0, 0, 1, 0, 0, 0, 9, b'a', b'1']] {
        let wrong = RequestParts { value, ..parts };
        assert_eq!(client.ask(&wrong).status, Status::Einval, "{value:?}");
    }
    for opcode in [SubdocMultiLookup, SubdocMultiMutation] {
        assert_eq!(client.ask(&about(opcode, b"k")).status, Status::SubdocInvalidCombo);
    }
    assert_eq!(client.get(b"k").value, DOCUMENT);
}

#[test]
fn json_values_get_the_json_datatype() {
    let ask = |client: &mut Client, opcode, path: &str, value: &str| {
        let reply = one(client, opcode, 0, path, value);
        assert_eq!(reply.status, Status::Success, "{opcode:?}");
        reply.datatype
    };
    let cases = [
        (SubdocGet, "a", "", 1),
        (SubdocGetCount, "a.b", "", 1),
        (SubdocExists, "a", "", 0),
        (SubdocCounter, "n", "1", 1),
        (SubdocReplace, "n", "1", 0),
    ];
    let mut client = client_with(DOCUMENT);
    for (opcode, path, value, datatype) in cases {
        assert_eq!(ask(&mut client, opcode, path, value), datatype, "{opcode:?}");
    }
    let list = mutate(&mut client, &[], 0, &[(SubdocCounter, 0, "n", "1")]);
    assert_eq!((list.status, list.datatype), (Status::Success, 0));
    // Without the feature, no answer has the datatype bit of JSON.
    let mut client = Client::on(ConnectionHarness::new(), &[6, 7, 8]);
    client.set(b"k", DOCUMENT);
    for (opcode, path, value, _) in cases {
        assert_eq!(ask(&mut client, opcode, path, value), 0, "{opcode:?}");
    }
}
