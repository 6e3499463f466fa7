//! Numbers, fields of stored text, keys and comparison.

use bytes::Bytes;

use super::order::{Comparison, collate, compare};
use super::{QueryValue, json, key, write};

fn value(text: &'static str) -> QueryValue {
    json::parse(&Bytes::from_static(text.as_bytes())).expect("the test's JSON is valid")
}

#[test]
fn whole_floats_become_integers() {
    assert!(matches!(value("1.0"), QueryValue::Int(1)));
    assert!(matches!(value("1e3"), QueryValue::Int(1000)));
    assert!(matches!(value("9223372036854775808"), QueryValue::Float(_)));
    assert!(matches!(value("-0.0"), QueryValue::Int(0)));
}

#[test]
fn field_of_stored_text_is_found_by_its_meaning() {
    let document = value(r#"{"a":{"b":[1,{"\u0063":"x\ny"}]},"d":"}"}"#);
    assert_eq!(document.field(b"a").field(b"b").item(1).field(b"c"), QueryValue::from("x\ny"));
    assert_eq!(document.field(b"d"), QueryValue::from("}"));
    assert!(document.field(b"none").is_missing());
}

#[test]
fn malformed_text_ends_a_walk() {
    for text in ["{", "{\"a", "{\"a\":", "[1,", "[\"", "{\"a\":[}", "[}", "\"\\", "{]"] {
        if let Some(value) = json::parse(&Bytes::from_static(text.as_bytes())) {
            let _ = (value.elements(), value.object(), value.field(b"a"), value.item(-1));
        }
    }
}

#[test]
fn equal_values_have_equal_keys() {
    let samples = ["1", "1.0", "1.5", "\"1\"", "null", "[1,2]", "[1.0,2]", "{\"a\":1,\"b\":2}"];
    let samples = samples.map(value).into_iter().chain([value("{\"b\":2.0,\"a\":1}")]);
    let samples: Vec<_> = samples.collect();
    let bytes = |value: &QueryValue| {
        let mut out = Vec::new();
        key::append(value, &mut out);
        out
    };
    for left in &samples {
        for right in &samples {
            assert_eq!(collate(left, right).is_eq(), bytes(left) == bytes(right));
        }
    }
}

#[test]
fn null_in_an_array_makes_a_comparison_null() {
    assert_eq!(compare(&value("[2]"), &value("[null]")), Comparison::Null);
    assert!(matches!(compare(&value("[2]"), &value("[1,null]")), Comparison::Order(_)));
}

#[test]
fn numbers_print_all_their_digits() {
    assert_eq!(write::to_json(&QueryValue::Float(1e21)), "1000000000000000000000");
    assert_eq!(write::to_json(&QueryValue::Float(1e-7)), "0.0000001");
    assert_eq!(write::to_json(&QueryValue::Float(f64::INFINITY)), "\"+Infinity\"");
}
