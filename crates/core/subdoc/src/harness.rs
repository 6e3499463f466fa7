//! Checks shared by unit tests, property tests and the fuzz targets.
//!
//! Each takes arbitrary bytes and panics when an invariant of this crate does not hold. Compiled
//! for tests and under the `harness` feature only.
//!
//! [`check_operations`] is differential. It derives a document and a list of operations from the
//! input. It applies them with [`Draft`] and on a plain tree that serde_json parsed ([`tree`]).
//! Both must agree on every outcome and on the document after every step.

mod generate;
mod grammar;
#[cfg(test)]
mod tests;
pub mod tree;

use crate::byte_masks::BLOCK_BYTES;
use crate::draft::Draft;
use crate::edit::{Mutation, edit};
use crate::error::SubdocError;
use crate::path::Path;
use crate::{json, lookup, xattr};

use generate::{Operation, Source};
use tree::{Outcome, Tree};

pub use generate::MUTATIONS;

/// Checks the path parser: an accepted path is within the limits and keeps its meaning when it is
/// written down again.
///
/// # Panics
/// When an invariant is violated.
pub fn check_path(input: &[u8]) {
    let Ok(path) = Path::parse(input) else { return };
    assert!(input.len() <= crate::limits::PATH_BYTES_MAX);
    assert!(path.components().len() <= crate::limits::DEPTH_MAX);
    let text = generate::path_text(path.components());
    if text.len() <= crate::limits::PATH_BYTES_MAX {
        let again = Path::parse(&text).expect("a path that was written down is a path");
        assert!(again.components() == path.components(), "{path:?} written down again: {again:?}");
    }
}

/// Checks detection against serde_json and a plain reader of the grammar, and every walk on any
/// input.
///
/// # Panics
/// When an invariant is violated.
pub fn check_document(input: &[u8]) {
    let (path, text) = match input.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (&b"a[0].b"[..], input),
    };
    let nesting = json::nesting(text);
    // serde_json goes 127 levels deep.
    if nesting.is_none_or(|nesting| nesting < 127) && !generate::nests_deeply(text) {
        assert_eq!(nesting.is_some(), tree::is_json(text), "JSON or not");
    }
    check_detection(text);
    check_detection_in_places(text, json::nesting);
    let Ok(path) = Path::parse(path) else { return };
    if let Ok(span) = lookup::get(text, &path) {
        assert!(span.start < span.end && span.end <= text.len());
        if nesting.is_some() {
            assert!(json::is_json(&text[span]), "a value of JSON is JSON");
        }
    }
    let _ = (lookup::exists(text, &path), lookup::count(text, &path));
    for mutation in MUTATIONS {
        check_edit(text, mutation, &path, nesting.is_some());
    }
}

/// Detection agrees with the grammar, for one value and for a list.
pub(crate) fn check_detection(text: &[u8]) {
    check_detection_with(text, json::nesting);
}

/// [`check_detection`] with the detector as an argument in place of [`json::nesting`], so that a
/// test can plant a bug.
fn check_detection_with(text: &[u8], nesting: impl Fn(&[u8]) -> Option<usize>) {
    let shown = || String::from_utf8_lossy(text);
    assert_eq!(nesting(text), grammar::nesting(text), "{:?}", shown());
    assert_eq!(json::list_nesting(text), grammar::list_nesting(text), "a list: {:?}", shown());
}

/// The same at several positions of a block, after whitespace and after a string. The length
/// selects the positions, so that texts of all lengths get all positions.
fn check_detection_in_places(text: &[u8], nesting: impl Fn(&[u8]) -> Option<usize>) {
    for before in (text.len() % 8..BLOCK_BYTES).step_by(8) {
        let spaces = [b' '; BLOCK_BYTES];
        check_detection_with(&[b"[", &spaces[..before], text, b"]"].concat(), &nesting);
        let string = [b'x'; BLOCK_BYTES];
        let object = [b"{\"", &string[..before], b"\":", text, b"}"].concat();
        check_detection_with(&object, &nesting);
    }
}

/// An edit lies inside the text, and keeps JSON valid.
fn check_edit(text: &[u8], mutation: Mutation, path: &Path<'_>, is_json: bool) {
    let value: &[u8] = if mutation == Mutation::Delete { b"" } else { b"7" };
    match edit(text, mutation, path, value, true) {
        Ok(edit) => {
            let remove = edit.remove();
            assert!(remove.start <= remove.end && remove.end <= text.len());
            let [before, value, after] = edit.parts();
            let new = [&text[..remove.start], before, value, after, &text[remove.end..]].concat();
            assert!(!is_json || json::is_json(&new), "{mutation:?} leaves JSON");
        }
        Err(error) => assert!(!is_json || error != SubdocError::DocNotJson, "{mutation:?}"),
    }
}

/// Derives a document and operations from the input, and compares with the tree.
///
/// # Panics
/// When the two disagree.
pub fn check_operations(input: &[u8]) {
    check_operations_with(input, |mutation| mutation);
}

/// [`check_operations`] with the mutation as an argument, so that a test can plant a bug.
fn check_operations_with(input: &[u8], planted: impl Fn(Mutation) -> Mutation) {
    let mut source = Source::new(input);
    let document = source.document();
    let mut draft = Draft::new(&document[..]);
    let mut tree = Tree::parse(&document).expect("what is generated is JSON");
    let operations: Vec<Operation> = std::iter::from_fn(|| source.operation(&tree)).collect();
    for operation in &operations {
        let path = Path::parse(&operation.path).expect("what is spelled is a path");
        assert_eq!(path.components(), operation.components, "{operation:?}");
        check_lookups(draft.text(), &tree, &path);
        let before = draft.text().to_vec();
        let done = draft.apply(
            planted(operation.mutation),
            &path,
            &operation.value,
            operation.make_parents,
        );
        let wanted =
            tree.apply(operation.mutation, &path, &operation.value, operation.make_parents);
        let shown = || {
            let before = String::from_utf8_lossy(&before);
            format!("{operation:?} on {before}")
        };
        match wanted {
            Outcome::Known(wanted) => assert_eq!(done, wanted, "{}", shown()),
            Outcome::DependsOnText => return,
        }
        let after = draft.parts().concat();
        if done.is_err() {
            assert_eq!(after, before, "a failure changes nothing: {}", shown());
        }
        assert_eq!(Tree::parse(&after).as_ref(), Some(&tree), "{}", shown());
        assert_eq!(draft.byte_count(), after.len());
    }
}

fn check_lookups(text: &[u8], tree: &Tree, path: &Path<'_>) {
    let wanted = tree.get(path);
    assert_eq!(lookup::exists(text, path), wanted.map(|_| ()));
    let got = lookup::get(text, path).map(|span| Tree::parse(&text[span]));
    assert_eq!(got, wanted.map(|found| Some(found.clone())));
    assert_eq!(lookup::count(text, path), wanted.and_then(Tree::count));
}

/// Checks the block of extended attributes: an accepted block is accepted again after writing.
///
/// # Panics
/// When an invariant is violated.
pub fn check_xattrs(input: &[u8]) {
    let Ok((xattrs, body)) = xattr::split(input) else { return };
    assert!(body.len() + 4 <= input.len());
    let pairs: Vec<(&[u8], &[u8])> = xattrs.iter().collect();
    let are_acceptable = xattrs.are_acceptable();
    for (key, value) in &pairs {
        assert!(xattrs.get(key).is_some(), "a key that is listed is found");
        assert!(!key.is_empty());
        assert!(!are_acceptable || json::is_json(value));
    }
    let mut block = xattr::XattrDraft::new(xattrs);
    let mut written = Vec::new();
    block.write(&mut written);
    assert_eq!(written.len(), block.byte_count());
    match pairs.is_empty() {
        true => assert!(written.is_empty(), "no attributes, no block"),
        false => {
            let (again, rest) = xattr::split(&written).expect("what was written is well-formed");
            assert!(rest.is_empty());
            assert_eq!(again.iter().collect::<Vec<_>>(), pairs);
        }
    }
    if let Some((key, _)) = pairs.first() {
        block.set(key, b"[1]".to_vec());
        block.retain(xattr::is_system);
        block.set(b"_s", b"{}".to_vec());
        let mut written = Vec::new();
        block.write(&mut written);
        let (again, _) = xattr::split(&written).expect("what was written is well-formed");
        assert!(again.iter().all(|(key, _)| xattr::is_system(key)));
        assert_eq!(again.get(b"_s"), Some(&b"{}"[..]));
    }
}
