//! Lines that are documents, lines that are not, and that writing and reading are inverse.

use bytes::Bytes;
use oribi_client::FLAGS_JSON;
use oribi_subdoc::xattr::{XattrDraft, Xattrs, split};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

use super::error::DocumentRowError;
use super::key::KeySource;
use super::read::{DocumentRow, RowFormat, read};
use super::write::{WriteMeta, write};
use crate::doc::row::FLAGS_RAW;

fn format(key_field: &str, meta: bool, drop_key: bool) -> RowFormat {
    RowFormat { key: KeySource::Field(key_field.to_owned()), meta, drop_key }
}

fn row(line: &[u8], format: &RowFormat) -> Result<DocumentRow, DocumentRowError> {
    read(&Bytes::copy_from_slice(line), format)
}

fn key_of(line: &[u8], key_field: &str) -> Result<Bytes, DocumentRowError> {
    row(line, &format(key_field, false, false)).map(|row| row.key)
}

#[test]
fn finds_the_key_wherever_it_stands() {
    for line in [
        r#"{"_key":"a"}"#,
        r#" {"x":{"_key":"inner"},"_key":"a"} "#,
        r#"{"_key":"a","list":[1,2,{"_key":"b"}]}"#,
        r#"{"\u005fkey":"\u0061"}"#,
    ] {
        assert_eq!(key_of(line.as_bytes(), "_key").unwrap(), "a", "{line}");
    }
    assert_eq!(key_of(br#"{"id":42}"#, "id").unwrap(), "42");
    assert_eq!(key_of(br#"{"id":-7}"#, "id").unwrap(), "-7");
}

#[test]
fn says_what_is_wrong() {
    for (line, text) in [
        (&b"{\"a\":1}"[..], "no field \"_key\" to take the key from (see --key-field)"),
        (b"{\"_key\":1.5}", "field \"_key\" is neither a string nor a whole number"),
        (b"{\"_key\":null}", "field \"_key\" is neither a string nor a whole number"),
        (b"{\"_key\":\"\xff\"}", "not UTF-8"),
        (b"[1]", "not a JSON object: invalid type: sequence, expected an object"),
        (b"{\"_key\":\"a\"", "not a JSON object: EOF while parsing an object"),
        (b"{\"_key\":\"a\"} x", "not a JSON object: trailing characters"),
        (b"{\"_key\":\"a\",\"b\":tru}", "not a JSON object: expected ident"),
        (b"{\"_key\":\"a\",\"_base64\":\"?\"}", "field \"_base64\" is not a string in base64"),
    ] {
        let error = key_of(line, "_key").expect_err("refused").to_string();
        assert!(error.starts_with(text), "{error}");
    }
    for (line, text) in [
        (&b"{\"_key\":\"a\",\"_flags\":-1}"[..], "field \"_flags\" is not a whole number"),
        (b"{\"_key\":\"a\",\"_json\":1,\"b\":2}", "field \"b\" beside \"_base64\" or \"_json\""),
        (b"{\"_json\":1}", "no field \"_key\""),
    ] {
        let error = row(line, &format("_key", true, false)).expect_err("refused").to_string();
        assert!(error.starts_with(text), "{error}");
    }
}

#[test]
fn a_plain_line_is_the_document() {
    for line in [
        &br#"{"_key":"a", "n" : 1}"#[..],
        br#"{"_key":"a","_json":1,"more":2}"#,
        br#"{"_key":"a","_flags":7}"#,
    ] {
        let row = row(line, &format("_key", false, false)).unwrap();
        assert_eq!((&row.value[..], row.flags, row.expiry), (line, FLAGS_JSON, None));
    }
}

#[test]
fn the_key_can_be_left_out() {
    for (line, document) in [
        (r#"{"_key":"a"}"#, "{}"),
        (r#"{"_key":"a", "n" : [1, 2] , "m":{} }"#, r#"{ "n" : [1, 2], "m":{}}"#),
        (r#"{ "n":1,"_key":"a","m":2}"#, r#"{ "n":1,"m":2}"#),
        (r#"{"n":1 , "_key":"a"}"#, r#"{"n":1}"#),
    ] {
        let row = row(line.as_bytes(), &format("_key", false, true)).unwrap();
        assert_eq!(row.value, document, "{line}");
    }
}

/// Values of every kind, under keys of every kind.
fn documents() -> Vec<(&'static [u8], &'static [u8])> {
    let keys: [&[u8]; 4] = [b"a", "k\u{e9}y with \"quotes\" \n".as_bytes(), b"\xff\x00", b"42"];
    let values: [&[u8]; 17] = [
        b"",
        b"{}",
        br#"{"n":1}"#,
        br#"{"n": 1, "m": [1.0, 1e400, "\u00e9"]}"#,
        br#"{"_key":"a","n":1}"#,
        br#"{"_key":42}"#,
        br#"{"_key":"a","_key":"a"}"#,
        br#"{"_base64":"eA=="}"#,
        br#"{"_json":1}"#,
        br#"{"_flags":1,"_expiry":2,"_cas":3}"#,
        br#"{"_key_base64":"eA=="}"#,
        b"17",
        b"\"text\"",
        b"[1,{\"_key\":\"a\"}]",
        b"\x00\xff\n\r{",
        b"{\"n\":",
        b"{\"a\":\"\xff\"}",
    ];
    keys.iter().flat_map(|key| values.iter().map(move |value| (*key, *value))).collect()
}

#[test]
fn line_with_meta_round_trips() {
    let meta = WriteMeta {
        cas: u64::MAX,
        flags: 0xdead_beef,
        expiry: 1_900_000_000,
        attributes: Xattrs::default(),
        place: None,
    };
    for (key, value) in documents() {
        let mut line = Vec::new();
        write(&mut line, key, value, "_key", Some(&meta));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let row = row(line.trim_ascii_end(), &format("_key", true, false)).unwrap();
        let text = String::from_utf8_lossy(&line);
        assert_eq!((&row.key[..], &row.value[..]), (key, value), "{text}");
        assert_eq!((row.flags, row.expiry), (meta.flags, Some(meta.expiry)), "{text}");
    }
}

#[test]
fn a_plain_line_gives_back_key_and_value() {
    for (key, value) in documents() {
        let mut line = Vec::new();
        write(&mut line, key, value, "_key", None);
        let line = line.trim_ascii_end();
        let row = row(line, &format("_key", false, true)).unwrap();
        let text = String::from_utf8_lossy(line);
        assert_eq!((&row.key[..], &row.value[..]), (key, value), "{text}");
        let flags = if super::is_json(value) { FLAGS_JSON } else { FLAGS_RAW };
        assert_eq!(row.flags, flags, "{text}");
    }
}

/// Other tools know another key field, so a document that has it is not changed.
#[test]
fn another_key_field_stays_in_the_document() {
    let mut lines = Vec::new();
    write(&mut lines, b"a", br#"{"n":1,"id":"a"}"#, "id", None);
    write(&mut lines, b"b", br#"{"n":1}"#, "id", None);
    assert_eq!(lines, b"{\"n\":1,\"id\":\"a\"}\n{\"id\":\"b\",\"n\":1}\n");
    let first = lines.split(|byte| *byte == b'\n').next().unwrap();
    assert_eq!(row(first, &format("id", false, false)).unwrap().value, first);
}

#[test]
fn line_ends_between_tokens_go_and_nothing_else() {
    let mut line = Vec::new();
    write(&mut line, b"a", b"\n{\r\n  \"n\": \"x\\n\"\n}\n", "_key", None);
    assert_eq!(line, b"{\"_key\":\"a\",  \"n\": \"x\\n\"}\n");
}

/// JSON as documents and attributes have it, names of this file's own fields included.
fn json() -> impl Strategy<Value = String> {
    let name = prop_oneof!["[a-z]{0,4}", "_(key|json|base64|flags|xattrs|scope|collection)"];
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        let member = (name.clone(), inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(|list| format!("[{}]", list.join(", "))),
            prop::collection::vec(member, 0..4).prop_map(|members| {
                let member = |(name, value): &(String, String)| format!("\"{name}\": {value}");
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

proptest! {
    /// With metadata a line is the document, whatever it is.
    #[test]
    fn random_documents_come_back_with_everything(
        key in prop::collection::vec(any::<u8>(), 1..30),
        value in prop_oneof![json().prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..50)],
        attributes in prop::collection::btree_map("[^$\u{0}]{1,4}", json(), 0..20),
        place in prop::option::of(("[a-z%_-]{1,9}", "[a-z%_-]{1,9}")),
        (flags, expiry) in any::<(u32, u32)>(),
    ) {
        let mut draft = XattrDraft::default();
        for (name, value) in &attributes {
            draft.set(name.as_bytes(), value.clone().into_bytes());
        }
        let mut block = Vec::new();
        draft.write(&mut block);
        let xattrs = if block.is_empty() { Xattrs::default() } else { split(&block).unwrap().0 };
        let named = place.as_ref().map(|(scope, collection)| (scope.as_str(), collection.as_str()));
        let meta = WriteMeta { cas: 7, flags, expiry, attributes: xattrs, place: named };
        let mut line = Vec::new();
        write(&mut line, &key, &value, "_key", Some(&meta));
        prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let row = row(line.trim_ascii_end(), &format("_key", true, false)).unwrap();
        prop_assert_eq!((&row.key[..], &row.attributes[..]), (&key[..], &block[..]));
        prop_assert_eq!((row.flags, row.expiry, row.place), (flags, Some(expiry), place));
        // White space around and line ends between tokens are not part of JSON.
        let one_line: Vec<u8> = match super::is_json(&value) {
            true => value.trim_ascii().iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect(),
            false => value,
        };
        prop_assert_eq!(&row.value[..], &one_line[..]);
    }
}

#[test]
fn attributes_that_no_document_has_are_refused() {
    for (attributes, reason) in [
        ("1", "an object"),
        (r#"{"$document":1}"#, "names of 1 to 16 bytes"),
        (r#"{"":1}"#, "names of 1 to 16 bytes"),
        (r#"{"a\u0000":1}"#, "names of 1 to 16 bytes"),
        (r#"{"a":1,"a":2}"#, "each once"),
        (r#"{"a_key_of_17_byte!":1}"#, "names of 1 to 16 bytes"),
        (&format!("{{\"a\":\"{}\"}}", "x".repeat(1 << 20)), "up to 1 MiB"),
    ] {
        let line = format!("{{\"_key\":\"k\",\"_xattrs\":{attributes}}}");
        let error = row(line.as_bytes(), &format("_key", true, false)).expect_err("refused");
        let error = error.to_string();
        assert!(error.starts_with("field \"_xattrs\" is not") && error.contains(reason), "{error}");
    }
    let line = br#"{"_key":"k","_scope":"s"}"#;
    let error = row(line, &format("_key", true, false)).expect_err("refused");
    assert_eq!(error.to_string(), "no field \"_collection\"");
}
