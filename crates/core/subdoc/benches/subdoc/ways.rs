//! The same work by span and by tree.

use std::hint::black_box;

use oribi_subdoc::{Draft, Mutation, Path, lookup};
use serde_json::Value;

/// Length of the value found, and of its copy.
pub(crate) fn get_by_span(document: &[u8], path: &str) -> usize {
    let path = Path::parse(black_box(path).as_bytes()).expect("the path is one");
    let span = lookup::get(document, &path).expect("the path leads somewhere");
    black_box(document[span].to_vec()).len()
}

/// The same by parsing, looking up and printing.
pub(crate) fn get_by_tree(document: &[u8], path: &str) -> usize {
    let tree: Value = serde_json::from_slice(document).expect("documents are JSON");
    let found = tree.pointer(&pointer(path)).expect("the path leads somewhere");
    black_box(serde_json::to_vec(found).expect("a tree can be printed")).len()
}

/// The document after its counter was raised by 5.
pub(crate) fn count_by_span(document: &[u8], path: &str) -> Vec<u8> {
    let path = Path::parse(black_box(path).as_bytes()).expect("the path is one");
    let mut draft = Draft::new(document);
    draft.apply(Mutation::Counter, &path, b"5", false).expect("there is a number");
    draft.parts().concat()
}

/// The same by parsing, editing and printing.
pub(crate) fn count_by_tree(document: &[u8], path: &str) -> Vec<u8> {
    let mut tree: Value = serde_json::from_slice(document).expect("documents are JSON");
    let number = tree.pointer_mut(&pointer(path)).expect("the path leads somewhere");
    *number = (number.as_i64().expect("there is a number") + 5).into();
    serde_json::to_vec(&tree).expect("a tree can be printed")
}

/// Detection as it would be without a checker of our own.
pub(crate) fn is_json_by_serde(document: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(document) else { return false };
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Both ways come to the same.
pub(crate) fn check_agreement(document: &[u8], path: &str) {
    assert_eq!(get_by_span(document, path), get_by_tree(document, path));
    let (one, other) = (count_by_span(document, path), count_by_tree(document, path));
    let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("the result is JSON");
    assert_eq!(parse(&one), parse(&other));
    assert_ne!(one, document);
}

/// `records[3].a` as serde_json names it.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace(['.', '['], "/").replace(']', ""))
}
