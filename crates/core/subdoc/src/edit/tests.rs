//! The protocol's edge cases, operation by operation, and that untouched bytes stay as they are.

use super::{Mutation, edit};
use crate::error::SubdocError;
use crate::lookup;
use crate::path::Path;

use Mutation::{
    ArrayAddUnique, ArrayInsert, ArrayPushFirst, ArrayPushLast, Counter, Delete, DictAdd,
    DictUpsert, Replace,
};
use SubdocError::{
    DeltaEinval, DocE2deep, NumErange, PathEexists, PathEinval, PathEnoent, PathMismatch,
    ValueCantinsert, ValueEtoodeep,
};

/// The text afterwards. A `+` before the path asks for its parents to be made.
fn run(text: &str, mutation: Mutation, path: &str, value: &str) -> Result<String, SubdocError> {
    let (make_parents, path) = path.strip_prefix('+').map_or((false, path), |path| (true, path));
    let path = Path::parse(path.as_bytes())?;
    let edit = edit(text.as_bytes(), mutation, &path, value.as_bytes(), make_parents)?;
    let parts = edit.parts().concat();
    assert_eq!(parts.len(), edit.inserted_bytes());
    let inserted = String::from_utf8(parts).unwrap();
    let remove = edit.remove();
    Ok(format!("{}{inserted}{}", &text[..remove.start], &text[remove.end..]))
}

type Case = (&'static str, &'static str, &'static str, Result<&'static str, SubdocError>);

fn check(mutation: Mutation, table: &[Case]) {
    for (text, path, value, wanted) in table {
        let done = run(text, mutation, path, value);
        assert_eq!(done.as_deref(), wanted.as_deref(), "{mutation:?} {path} {value} on {text}");
        if let Ok(done) = done {
            assert!(crate::json::is_json(done.as_bytes()), "{done}");
        }
    }
}

#[test]
fn dict_add() {
    check(
        DictAdd,
        &[
            ("{}", "a", "1", Ok(r#"{"a":1}"#)),
            ("{ }", "a", "1", Ok(r#"{"a":1 }"#)),
            ("{ \"b\" : 2 }", "a", " [] ", Ok("{ \"b\" : 2,\"a\": []  }")),
            (r#"{"a":1}"#, "a", "2", Err(PathEexists)),
            (r#"{"\u0061":1}"#, "a", "2", Err(PathEexists)),
            (r#"{"a":{}}"#, "a.b", "{}", Ok(r#"{"a":{"b":{}}}"#)),
            ("{}", "a.b", "1", Err(PathEnoent)),
            ("{}", "+a.b.c", "1", Ok(r#"{"a":{"b":{"c":1}}}"#)),
            (r#"{"x":[]}"#, "+a.b", "1", Ok(r#"{"x":[],"a":{"b":1}}"#)),
            ("{}", "+a[0].b", "1", Err(PathEnoent)),
            ("{}", "+a[0]", "1", Err(PathEinval)),
            ("[]", "[0]", "1", Err(PathEinval)),
            ("[]", "a", "1", Err(PathMismatch)),
            (r#"{"a":1}"#, "a.b", "1", Err(PathMismatch)),
            (r#"{"a":1}"#, "+a.b", "1", Err(PathMismatch)),
            ("1", "a", "1", Err(PathMismatch)),
            ("{}", "a", "", Err(ValueCantinsert)),
            ("{}", "a", "1,2", Err(ValueCantinsert)),
            ("{}", "a", "\"b\":1", Err(ValueCantinsert)),
            ("{}", "", "1", Err(PathEinval)),
            ("{}", r#"q\"uote"#, "1", Ok(r#"{"q\"uote":1}"#)),
            ("{}", "`a.b`", "1", Ok(r#"{"a.b":1}"#)),
            ("{}", "\"", "1", Err(PathEinval)),
            (r#"[{"a":1}]"#, "[-1].b", "2", Ok(r#"[{"a":1,"b":2}]"#)),
        ],
    );
}

#[test]
fn dict_upsert_and_replace() {
    let both: &[Case] = &[
        (r#"{"a":1,"b" : "x" , "c":3}"#, "b", "[1]", Ok(r#"{"a":1,"b" : [1] , "c":3}"#)),
        (r#"{"a":{"b":[1,{"c":1}]}}"#, "a.b[1].c", "2", Ok(r#"{"a":{"b":[1,{"c":2}]}}"#)),
        (r#"{"A":1}"#, r"\u0041", "2", Ok(r#"{"A":2}"#)),
        ("{}", "", "1", Err(PathEinval)),
        (r#"{"a":1}"#, "a.b", "1", Err(PathMismatch)),
        (r#"{"a":1}"#, "a", "bad", Err(ValueCantinsert)),
    ];
    check(DictUpsert, both);
    check(Replace, both);
    check(
        DictUpsert,
        &[
            ("{}", "a", "1", Ok(r#"{"a":1}"#)),
            ("[1]", "[0]", "2", Err(PathEinval)),
            ("{}", "a.b", "1", Err(PathEnoent)),
        ],
    );
    check(
        Replace,
        &[
            ("{}", "a", "1", Err(PathEnoent)),
            ("[1, 2]", "[0]", "3", Ok("[3, 2]")),
            ("[1, 2]", "[-1]", "3", Ok("[1, 3]")),
            ("[1]", "[1]", "3", Err(PathEnoent)),
            ("[]", "[-1]", "3", Err(PathEnoent)),
            ("{}", "+a.b", "1", Err(PathEnoent)),
        ],
    );
}

#[test]
fn delete() {
    check(
        Delete,
        &[
            (r#"{"a":1}"#, "a", "", Ok("{}")),
            (r#"{ "a" : 1 }"#, "a", "", Ok("{  }")),
            (r#"{"a":1, "b":2, "c":3}"#, "a", "", Ok(r#"{"b":2, "c":3}"#)),
            (r#"{"a":1, "b":2, "c":3}"#, "b", "", Ok(r#"{"a":1, "c":3}"#)),
            (r#"{"a":1, "b":2 , "c":3 }"#, "c", "", Ok(r#"{"a":1, "b":2  }"#)),
            ("[1,2,3]", "[0]", "", Ok("[2,3]")),
            ("[1,2,3]", "[-1]", "", Ok("[1,2]")),
            ("[[1]]", "[0][0]", "", Ok("[[]]")),
            ("[1]", "[1]", "", Err(PathEnoent)),
            ("{}", "a", "", Err(PathEnoent)),
            ("{}", "a", "1", Err(ValueCantinsert)),
            ("{}", "", "", Err(PathEinval)),
            ("[1]", "a", "", Err(PathMismatch)),
        ],
    );
}

#[test]
fn array_push() {
    check(
        ArrayPushLast,
        &[
            ("[]", "", "1", Ok("[1]")),
            ("[ ]", "", "1", Ok("[1 ]")),
            ("[1 ]", "", "2,3", Ok("[1,2,3 ]")),
            (r#"{"a":[[0]]}"#, "a[0]", "{}", Ok(r#"{"a":[[0,{}]]}"#)),
            ("{}", "a", "1", Err(PathEnoent)),
            ("{}", "+a", "1", Ok(r#"{"a":[1]}"#)),
            (r#"{"x":1}"#, "+a.b", "1,2", Ok(r#"{"x":1,"a":{"b":[1,2]}}"#)),
            ("[]", "+[0]", "1", Err(PathEnoent)),
            ("{}", "", "1", Err(PathMismatch)),
            (r#"{"a":"s"}"#, "a", "1", Err(PathMismatch)),
            (r#"{"a":"s"}"#, "+a", "1", Err(PathMismatch)),
            ("[]", "", "", Err(ValueCantinsert)),
            ("[]", "", "1,", Err(ValueCantinsert)),
            ("[]", "", "1],[2", Err(ValueCantinsert)),
        ],
    );
    check(
        ArrayPushFirst,
        &[
            ("[]", "", "1", Ok("[1]")),
            ("[ ]", "", "1", Ok("[1 ]")),
            ("[ 1 ]", "", "2,3", Ok("[2,3, 1 ]")),
            ("{}", "+a", "1", Ok(r#"{"a":[1]}"#)),
            ("{}", "", "1", Err(PathMismatch)),
        ],
    );
}

#[test]
fn array_insert() {
    check(
        ArrayInsert,
        &[
            ("[1, 2]", "[0]", "0", Ok("[0,1, 2]")),
            ("[1, 2]", "[1]", "0,0", Ok("[1, 0,0,2]")),
            ("[1, 2 ]", "[2]", "3", Ok("[1, 2,3 ]")),
            ("[]", "[0]", "1", Ok("[1]")),
            ("[1]", "[2]", "1", Err(PathEnoent)),
            ("[1]", "[-1]", "1", Err(PathEinval)),
            ("[1]", "a", "1", Err(PathEinval)),
            ("{}", "[0]", "1", Err(PathMismatch)),
            ("{}", "a[0]", "1", Err(PathEnoent)),
            ("{}", "+a[0]", "1", Err(PathEnoent)),
            ("[1]", "", "1", Err(PathEinval)),
            ("[[]]", "[1][0]", "1", Err(PathEnoent)),
        ],
    );
}

#[test]
fn array_add_unique() {
    check(
        ArrayAddUnique,
        &[
            ("[]", "", "1", Ok("[1]")),
            ("[1,\"a\"]", "", "\"b\"", Ok("[1,\"a\",\"b\"]")),
            ("[1,\"a\"]", "", "\"a\"", Err(PathEexists)),
            ("[\"\\u0061\"]", "", "\"a\"", Err(PathEexists)),
            ("[1]", "", " 1 ", Err(PathEexists)),
            ("[1]", "", "\"1\"", Ok("[1,\"1\"]")),
            ("[1]", "", "1.0", Ok("[1,1.0]")),
            ("[null]", "", "null", Err(PathEexists)),
            ("[1,[]]", "", "2", Err(PathMismatch)),
            ("[1,{}]", "", "1", Err(PathMismatch)),
            ("[]", "", "{}", Err(ValueCantinsert)),
            ("[]", "", "1,2", Err(ValueCantinsert)),
            ("{}", "+a.b", "1", Ok(r#"{"a":{"b":[1]}}"#)),
            ("{}", "a", "1", Err(PathEnoent)),
        ],
    );
}

#[test]
fn counter() {
    check(
        Counter,
        &[
            (r#"{"a" : 1 }"#, "a", "41", Ok(r#"{"a" : 42 }"#)),
            (r#"{"a":[1,-2]}"#, "a[1]", "-3", Ok(r#"{"a":[1,-5]}"#)),
            ("{}", "a", "-5", Ok(r#"{"a":-5}"#)),
            ("{}", "a.b", "1", Err(PathEnoent)),
            ("{}", "+a.b", "1", Ok(r#"{"a":{"b":1}}"#)),
            ("[]", "[0]", "1", Err(PathEnoent)),
            ("[]", "+[0]", "1", Err(PathEnoent)),
            (r#"{"a":1}"#, "a", "0", Err(DeltaEinval)),
            (r#"{"a":1}"#, "a", "1.5", Err(DeltaEinval)),
            (r#"{"a":1}"#, "a", "", Err(DeltaEinval)),
            (r#"{"a":1}"#, "a", "9223372036854775808", Err(DeltaEinval)),
            (r#"{"a":1}"#, "a", "9223372036854775807", Err(ValueCantinsert)),
            (r#"{"a":-2}"#, "a", "-9223372036854775807", Err(ValueCantinsert)),
            (r#"{"a":9223372036854775808}"#, "a", "1", Err(NumErange)),
            (r#"{"a":-9223372036854775809}"#, "a", "1", Err(NumErange)),
            (r#"{"a":1.0}"#, "a", "1", Err(PathMismatch)),
            (r#"{"a":"1"}"#, "a", "1", Err(PathMismatch)),
            (r#"{"a":{}}"#, "a", "1", Err(PathMismatch)),
            ("1", "", "1", Err(PathEinval)),
        ],
    );
    let path = Path::parse(b"a").unwrap();
    let edit = edit(br#"{"a":9223372036854775806}"#, Counter, &path, b"1", false).unwrap();
    assert_eq!(edit.counter(), Some(i64::MAX));
}

/// Arrays around a value.
fn nested(depth: usize, inner: &str) -> String {
    format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn depth_of_values() {
    let document = nested(30, "");
    let path = "[0]".repeat(29);
    assert!(run(&document, ArrayPushLast, &path, "[[]]").is_ok());
    assert_eq!(run(&document, ArrayPushLast, &path, "[[[]]]"), Err(ValueEtoodeep));
    assert!(run("{}", DictAdd, "a", &nested(31, "")).is_ok());
    assert_eq!(run("{}", DictAdd, "a", &nested(32, "")), Err(ValueEtoodeep));
    // An unreadable value is that first, however deep.
    assert_eq!(run("{}", DictAdd, "a", &"[".repeat(50)), Err(ValueCantinsert));
    let deepest = vec!["a"; 32].join(".");
    assert!(run("{}", DictAdd, &format!("+{deepest}"), "1").is_ok());
    assert_eq!(run("{}", DictAdd, &format!("+{deepest}"), "[]"), Err(ValueEtoodeep));
}

#[test]
fn depth_of_documents_counts_where_the_walk_goes() {
    let deep = format!(r#"{{"a":1,"deep":{},"z":1}}"#, nested(32, ""));
    assert_eq!(run(&deep, Replace, "a", "2").map(|done| done.len()), Ok(deep.len()));
    assert_eq!(run(&deep, Replace, "z", "2"), Err(DocE2deep));
    assert_eq!(run(&deep, Replace, "deep", "2"), Err(DocE2deep));
}

#[test]
fn lookups() {
    let text = br#" {"a" : [1, {"b":"x"} , [ ]] , "c": {}, "d":null} "#;
    let get = |path: &str| {
        let path = Path::parse(path.as_bytes())?;
        let got = lookup::get(text, &path).map(|span| std::str::from_utf8(&text[span]).unwrap());
        assert_eq!(lookup::exists(text, &path), got.map(|_| ()));
        got
    };
    assert_eq!(get("a[1]"), Ok(r#"{"b":"x"}"#));
    assert_eq!(get("a[1].b"), Ok("\"x\""));
    assert_eq!(get("a[-1]"), Ok("[ ]"));
    assert_eq!(get("d"), Ok("null"));
    assert_eq!(get("").map(str::len), Ok(text.len() - 2));
    assert_eq!(get("e"), Err(PathEnoent));
    assert_eq!(get("a[3]"), Err(PathEnoent));
    assert_eq!(get("a[2][0]"), Err(PathEnoent));
    assert_eq!(get("a.b"), Err(PathMismatch));
    assert_eq!(get("d.x"), Err(PathMismatch));
    assert_eq!(get("c[0]"), Err(PathMismatch));
    let count = |path: &str| lookup::count(text, &Path::parse(path.as_bytes()).unwrap());
    assert_eq!(count(""), Ok(3));
    assert_eq!(count("a"), Ok(3));
    assert_eq!(count("c"), Ok(0));
    assert_eq!(count("d"), Err(PathMismatch));
    assert_eq!(count("x"), Err(PathEnoent));
}
