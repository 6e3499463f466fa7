//! Lines as they are documented, and keys and values that would break one.

use oribi_types::{VbUuid, Vbid};
use proptest::prelude::*;

use super::*;

const POSITION: Position = Position::at(Vbid(5), VbUuid(0x3fa2), Seqno(1042));

fn line(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("a line is text")
}

fn document<'a>(key: &'a [u8], change: DocumentChange<'a>) -> DocumentLine<'a> {
    let path = Some(("shop", "orders"));
    DocumentLine { change, position: &POSITION, path, key, cas: u64::MAX, rev: 3, xattrs: &[] }
}

fn mutation(value: Option<LineValue<'_>>) -> DocumentChange<'_> {
    let is_json = matches!(value, Some(LineValue::Json(_)));
    DocumentChange::Mutation { flags: 0x0200_0000, expiry: 0, is_json, value }
}

#[test]
fn documents_have_the_documented_fields() {
    let json = LineValue::Json(b"{\"n\":\n 1}\n");
    assert_eq!(
        line(|out| document(b"order:1", mutation(Some(json))).write(out)),
        "{\"token\":\"5:3fa2:1042\",\"vbucket\":5,\"seqno\":1042,\"type\":\"mutation\",\
         \"scope\":\"shop\",\"collection\":\"orders\",\"key\":\"order:1\",\
         \"cas\":\"18446744073709551615\",\"rev\":3,\"flags\":33554432,\"expiry\":0,\
         \"datatype\":[\"json\"],\"value\":{\"n\": 1}}\n"
    );
    let unnamed = DocumentLine { path: None, ..document(b"\xff", mutation(None)) };
    assert_eq!(
        line(|out| unnamed.write(out)),
        "{\"token\":\"5:3fa2:1042\",\"vbucket\":5,\"seqno\":1042,\"type\":\"mutation\",\
         \"key_base64\":\"/w==\",\"cas\":\"18446744073709551615\",\"rev\":3,\
         \"flags\":33554432,\"expiry\":0,\"datatype\":[]}\n"
    );
    let deletion = line(|out| document(b"k", DocumentChange::Deletion(Some(7))).write(out));
    assert!(deletion.ends_with("\"rev\":3,\"deleted_at\":7}\n"), "{deletion}");
    let expiration = line(|out| document(b"k", DocumentChange::Expiration(None)).write(out));
    assert!(expiration.contains("\"type\":\"expiration\""), "{expiration}");
    assert!(expiration.ends_with("\"rev\":3}\n"), "{expiration}");
}

#[test]
fn attributes_are_an_object_behind_the_rest() {
    let xattrs = [
        LineXattr { name: b"tag", json: b"\"v\"" },
        LineXattr { name: b"_\"sys", json: b"{\n\"a\": [1]}" },
    ];
    let with = DocumentLine { xattrs: &xattrs, ..document(b"k", mutation(None)) };
    let shown = line(|out| with.write(out));
    let end = "\"datatype\":[],\"xattrs\":{\"tag\":\"v\",\"_\\\"sys\":{\"a\": [1]}}}\n";
    assert!(shown.ends_with(end), "{shown}");
    let gone = document(b"k", DocumentChange::Deletion(Some(7)));
    let shown = line(|out| DocumentLine { xattrs: &xattrs[..1], ..gone }.write(out));
    assert!(shown.ends_with("\"deleted_at\":7,\"xattrs\":{\"tag\":\"v\"}}\n"), "{shown}");
}

#[test]
fn other_lines_have_the_documented_fields() {
    let event = SystemLine {
        change: SystemChange::CollectionCreated,
        position: &POSITION,
        manifest_uid: ManifestUid(0x1f),
        scope: ScopeId(8),
        scope_name: Some("shop"),
        collection: Some(CollectionId(0xa)),
        collection_name: Some("orders"),
        max_ttl_s: Some(60),
    };
    assert_eq!(
        line(|out| event.write(out)),
        "{\"token\":\"5:3fa2:1042\",\"vbucket\":5,\"seqno\":1042,\
         \"type\":\"collection_created\",\"scope\":\"shop\",\"collection\":\"orders\",\
         \"scope_id\":\"8\",\"collection_id\":\"a\",\"manifest\":\"1f\",\"max_ttl\":60}\n"
    );
    assert_eq!(
        line(|out| write_rollback(out, Seqno(2000), &POSITION)),
        "{\"token\":\"5:3fa2:1042\",\"vbucket\":5,\"seqno\":1042,\"type\":\"rollback\",\
         \"from\":2000}\n"
    );
    assert_eq!(
        line(|out| write_snapshot_end(out, &POSITION)),
        "{\"token\":\"5:3fa2:1042\",\"vbucket\":5,\"seqno\":1042,\"type\":\"snapshot_end\"}\n"
    );
}

#[test]
fn text_is_escaped() {
    let key = "a\"\\\n\u{7}\u{85}\u{2028}é".as_bytes();
    let line = line(|out| document(key, mutation(None)).write(out));
    assert!(line.contains(r#""key":"a\"\\\u000a\u0007\u0085\u2028é""#), "{line}");
}

proptest! {
    /// Whatever key and value are, there is one line end, and quotes outside of escapes pair up.
    #[test]
    fn a_line_is_one_line(
        key in proptest::collection::vec(any::<u8>(), 1..40),
        value in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let change = mutation(Some(LineValue::Bytes(&value)));
        let line = line(|out| document(&key, change).write(out));
        prop_assert_eq!(line.find(|char: char| char.is_control()), Some(line.len() - 1));
        let plain = line.replace("\\\\", "").replace("\\\"", "");
        prop_assert_eq!(plain.matches('"').count() % 2, 0);
    }
}
