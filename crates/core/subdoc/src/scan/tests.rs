//! Skipping, against the checker that reads every byte.

use proptest::prelude::*;

use super::{skip_space, string_end, value_end};
use crate::error::SubdocError;

#[test]
fn space() {
    assert_eq!(skip_space(b"  \t\r\n x", 0), 6);
    assert_eq!(skip_space(&[b' '; 100], 3), 100);
    assert_eq!(skip_space(b"\n                    1", 0), 21);
    assert_eq!(skip_space(b"x", 5), 5);
}

#[test]
fn strings_end_at_their_quote() {
    for length in 0..70 {
        let text = format!("\"{}\"]", "a".repeat(length));
        assert_eq!(string_end(text.as_bytes(), 0), Ok(length + 2));
        let text = format!("\"{}\\\"\\\\\"]", "a".repeat(length));
        assert_eq!(string_end(text.as_bytes(), 0), Ok(length + 6));
        let open = format!("\"{}\\\"", "a".repeat(length));
        assert_eq!(string_end(open.as_bytes(), 0), Err(SubdocError::DocNotJson));
    }
}

#[test]
fn containers_end_at_their_bracket_across_blocks() {
    let inner = r#"{"a":["]}","\\\"]",{"b\\":[[],{}]}],"\\\\":"\\"}"#;
    for shift in 0..130 {
        let text = format!("[\"{}\",{inner},1] ]", "x".repeat(shift));
        assert_eq!(value_end(text.as_bytes(), 0, 0), Ok(text.len() - 2), "{text}");
        let start = text.find(inner).unwrap();
        assert_eq!(value_end(text.as_bytes(), start, 1), Ok(start + inner.len()), "{text}");
    }
}

#[test]
fn runs_of_backslashes() {
    for count in 0..140 {
        for shift in 0..3 {
            let text = format!("[\"{}{}\",1]", "y".repeat(shift), "\\\\".repeat(count));
            assert_eq!(value_end(text.as_bytes(), 0, 0), Ok(text.len()), "{text}");
        }
    }
}

#[test]
fn depth_counts_what_is_around() {
    let text = [vec![b'['; 32], vec![b']'; 32]].concat();
    assert_eq!(value_end(&text, 0, 0), Ok(64));
    assert_eq!(value_end(&text, 0, 1), Err(SubdocError::DocE2deep));
    // Many brackets in one block, none of them deep.
    let text = format!("[{}1]", "[],".repeat(100));
    assert_eq!(value_end(text.as_bytes(), 0, 31), Err(SubdocError::DocE2deep));
    assert_eq!(value_end(text.as_bytes(), 0, 30), Ok(text.len()));
}

proptest! {
    #[test]
    fn json_values_are_skipped_whole(text in "\\[(\"[\\\\\"\\]\\[{}a]{0,90}\",)?[\\[\\]{}\", \\\\1]{0,150}\\]") {
        let text = text.as_bytes();
        let skipped = value_end(text, 0, 0);
        if crate::json::nesting(text).is_some_and(|nesting| nesting <= 32) {
            prop_assert_eq!(skipped, Ok(text.len()));
        }
        if let Ok(end) = skipped {
            prop_assert!(end <= text.len());
        }
    }
}
