//! Tables of what is JSON and what is not; random texts against serde_json are in the harness.

use super::{is_json, list_nesting, nesting};
use crate::limits::JSON_DEPTH_MAX;

#[test]
fn texts_that_are_json() {
    for (text, depth) in [
        ("{}", 1),
        (" {\"a\":[1,2.5e3,null]}\n", 2),
        ("[[],[[]]]", 3),
        ("12", 0),
        ("-0.5", 0),
        ("0", 0),
        ("-0", 0),
        ("1E+5", 0),
        ("1e-05", 0),
        ("\"x\"", 0),
        ("\"\"", 0),
        ("\t\r\n true \t", 0),
        (r#""\u00e9\"\\\/\b\f\n\r\t""#, 0),
        (r#""\ud800""#, 0),
        ("\"é€😀 and more than sixteen bytes é\"", 0),
        ("\"\u{7f}\"", 0),
        (r#"{"a":1,"a":2}"#, 1),
        (r#"{"" : {"x" : [ ] } , "y":{ } }"#, 3),
    ] {
        assert_eq!(nesting(text.as_bytes()), Some(depth), "{text}");
    }
}

#[test]
fn texts_that_are_not() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "{}x",
        "01",
        "-",
        "-a",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "tru",
        "truex",
        "True",
        "nul",
        "hello",
        "{'a':1}",
        "{a:1}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{]",
        "{\"a\":1]",
        "\"",
        "\"a",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"a\nb\"",
        "\"\t\"",
        "\u{feff}{}",
        "1 2",
        "[] []",
        "{\"a\" 1}",
        "{1:2}",
        "//",
        "\u{a0}1",
        "NaN",
        "1_0",
        "0x10",
        "[\"a\" \"b\"]",
        "\"sixteen bytes and \u{1} more\"",
    ] {
        assert!(!is_json(text.as_bytes()), "{text}");
    }
}

#[test]
fn strings_are_utf8() {
    for at in 0..40 {
        let mut text = vec![b'"'];
        text.extend(std::iter::repeat_n(b'a', at));
        let bad = [&text[..], b"\xff\""].concat();
        assert!(!is_json(&bad), "at {at}");
        assert!(is_json(&[&text[..], "é\"".as_bytes()].concat()), "at {at}");
        // Cut off in the middle of a character.
        assert!(!is_json(&[&text[..], b"\xc3\""].concat()), "at {at}");
    }
}

#[test]
fn depth_is_limited() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert_eq!(nesting(&nested(JSON_DEPTH_MAX)), Some(JSON_DEPTH_MAX));
    assert_eq!(nesting(&nested(JSON_DEPTH_MAX + 1)), None);
    assert!(!is_json(&vec![b'['; 100_000]));
}

#[test]
fn lists() {
    assert_eq!(list_nesting(b"1"), Some(0));
    assert_eq!(list_nesting(b" 1 , [[]] ,{} "), Some(2));
    for text in ["", " ", ",", "1,", ",1", "1,,2", "1 2", "[1", "1]", "1],[2"] {
        assert_eq!(list_nesting(text.as_bytes()), None, "{text}");
    }
}
