//! Tables of what is JSON and what is not; random texts against serde_json and the grammar are in
//! the harness.

use super::{is_json, list_nesting, nesting};
use crate::harness::{check_detection, check_document};
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
        ("[-0.0e-0,10,1.05E+09,true,false,null]", 1),
        (r#"[{"a":[{},[]]},"",{"b":"c","d":-1}]"#, 4),
    ] {
        assert_eq!(nesting(text.as_bytes()), Some(depth), "{text}");
        check_document(format!("a\n{text}").as_bytes());
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
        "1.5.5",
        "1e5.5",
        "1e5e5",
        "1.e5",
        "1-5",
        "1e--5",
        "--1",
        "-01",
        "1+",
        "+",
        "1.5e",
        "e5",
        "-.5",
        "1\"a\"",
        "\"a\"1",
        "true\"",
        "true\\",
        "[1]]",
        "{}}",
        "[],",
        "{\"a\":[}]",
        "{\"a\":{]}",
        "[\"a\":1]",
        "{\"a\":\"b\":1}",
        "{\"a\":1,2}",
        "{\"a\"::1}",
        "{\"a\",1}",
        "[,]",
        "[:]",
        "{:}",
    ] {
        assert!(!is_json(text.as_bytes()), "{text}");
        check_document(format!("a\n{text}").as_bytes());
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

// Compat (Sub-document operations): JSON nested beyond 1024 levels is opaque
#[test]
fn depth_is_limited() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert_eq!(nesting(&nested(JSON_DEPTH_MAX)), Some(JSON_DEPTH_MAX));
    assert_eq!(nesting(&nested(JSON_DEPTH_MAX + 1)), None);
    assert!(!is_json(&vec![b'['; 100_000]));
    assert!(!is_json(&vec![b']'; 100_000]));
}

/// The kinds of containers are kept in words, and are right also where one is full or used up, in
/// whatever order.
#[test]
fn kinds_of_deep_containers() {
    for depth in (1..200).chain(JSON_DEPTH_MAX - 40..JSON_DEPTH_MAX + 70) {
        for object in [|_| false, |_| true, |level| level % 3 == 0, |level| level % 33 < 7] {
            let mut text = Vec::new();
            (0..depth)
                .for_each(|level| text.extend(if object(level) { &b"{\"\":"[..] } else { b"[" }));
            text.push(b'0');
            // In and out again between the levels, a member or an item after each.
            for level in (0..depth).rev() {
                text.extend(if object(level) { &b",\"k\":[{}]}"[..] } else { b",{\"k\":[]}]" });
            }
            let deepest = depth + 2;
            assert_eq!(nesting(&text), Some(deepest).filter(|deepest| *deepest <= JSON_DEPTH_MAX));
            // One of the brackets is of the other kind.
            let last = text.len() - 1 - (depth / 2);
            if let Some(at) = text[..=last].iter().rposition(|byte| b"]}".contains(byte)) {
                text[at] ^= b']' ^ b'}';
                assert_eq!(nesting(&text), None, "depth {depth}");
            }
        }
    }
}

/// A text is cut at every place, and every byte of it is replaced by others, wherever blocks end.
#[test]
fn texts_changed_at_every_place() {
    let text = br#" {"id":10,"n" : -12.5e+3,"s":"a\"b\\","e":"\u00e9","k":[true , false,null,{},[ ],"xyz"],"o":{"p":0.5}}"#;
    for pad in [0, 3, 31] {
        let text = [&b"["[..], &vec![b' '; pad], text, b"\n]"].concat();
        for at in 0..text.len() {
            check_detection(&text[..at]);
            for byte in b"\"\\{}[]:,0-.eE+t x\n\x01\xc3" {
                let mut changed = text.clone();
                changed[at] = *byte;
                check_detection(&changed);
                changed.insert(at, text[at]);
                check_detection(&changed);
            }
            let mut less = text.clone();
            less.remove(at);
            check_detection(&less);
        }
    }
}

#[test]
fn lists() {
    assert_eq!(list_nesting(b"1"), Some(0));
    assert_eq!(list_nesting(b" 1 , [[]] ,{} "), Some(2));
    for text in ["", " ", ",", "1,", ",1", "1,,2", "1 2", "[1", "1]", "1],[2"] {
        assert_eq!(list_nesting(text.as_bytes()), None, "{text}");
        check_detection(text.as_bytes());
    }
}
